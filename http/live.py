"""`GET /api/events/{event}/live`: an event's changes as server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from aiohttp import web

from holdfast.engine.background import beside
from holdfast.engine.status import Status
from holdfast.http.endpoints import ANYONE, Call, Endpoints, Text
from holdfast.http.errors import Refused, problem, reasons_of
from holdfast.http.events import occupancy_key
from holdfast.http.holding import find_event
from holdfast.http.live_hub import RETRY_MS, Hub, HubFull, Reader
from holdfast.http.stores import asking_postgres, postgres_key, settings_key
from holdfast.persistence.feed import Feed, Told, follow_feed

# How long a stream may be quiet, and how long a reader may take nothing of what it is sent.
HEARTBEAT_S = 15.0
STUCK_S = 30.0

# A message of the stream.
MESSAGE = {
    "type": "object",
    "properties": {
        "event": {"enum": ["snapshot", "changes", "end"]},
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer"},
    },
}

endpoints = Endpoints()
hub_key = web.AppKey("hub", Hub)


async def live_hub(app: web.Application) -> AsyncIterator[None]:
    """The hub, kept up with Postgres."""
    hub = app[hub_key] = Hub(Feed(app[postgres_key]))

    def hear(told: Told) -> None:
        app[occupancy_key].forget(told.organization_id, told.event_id)
        hub.hear(told)

    async with beside(hub.run()), beside(follow_feed(app[settings_key].postgres_dsn, hear, hub.catch_up)):
        yield


async def let_readers_go(app: web.Application) -> None:
    """On shutdown: streams would otherwise keep the process for as long as it waits for open requests."""
    app[hub_key].close()


@endpoints.get(
    "/api/events/{event}/live",
    summary="An event's changes, live",
    description="Server-sent events. The first is a `snapshot` with a letter for each seat, as `format=map` has it. "
    "Each `changes` after it has seats that changed, in order and after their commit, and how full the event is then. "
    "A client that comes back with `Last-Event-ID` is told what it missed instead of a snapshot, unless that is too "
    "much. Before the server ends a stream it sends `end` with the reason; come back after `retry`.",
    roles=ANYONE,
    replies={200: Text("text/event-stream", MESSAGE)},
    errors=reasons_of(Status.EVENT_NOT_FOUND, Status.BUSY),
    headers={"Last-Event-ID": "The id of the last message that you have got."},
    tag="events",
)
async def event_live(call: Call) -> web.StreamResponse:
    event = await find_event(call)
    async with AsyncExitStack() as joined:
        try:
            with asking_postgres():
                reader = await joined.enter_async_context(call.app[hub_key].reader(event, _last_event_id(call.request)))
        except HubFull:
            raise Refused(problem("busy")) from None
        return await _stream(call, reader)


async def _stream(call: Call, reader: Reader) -> web.StreamResponse:
    """Write what the reader is told until it, or its token, or the server ends. A client that leaves just ends it."""
    response = call.stream("text/event-stream")
    try:
        await response.prepare(call.request)
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        while message := await reader.next(min(HEARTBEAT_S, call.principal.expires_at - time.time())):
            if call.principal.expires_at <= time.time():
                reader.end("token_expired")
            async with asyncio.timeout(STUCK_S):
                await response.write(message)
    except (ConnectionError, TimeoutError):
        if call.request.transport is not None:
            call.request.transport.abort()
    return response


def _last_event_id(request: web.Request) -> int | None:
    """Where the client was. What this server never said counts as nothing, and a snapshot puts it right."""
    given = request.headers.get("Last-Event-ID", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
