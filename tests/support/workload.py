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
    declined: UUID
    abandoned: UUID
    abandoned_late: UUID


async def mixed(rig: Rig) -> Story:
    """Hold, extend, release, expire, sell, sell after expiry, end checkouts without a sale, block, unblock, change the
    event; nothing is persisted.

    Leaves live holds on A-1, A-2 (extended), B-1 to B-3 and places, and sold seats C-1, C-2 and C-3.
    """
    on, user = rig.on, uuid4()
    expired = await held(on, "C-5", ttl_ms=SHORT_MS)
    revived = await held(on, "C-3", ttl_ms=SHORT_MS, user=user)
    abandoned_late = await held(on, "C-6", ttl_ms=SHORT_MS, user=user)
    abandoned, declined = await held(on, "C-7", user=user), await held(on, "C-8", user=user)
    await check_out(rig, user, "checkout-2", abandoned, abandoned_late)
    await check_out(rig, user, "checkout-3", declined)
    live = await held(on, "A-1", cart="cart-1", fingerprint="wish-1", address="1234567890")
    extended = await held(on, "A-2", user=user)
    places = await places_held(on, 3)
    sold = await held(on, "C-1", "C-2", user=user)
    sold_places = await places_held(on, 2, user=user)
    released = await held(on, "C-4")
    best = await allocate(on, 3, user=user)
    assert best.status is Status.DONE
    await check_out(rig, user, "checkout-1", extended, extension_ms=60_000)
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
    await give_up(rig, "checkout-2", "user_cancelled", abandoned, abandoned_late)
    await give_up(rig, "checkout-3", "payment_failed", declined)
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
        declined=declined,
        abandoned=abandoned,
        abandoned_late=abandoned_late,
    )


async def check_out(rig: Rig, user: UUID, checkout: str, *hold_ids: UUID, extension_ms: int = 1) -> None:
    """Let a checkout take holds, which must succeed."""
    reply = await rig.on.backend.extend_holds(
        rig.event,
        hold_ids,
        user_id=user,
        key=checkout,
        extension_ms=extension_ms,
        total_ms=3_600_000,
        checkout=checkout,
    )
    assert reply.status is Status.DONE


async def give_up(rig: Rig, checkout: str, reason: str, *hold_ids: UUID) -> None:
    """End a checkout without a sale, which must succeed."""
    reply = await rig.on.backend.release_holds(rig.event, hold_ids, user_id=None, reason=reason, checkout=checkout)
    assert reply.status is Status.DONE


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
