"""One front end that alone cannot reach Redis, as its callers and its neighbour's callers meet it."""

from uuid import uuid4

import aiohttp
import pytest
from chaos.conftest import SoundStack

from holdfast.http.tokens import Role
from holdfast.loadtest.chaos.stack import Stack
from holdfast.loadtest.chaos.traffic import Arena
from support.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODES = "SELECT shard, epoch, mode FROM control ORDER BY shard"
OUTVOTED = "SELECT FROM voters WHERE kind = 'front end' AND NOT reaches_redis AND cardinality(shards) = $1"


async def reserve(stack: Stack, arena: Arena, front_end: int, seat: int) -> tuple[int, bool]:
    """Ask one front end for a seat; returns the status, and whether it says when to try again."""
    token = stack.token(uuid4(), arena.organization_id, Role.CUSTOMER)
    url = f"{stack.front_end_urls[front_end]}/api/events/{arena.event_id}/seats/{arena.seats[seat]}/reserve"
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.post(url, json={}, headers=headers) as response:
        return response.status, "Retry-After" in response.headers


async def test_it_turns_its_callers_away_and_drags_nobody_along(sound_stack: SoundStack) -> None:
    stack = await sound_stack()
    arena = await stack.open_event(20, 4)
    before = await stack.query(MODES)

    # Given that one of two front ends has lost Redis, votes against it and is outvoted,
    stack.front_end_proxies[0].go_down()
    try:
        await eventually(lambda: stack.query(OUTVOTED, stack.layout.shards), "it votes against every shard")

        # then its callers are told to come again, and the other's are served, by Redis, in the same epoch.
        assert await reserve(stack, arena, 0, seat=0) == (503, True)
        assert await reserve(stack, arena, 1, seat=0) == (201, False)
        assert await stack.query(MODES) == before
    finally:
        stack.front_end_proxies[0].come_up()

    # When it reaches Redis again, it serves again.
    async def serves() -> bool:
        return (await reserve(stack, arena, 0, seat=1))[0] == 201

    await eventually(serves, "it serves again")
    assert await stack.query(MODES) == before
