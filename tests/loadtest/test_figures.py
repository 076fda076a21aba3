"""What a run comes to, told from made-up calls."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as Xml

import msgspec
import pytest

from holdfast.engine.settings import Settings
from holdfast.http.tokens import Role, mint_token
from holdfast.loadtest.chaos.history import Call, Operation
from holdfast.loadtest.crowd.records import STOPPED, Pulse, call_tail
from holdfast.loadtest.crowd.shop import Shop
from holdfast.loadtest.crowd.tokens import CannotBegin, read_tokens
from holdfast.loadtest.runs.figures import BUCKETS_MS, Outcome, outcome_of, summarise
from holdfast.loadtest.runs.plots import Line, Moment, Plots, nice_ceiling
from holdfast.loadtest.thresholds import Threshold, exceeded, parse_thresholds


def call(operation: Operation, status: int | None, at_s: float = 0.0, took_s: float = 0.01, **more: Any) -> Call:
    return Call(1, operation, 0, at_s, at_s + took_s, status, **more)


def pulse(at_s: float, *, pid: int = 1, cpu: float = 0.1, **more: Any) -> Pulse:
    return msgspec.structs.replace(Pulse(at_s, pid, 0.5, cpu, 0.0, 10), **more)


@pytest.mark.parametrize(
    ("operation", "status", "outcome"),
    [
        (Operation.RESERVE, 201, Outcome.HOLD),
        (Operation.HOLD, 201, Outcome.HOLD),
        (Operation.BEST, 201, Outcome.BEST),
        (Operation.RESERVE, 409, Outcome.REFUSAL),
        (Operation.BEST, 409, Outcome.REFUSAL),
        # Who holds a seat already holds it no second time.
        (Operation.RESERVE, 200, Outcome.OTHER),
        (Operation.COMPLETE, 200, Outcome.SALE),
        (Operation.COMPLETE, 409, Outcome.OTHER),
        (Operation.FAIL, 200, Outcome.OTHER),
        (Operation.LOOK, 200, Outcome.OTHER),
        (Operation.HOLD, 429, Outcome.PUT_OFF),
        (Operation.LOOK, 503, Outcome.PUT_OFF),
        (Operation.HOLD, 500, Outcome.ERROR),
        (Operation.HOLD, None, Outcome.ERROR),
        (Operation.HOLD, 422, Outcome.ERROR),
    ],
)
def test_every_call_has_one_outcome(operation: Operation, status: int | None, outcome: Outcome) -> None:
    assert outcome_of(call(operation, status)) is outcome


def test_rates_and_latencies_are_told_apart_by_outcome_and_from_the_first_call_on() -> None:
    # Given a run whose first call comes at 3 s: a hold and three refusals a second for ten seconds,
    calls = [call(Operation.RESERVE, 201, 3 + second, 0.1) for second in range(10)]
    calls += [call(Operation.RESERVE, 409, 3 + second, 0.02) for second in range(10) for _ in range(3)]
    # one that is slow, and one that the end cut off,
    calls += [call(Operation.RESERVE, 409, 11, 1.0), call(Operation.HOLD, None, 12, 0.5, error=STOPPED)]

    figures = summarise(calls, [], 1)

    totals = {total.outcome: total for total in figures.totals}
    assert (figures.first_s, figures.calls, figures.unfinished) == (3.0, 42, 1)
    assert figures.duration_s == pytest.approx(9.1)
    assert (totals[Outcome.HOLD].count, totals[Outcome.REFUSAL].count, totals[Outcome.ERROR].count) == (10, 31, 0)
    assert totals[Outcome.HOLD].per_s == pytest.approx(10 / 9.1)
    assert totals[Outcome.HOLD].latency and totals[Outcome.HOLD].latency.p50 == pytest.approx(100)
    assert totals[Outcome.REFUSAL].latency and totals[Outcome.REFUSAL].latency.p99 == pytest.approx(1000)
    assert figures.over_time.width_s == 0.5
    assert figures.over_time.rates[Outcome.REFUSAL][0] == 6.0
    assert sum(map(sum, figures.over_time.histogram)) == 41
    assert figures.shares()["p99"] == pytest.approx(1000)


def test_a_run_without_calls_has_figures_too() -> None:
    figures = summarise([], [], 1)
    assert (figures.calls, figures.holding) == (0, None)
    assert exceeded([Threshold("p99", 1.0)], figures.shares()) == ["p99 could not be measured."]


SATURATED: dict[str, Sequence[Pulse]] = {
    "took 0.97": [pulse(at / 2, cpu=0.97) for at in range(20)],
    "behind": [pulse(at / 2, delay_s=0.4) for at in range(20)],
    "left out": [pulse(1, arrivals=100, missed=1)],
    "began late": [pulse(1, arrivals=100, late=2)],
}


@pytest.mark.parametrize("sign", SATURATED)
def test_a_generator_that_is_the_bottleneck_is_said_to_be(sign: str) -> None:
    (warning,) = summarise([], SATURATED[sign], 1).generator.warnings
    assert sign in warning


def test_a_generator_that_is_busy_for_a_moment_only_is_not_the_bottleneck() -> None:
    pulses = [pulse(at / 2, cpu=1.0 if at == 7 else 0.3, arrivals=10, pid=at % 2) for at in range(40)]
    assert summarise([], pulses, 2).generator.warnings == ()


def test_thresholds_are_read_with_and_without_units() -> None:
    thresholds = parse_thresholds("p99=250ms, errors=0.5%,busy=2")
    assert thresholds == (Threshold("p99", 250.0), Threshold("errors", 0.5), Threshold("busy", 2.0))
    assert exceeded(thresholds, {"p99": 250.0, "errors": 0.6, "busy": 0.0}) == ["errors is 0.6 %, over 0.5 %."]
    with pytest.raises(ArgumentTypeError):
        parse_thresholds("p98=1")


def test_a_history_is_read_as_it_grows_and_a_line_only_when_it_is_complete(tmp_path: Path) -> None:
    tail = call_tail(tmp_path)
    first, second = (msgspec.json.encode(call(Operation.LOOK, 200, at_s)) + b"\n" for at_s in (1.0, 2.0))
    path = tmp_path / "calls-7.jsonl"
    assert list(tail.more()) == []
    path.write_bytes(first + second[:10])
    assert [each.started_s for each in tail.more()] == [1.0]
    path.write_bytes(first + second)
    assert [each.started_s for each in tail.more()] == [2.0]
    assert list(tail.more()) == []


def test_every_worker_takes_other_tokens_of_a_file_and_begins_again_at_its_end(tmp_path: Path) -> None:
    settings = Settings(token_secret="s" * 40)
    organization = uuid4()

    def mint(role: Role) -> str:
        return mint_token(settings, user_id=uuid4(), organization_id=organization, role=role, ttl_seconds=60)

    customers, service = [mint(Role.CUSTOMER) for _ in range(3)], mint(Role.SERVICE)
    path = tmp_path / "tokens"
    path.write_text("\n".join([*customers, service]))
    workers = [read_tokens(path, number, 2) for number in range(2)]

    assert [workers[0].next() for _ in range(3)] == [customers[0], customers[2], customers[0]]
    assert [workers[1].next() for _ in range(2)] == [customers[1], customers[1]]
    assert workers[0].service == service
    path.write_text(service)
    with pytest.raises(CannotBegin):
        read_tokens(path, 0, 1)


def test_buyers_go_where_everybody_may() -> None:
    seats = [{"seat_id": name} for name in ("A-1", "A-2")]
    zones = [
        {"zone_id": "lounge", "access_mode": "membership_tier", "seats": [{"seat_id": "L-1"}]},
        {"zone_id": "hall", "access_mode": "public", "seats": seats},
        {"zone_id": "floor", "access_mode": "public"},
        {"zone_id": "backstage", "access_mode": "whitelist"},
    ]
    shop = Shop.of(uuid4(), zones)

    assert (shop.seats, shop.seated_zones, shop.open_zones) == (("A-1", "A-2"), ("hall",), ("floor",))
    # The map goes on having a letter for every seat.
    assert shop.on_map == ("", "A-1", "A-2")


def test_a_point_without_neighbours_is_drawn() -> None:
    drawn = Plots(10.0).lines("lag", "", [Line("", "hold", [(1.0, None), (2.0, 3.0), (3.0, None)])])
    assert "h0" in drawn


def test_plots_are_well_formed_and_say_what_they_show() -> None:
    plots = Plots(10.0, [Moment(4.0, "Redis is <gone>")])
    lines = [Line("p50", "best", [(0.5, 1.0), (1.0, None), (2.0, 300.0)])]
    drawn = [
        plots.bars("holds per second", "", "hold", 1.0, [0, 1, 250]),
        plots.lines("persist lag", "", lines),
        plots.log_lines("latency", "", lines, "ms"),
        plots.heat("histogram", "", 1.0, [[0] * len(BUCKETS_MS) + [3], [1] + [0] * len(BUCKETS_MS)], BUCKETS_MS),
        plots.areas("seats", "", lines, 400.0),
        plots.strip("mode", "", {"redis": "hold"}, [(0.0, "redis"), (1.0, "redis"), (2.0, "db")]),
    ]
    for svg in drawn:
        texts = "".join(Xml.fromstring(svg).itertext())  # noqa: S314 - it is our own.
        assert "Redis is <gone>" in texts
    # Equal states are one stretch.
    assert drawn[-1].count("<title>") == 3
    assert "3 calls" in drawn[3]


@pytest.mark.parametrize(("value", "ceiling"), [(0, 1), (0.3, 0.4), (1, 1), (7, 8), (1_001, 2_000), (99, 100)])
def test_the_top_of_a_scale_is_a_round_number(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)
