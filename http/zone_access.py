"""Whether a caller may book in the zones they ask for.

It is asked with every attempt, because an attempt is made with the event as it is known then, and the script refuses
one that is out of date.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from holdfast.engine.access import AccessMode, Person, booking_refusal
from holdfast.engine.layout import CompiledEvent
from holdfast.http.endpoints import Call
from holdfast.http.errors import Refused, problem
from holdfast.http.stores import database
from holdfast.persistence.layouts import tiers_of

ACCESS_ERRORS = ("access_denied", "selection_not_offered")


def offer_selection(event: CompiledEvent) -> None:
    """Raise Refused where seats are chosen by the system and not by the buyer."""
    if event.document.policy.prefer_clustering_over_selection:
        raise Refused(problem("selection_not_offered"))


async def entitled(
    call: Call, event: CompiledEvent, zones: Iterable[int], count: int, guests: Sequence[UUID]
) -> list[int]:
    """Those of some zones in which the caller may book so many places."""
    found = []
    for zone in zones:
        try:
            await admit(call, event, {zone: count}, guests)
        except Refused:
            continue
        found.append(zone)
    return found


async def admit(call: Call, event: CompiledEvent, units: Mapping[int, int], guests: Sequence[UUID] = ()) -> None:
    """Raise Refused unless the caller, and the guests they book for, are entitled to this many places in each zone."""
    restricted = [zone for zone in units if event.zones[zone].document.access_mode is not AccessMode.PUBLIC]
    if not restricted:
        return
    principal = call.principal
    booker = Person(principal.user_id, principal.role, principal.tier)
    tiers: Mapping[UUID, str] = {}
    if guests:
        async with database(call.app) as connection:
            tiers = await tiers_of(connection, principal.organization_id, guests)
    for zone in restricted:
        document = event.zones[zone].document
        if reason := booking_refusal(document.access, booker, units[zone], guests, tiers):
            raise Refused(problem("access_denied", reason, zones=(document.zone_id,)))
