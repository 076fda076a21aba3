"""`holdfast bench`: small runs on servers of their own, as a program reads them."""

import json

from support.commands import complete


def test_row_locks_are_measured_against_redis_in_one_run() -> None:
    measured = complete("bench", "fallback", "--quick", "--json")

    assert measured.returncode == 0, measured.stderr
    figures = json.loads(measured.stdout)
    assert all(value > 0 for value in figures.values())
    assert figures["row_locks_to_redis"] == figures["row_locks_per_s"] / figures["redis_per_s"]


def test_holdfast_and_the_plain_ways_are_measured_in_one_run() -> None:
    measured = complete("bench", "compare", "--quick", "--json", timeout_s=110)

    assert measured.returncode == 0, measured.stderr
    comparison = json.loads(measured.stdout)
    assert set(comparison["contenders"]) == {"durable", "fast", "row_lock", "dual_write", "redis_only", "noop"}
    for contender in comparison["contenders"].values():
        assert 0 < contender["per_s"]["min"] <= contender["per_s"]["median"] <= contender["per_s"]["max"]
    assert comparison["contenders"]["noop"]["to_noop"] == {"median": 1, "min": 1, "max": 1}
    for goal in comparison["goals"].values():
        assert goal["met"] == (goal["ratio"]["median"] >= goal["goal"])


def test_scripts_are_measured_with_all_rules_on() -> None:
    measured = complete("bench", "script", "--quick", "--json", timeout_s=110)

    assert measured.returncode == 0, measured.stderr
    multiples = json.loads(measured.stdout)["allocate_with_all_rules_to_hold"]
    assert set(multiples) == {f"{seats}_at_{sold}" for seats in (1, 2, 4, 8) for sold in (0, 50, 95)}
    assert all(value > 0 for value in multiples.values())
