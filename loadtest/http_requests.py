"""Requests for a load generator, packed beforehand, and an event with a seat for each of them."""

from uuid import uuid4

from holdfast.engine.layout import EventDocument, EventState, SeatDocument, ZoneDocument, ZoneType
from holdfast.engine.policy import AckRule, Policy
from holdfast.engine.settings import Settings
from holdfast.http.tokens import Role, mint_token
from holdfast.ports import LOOPBACK

SEATS_PER_USER = 10
SEATS_PER_ROW = 50
TOKEN_TTL_SECONDS = 3600
BODY = b'{"source":"web"}'
PREFER_REDIS = b"Prefer: ack=redis\r\n"

ORGANIZATION_ID = uuid4()
PACED = Policy(ack=AckRule.ON_REQUEST, max_holds_per_user=SEATS_PER_USER)


def make_event(seats: int) -> EventDocument:
    """An event with at least so many seats, and limits as events have them."""
    rows = -(-seats // SEATS_PER_ROW)
    documents = tuple(
        SeatDocument(seat_id=str(uuid4()), row=f"R{row}", number=number)
        for row in range(rows)
        for number in range(1, SEATS_PER_ROW + 1)
    )
    zone = ZoneDocument("arena", ZoneType.RESERVED_SEATING, "Arena", len(documents), documents)
    return EventDocument(event_id=uuid4(), name="Bench", zones=(zone,), state=EventState.LIVE, policy=PACED)


class Reservations:
    """Requests to reserve the seats of an event, one after the other, by users who take as many as one may have."""

    def __init__(self, settings: Settings, event: EventDocument) -> None:
        self._settings = settings
        self._event_id = event.event_id
        self._seats = iter([seat.seat_id for seat in event.zones[0].seats])

    def next_seat(self) -> str:
        """A seat that nobody was sent for yet."""
        return next(self._seats)

    def pack(self, number: int, prefer: bytes = b"") -> list[bytes]:
        """Requests for the next seats, by new users."""
        requests = []
        for at in range(number):
            if at % SEATS_PER_USER == 0:
                token = self.token()
            requests.append(self.reservation(self.next_seat(), token, prefer))
        return requests

    def reservation(self, seat: str, token: str, prefer: bytes = b"") -> bytes:
        """A request for one seat."""
        return self.request(f"/api/events/{self._event_id}/seats/{seat}/reserve", token, prefer)

    def request(self, path: str, token: str, more: bytes = b"") -> bytes:
        """A POST to any path."""
        head = f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nAuthorization: Bearer {token}\r\n".encode()
        rest = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        return head + b"User-Agent: holdfast-bench/1\r\n" + more + rest + BODY

    def token(self) -> str:
        """The token of a new user."""
        return mint_token(
            self._settings,
            user_id=uuid4(),
            organization_id=ORGANIZATION_ID,
            role=Role.CUSTOMER,
            ttl_seconds=TOKEN_TTL_SECONDS,
        )
