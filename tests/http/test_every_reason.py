"""Reasons that many endpoints can give, asked of every one that declares them."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from holdfast.engine.epochs import Mode
from holdfast.http import endpoints
from holdfast.http.app import ENDPOINTS
from holdfast.http.endpoints import Endpoint
from holdfast.http.repeats import REPLAYED
from holdfast.http.stores import durable_key, epochs_key, kept_answers_key
from support.checking_out import checked_out, reserve
from support.every import ask, role_of, things
from support.front_end import FrontEnd, serving, with_limits
from support.polling import eventually

WITH_BODY = [each for each in ENDPOINTS if each.body is not None]
KEPT = [each for each in ENDPOINTS if REPLAYED in each.reply_headers]

# What the engine decides, and of that what changes something and has to be committed.
ENGINE = [each for each in ENDPOINTS if "fenced" in each.errors]
CHANGES = [
    each
    for each in ENDPOINTS
    if each.method in ("POST", "DELETE") and "fenced" in each.errors and "decline" not in each.path
]


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=name_of)
async def test_request_timeout_and_body_too_large(
    still: FrontEnd, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint
) -> None:
    """Of both the headers tell, and nothing has to be sent that is as large as the largest document."""
    monkeypatch.setattr(endpoints, "BODY_TIMEOUT_S", 0.05)
    path = endpoint.path.format(**{name: str(uuid4()) for name in endpoint.parameters})

    async def status(length: int) -> bytes:
        reader, writer = await asyncio.open_connection(still.client.host, still.client.port)
        token = still.token(role=role_of(endpoint))
        lines = (
            f"{endpoint.method} {path} HTTP/1.1",
            "Host: holdfast",
            "Content-Type: application/json",
            f"Authorization: Bearer {token}",
            f"Content-Length: {length}",
        )
        writer.write("\r\n".join((*lines, "", "{")).encode())
        line = await reader.readline()
        writer.close()
        return line.split()[1]

    assert await status(10) == b"408"
    assert await status(endpoint.body_bytes_max + 1) == b"413"


async def test_busy_while_the_first_request_is_still_answered(front: FrontEnd) -> None:
    app = front.client.app
    assert app is not None
    app[kept_answers_key]._patience_s = 0.05
    ids = await things(front)
    assert len(KEPT) > 8
    for endpoint in KEPT:
        key = str(uuid4())
        first = await ask(front, endpoint, ids, key=key)
        assert first.status < 500, (name_of(endpoint), first)
        # As if whoever has claimed the answer were at it.
        await front.rig.execute("UPDATE kept_answers SET status = NULL, claimed_at = now() WHERE key = $1", key)

        again = await ask(front, endpoint, ids, key=key)

        assert (again.status, again.error) == (503, "busy"), name_of(endpoint)
        assert again.headers["Retry-After"]


async def test_hold_id_reused_for_other_content_under_a_key(front: FrontEnd) -> None:
    ids = await things(front)
    for endpoint in KEPT:
        key = str(uuid4())
        await ask(front, endpoint, ids, key=key)
        await front.rig.execute("UPDATE kept_answers SET fingerprint = 'other' WHERE key = $1", key)

        again = await ask(front, endpoint, ids, key=key)

        assert (again.status, again.error) == (422, "hold_id_reused"), name_of(endpoint)


async def test_unavailable_while_a_shard_changes_servers(front: FrontEnd) -> None:
    ids = await things(front)
    app, shard = front.client.app, front.rig.shard
    assert app is not None
    await front.rig.execute("UPDATE control SET mode = 'recovering', epoch = epoch + 1 WHERE shard = $1", shard)
    await eventually(lambda: app[epochs_key].state(shard).mode is Mode.RECOVERING, "the front end knows")
    assert len(ENGINE) > 8
    for endpoint in ENGINE:
        reply = await ask(front, endpoint, ids)

        assert reply.status == 503, (name_of(endpoint), reply)
        assert reply.error in ("fenced", "unavailable"), name_of(endpoint)
        assert reply.headers["Retry-After"]


async def test_stale_config_while_an_event_changes(front: FrontEnd) -> None:
    ids = await things(front)
    await front.rig.redis.hset(front.rig.on.keys.key("counts"), "version", "another")
    paths = {"/api/events/{event}/holds", "/api/admin/seats/block", "/api/admin/seats/unblock"}
    stale = [each for each in ENDPOINTS if each.method == "POST" and each.path in paths]
    assert len(stale) == len(paths)
    for endpoint in stale:
        reply = await ask(front, endpoint, ids)

        assert (reply.status, reply.error) == (503, "stale_config"), name_of(endpoint)


async def test_unknown_outcome_when_postgres_does_not_confirm(redis_url: str, database_dsn: str) -> None:
    """Nobody persists from here on: everything is decided in Redis, and the answer is that nobody knows yet."""
    async with serving(redis_url, database_dsn) as front:
        # Of each a thing of its own, because what is done is done, whether or not it is confirmed.
        holds = [str(await reserve(front, seat)) for seat in ("A-1", "A-2", "A-3")]
        # The last one is the cart of the example of a checkout.
        for cart, seat in (("cancelled", "A-4"), ("paid", "A-5"), ("cart-1", "A-6")):
            await reserve(front, seat, cart=cart)
        checkouts = [await checked_out(front, cart=cart) for cart in ("cancelled", "paid")]
        things_of = {
            "DELETE /api/holds/{hold}": {"hold": holds[0]},
            "POST /api/checkouts/{checkout}/cancel": {"checkout": checkouts[0]},
            "POST /api/checkouts/{checkout}/complete": {"checkout": checkouts[1]},
        }
        ids = {"event": str(front.event.event_id), "seat": "C-1", "hold": holds[1], "checkout": checkouts[0]}
        app = front.client.app
        assert app is not None
        app[durable_key]._timeout_s = 0.05
        connection = await front.rig.pool.acquire()
        try:
            # The persister waits behind this, and nothing else does.
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("LOCK TABLE seat_holds IN EXCLUSIVE MODE")
            for endpoint in CHANGES:
                reply = await ask(front, endpoint, ids | things_of.get(name_of(endpoint), {}))
                assert (reply.status, reply.error) == (503, "unknown_outcome"), (name_of(endpoint), reply)
            await transaction.rollback()
        finally:
            await front.rig.pool.release(connection)


@pytest.mark.parametrize(
    ("limits", "error", "status"),
    [
        ({"max_seats_per_booking": 1}, "too_many_seats", 400),
        ({"max_holds_per_user": 1}, "user_limit_exceeded", 429),
        ({"max_holds_per_ip": 1}, "address_limit_exceeded", 429),
        ({"rate_limit_seats": 1}, "rate_limit_exceeded", 429),
    ],
)
async def test_limits_of_both_ways_to_hold(
    redis_url: str, database_dsn: str, limits: dict[str, Any], error: str, status: int
) -> None:
    async with serving(redis_url, database_dsn, with_limits(**limits)) as front:
        assert (await front.reserve("A-1")).status == 201
        several = await front.call("POST", f"/api/events/{front.event.event_id}/holds", {"seats": ["B-1", "B-2"]})
        assert (several.status, several.error) == (status, error)
        if error != "too_many_seats":
            one = await front.reserve("A-2")
            assert (one.status, one.error) == (status, error)
            assert one.headers["Retry-After"]
