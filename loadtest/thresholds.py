"""How bad a run may be before it counts as failed: `p99=250,errors=1`."""

from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

PERCENTILES: Mapping[str, float] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "max": 1.0}
SHARES = ("errors", "busy")


class Threshold(msgspec.Struct, frozen=True):
    """A figure by name and the most it may be."""

    name: str
    most: float


def parse_thresholds(text: str) -> tuple[Threshold, ...]:
    """Thresholds as a command line gives them. Milliseconds for percentiles, percent of all calls for shares."""
    found = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name not in (*PERCENTILES, *SHARES) or not equals:
            names = ", ".join((*PERCENTILES, *SHARES))
            raise ArgumentTypeError(f"{part!r} is not NAME=NUMBER with a name of {names}")
        try:
            found.append(Threshold(name, float(value.removesuffix("ms").removesuffix("%"))))
        except ValueError:
            raise ArgumentTypeError(f"{value!r} is not a number") from None
    return tuple(found)


def exceeded(thresholds: Iterable[Threshold], figures: Mapping[str, float]) -> list[str]:
    """A sentence for each threshold that is exceeded, or whose figure is not there."""
    found = []
    for threshold in thresholds:
        unit = "ms" if threshold.name in PERCENTILES else "%"
        figure: Any = figures.get(threshold.name)
        if figure is None:
            found.append(f"{threshold.name} could not be measured.")
        elif figure > threshold.most:
            found.append(f"{threshold.name} is {figure:.1f} {unit}, over {threshold.most:g} {unit}.")
    return found
