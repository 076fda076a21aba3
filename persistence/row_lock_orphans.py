"""Which seats a selection leaves alone, in an event that Postgres serves: lua/include/find_orphans.lua on rows."""

from collections.abc import Iterable, Sequence

from holdfast.engine.choosing import draw_stretch, orphans_left, row_is_almost_taken
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.records import Pair
from holdfast.persistence.row_lock_view import AVAILABLE, Held, View

Orphans = tuple[tuple[Pair, ...], tuple[Pair, ...]]


def find_orphans(view: View, event: CompiledEvent, seats: Sequence[Pair], due: Iterable[Held]) -> Orphans:
    """The seats that taking these leaves alone once overdue holds are gone: all, and those that their row does not
    excuse. The view has the rows of the seats, if the policy watches orphans."""
    if not event.document.policy.watches_orphans:
        return (), ()
    freed = {ordinal for hold in due for ordinal in hold.ordinals}
    zones = {event.row_around(seat.value): seat.zone for seat in seats}
    found: list[Pair] = []
    unexcused: list[Pair] = []
    for row, zone in sorted(zones.items(), key=lambda item: item[0].start):
        ordinary = (each for each in row if each not in event.paired)
        free = (each for each in ordinary if each in freed or view.seats[each].status == AVAILABLE)
        drawn = draw_stretch(event.map[row.start : row.stop], (each - row.start for each in free))
        places = [seat.value - row.start for seat in seats if seat.value in row]
        orphans = [Pair(zone, row.start + place) for place in orphans_left(drawn, places)]
        found += orphans
        unexcused += [] if row_is_almost_taken(drawn) else orphans
    return tuple(found), tuple(unexcused)
