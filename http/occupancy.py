"""How full an event is, as the HTTP calls tell it."""

from typing import Self

import msgspec

from holdfast.persistence.occupancy import Figures


class Occupied(msgspec.Struct, frozen=True, kw_only=True):
    """Places by what has become of them, and their shares of all in percent.

    Of the available ones, so many are wheelchair seats and so many companion seats; of these so many are kept for the
    buyers of wheelchair seats, and available to nobody else.
    """

    available: int
    available_wheelchair: int
    available_companion: int
    kept: int
    held: int
    sold: int
    blocked: int
    total: int
    percent_available: float
    percent_held: float
    percent_sold: float
    percent_blocked: float

    @classmethod
    def of(cls, figures: Figures) -> Self:
        return cls(
            available=figures.free,
            available_wheelchair=figures.wheelchair,
            available_companion=figures.companion,
            kept=figures.kept,
            held=figures.held,
            sold=figures.sold,
            blocked=figures.blocked,
            total=figures.capacity,
            percent_available=figures.percent_free,
            percent_held=figures.percent_held,
            percent_sold=figures.percent_sold,
            percent_blocked=figures.percent_blocked,
        )
