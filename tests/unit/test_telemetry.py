"""Counting, and adding up what several processes have counted."""

from pathlib import Path

import pytest

from holdfast.engine import telemetry, worker_files
from holdfast.engine.status import Status
from holdfast.engine.telemetry import SECONDS, Histogram, Sample, add_up


def value(samples: tuple[Sample, ...], name: str, **labels: str) -> float:
    (found,) = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
    return found


@pytest.mark.parametrize("status", Status)
def test_every_outcome_of_a_hold_is_counted_once(status: Status) -> None:
    def outcomes() -> float:
        names = ("holdfast_hold_successes", "holdfast_hold_conflicts", "holdfast_hold_refusals")
        return sum(sample.value for sample in telemetry.samples() if sample.name in names)

    before, attempts = outcomes(), value(telemetry.samples(), "holdfast_hold_attempts", method="redis")

    telemetry.count_hold(status, "redis", "redis", 0.001)

    assert outcomes() == before + 1
    assert value(telemetry.samples(), "holdfast_hold_attempts", method="redis") == attempts + 1


def test_a_histogram_puts_a_time_into_the_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = Histogram("x", "x", {})
    for seconds in (0.0, SECONDS[0], SECONDS[0] + 1e-9, 1e9):
        histogram.observe(seconds)

    buckets = histogram.sample().buckets

    assert (buckets[0], buckets[1], buckets[-1]) == (2, 1, 1)
    assert sum(buckets) == 4


def test_processes_add_up() -> None:
    here = (Sample("counter", "a", "", {"x": "1"}, 2), Sample("histogram", "h", "", {}, 0.5, (1, 0)))
    there = (Sample("counter", "a", "", {"x": "2"}, 5), Sample("counter", "a", "", {"x": "1"}, 3))
    elsewhere = (Sample("histogram", "h", "", {}, 1.5, (2, 7)),)

    sums = add_up([here, there, elsewhere])

    assert value(sums, "a", x="1") == 5
    assert value(sums, "a", x="2") == 5
    assert [sample.buckets for sample in sums if sample.name == "h"] == [(3, 7)]
    assert value(sums, "h") == 2.0


def test_a_worker_adds_what_the_others_wrote_to_what_it_knows_itself(tmp_path: Path) -> None:
    worker_files.write(tmp_path)
    mine = value(worker_files.read_all(tmp_path), "holdfast_holds_converted")
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / "1.numbers")
    telemetry.converted.value += 3

    assert value(worker_files.read_all(tmp_path), "holdfast_holds_converted") == 2 * mine + 3
    assert worker_files.read_all(None) == telemetry.samples()
