"""A little of everything that can happen to an event, so that every kind of entry is in the log."""

import asyncio
import random
from uuid import UUID, uuid4

import msgspec

from holdfast.engine.backend import Holder
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.status import Status
from support.persisting import Rig
from support.polling import eventually
from support.scripts import allocate, held, pairs, places_held, reap, release, sell

SHORT_MS = 1_000


class Story(msgspec.Struct, frozen=True):
    """The holds of a mixed workload, by what became of them."""

    live: UUID
    places: UUID
    extended: UUID
    sold: UUID
    sold_places: UUID
    released: UUID
    expired: UUID
    revived: UUID


async def mixed(rig: Rig) -> Story:
    """Hold, extend, release, expire, sell, sell after expiry, block, unblock, change the event; nothing is persisted.

    Leaves live holds on A-1, A-2 (extended), B-1 to B-3 and places, and sold seats C-1, C-2 and C-3.
    """
    on, user = rig.on, uuid4()
    expired = await held(on, "C-5", ttl_ms=SHORT_MS)
    revived = await held(on, "C-3", ttl_ms=SHORT_MS, user=user)
    live = await held(on, "A-1", cart="cart-1", fingerprint="wish-1", address="1234567890")
    extended = await held(on, "A-2", user=user)
    places = await places_held(on, 3)
    sold = await held(on, "C-1", "C-2", user=user)
    sold_places = await places_held(on, 2, user=user)
    released = await held(on, "C-4")
    best = await allocate(on, 3, user=user)
    assert best.status is Status.DONE
    reply = await on.backend.extend_holds(
        on.event, [extended], user_id=user, key="key-1", extension_ms=60_000, total_ms=3_600_000, checkout="checkout-1"
    )
    assert reply.status is Status.DONE
    await sell(on, sold, sold_places, sale="sale-1")
    await release(on, released)
    again = await held(on, "C-4")
    await release(on, again)
    await on.backend.block_seats(on.event, seats=pairs(on, "C-9", "C-10"), quantities=[(1, 4)])
    await on.backend.unblock_seats(on.event, seats=pairs(on, "C-9"), quantities=[(1, 1)])

    async def reaped_both() -> bool:
        await reap(on)
        return not await on.redis.zcount(on.keys.key("expiry"), 0, await _soon(rig))

    await eventually(reaped_both, "the short holds are over")
    await sell(on, revived, sale="sale-2")
    zones = on.event.document.zones
    await on.change(name="Changed night", zones=(zones[0], msgspec.structs.replace(zones[1], capacity=60)))
    return Story(
        live=live,
        places=places,
        extended=extended,
        sold=sold,
        sold_places=sold_places,
        released=released,
        expired=expired,
        revived=revived,
    )


async def _soon(rig: Rig) -> int:
    """A time at which only short holds end."""
    seconds, _ = await rig.redis.time()
    return int(seconds) * 1000 + 60_000


async def buyers(rig: Rig, count: int, event: CompiledEvent | None = None) -> None:
    """People who hold, extend, release and buy at random until cancelled. What is refused is refused."""
    await asyncio.gather(*(_buyer(rig, event or rig.event, random.Random(seed)) for seed in range(count)))  # noqa: S311


async def _buyer(rig: Rig, event: CompiledEvent, chance: random.Random) -> None:
    backend, seats, user = rig.on.backend, list(event.seats.values()), uuid4()
    while True:
        holder = Holder(hold_id=uuid4(), user_id=user)
        if chance.random() < 0.3:
            reply = await backend.hold_seats(event, holder, quantities=[(1, 1)])
        else:
            reply = await backend.hold_seats(event, holder, seats=[chance.choice(seats)])
        if reply.status is not Status.DONE:
            await asyncio.sleep(0)
            continue
        wish = chance.random()
        if wish < 0.2:
            await backend.extend_holds(
                event, [holder.hold_id], user_id=user, key=uuid4().hex, extension_ms=1_000, total_ms=3_600_000
            )
        if wish < 0.05:
            await backend.confirm_holds(event, [holder.hold_id], sale=uuid4().hex, user_id=user)
        elif wish < 0.95:
            await backend.release_holds(event, [holder.hold_id], user_id=user, reason="user_cancelled")
