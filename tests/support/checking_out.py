"""Buying over HTTP: holds, checkouts, payments."""

from typing import Any
from uuid import UUID, uuid4

import msgspec

from holdfast.engine.layout import compile_event
from holdfast.http.tokens import Role
from holdfast.persistence.catalogue import save_event
from support.engine import SHARDS
from support.front_end import FrontEnd, Reply
from support.polling import eventually
from support.scripts import reap

PAYMENT_SIDE = uuid4()


async def reserve(front: FrontEnd, seat: str, *, cart: str = "", user: UUID | None = None) -> UUID:
    """Reserve a seat, which must succeed; the hold's id."""
    reply = await front.reserve(seat, {"cart_token": cart}, user=user)
    assert reply.status == 201, reply
    return UUID(reply.data["hold_id"])


async def start(
    front: FrontEnd, *, cart: str = "", headers: dict[str, str] | None = None, event_id: str | None = None, **more: Any
) -> Reply:
    """Ask for a checkout. `hold_ids` names the holds; the rest are the claims of the token."""
    body: dict[str, Any] = {"event_id": event_id or str(front.event.event_id)}
    if cart:
        body["cart_token"] = cart
    if "hold_ids" in more:
        body["hold_ids"] = more.pop("hold_ids")
    return await front.call("POST", "/api/checkouts", body, headers=headers, **more)


async def checked_out(front: FrontEnd, **who: Any) -> str:
    """Start a checkout of everything in the usual cart, which must succeed; its id."""
    reply = await start(front, **who)
    assert reply.status == 201, reply
    return str(reply.data["checkout_id"])


async def look(front: FrontEnd, checkout: str, **who: Any) -> Reply:
    return await front.call("GET", f"/api/checkouts/{checkout}", **who)


async def complete(
    front: FrontEnd,
    checkout: str,
    payment: str = "succeeded",
    *,
    headers: dict[str, str] | None = None,
    payment_reference: str = "",
    role: Role = Role.SERVICE,
    **who: Any,
) -> Reply:
    """Say how the payment ended, as the payment side unless another role is given."""
    body = {"payment": payment, "payment_reference": payment_reference}
    who.setdefault("user", PAYMENT_SIDE)
    return await front.call("POST", f"/api/checkouts/{checkout}/complete", body, headers=headers, role=role, **who)


async def cancel(
    front: FrontEnd, checkout: str, *, notes: str = "", headers: dict[str, str] | None = None, **who: Any
) -> Reply:
    body = {"reason": "user_cancelled", "notes": notes}
    return await front.call("POST", f"/api/checkouts/{checkout}/cancel", body, headers=headers, **who)


async def change_event(front: FrontEnd, **changes: Any) -> None:
    """Change the event where it lives: in Postgres first, then in Redis."""
    changed = msgspec.structs.replace(front.event.document, **changes)
    async with front.rig.pool.acquire() as connection:
        await save_event(connection, compile_event(front.event.organization_id, changed), SHARDS)
    await front.rig.on.change(**changes)


async def forget(front: FrontEnd, hold: UUID) -> None:
    """Let the end of a hold, of its time if nothing else, be so long ago that Redis has forgotten it."""
    if await front.rig.redis.zscore(front.rig.on.keys.key("expiry"), hold.bytes) is not None:
        await front.rig.lapse(hold)
        await reap(front.rig.on)
    await front.rig.on.age_ended()
    await reap(front.rig.on)
    assert not await front.rig.redis.hexists(front.rig.on.keys.key("holds"), hold.bytes)

    async def is_known() -> bool:
        return {row["status"] for row in await front.rig.hold_rows(hold)}.isdisjoint({"active"})

    await eventually(is_known, "Postgres knows how the hold has ended")


async def status_of(front: FrontEnd, checkout: str, status: str) -> None:
    """Wait until a checkout has this status."""

    async def is_so() -> bool:
        return bool((await look(front, checkout)).data["status"] == status)

    await eventually(is_so, f"the checkout is {status}")
