"""`holdfast chaos` as its users meet it."""

import json

import pytest

from holdfast.commands.chaos import table
from holdfast.loadtest.chaos.faults import FAULTS
from holdfast.loadtest.chaos.rounds import Round
from support.commands import complete


def test_a_round_is_played_and_told_as_json() -> None:
    done = complete("chaos", "--fault", "cut", "--seed", "3", "--duration", "1", "--json")
    assert done.returncode == 0, done.stderr
    (played,) = json.loads(done.stdout)
    assert (played["fault"], played["seed"], played["violations"]) == ("cut", 3, [])
    assert played["acknowledged"] > 0


def test_the_help_names_every_fault() -> None:
    shown = complete("chaos", "--help").stdout
    assert [fault for fault in FAULTS if fault not in shown] == []


@pytest.mark.parametrize("arguments", [[], ["--fault", "nonsense"], ["--all", "--rounds", "0"]])
def test_what_cannot_be_played_is_a_wrong_use(arguments: list[str]) -> None:
    assert complete("chaos", *arguments).returncode == 2


def test_the_table_has_a_line_for_each_fault_with_the_worst_time() -> None:
    rounds = [
        Round("cut", 1, 100, 10, 1, 0, 0.5, 0.2, 0.3, 0.1, 2, ()),
        Round("cut", 2, 100, 20, 2, 0, 1.5, 0.2, 0.3, 0.1, 2, ()),
        Round("flushall", 1, 100, 5, 0, 9, 2.0, 0.2, 0.3, 1.0, 2, ()),
    ]
    lines = table(rounds).splitlines()[2:]
    assert lines == ["| cut | 2 | 30 | 3 | 0 | 1.5 s |", "| flushall | 1 | 5 | 0 | 0 | 2.0 s |"]
