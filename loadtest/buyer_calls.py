"""What a buyer may ask Holdfast for, as HTTP requests. Who sends them, and how, is for others to say."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec

from holdfast.loadtest.chaos.history import Call, Operation

# A buyer asks for answers in these forms.
MAP_FORM = "format=map"


class Request(msgspec.Struct, frozen=True):
    """One call before it is made. `wanted` names it for readers of the history."""

    operation: Operation
    method: str
    path: str
    body: Mapping[str, Any] | None
    token: str
    wanted: str = ""
    holds: tuple[str, ...] = ()
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that say who asks, and by what key a repeat is known."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if self.key:
            headers["Idempotency-Key"] = self.key
        return headers


class Answer(msgspec.Struct, frozen=True):
    """An answer: the record of the call, and the data of a good one."""

    call: Call
    data: Mapping[str, Any]


class BuyerCalls:
    """Makes the requests of one buyer of one event. The service's token is for what a payment provider would say."""

    def __init__(
        self,
        event_id: UUID,
        token: str,
        service_token: str,
        new_key: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._event_id = event_id
        self._token = token
        self._service_token = service_token
        self._new_key = new_key

    def reserve(self, seat: str) -> Request:
        """One seat, by its name."""
        return self._post(Operation.RESERVE, f"/api/events/{self._event_id}/seats/{seat}/reserve", {}, wanted=seat)

    def hold_seats(self, seats: Sequence[str]) -> Request:
        """Several seats, all or none."""
        return self._hold(Operation.HOLD, {"seats": list(seats)}, " ".join(seats))

    def hold_places(self, zone: str, count: int) -> Request:
        """Places in a zone without seats."""
        return self._hold(Operation.HOLD, {"quantities": [{"zone_id": zone, "quantity": count}]}, f"{count} places")

    def hold_best(self, zone: str, count: int) -> Request:
        """The best seats that are left."""
        return self._hold(Operation.BEST, {"best_available": {"zone_id": zone, "count": count}}, f"{count} seats")

    def extend(self, hold: str) -> Request:
        """More time for a hold."""
        return self._post(Operation.EXTEND, f"/api/holds/{hold}/extend", None, holds=(hold,))

    def release(self, hold: str) -> Request:
        """Give a hold back."""
        return Request(Operation.RELEASE, "DELETE", f"/api/holds/{hold}", None, self._token, holds=(hold,))

    def check_out(self, holds: Sequence[str]) -> Request:
        """Take holds to the till."""
        body = {"event_id": str(self._event_id), "hold_ids": list(holds)}
        return self._post(Operation.CHECKOUT, "/api/checkouts", body, holds=tuple(holds))

    def end_checkout(self, operation: Operation, checkout: str, holds: Sequence[str]) -> Request:
        """Pay, fail to pay, or cancel."""
        path = f"/api/checkouts/{checkout}"
        if operation is Operation.CANCEL:
            return self._post(operation, f"{path}/cancel", {}, holds=tuple(holds))
        payment = "succeeded" if operation is Operation.COMPLETE else "failed"
        request = self._post(operation, f"{path}/complete", {"payment": payment}, holds=tuple(holds))
        return msgspec.structs.replace(request, token=self._service_token)

    def look(self, what: str = "") -> Request:
        """Read the event, or what of it is named: `occupancy`, `seats`."""
        path = f"/api/events/{self._event_id}" + (f"/{what}" if what else "")
        return Request(Operation.LOOK, "GET", path, None, self._token, wanted=what or "event")

    def look_at_map(self) -> Request:
        """Read which seats are free, in short."""
        return self.look(f"seats?{MAP_FORM}")

    def watch(self) -> Request:
        """Follow the event live."""
        return Request(Operation.WATCH, "GET", f"/api/events/{self._event_id}/live", None, self._token)

    def _hold(self, operation: Operation, body: Mapping[str, Any], wanted: str) -> Request:
        return self._post(operation, f"/api/events/{self._event_id}/holds", body, wanted=wanted)

    def _post(
        self,
        operation: Operation,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        wanted: str = "",
        holds: tuple[str, ...] = (),
    ) -> Request:
        return Request(operation, "POST", path, body, self._token, wanted, holds, self._new_key())
