"""`holdfast bench fallback`: a small run on servers of its own, as a program reads it."""

import json

from support.commands import complete


def test_row_locks_are_measured_against_redis_in_one_run() -> None:
    measured = complete("bench", "fallback", "--quick", "--json")

    assert measured.returncode == 0, measured.stderr
    figures = json.loads(measured.stdout)
    assert all(value > 0 for value in figures.values())
    assert figures["row_locks_to_redis"] == figures["row_locks_per_s"] / figures["redis_per_s"]
