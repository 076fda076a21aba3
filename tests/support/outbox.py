"""An outbox with rows in it, and a receiver of webhooks that does as it is told."""

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from aiohttp import web

from holdfast.engine.settings import Settings
from holdfast.persistence.outbox import Pace
from holdfast.persistence.publisher import publish
from support.polling import DEADLINE_S, eventually

SECRET_BYTES = b"a key of twenty-four bytes, or more"
SECRET = "whsec_" + base64.b64encode(SECRET_BYTES).decode()

# As in service, but no test waits long for anything.
FAST = Pace(poll_s=0.05, round_s=0.0, note_s=1.0, timeout_s=5.0, retry_first_s=0.02, retry_max_s=0.1)

_INSERT = "INSERT INTO outbox (organization_id, event_id, kind, payload) VALUES ($1, $2, $3, $4) RETURNING id"
_SETTLED = "SELECT coalesce(bool_and(published_at IS NOT NULL AND announced_at IS NOT NULL), true) FROM outbox"


async def add_row(
    connection: Any, organization_id: UUID, event_id: UUID, *, kind: str = "SeatReserved", **content: Any
) -> int:
    """Insert an outbox row as the persister writes them, and return its number. Other fields replace the usual ones."""
    payload = {
        "hold_id": str(uuid4()),
        "event_id": str(event_id),
        "organization_id": str(organization_id),
        "user_id": str(uuid4()),
        "seat_ids": ["A-1"],
        "quantities": [],
        "timestamp": "2026-03-01T10:00:00.123+00:00",
    }
    number: int = await connection.fetchval(_INSERT, organization_id, event_id, kind, json.dumps(payload | content))
    return number


async def add_rows(connection: Any, organization_id: UUID, event_id: UUID, count: int) -> list[str]:
    """Insert rows whose seats say where they stand in line, and return those seats."""
    seats = [f"{event_id}/{number}" for number in range(count)]
    async with connection.transaction():
        for seat in seats:
            await add_row(connection, organization_id, event_id, seat_ids=[seat])
    return seats


class Call:
    """A request that the receiver got."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self.path = request.path_qs
        self.headers = request.headers.copy()
        self.body = body
        self.content: dict[str, Any] = json.loads(body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def seat(self) -> str:
        return str(self.content["data"]["seat_ids"][0])

    @property
    def event_id(self) -> UUID:
        return UUID(self.content["data"]["event_id"])


Answer = Callable[[Call], Awaitable[web.Response]]


async def accept(_: Call) -> web.Response:
    return web.Response(status=204)


def verified(call: Call, key: bytes = SECRET_BYTES) -> bool:
    """Whether the signature is right, after the text of the specification and nothing else."""
    content = b".".join([call.id.encode(), call.headers["webhook-timestamp"].encode(), call.body])
    expected = base64.b64encode(hmac.new(key, content, "sha256").digest()).decode()
    versions = [entry.split(",", 1) for entry in call.headers["webhook-signature"].split(" ")]
    return any(version == "v1" and hmac.compare_digest(value, expected) for version, value in versions)


class Receiver:
    """A server on the loopback address. Every call is recorded before `answer` decides about it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Answer = accept
        self.url = ""
        self._called = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.Response:
        call = Call(request, await request.read())
        async with self._called:
            self.calls.append(call)
            self._called.notify_all()
        return await self.answer(call)

    async def until(self, enough: Callable[[], bool]) -> None:
        """Return once it is so; looked at after every call."""
        async with self._called:
            await self._called.wait_for(enough)

    def first_seats(self, event_id: UUID) -> list[str]:
        """The seats of an event's calls, without those whose id came before, as a receiver would do it."""
        return list({call.id: call.seat for call in self.calls if call.event_id == event_id}.values())


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        receiver.url = f"http://{host}:{port}/hook"
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def publishing(settings: Settings, pace: Pace = FAST, **options: Any) -> AsyncIterator[None]:
    """A publisher for the duration of the block. One that fails fails the test."""
    task = asyncio.create_task(publish(settings, pace, **options))
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=DEADLINE_S)
        assert task.done(), "the publisher does not stop"


async def settled(connection: Any) -> None:
    """Return once nothing in the outbox waits."""
    await eventually(lambda: connection.fetchval(_SETTLED), "everything in the outbox is published")
