"""One person with a browser: asks, is told, writes it down, and takes a moment to think."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import gevent
import msgspec
from locust.contrib.fasthttp import FastHttpSession, ResponseContextManager

from holdfast.engine.acks import Ack
from holdfast.loadtest.buyer_calls import Answer, BuyerCalls, Request
from holdfast.loadtest.chaos.history import HOLDING, Call, Operation, told_by
from holdfast.loadtest.crowd.journal import Journal
from holdfast.loadtest.crowd.records import STOPPED
from holdfast.loadtest.crowd.shop import Shop

PUT_OFF = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
REFUSED = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE})
PUT_OFF_S = 1.0


class Buyer:
    """One person of one organisation. `think` multiplies every pause: 0 does not pause at all."""

    def __init__(
        self,
        number: int,
        session: FastHttpSession,
        shop: Shop,
        tokens: tuple[str, str],
        *,
        journal: Journal,
        think: float,
    ) -> None:
        self._number = number
        self._session = session
        self._journal = journal
        self._think = think
        self.shop = shop
        self.chance = random.Random()  # noqa: S311 - what people choose need not be a secret.
        self.calls = BuyerCalls(shop.event_id, *tokens)
        self.put_off = False

    def pause(self, least_s: float, most_s: float) -> None:
        """Think for a while, and for longer after being told to come back later."""
        seconds = self.chance.uniform(least_s, most_s) * self._think
        gevent.sleep(max(seconds, PUT_OFF_S * self.chance.uniform(0.5, 1.5)) if self.put_off else seconds)

    def maybe(self, chance: float) -> bool:
        """Whether something happens that happens this often."""
        return self.chance.random() < chance

    def ask(self, request: Request) -> Answer:
        """Make a call and write down what came of it, also if the run ends before it does."""
        note = _Note(request, self._journal.now_s)
        try:
            with self._send(request) as response:
                note.read(response)
                note.judge(response)
        finally:
            call = note.call(self._number, self._journal)
            self._journal.write(call)
        self.put_off = note.status is None or note.status in PUT_OFF
        return Answer(call, note.data)

    def insist(self, request: Request) -> Answer:
        """Ask, and once more if put off: under the same key, so a first result that was lost is told again."""
        answer = self.ask(request)
        if self.put_off:
            self.pause(0.5, 1.5)
            answer = self.ask(request)
        return answer

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the event live meanwhile."""
        reader = gevent.spawn(self._watch)
        try:
            yield
        finally:
            reader.kill(block=False)

    def _watch(self) -> None:
        """Open the stream, which is written down as a call, and count what comes by it."""
        request = self.calls.watch()
        note = _Note(request, self._journal.now_s)
        try:
            with self._send(request, stream=True) as response:
                note.status = response.status_code or None
                note.error = "" if note.status == HTTPStatus.OK else "no stream"
                note.judge(response)
        finally:
            self._journal.write(note.call(self._number, self._journal))
        if note.status == HTTPStatus.OK:
            for chunk in response.iter_content(decode_content=False):
                self._journal.live_messages += chunk.count(b"\nevent:")

    def _send(self, request: Request, *, stream: bool = False) -> ResponseContextManager:
        return self._session.request(
            request.method,
            request.path,
            name=request.operation.value,
            headers=request.headers,
            json=request.body,
            catch_response=True,
            stream=stream,
        )

    def hold(self, request: Request) -> str | None:
        """Ask for a hold; its id if there is one now."""
        assert request.operation in HOLDING
        answer = self.insist(request)
        return answer.call.told[0].hold_id if answer.call.told else None

    def free_seats(self) -> Sequence[str]:
        """Look at the map: the seats that are free, the best first."""
        answer = self.ask(self.calls.look_at_map())
        letters: str = answer.data.get("map", "")
        return [seat for seat, letter in zip(self.shop.on_map, letters, strict=False) if letter == "." and seat]

    def check_out(self, holds: Sequence[str], ways: Mapping[Operation, float]) -> None:
        """Take holds to the till and end there in one of the ways, each as likely as it says."""
        answer = self.insist(self.calls.check_out(holds))
        if not answer.call.good:
            return
        self.pause(1.0, 4.0)
        way = self.chance.choices(list(ways), list(ways.values()))[0]
        self.insist(self.calls.end_checkout(way, answer.data["checkout_id"], holds))


class _Note:
    """What there is to say of a call so far: until there is an answer, that the run ended before it came."""

    def __init__(self, request: Request, started_s: float) -> None:
        self._request = request
        self._started_s = started_s
        self.status: int | None = None
        self.error = STOPPED
        self.data: dict[str, Any] = {}
        self._retry_after = False

    def read(self, response: ResponseContextManager) -> None:
        """Understand an answer, or that there is none."""
        content = _decode(response.content)
        self.status = response.status_code or None
        self._retry_after = "retry-after" in (response.headers or {})
        if self.status is None:
            failure = getattr(response, "error", None)
            self.error = f"{type(failure).__name__} {failure}".strip()
        elif self.status < HTTPStatus.MULTIPLE_CHOICES:
            self.error, self.data = "", content.get("data", {})
        else:
            self.error = content.get("error", "")

    def judge(self, response: ResponseContextManager) -> None:
        """Say to locust what kind of answer this is."""
        if self.status in REFUSED:
            # Losing a seat is an answer, and not one to be mixed with the good ones.
            response.request_meta["name"] += ", refused"
            response.success()
        elif self.status in PUT_OFF:
            response.request_meta["name"] += ", put off"
            response.failure(self.error)
        elif self.error:
            response.failure(self.error)

    def call(self, client: int, journal: Journal) -> Call:
        """The call as it is written down."""
        request = self._request
        return Call(
            client=client,
            operation=request.operation,
            front_end=0,
            started_s=self._started_s,
            ended_s=journal.now_s,
            status=self.status,
            error=self.error,
            retry_after=self._retry_after,
            wanted=request.wanted,
            holds=request.holds,
            told=tuple(told_by(request.operation, self.data, journal.began_at)) if self.data else (),
            durable=Ack(self.data.get("durability") or Ack.POSTGRES),
        )


def _decode(content: bytes | None) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(content or b"{}")
    except msgspec.DecodeError:
        return {}
    return decoded if isinstance(decoded, dict) else {}
