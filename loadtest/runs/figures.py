"""What the calls of a run come to: rates and latencies, each kind of outcome for itself, in all and over time."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from holdfast.loadtest.chaos.history import HOLDING, Call, Operation
from holdfast.loadtest.crowd.records import STOPPED, Pulse
from holdfast.loadtest.thresholds import PERCENTILES

BINS_MAX = 120
SHOWN_REASONS = 8
BIN_WIDTHS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
# The rows of the latency histogram: upper bounds in milliseconds, each about 1.5 times the one before.
BUCKETS_MS = (
    1,
    1.5,
    2,
    3,
    5,
    7,
    10,
    15,
    20,
    30,
    50,
    70,
    100,
    150,
    200,
    300,
    500,
    700,
    1_000,
    1_500,
    2_000,
    3_000,
    5_000,
)


class Outcome(StrEnum):
    """What came of a call. Never are two of these added up."""

    HOLD = "holds"
    BEST = "best-available holds"
    REFUSAL = "refusals"
    SALE = "sales"
    OTHER = "other calls"
    PUT_OFF = "put off"
    ERROR = "errors"


SHOWN_OVER_TIME = (Outcome.HOLD, Outcome.BEST, Outcome.REFUSAL, Outcome.SALE, Outcome.PUT_OFF, Outcome.ERROR)

_SAYS = {
    Outcome.HOLD: "seats or places that were asked for by name, and are held now (201)",
    Outcome.BEST: "seats that Holdfast chose, and are held now (201)",
    Outcome.REFUSAL: "a hold that somebody else was quicker for (409)",
    Outcome.SALE: "a checkout that was paid and sold (200)",
    Outcome.OTHER: "maps, live feeds, extensions, releases, checkouts, and what else was answered as it should be",
    Outcome.PUT_OFF: "told to come back later (429, 503)",
    Outcome.ERROR: "no answer, or one that should not be",
}


class Latency(msgspec.Struct, frozen=True):
    """Percentiles in milliseconds."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Total(msgspec.Struct, frozen=True):
    """All calls with one outcome. `peak_per_s` is the most in one bin."""

    outcome: Outcome
    says: str
    count: int
    per_s: float
    peak_per_s: float
    latency: Latency | None


class OperationTotal(msgspec.Struct, frozen=True):
    """The calls of one kind that were answered, granted and refused apart."""

    name: str
    count: int
    latency: Latency | None


class Reason(msgspec.Struct, frozen=True):
    """Why calls were put off or failed, and how many of them."""

    outcome: Outcome
    text: str
    count: int


class Over(msgspec.Struct, frozen=True):
    """The run in bins of `width_s`. Latencies are those of holds, refused or not; a bin without any has none.

    `histogram` counts them by bin and by bucket of BUCKETS_MS, with one more bucket for what is slower than the last.
    """

    width_s: float
    rates: dict[Outcome, tuple[float, ...]]
    p50: tuple[float | None, ...]
    p95: tuple[float | None, ...]
    p99: tuple[float | None, ...]
    histogram: tuple[tuple[int, ...], ...]


class Generator(msgspec.Struct, frozen=True, kw_only=True):
    """How the load generator itself did. `cpu_peak` is the busiest process over its busiest five seconds, in cores."""

    processes: int
    cpu_mean: float
    cpu_peak: float
    delay_p95_s: float
    arrivals: int
    late: int
    missed: int
    live_messages: int
    warnings: tuple[str, ...]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `first_s` is when the first call began; `duration_s`, and what is told over time, begin with it."""

    first_s: float
    duration_s: float
    calls: int
    unfinished: int
    totals: tuple[Total, ...]
    operations: tuple[OperationTotal, ...]
    reasons: tuple[Reason, ...]
    holding: Latency | None
    over_time: Over
    generator: Generator

    def shares(self) -> dict[str, float]:
        """What thresholds are about: latencies of holding calls in ms, errors and put-offs in percent of all calls."""
        finished = max(1, self.calls - self.unfinished)
        counts = {total.outcome: total.count for total in self.totals}
        shares = {
            "errors": 100 * counts[Outcome.ERROR] / finished,
            "busy": 100 * counts[Outcome.PUT_OFF] / finished,
        }
        return shares | (msgspec.structs.asdict(self.holding) if self.holding else {})


def outcome_of(call: Call) -> Outcome:
    """What came of a call that was not cut off by the end of the run."""
    if call.status in (429, 503):
        return Outcome.PUT_OFF
    if call.operation in HOLDING:
        if call.status == 201:
            return Outcome.BEST if call.operation is Operation.BEST else Outcome.HOLD
        if call.status == 409:
            return Outcome.REFUSAL
    if call.good or call.status in (404, 409, 410):
        return Outcome.SALE if call.operation is Operation.COMPLETE and call.good else Outcome.OTHER
    return Outcome.ERROR


def summarise(calls: Sequence[Call], pulses: Sequence[Pulse], processes: int) -> Figures:
    """The figures of a run."""
    finished = [call for call in calls if call.error != STOPPED]
    first_s = min((call.started_s for call in finished), default=0.0)
    duration_s = max((call.ended_s - first_s for call in finished), default=0.001)
    width_s = next((width for width in BIN_WIDTHS_S if duration_s / width <= BINS_MAX), BIN_WIDTHS_S[-1])
    bins = _Bins(first_s, width_s, int(duration_s / width_s) + 1)
    by_outcome: dict[Outcome, list[Call]] = {outcome: [] for outcome in Outcome}
    for call in finished:
        by_outcome[outcome_of(call)].append(call)
    rates = {outcome: bins.rates(by_outcome[outcome]) for outcome in Outcome}
    totals = tuple(
        Total(
            outcome,
            _SAYS[outcome],
            len(found),
            len(found) / duration_s,
            max(rates[outcome], default=0.0),
            _latency([_took_ms(call) for call in found]),
        )
        for outcome, found in by_outcome.items()
    )
    answered = [call for outcome in (Outcome.HOLD, Outcome.BEST, Outcome.REFUSAL) for call in by_outcome[outcome]]
    return Figures(
        first_s=first_s,
        duration_s=duration_s,
        calls=len(calls),
        unfinished=len(calls) - len(finished),
        totals=totals,
        operations=tuple(_operations(finished)),
        reasons=tuple(_reasons(by_outcome)),
        holding=_latency([_took_ms(call) for call in answered]),
        over_time=bins.over_time(answered, {outcome: rates[outcome] for outcome in SHOWN_OVER_TIME}),
        generator=summarise_generator(pulses, processes),
    )


def _operations(calls: Iterable[Call]) -> Iterator[OperationTotal]:
    times: dict[str, list[float]] = {}
    for call in calls:
        if call.good or outcome_of(call) in (Outcome.REFUSAL, Outcome.OTHER):
            name = f"{call.operation} {call.wanted}" if call.operation is Operation.LOOK else str(call.operation)
            times.setdefault(name if call.good else f"{name}, refused", []).append(_took_ms(call))
    for name in sorted(times):
        yield OperationTotal(name, len(times[name]), _latency(times[name]))


def _reasons(by_outcome: Mapping[Outcome, Iterable[Call]]) -> Iterator[Reason]:
    for outcome in (Outcome.PUT_OFF, Outcome.ERROR):
        counts = Counter(f"{call.operation}: {call.status or ''} {call.error}" for call in by_outcome[outcome])
        for text, count in counts.most_common(SHOWN_REASONS):
            yield Reason(outcome, " ".join(text.split()), count)


def _took_ms(call: Call) -> float:
    return (call.ended_s - call.started_s) * 1000


class _Bins:
    """Equal stretches of the run."""

    def __init__(self, first_s: float, width_s: float, number: int) -> None:
        self._first_s = first_s
        self._width_s = width_s
        self._number = number

    def of(self, call: Call) -> int:
        return int((call.ended_s - self._first_s) / self._width_s)

    def rates(self, calls: Iterable[Call]) -> tuple[float, ...]:
        counts = Counter(map(self.of, calls))
        return tuple(counts[number] / self._width_s for number in range(self._number))

    def over_time(self, calls: Iterable[Call], rates: dict[Outcome, tuple[float, ...]]) -> Over:
        by_bin: list[list[float]] = [[] for _ in range(self._number)]
        for call in calls:
            by_bin[self.of(call)].append(_took_ms(call))
        latencies = [_latency(times) for times in by_bin]
        return Over(
            self._width_s,
            rates,
            tuple(each.p50 if each else None for each in latencies),
            tuple(each.p95 if each else None for each in latencies),
            tuple(each.p99 if each else None for each in latencies),
            tuple(_histogram(times) for times in by_bin),
        )


def _histogram(times_ms: Iterable[float]) -> tuple[int, ...]:
    counts = [0] * (len(BUCKETS_MS) + 1)
    for time_ms in times_ms:
        counts[bisect_left(BUCKETS_MS, time_ms)] += 1
    return tuple(counts)


def _latency(times_ms: list[float]) -> Latency | None:
    """The nearest rank, so that every figure is one that somebody waited."""
    if not times_ms:
        return None
    times_ms.sort()
    ranks = (times_ms[min(len(times_ms) - 1, int(share * len(times_ms)))] for share in PERCENTILES.values())
    return Latency(*ranks)


SATURATED_CPU = 0.9
LATE_SHARE = 0.01
DELAYED_S = 0.25
BUSY_S = 5.0


def summarise_generator(pulses: Sequence[Pulse], processes: int) -> Generator:
    """How the generator did, and a sentence for every sign that it was the bottleneck."""
    by_process: dict[int, list[Pulse]] = {}
    for pulse in pulses:
        by_process.setdefault(pulse.pid, []).append(pulse)
    over_s = sum(pulse.over_s for pulse in pulses) or 1.0
    peak = max((_busiest(each) for each in by_process.values()), default=0.0)
    delays = sorted(pulse.delay_s for pulse in pulses) or [0.0]
    delay_s = delays[min(len(delays) - 1, int(0.95 * len(delays)))]
    arrivals, late, missed = (sum(getattr(each, name) for each in pulses) for name in ("arrivals", "late", "missed"))
    warnings = []
    if peak >= SATURATED_CPU:
        warnings.append(
            f"A generator process took {peak:.2f} of a core over {BUSY_S:g} seconds: it could hardly do more, so rates "
            "are its own and latencies contain its waiting. Use more --processes, or other machines."
        )
    if delay_s >= DELAYED_S:
        warnings.append(f"Generator processes ran {delay_s:.2f} s behind (95th percentile): latencies contain that.")
    if missed:
        warnings.append(f"{missed} of {arrivals} arrivals were left out: too many visits were under way.")
    if arrivals and late / arrivals > LATE_SHARE:
        warnings.append(f"{late} of {arrivals} arrivals began late: the rate was not what was asked for.")
    return Generator(
        processes=processes,
        cpu_mean=sum(pulse.cpu * pulse.over_s for pulse in pulses) / over_s,
        cpu_peak=peak,
        delay_p95_s=delay_s,
        arrivals=arrivals,
        late=late,
        missed=missed,
        live_messages=sum(pulse.live_messages for pulse in pulses),
        warnings=tuple(warnings),
    )


def _busiest(pulses: Sequence[Pulse]) -> float:
    """The largest share of a core over some seconds in a row."""
    most, window = 0.0, list[Pulse]()
    for pulse in pulses:
        window.append(pulse)
        over_s = sum(each.over_s for each in window)
        if over_s >= BUSY_S or len(window) == len(pulses):
            most = max(most, sum(each.cpu * each.over_s for each in window) / over_s)
            window.pop(0)
    return most
