"""Requests that make no sense: the right 4xx with a sentence, never a 5xx, and nothing written."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast.engine.layout import EventState
from holdfast.engine.policy import AckRule
from holdfast.engine.status import Status
from holdfast.http import endpoints
from holdfast.http.errors import REASONS, reason_of
from support.engine import document
from support.front_end import FrontEnd, serving, with_uuids


@pytest.fixture
async def uuids(redis_url: str, database_dsn: str) -> AsyncIterator[FrontEnd]:
    """A front end whose event calls its seats by UUIDs."""
    async with serving(redis_url, database_dsn, with_uuids(), persist=False, ack=AckRule.REDIS) as front:
        yield front


async def test_malformed_ids_in_the_path(uuids: FrontEnd) -> None:
    event, seat = str(uuids.event.event_id), next(iter(uuids.event.seats))
    before = await uuids.rig.on.dump()
    cases = {
        f"/api/events/not-a-uuid/seats/{seat}/reserve": (400, "invalid_request"),
        f"/api/events/{event[:-1]}/seats/{seat}/reserve": (400, "invalid_request"),
        f"/api/events/{event.replace('-', '')}/seats/{seat}/reserve": (400, "invalid_request"),
        f"/api/events/{event}%00/seats/{seat}/reserve": (400, "invalid_request"),
        f"/api/events/{event}/seats/A-1/reserve": (400, "invalid_request"),
        f"/api/events/{event}/seats/%F0%9F%AA%91/reserve": (400, "invalid_request"),
        f"/api/events/{event}/seats/{uuid4()}/reserve": (404, "seat_not_found"),
        f"/api/events/{uuid4()}/seats/{seat}/reserve": (404, "event_not_found"),
        "/api/holds/not-a-uuid/extend": (400, "invalid_request"),
    }
    for path, expected in cases.items():
        reply = await uuids.call("POST", path)

        assert (reply.status, reply.error) == expected, path
    assert await uuids.rig.on.dump() == before


async def test_a_uuid_may_be_written_in_capitals(uuids: FrontEnd) -> None:
    seat = next(iter(uuids.event.seats))

    reply = await uuids.reserve(seat.upper())

    assert (reply.status, reply.data["seat_id"]) == (201, seat)


async def test_a_seat_of_an_event_that_names_its_seats_otherwise(still: FrontEnd) -> None:
    assert (await still.reserve("Z-99")).status == 404
    assert (await still.reserve(str(uuid4()))).status == 404


BODIES: dict[str, tuple[bytes, int, str]] = {
    "bad JSON": (b'{"source": ', 400, "invalid_request"),
    "no JSON": (b"source=web", 400, "invalid_request"),
    "bytes that are no text": (b'{"source": "\xff\xfe"}', 400, "invalid_request"),
    "half a character": (b'{"cart_token": "\\ud800"}', 400, "invalid_request"),
    "a list": (b"[]", 400, "invalid_request"),
    "null": (b"null", 400, "invalid_request"),
    "a wrong type": (b'{"source": 7}', 400, "invalid_request"),
    "an unknown source": (b'{"source": "fax"}', 400, "invalid_request"),
    "an unknown field": (b'{"organization_id": "x"}', 400, "invalid_request"),
    "a cart with a line break": (b'{"cart_token": "a\\nb"}', 400, "invalid_request"),
    "a cart with a NUL": (b'{"cart_token": "a\\u0000b"}', 400, "invalid_request"),
    "deep nesting": (b'{"source": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", 400, "invalid_request"),
    "too much": (b'{"source": "' + b"x" * 70_000 + b'"}', 413, "body_too_large"),
}


async def test_bodies_that_cannot_be_read(still: FrontEnd) -> None:
    before = await still.rig.on.dump()
    for name, (body, status, error) in BODIES.items():
        reply = await still.reserve("A-1", body)

        assert (reply.status, reply.error) == (status, error), name
        assert reply.headers["Content-Type"] == "application/problem+json", name
        assert reply.body["detail"].endswith("."), name
    assert await still.rig.on.dump() == before


async def test_a_body_of_unknown_length_is_limited_too(still: FrontEnd) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 1000

    headers = {"Authorization": f"Bearer {still.token()}", "Content-Type": "application/json"}
    path = f"/api/events/{still.event.event_id}/seats/A-1/reserve"
    async with still.client.post(path, data=endless(), headers=headers) as response:
        assert response.status == 413


async def test_a_body_that_is_no_json_by_its_own_word(still: FrontEnd) -> None:
    reply = await still.reserve("A-1", b"{}", headers={"Content-Type": "application/x-www-form-urlencoded"})

    assert (reply.status, reply.error) == (415, "unsupported_media_type")


@pytest.mark.parametrize(("encoding", "body"), [("gzip", b"{}"), ("gzip", b"\x1f\x8bxxxxxxxx"), ("deflate", b"\xff{}")])
async def test_a_body_that_is_not_compressed_as_it_says(still: FrontEnd, encoding: str, body: bytes) -> None:
    headers = f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n"
    (answer,) = await raw(still, head(still, headers) + body)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"error":"invalid_request"' in answer
    assert (await still.call("GET", f"/api/events/{still.event.event_id}/holds")).data["holds"] == []


async def test_json_with_a_charset_is_json(still: FrontEnd) -> None:
    reply = await still.reserve("A-1", b"{}", headers={"Content-Type": "application/json; charset=utf-8"})

    assert reply.status == 201


async def test_a_body_that_does_not_arrive(still: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BODY_TIMEOUT_S", 0.05)
    (answer,) = await raw(still, head(still, "Content-Length: 10\r\n") + b"{")

    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("key", ["", "x" * 256, "schl\u00fcssel"])
async def test_idempotency_keys_that_cannot_be_used(still: FrontEnd, key: str) -> None:
    before = await still.rig.on.dump()

    reply = await still.reserve("A-1", headers={"Idempotency-Key": key})

    assert (reply.status, reply.error) == (400, "invalid_request")
    assert await still.rig.on.dump() == before


async def test_strange_headers_do_no_harm(front: FrontEnd) -> None:
    headers = {"User-Agent": "caf\u00e9 \u2028 " + "x" * 5000, "X-Request-ID": "<script>", "Prefer": "ack=tape, wait=5"}

    reply = await front.reserve("A-1", headers=headers)

    assert reply.status == 201
    assert reply.data["durability"] == "postgres"
    assert reply.headers["X-Request-ID"] != "<script>"
    (audit,) = await front.rig.audit("seat_reserved")
    assert audit["user_agent"].startswith("caf\u00e9")
    assert len(audit["user_agent"]) <= 256
    assert audit["request_id"] == reply.headers["X-Request-ID"]


async def test_a_request_id_comes_back(still: FrontEnd) -> None:
    reply = await still.reserve("Z-1", headers={"X-Request-ID": "trace-1"})

    assert reply.headers["X-Request-ID"] == "trace-1"


async def test_another_organisation_sees_nothing(still: FrontEnd) -> None:
    before = await still.rig.on.dump()

    replies = [
        await still.reserve("A-1", org=uuid4()),
        await still.call("POST", f"/api/events/{still.event.event_id}/holds", {"seats": ["A-1"]}, org=uuid4()),
        await still.call("GET", f"/api/events/{still.event.event_id}/holds", org=uuid4()),
    ]

    assert [(reply.status, reply.error) for reply in replies] == [(404, "event_not_found")] * 3
    assert await still.rig.on.dump() == before


NOW = datetime.now(UTC)
STATES: dict[str, tuple[dict[str, Any], str]] = {
    "draft": ({"state": EventState.DRAFT}, "event_not_available"),
    "archived": ({"state": EventState.ARCHIVED}, "event_not_available"),
    "closed": ({"state": EventState.CLOSED}, "event_not_available"),
    "cancelled": ({"state": EventState.CANCELLED}, "event_unavailable"),
    "not open yet": ({"sale_start": NOW + timedelta(hours=1)}, "event_sales_closed"),
    "over": ({"sale_end": NOW - timedelta(hours=1)}, "event_sales_closed"),
}


@pytest.mark.parametrize("name", STATES)
async def test_events_that_do_not_sell(redis_url: str, database_dsn: str, name: str) -> None:
    changes, error = STATES[name]
    async with serving(redis_url, database_dsn, document(**changes), persist=False, ack=AckRule.REDIS) as front:
        before = await front.rig.on.dump()

        replies = [
            await front.reserve("A-1"),
            await front.call("POST", f"/api/events/{front.event.event_id}/holds", {"seats": ["A-1"]}),
        ]

        assert [(reply.status, reply.error) for reply in replies] == [(400, error)] * 2
        assert await front.rig.on.dump() == before


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/events/{event}/seats/A-1/reserve", "POST"),
        ("PUT", "/api/events/{event}/holds", "GET, POST"),
        ("POST", "/healthz", "GET"),
        ("PATCH", "/healthz", "GET"),
    ],
)
async def test_the_wrong_method_is_told_the_right_ones(still: FrontEnd, method: str, path: str, allowed: str) -> None:
    reply = await still.call(method, path.format(event=still.event.event_id))

    assert (reply.status, reply.error, reply.headers["Allow"]) == (405, "method_not_allowed", allowed)


async def test_an_address_that_does_not_exist(still: FrontEnd) -> None:
    reply = await still.call("GET", "/api/nothing")

    assert (reply.status, reply.error) == (404, "not_found")
    assert reply.headers["Content-Type"] == "application/problem+json"


def head(front: FrontEnd, more: str = "") -> bytes:
    path = f"/api/events/{front.event.event_id}/seats/A-1/reserve"
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {front.token()}\r\n"
        f"Content-Type: application/json\r\n{more}\r\n"
    ).encode()


async def raw(front: FrontEnd, *pieces: bytes) -> list[bytes]:
    """What the server says to each of these, sent one after the other on one connection."""
    reader, writer = await asyncio.open_connection(front.client.host, front.client.port)
    answers = []
    try:
        async with asyncio.timeout(20):
            for piece in pieces:
                writer.write(piece)
                answers.append(await reader.read(65_536))
        return answers
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nBad\x00Name: x\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_garbage_behind_a_good_request_is_refused(still: FrontEnd, garbage: bytes) -> None:
    good, refused = await raw(still, head(still, "Content-Length: 2\r\n") + b"{}", garbage)

    assert good.startswith(b"HTTP/1.1 201 ")
    assert re.match(rb"HTTP/1\.[01] 400 ", refused)


async def test_garbage_in_the_same_packet_writes_nothing_by_halves(still: FrontEnd) -> None:
    (answer,) = await raw(still, head(still, "Content-Length: 2\r\n") + b"{}" + b"\x00\x01\r\n\r\n")

    assert re.match(rb"HTTP/1\.[01] (400|201) ", answer)
    held = (await still.call("GET", f"/api/events/{still.event.event_id}/holds")).data["holds"]
    assert len(held) == (1 if b" 201 " in answer[:16] else 0)


async def test_a_client_that_leaves_does_no_harm(still: FrontEnd) -> None:
    for sent in (b"POST /api", head(still, "Content-Length: 100\r\n") + b"{"):
        with socket.create_connection((still.client.host, still.client.port)) as connection:
            connection.sendall(sent)

    assert (await still.reserve("A-1")).status == 201


@pytest.mark.parametrize("status", Status)
def test_every_outcome_has_a_sentence_for_the_client(status: Status) -> None:
    if not status.succeeded:
        reason = REASONS[reason_of(status)]
        assert reason.status == status.http
        assert reason.detail.endswith(".")
