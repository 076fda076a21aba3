"""`holdfast bench`: small runs on servers of their own, as a program reads them."""

import json
import subprocess

from support.commands import HOLDFAST, complete


def test_row_locks_are_measured_against_redis_in_one_run() -> None:
    measured = complete("bench", "fallback", "--quick", "--json")

    assert measured.returncode == 0, measured.stderr
    figures = json.loads(measured.stdout)
    assert all(value > 0 for value in figures.values())
    assert figures["row_locks_to_redis"] == figures["row_locks_per_s"] / figures["redis_per_s"]


def test_holds_are_measured_among_many_holds_and_many_connections() -> None:
    measured = complete("bench", "scale", "--quick", "--json", timeout_s=110)

    assert measured.returncode == 0, measured.stderr
    figures = json.loads(measured.stdout)
    holds, connections = figures["holds"], figures["connections"]
    assert all(value > 0 for value in holds.values())
    assert holds["crowded_to_alone"] == holds["crowded_us"] / holds["alone_us"]
    # Nobody was dropped, and every reader was told of every seat once.
    assert connections["idle_answered"] == connections["idle"] > 0
    assert connections["readers_complete"] == connections["readers"] > 0
    assert connections["to_alone"]["alone"] == 1
    assert connections["to_alone"]["idle"] > 0
    assert connections["to_alone"]["watched"] > 0


def test_too_few_open_files_are_said_to_be_too_few_before_anything_starts() -> None:
    limited = ["sh", "-c", 'ulimit -n 1000 && exec "$@"', "sh", *HOLDFAST, "bench", "scale"]
    measured = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)

    assert measured.returncode == 1
    assert "needs 11,256 open files" in measured.stderr
    assert "limit is 1,000" in measured.stderr


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
    of_category = json.loads(measured.stdout)["allocate_of_category_to_hold"]
    assert {"aisle_2_at_0", "standard_8_at_95", "restricted_view_4_at_50", "aisle_1_gone"} <= of_category.keys()
    assert all(value > 0 for value in of_category.values())
