"""The plain ways to hold a seat do hold it: they are to be measured, so they must do what they are measured at."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from aiohttp.test_utils import TestClient, TestServer

from holdfast.engine.settings import Settings
from holdfast.loadtest.baselines.server import create_baseline_app
from holdfast.loadtest.baselines.ways import WayName
from support.engine import SHARDS
from support.front_end import SECRET, FrontEnd
from support.persisting import rigged

ROWS = """
SELECT count(*) FROM seats s JOIN seat_holds h ON h.hold_id = s.seat_hold_id AND h.ordinal = s.ordinal
    JOIN audit_log a ON a.entity_id = h.hold_id::text
WHERE s.status = 'held' AND h.status = 'active' AND h.hold_id = $1::text::uuid
"""


@pytest.fixture(params=list(WayName))
async def front(request: pytest.FixtureRequest, redis_url: str, database_dsn: str) -> AsyncIterator[FrontEnd]:
    """The front end of one way."""
    settings = Settings(redis_url=redis_url, postgres_dsn=database_dsn, shards=SHARDS, token_secret=SECRET)
    app = create_baseline_app(settings, request.param)
    async with rigged(redis_url, database_dsn) as rig, TestClient(TestServer(app)) as client:
        yield FrontEnd(client, settings, rig)


async def test_a_seat_goes_to_one_and_stays_theirs(front: FrontEnd) -> None:
    first = await front.reserve("A-1")
    again = await front.reserve("A-1")
    other = await front.reserve("A-1", user=uuid4())

    assert (first.status, again.status, other.status) == (201, 200, 409)
    assert again.data["hold_id"] == first.data["hold_id"]
    assert other.error == "seat_held_by_another_user"


async def test_of_many_at_once_one_gets_the_seat(front: FrontEnd) -> None:
    replies = await asyncio.gather(*(front.reserve("A-2", user=uuid4()) for _ in range(30)))

    assert Counter(reply.status for reply in replies) == {201: 1, 409: 29}


async def test_what_is_to_be_durable_is_in_postgres(front: FrontEnd) -> None:
    reply = await front.reserve("A-3")

    written = await front.rig.value(ROWS, reply.data["hold_id"])
    assert written == (1 if reply.data["durability"] == "postgres" else 0)


async def test_the_checks_before_the_hold_are_holdfasts(front: FrontEnd) -> None:
    assert (await front.reserve("A-1", token="")).status == 401
    assert (await front.reserve("A-1", org=uuid4())).status == 404
    assert (await front.reserve("Z-99")).status == 404
    assert (await front.reserve("A-1", {"source": "nowhere"})).status == 400
