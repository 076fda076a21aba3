"""The report of a run: one HTML file that needs nothing else, and the same in a few lines for a terminal."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from holdfast.loadtest.runs.figures import BUCKETS_MS, Latency, Outcome, Total
from holdfast.loadtest.runs.plots import Line, Moment, Plots, nice_ceiling
from holdfast.loadtest.runs.run import Result
from holdfast.loadtest.runs.samples import OTHERS, Sample

SHOWN_VIOLATIONS = 20
# Other programs that take more than this disturb a run.
OTHERS_CORES = 0.2

_STYLE = Path(__file__).with_name("report.css")
_COLOURS = {
    Outcome.HOLD: "hold",
    Outcome.BEST: "best",
    Outcome.REFUSAL: "refusal",
    Outcome.SALE: "sale",
    Outcome.PUT_OFF: "late",
    Outcome.ERROR: "error",
}
_MODES = {"redis": "hold", "db": "late", "recovering": "error"}
_CPU_COLOURS = ("hold", "best", "late", "sale", "error", "refusal")


def render(result: Result) -> str:
    """The HTML file."""
    name = result.plan.name.replace("_", " ")
    parts = [
        f"<h1>Load test: {escape(name)}</h1>",
        f'<p class="soft">{escape(capitalised(result.plan.scenario.summary))}. {result.started_at}, '
        f"{result.figures.duration_s:.0f} s of traffic.</p>",
        *_banners(result),
        _cards(result),
        "<h2>What came of the calls</h2>",
        _totals(result.figures.totals),
        *_reasons(result),
        "<h2>How long each kind of call took</h2>",
        _by_operation(result),
        *(f'<p class="soft">{escape(text)}</p>' for text in caveats(result)),
        "<h2>Over time</h2>",
        *_plots(result),
        "<h2>Audit</h2>",
        *_audit(result),
        '<div class="two"><div><h2>Settings</h2>',
        _facts(settings(result)),
        "</div><div><h2>Machine</h2>",
        _facts(machine(result)),
        "</div></div>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Holdfast load test: {escape(name)}</title><style>{_STYLE.read_text()}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def summarise(result: Result) -> str:
    """The run for a terminal."""
    lines = [f"{'':22}{'count':>10}{'per s':>10}{'peak/s':>10}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}"]
    for total in result.figures.totals:
        times = "".join(f"{value:>9}" for value in _times(total.latency))
        lines.append(f"{total.outcome:22}{total.count:>10,}{total.per_s:>10,.1f}{total.peak_per_s:>10,.1f}{times}")
    lines += ["", *(f"{each.outcome}: {each.text} ({each.count:,} times)" for each in result.figures.reasons)]
    lines += [*(f"warning: {text}" for text in result.figures.generator.warnings)]
    lines += [f"over the threshold: {text}" for text in result.exceeded]
    lines += ["stopped early; what there was is audited"] if result.interrupted else []
    lines += [str(violation) for violation in result.audit.violations[:SHOWN_VIOLATIONS]]
    return "\n".join([*lines, verdict(result)])


def capitalised(text: str) -> str:
    """The same as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def verdict(result: Result) -> str:
    """What the audit found, in a sentence."""
    audit = result.audit
    compared = (
        f"{audit.calls:,} calls, {audit.acknowledged:,} acknowledged holds and {audit.sold:,} sales compared with "
        f"{audit.stored_holds:,} holds and {audit.tickets:,} tickets in Postgres"
    )
    found = len(audit.violations)
    return f"{found or 'No'} violation{'' if found == 1 else 's'}: {compared}."


def caveats(result: Result) -> list[str]:
    """What a reader should keep in mind about these figures."""
    generator = result.figures.generator
    texts = [
        f"The load generator and Holdfast shared {result.machine.cores} cores; on average a generator process took "
        f"{generator.cpu_mean:.2f} of a core, the busiest {generator.cpu_peak:.2f}."
    ]
    if result.plan.scenario.arrivals_per_s:
        texts.append(
            f"Open load: {generator.arrivals:,} buyers came at a rate that does not depend on how they were served; "
            f"{generator.late:,} began late and {generator.missed:,} were left out."
        )
    else:
        texts.append(
            "Closed load: a buyer asks again only when answered, so a slower server is asked less, and latencies are "
            "better than a crowd would see that does not wait. Use --arrivals-per-s for that."
        )
    others = [sample.cpu[OTHERS] for sample in result.samples if OTHERS in sample.cpu]
    if others and sum(others) / len(others) > OTHERS_CORES:
        texts.append(
            f"Other programs took {sum(others) / len(others):.1f} cores on average: everything was slower for it."
        )
    if unfinished := result.figures.unfinished:
        were = "call was" if unfinished == 1 else "calls were"
        texts.append(f"{unfinished:,} {were} under way when the run ended, and in no figure.")
    return texts


def settings(result: Result) -> list[tuple[str, str]]:
    """How the run was made."""
    plan, scenario = result.plan, result.plan.scenario
    load = f"{scenario.arrivals_per_s:g} buyers per second" if scenario.arrivals_per_s else f"{scenario.users:,} users"
    return [
        ("Load", load),
        ("Length", f"{scenario.duration_s} s"),
        ("Event", f"{scenario.seats:,} seats, {scenario.places:,} places, holds of {scenario.hold_minutes} min"),
        ("Pauses of buyers", f"times {plan.think:g}"),
        ("Generator processes", str(plan.processes)),
        ("Front-end workers", str(result.workers)),
        ("Acknowledgement", "after the commit in Postgres"),
        ("Fails over", ", ".join(f"{each.name} {each.most:g}" for each in plan.fail_over) or "nothing but violations"),
    ]


def machine(result: Result) -> list[tuple[str, str]]:
    """What it was made on."""
    found = result.machine
    return [
        ("System", found.system),
        ("Cores", str(found.cores)),
        ("Load before", f"{found.load_before:g}"),
        *found.versions.items(),
    ]


def _banners(result: Result) -> Iterable[str]:
    kind = "bad" if result.audit.violations else "good"
    head = "The audit failed." if result.audit.violations else "The audit passed."
    yield _banner(kind, head, verdict(result))
    for text in result.figures.generator.warnings:
        yield _banner("warn", "The load generator was a bottleneck.", text)
    for text in result.exceeded:
        yield _banner("bad", "Over the threshold.", text)
    if result.interrupted:
        yield _banner("warn", "Stopped early.", "What there was until then is shown and audited.")


def _banner(kind: str, head: str, text: str) -> str:
    return f'<div class="banner {kind}"><strong>{escape(head)}</strong> {escape(text)}</div>'


def _cards(result: Result) -> str:
    shown = [total for total in result.figures.totals if total.count and total.outcome in _COLOURS]
    cards = [(f"{total.per_s:,.1f}/s", f"{total.outcome}, {total.count:,} in all") for total in shown]
    if result.figures.holding:
        cards.append(
            (f"{result.figures.holding.p99:,.0f} ms", "99 of 100 holds, granted or refused, were answered by then")
        )
    return (
        '<div class="cards">'
        + "".join(f"<div class=card><b>{a}</b><span>{b}</span></div>" for a, b in cards)
        + "</div>"
    )


def _totals(totals: Sequence[Total]) -> str:
    head = "".join(f'<th class="n">{text}</th>' for text in ("count", "per s", "peak/s", "p50 ms", "p95 ms", "p99 ms"))
    rows = []
    for total in totals:
        cells = [f"{total.count:,}", f"{total.per_s:,.1f}", f"{total.peak_per_s:,.1f}", *_times(total.latency)]
        numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        rows.append(f"<tr><td>{total.outcome}<small>{escape(total.says)}</small></td>{numbers}</tr>")
    return f"<table><tr><th>outcome</th>{head}</tr>{''.join(rows)}</table>"


def _by_operation(result: Result) -> str:
    head = "".join(f'<th class="n">{text}</th>' for text in ("count", "p50 ms", "p95 ms", "p99 ms"))
    rows = []
    for each in result.figures.operations:
        numbers = "".join(f'<td class="n">{cell}</td>' for cell in (f"{each.count:,}", *_times(each.latency)))
        rows.append(f"<tr><td>{escape(each.name)}</td>{numbers}</tr>")
    return f"<table><tr><th>answered calls</th>{head}</tr>{''.join(rows)}</table>"


def _reasons(result: Result) -> Iterable[str]:
    """Why calls were put off or failed."""
    if reasons := result.figures.reasons:
        rows = "".join(
            f'<tr><td>{escape(each.outcome)}</td><td>{escape(each.text)}</td><td class="n">{each.count:,}</td></tr>'
            for each in reasons
        )
        yield "<h2>What was put off or failed, and why</h2>"
        yield f'<table><tr><th>outcome</th><th>call and reason</th><th class="n">count</th></tr>{rows}</table>'


def _times(latency: Latency | None) -> list[str]:
    return [f"{value:,.1f}" for value in (latency.p50, latency.p95, latency.p99)] if latency else ["-"] * 3


def _plots(result: Result) -> Iterable[str]:
    over, samples = result.figures.over_time, result.samples
    plots = Plots(result.figures.duration_s, [Moment(mark.at_s, mark.text) for mark in result.marks])
    if result.marks:
        said = "; ".join(f"{mark.at_s:.0f} s: {mark.text}" for mark in result.marks)
        yield f'<p class="soft">Dashed lines: {escape(said)}.</p>'
    for total in result.figures.totals:
        if total.count and total.outcome in _COLOURS:
            note = f"{total.per_s:,.1f}/s on average, {total.peak_per_s:,.1f}/s at most"
            yield plots.bars(
                f"{total.outcome} per second", note, _COLOURS[total.outcome], over.width_s, over.rates[total.outcome]
            )
    middles = [(number + 0.5) * over.width_s for number in range(len(over.p50))]
    percentiles = [
        Line(name, colour, list(zip(middles, values, strict=True)))
        for name, colour, values in (
            ("p50", "best", over.p50),
            ("p95", "hold", over.p95),
            ("p99", "error", over.p99),
        )
    ]
    yield plots.log_lines("latency of holds", "granted and refused, logarithmic", percentiles, "ms")
    yield plots.heat("latency histogram", "share of each moment's holds", over.width_s, over.histogram, BUCKETS_MS)
    yield from _sampled_plots(plots, samples, result)


def _sampled_plots(plots: Plots, samples: Sequence[Sample], result: Result) -> Iterable[str]:
    seen = [sample for sample in samples if sample.free is not None]
    if seen:
        areas = [
            Line("sold", "sale", [(each.at_s, each.sold) for each in seen]),
            Line("held", "hold", [(each.at_s, each.held) for each in seen]),
            Line("free", "free", [(each.at_s, each.free) for each in seen]),
        ]
        places = max((each.sold or 0) + (each.held or 0) + (each.free or 0) for each in seen)
        yield plots.areas("seats and places", "as committed in Postgres", areas, float(max(1, places)))
        yield plots.strip("who serves the event", "", _MODES, [(each.at_s, each.mode) for each in seen])
    entries = [(each.at_s, each.lag_entries) for each in samples]
    ages = [(each.at_s, each.lag_s * 1000 if each.lag_s is not None else None) for each in samples]
    # While Postgres decides there is none.
    if any(entry is not None for _, entry in entries):
        yield plots.lines(
            "persist lag, entries", "decided in Redis, not yet in Postgres", [Line("", "hold", entries)], top=10
        )
        yield plots.lines("persist lag, age", "of the first such entry", [Line("", "hold", ages)], unit="ms", top=10)
    names = list(dict.fromkeys(name for sample in samples for name in sample.cpu))
    lines = [
        Line(name, colour, [(each.at_s, each.cpu.get(name)) for each in samples])
        for name, colour in zip(names, _CPU_COLOURS, strict=False)
    ]
    top = nice_ceiling(max((value for each in samples for value in each.cpu.values()), default=1.0))
    yield plots.lines("processor", f"cores taken, of {result.machine.cores}", lines, top=top)


def _audit(result: Result) -> Iterable[str]:
    violations = result.audit.violations
    yield f"<p>{escape(verdict(result))}</p>"
    yield (
        '<p class="soft">Every call of every buyer was written down. Checked: no seat with two acknowledged live '
        "holds, no zone with more places given than it has, no seat sold twice, no acknowledged hold or sale that "
        "Postgres lacks or has cut short, no answer outside the contract, and that Redis and Postgres agree and all "
        "counters balance (<code>holdfast verify</code>).</p>"
    )
    if violations:
        shown = "\n\n".join(str(violation) for violation in violations[:SHOWN_VIOLATIONS])
        yield f"<pre>{escape(shown)}</pre>"
    if len(violations) > SHOWN_VIOLATIONS:
        yield f"<p>and {len(violations) - SHOWN_VIOLATIONS:,} more, in the JSON file.</p>"


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts)
    return f"<table>{rows}</table>"
