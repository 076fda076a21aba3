"""What this process has counted.

Numbers are plain attributes, because holds are counted on the hot path: adding to one takes some 30 ns, where a
Prometheus counter that several processes share takes 700. They are put into the form of Prometheus only when somebody
asks. The workers of one front end add theirs up through files; see `engine/worker_files`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from holdfast.engine.status import Status

# From a refusal that needs no server to a commit that takes as long as anybody waits.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

Kind = Literal["counter", "gauge", "histogram"]


class Sample(msgspec.Struct, frozen=True):
    """One series as it is now. A histogram's buckets count what lies in each, and not below."""

    kind: Kind
    name: str
    help: str
    labels: dict[str, str]
    value: float = 0
    buckets: tuple[int, ...] = ()


class Number:
    """A counter, to whose `value` is added, or a gauge, whose `value` is set."""

    __slots__ = ("_identity", "value")

    def __init__(self, kind: Kind, name: str, text: str, labels: dict[str, str]) -> None:
        self._identity = (kind, name, text, labels)
        self.value: float = 0

    def sample(self) -> Sample:
        return Sample(*self._identity, value=self.value)


class Histogram:
    """How long something takes, in buckets of seconds."""

    __slots__ = ("_buckets", "_identity", "_sum")

    def __init__(self, name: str, text: str, labels: dict[str, str]) -> None:
        self._identity = (name, text, labels)
        self._buckets = [0] * (len(SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._buckets[bisect_left(SECONDS, seconds)] += 1
        self._sum += seconds

    def sample(self) -> Sample:
        return Sample("histogram", *self._identity, value=self._sum, buckets=tuple(self._buckets))


_instruments: list[Number | Histogram] = []


def samples() -> tuple[Sample, ...]:
    """Everything that this process counts."""
    return tuple(instrument.sample() for instrument in _instruments)


def add_up(processes: Iterable[Iterable[Sample]]) -> tuple[Sample, ...]:
    """The sums over several processes, in the order in which series are first met."""
    sums: dict[tuple[str, tuple[str, ...]], Sample] = {}
    for sample in (sample for process in processes for sample in process):
        key = (sample.name, tuple(sample.labels.values()))
        known = sums.get(key)
        sums[key] = (
            sample
            if known is None
            else msgspec.structs.replace(
                known,
                value=known.value + sample.value,
                buckets=tuple(here + there for here, there in zip(known.buckets, sample.buckets, strict=True)),
            )
        )
    return tuple(sums.values())


def _counter(name: str, text: str, **labels: str) -> Number:
    return _keep(Number("counter", name, text, labels))


def _gauge(name: str, text: str) -> Number:
    return _keep(Number("gauge", name, text, {}))


def _histogram(name: str, text: str, **labels: str) -> Histogram:
    instrument = Histogram(name, text, labels)
    _instruments.append(instrument)
    return instrument


def _keep(number: Number) -> Number:
    _instruments.append(number)
    return number


def _by(name: str, text: str, label: str, values: Iterable[str]) -> Mapping[str, Number]:
    """A counter for each value that a label may have, so that none has to be made while somebody waits."""
    return {value: _counter(name, text, **{label: value}) for value in values}


REDIS, POSTGRES = METHODS = ("redis", "postgres")
HOT = "hot"

# A seat lost to somebody else; every other refusal is about the request, the event or a limit.
CONFLICTS = frozenset(
    {
        Status.SEAT_NOT_AVAILABLE,
        Status.SEAT_HELD_BY_ANOTHER_USER,
        Status.BLOCK_AT_CAPACITY,
        Status.NO_AVAILABLE_SEATS,
        Status.SEATS_LOST,
    }
)
_REFUSALS = tuple(status for status in Status if not status.succeeded)

attempts = _by("holdfast_hold_attempts", "Requests to hold seats, by who decided.", "method", METHODS)
successes = _by("holdfast_hold_successes", "Requests to hold seats that were granted.", "method", METHODS)
conflicts = _by(
    "holdfast_hold_conflicts",
    "Requests to hold seats that somebody else has.",
    "reason",
    [each.name.lower() for each in _REFUSALS if each in CONFLICTS],
)
refusals = _by(
    "holdfast_hold_refusals",
    "Requests to hold seats that were refused for another reason.",
    "reason",
    [each.name.lower() for each in _REFUSALS if each not in CONFLICTS],
)
_refused = {each: (conflicts if each in CONFLICTS else refusals)[each.name.lower()] for each in _REFUSALS}
hold_seconds = {
    method: _histogram("holdfast_hold_seconds", "Time from a request to hold to its answer.", method=method)
    for method in METHODS
}
cache_hits = _by(
    "holdfast_cache_hits", "Requests to hold, by the layer that answered.", "layer", (HOT, REDIS, POSTGRES)
)
failures = _counter("holdfast_hold_failures", "Requests to hold that nobody could decide, or nobody knows how.")
fallbacks = _counter("holdfast_hold_fallbacks", "Requests to hold that Postgres decided because Redis could not.")
extended = _counter("holdfast_holds_extended", "Holds whose end was moved.")
expired_before_checkout = _counter(
    "holdfast_holds_expired_before_checkout", "Holds that had expired when they were to be extended."
)
extension_failed = _counter("holdfast_hold_extensions_failed", "Extensions refused for any other reason.")
converted = _counter("holdfast_holds_converted", "Holds that became tickets.")
released = _counter("holdfast_holds_released", "Holds released.")

reaper_runs = _by("holdfast_reaper_runs", "Runs of the reaper.", "result", ("done", "failed"))
reaped = _counter("holdfast_holds_reaped", "Holds that the reaper expired.")
expired = _counter("holdfast_holds_expired", "Expiries that reached Postgres, whoever noticed them.")
persisted_entries = _counter("holdfast_persisted_entries", "Log entries brought into Postgres.")
persist_failures = _counter("holdfast_persist_failures", "Batches that a server failed, and that were tried again.")
rejections = _counter("holdfast_persist_rejections", "Decisions of Redis that Postgres refused.")
persist_seconds = _histogram("holdfast_persist_seconds", "Time to bring one batch into Postgres.")

live_readers = _gauge("holdfast_live_readers", "Readers of live feeds now.")
live_dropped = _counter("holdfast_live_readers_dropped", "Readers of live feeds that did not keep up.")


def count_hold(status: Status, method: str, layer: str, seconds: float) -> None:
    """A request to hold was answered."""
    attempts[method].value += 1
    if method == POSTGRES:
        fallbacks.value += 1
    cache_hits[layer].value += 1
    hold_seconds[method].observe(seconds)
    refused = _refused.get(status)
    if refused is None:
        successes[method].value += 1
    else:
        refused.value += 1


def count_failed_hold(method: str) -> None:
    """A request to hold was turned away because a server failed, or answered nothing."""
    attempts[method].value += 1
    failures.value += 1


def count_extension(status: Status, outcomes: Iterable[Status]) -> None:
    """Holds were to be extended, all or none: what became of each."""
    for outcome in outcomes:
        if status.succeeded:
            extended.value += 1
        elif outcome is Status.HOLD_EXPIRED:
            expired_before_checkout.value += 1
        else:
            extension_failed.value += 1


def count_ends(number: Number, outcomes: Iterable[Status]) -> None:
    """Holds were to be released or sold: those that were."""
    number.value += sum(outcome is Status.DONE for outcome in outcomes)
