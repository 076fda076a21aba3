"""The live feed over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from holdfast.http import live
from holdfast.http.live import hub_key
from holdfast.http.tokens import Role, mint_token
from support.front_end import FrontEnd, serving
from support.outbox import publishing
from support.polling import eventually
from support.scripts import held

READERS = 1_000


class Stream:
    """What a client reads of a stream of server-sent events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.events: list[dict[str, Any]] = []
        self.last_id: str | None = None
        self.retry: str | None = None

    async def next(self) -> dict[str, Any] | None:
        """The next message that is not a heartbeat, or None at the end."""
        while True:
            text = (await self.response.content.readuntil(b"\n\n")).decode()
            if not text.endswith("\n\n"):
                return None
            fields = dict(line.split(": ", 1) for line in text.splitlines() if line and not line.startswith(":"))
            self.retry = fields.get("retry", self.retry)
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                self.events.append({"event": fields["event"], **json.loads(fields["data"])})
                return self.events[-1]

    async def seats(self, count: int) -> list[str]:
        """The seats of the next changes, so many of them."""
        found: list[str] = []
        while len(found) < count:
            event = await self.next()
            assert event is not None
            found += [seat for change in event.get("changes", ()) for seat in change["seat_ids"]]
        return found


@asynccontextmanager
async def reading(front: FrontEnd, **headers: str) -> AsyncIterator[Stream]:
    sent = {"Authorization": f"Bearer {front.token()}", **headers}
    async with front.client.get(f"/api/events/{front.event.event_id}/live", headers=sent) as response:
        assert response.status == 200
        yield Stream(response)


async def test_a_stream_begins_with_a_snapshot_and_goes_on_with_changes(front: FrontEnd) -> None:
    async with publishing(front.settings), reading(front) as stream:
        assert stream.response.content_type == "text/event-stream"
        assert stream.response.headers["Cache-Control"] == "no-store"
        snapshot = await stream.next()
        reserved = await front.reserve("A-3")
        seats = await stream.seats(1)

    assert snapshot is not None
    assert snapshot["event"] == "snapshot"
    assert snapshot["map"] == "." * 30
    assert reserved.status == 201
    assert seats == ["A-3"]
    assert stream.events[-1]["occupancy"]["held"] == 1
    assert stream.retry == "2000"
    assert str(front.user) not in json.dumps(stream.events)


async def test_a_client_that_comes_back_goes_on_where_it_was(front: FrontEnd) -> None:
    async with publishing(front.settings):
        async with reading(front) as stream:
            await stream.next()
            await front.reserve("A-1")
            assert await stream.seats(1) == ["A-1"]
        await front.reserve("A-2")
        await front.reserve("A-3")
        async with reading(front, **{"Last-Event-ID": stream.last_id or ""}) as again:
            assert await again.seats(2) == ["A-2", "A-3"]

    assert all(event["event"] == "changes" for event in again.events)


@pytest.mark.parametrize("named", ["", "yesterday", "-1", "9" * 30, "²"])
async def test_a_client_that_names_no_place_of_ours_gets_a_snapshot(front: FrontEnd, named: str) -> None:
    async with reading(front, **{"Last-Event-ID": named}) as stream:
        event = await stream.next()

    assert event is not None
    assert event["event"] == "snapshot"


async def test_a_quiet_stream_is_kept_alive(front: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.01)
    async with reading(front) as stream:
        await stream.next()
        assert await stream.response.content.readuntil(b"\n\n") == b": still here\n\n"


async def test_a_stream_ends_with_its_token(front: FrontEnd) -> None:
    token = mint_token(
        front.settings,
        user_id=front.user,
        organization_id=front.event.organization_id,
        role=Role.CUSTOMER,
        ttl_seconds=2,
    )
    async with reading(front, Authorization=f"Bearer {token}") as stream:
        await stream.next()
        last = await stream.next()
        assert last == {"event": "end", "reason": "token_expired"}
        assert await stream.next() is None


async def test_streams_end_when_the_server_does(front: FrontEnd) -> None:
    async with reading(front) as stream:
        await stream.next()
        closing = asyncio.create_task(front.client.server.close())
        last = await stream.next()
        assert last == {"event": "end", "reason": "draining"}
        assert await stream.next() is None
        await closing

    assert stream.retry == "2000"


async def test_a_client_that_does_not_read_is_dropped_and_nobody_waits_for_it(
    front: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "STUCK_S", 0.5)
    monkeypatch.setattr("holdfast.http.live_hub.QUEUE_MAX", 4)
    hub = front.client.server.app[hub_key]
    address = front.client.server
    path = f"/api/events/{front.event.event_id}/live"
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {front.token()}\r\n\r\n"
    # Given a client that asks and never reads, and one that does
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
    writer.write(head.encode())
    async with reading(front) as stream:
        await stream.next()
        await eventually(lambda: hub.readers == 2, "both have joined")
        (topic,) = hub._topics.values()

        # When more is said than anybody's buffers hold
        def shout() -> bool:
            for each in list(topic.readers):
                if not each.offer(b": " + b"x" * 1_000_000 + b"\n\n", topic.state.position + 1):
                    topic.readers.discard(each)
            return len(topic.readers) < 2

        listening = asyncio.create_task(_listen(stream))
        await eventually(shout, "the one that does not read is dropped")

        # Then its connection ends, and the other reads on
        await eventually(lambda: hub.readers == 1, "its request has ended")
        assert not listening.done()
        listening.cancel()
    writer.close()
    assert not reader.at_eof()


async def _listen(stream: Stream) -> None:
    while await stream.response.content.readany():
        pass


async def test_too_many_readers_are_told_to_come_back(front: FrontEnd) -> None:
    front.client.server.app[hub_key]._readers_max = 1
    async with reading(front) as stream:
        await stream.next()
        reply = await front.call("GET", f"/api/events/{front.event.event_id}/live")

    assert (reply.status, reply.error) == (503, "busy")
    assert reply.headers["Retry-After"] == "1"


async def test_a_thousand_readers_of_one_event(front: FrontEnd) -> None:
    headers = {"Authorization": f"Bearer {front.token()}"}
    url = front.client.make_url(f"/api/events/{front.event.event_id}/live")
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        publishing(front.settings),
        aiohttp.ClientSession(connector=connector) as session,
        AsyncExitStack() as opened,
    ):
        streams: list[Stream] = []
        for _ in range(READERS // 50):
            responses = await asyncio.gather(*(session.get(url, headers=headers) for _ in range(50)))
            for response in responses:
                opened.callback(response.close)
                streams.append(Stream(response))
        firsts = await asyncio.gather(*(stream.next() for stream in streams))
        await front.reserve("A-1")
        seats = await asyncio.gather(*(stream.seats(1) for stream in streams))

    assert len(streams) == READERS
    assert all(first is not None and first["map"] == "." * 30 for first in firsts)
    assert seats == [["A-1"]] * READERS


async def test_changes_are_told_after_their_commit_only(redis_url: str, database_dsn: str) -> None:
    async with (
        serving(redis_url, database_dsn, persist=False) as front,
        publishing(front.settings),
        reading(front) as stream,
    ):
        await stream.next()
        await held(front.rig.on, "A-1", user=uuid4())
        # Nothing is told of what is only in Redis: a later reader still sees a free seat.
        async with reading(front) as later:
            snapshot = await later.next()
        await front.rig.drain()
        assert await stream.seats(1) == ["A-1"]

    assert snapshot is not None
    assert snapshot["map"] == "." * 30
