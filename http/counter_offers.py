"""What is offered to somebody whose seats are not to be had: the nearest block of as many in an equivalent zone."""

from collections.abc import Sequence
from uuid import UUID

from holdfast.engine.acks import Ack
from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.status import Status
from holdfast.http.endpoints import Call
from holdfast.http.stores import holds_key
from holdfast.http.wishes import ZONES_MAX, CounterOffer, Wish
from holdfast.http.zone_access import entitled

# Refusals for which other seats may be an answer.
_LOST = (
    Status.SEAT_NOT_AVAILABLE,
    Status.SEAT_HELD_BY_ANOTHER_USER,
    Status.LEAVES_ORPHAN,
    Status.BLOCK_AT_CAPACITY,
    Status.NO_AVAILABLE_SEATS,
)


def may_be_countered(reply: HoldReply) -> bool:
    """Whether other seats may be offered instead. What Postgres refused afterwards is still on record under the hold's
    id, which therefore cannot be used for another hold."""
    return reply.status in _LOST and reply.position.seq == 0


async def offer_instead(
    call: Call,
    event: CompiledEvent,
    wish: Wish,
    holder: Holder,
    *,
    kind: CounterOffer,
    guests: Sequence[UUID],
    ack: Ack,
) -> HoldReply | None:
    """The engine's answer to what else there is; None if there is no zone to look in."""
    count = wish.count or len(wish.seats)
    zones = await entitled(call, event, _equivalent_zones(event, wish), count, guests)
    if not zones:
        return None
    origin = [seat.value for seat in wish.seats if seat.zone == wish.seats[0].zone]
    return await call.app[holds_key].offer_seats(
        event,
        holder,
        zones=zones[:ZONES_MAX],
        count=count,
        near=min(origin, default=event.zones[zones[0]].first),
        take=kind is CounterOffer.HOLD,
        ack=ack,
    )


def is_counter_offer(wish: Wish, reply: HoldReply) -> bool:
    """Whether a hold has other seats than were asked for."""
    if wish.seats:
        return not set(reply.seats) <= set(wish.seats)
    return bool(wish.count) and any(seat.zone not in wish.zones for seat in reply.seats)


def _equivalent_zones(event: CompiledEvent, wish: Wish) -> list[int]:
    """The zones of named seats, then those of the same type and price. Zones that were searched are not again."""
    asked = wish.zones or tuple(dict.fromkeys(seat.zone for seat in wish.seats))
    kinds = {_kind(event, zone) for zone in asked}
    others = [zone.index for zone in event.zones if zone.index not in asked and _kind(event, zone.index) in kinds]
    return [*(() if wish.zones else asked), *others]


def _kind(event: CompiledEvent, zone: int) -> tuple[str, str | None]:
    document = event.zones[zone].document
    return document.zone_type, document.pricing_rule_id
