"""The checker finds every kind of untruth in made-up histories, and nothing in a true one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.engine.acks import Ack
from holdfast.loadtest.chaos.checker import Limits, Rule, Stored, StoredHold, check
from holdfast.loadtest.chaos.history import Call, Operation, Told, lives, read_history, write_history

LIMITS = Limits(call_s=10.0, capacities={"floor": 4})
END_S = 100.0


def call(operation: Operation, at_s: float, *holds: str, **changes: Any) -> Call:
    """A call that is answered well after a tenth of a second."""
    usual = Call(1, operation, 0, at_s, at_s + 0.1, 200, holds=holds)
    return msgspec.structs.replace(usual, **changes)


def held(hold: str, at_s: float, *seats: str, places: int = 0, until_s: float = END_S, **changes: Any) -> Call:
    told = (Told(hold, until_s, seats, {"floor": places} if places else {}),)
    return call(Operation.HOLD, at_s, status=201, told=told, **changes)


def row(status: str = "active", until_s: float = END_S, ended_s: float | None = None, units: int = 1) -> StoredHold:
    return StoredHold(status, until_s, ended_s, units)


def rules(calls: Sequence[Call], holds: dict[str, StoredHold], *tickets: tuple[str | None, str]) -> list[Rule]:
    return [violation.rule for violation in check(calls, Stored(holds, tickets), LIMITS)]


def test_a_true_history_is_in_order() -> None:
    # Given holds one after the other on one seat, ended by release, expiry, a failed payment, a sale and a late sale,
    calls = [
        held("a", 0, "1"),
        call(Operation.RELEASE, 1, "a"),
        held("b", 1.05, "1", until_s=5),
        held("c", 5.01, "1"),
        call(Operation.EXTEND, 6, "c", told=(Told("c", END_S + 10),)),
        call(Operation.CHECKOUT, 7, "c", told=(Told("c", END_S + 20),)),
        call(Operation.FAIL, 8, "c"),
        held("d", 8.2, "1"),
        call(Operation.COMPLETE, 9, "d"),
        held("e", 9, "2", places=2),
        held("g", 0, "3", until_s=2),
        held("h", 2.1, "3"),
        call(Operation.RELEASE, 3, "h"),
        call(Operation.COMPLETE, 4, "g"),
        held("f", 9, places=2),
        # and calls that were refused, put off, or never answered by a front end that was killed,
        call(Operation.RESERVE, 10, status=409, error="seat_held_by_another_user"),
        call(Operation.RESERVE, 10, status=503, retry_after=True),
    ]
    stored = {
        "a": row("cancelled"),
        "b": row("expired", 5, 5.0),
        "c": row("cancelled"),
        "d": row("converted"),
        "e": row(units=3),
        "f": row(units=2),
        "g": row("converted"),
        "h": row("cancelled"),
    }

    # then there is nothing to say.
    assert rules(calls, stored, ("1", "d"), ("3", "g")) == []


Case = tuple[Rule, list[Call], dict[str, StoredHold], list[tuple[str | None, str]]]

UNTRUTHS: dict[str, Callable[[], Case]] = {
    "two live holds of a seat": lambda: (
        Rule.OVERLAP,
        [held("a", 0, "1", "2"), held("b", 1, "2")],
        {"a": row(units=2), "b": row()},
        [],
    ),
    "a hold again before the first was given up": lambda: (
        Rule.OVERLAP,
        [held("a", 0, "1"), held("b", 1, "1"), call(Operation.RELEASE, 2, "a")],
        {"a": row("cancelled"), "b": row()},
        [],
    ),
    "a hold again while an extension runs": lambda: (
        Rule.OVERLAP,
        [
            held("a", 0, "1", until_s=5),
            call(Operation.EXTEND, 1, "a", told=(Told("a", 50),)),
            held("b", 6, "1"),
        ],
        {"a": row(until_s=50), "b": row()},
        [],
    ),
    "a hold of a seat that is sold": lambda: (
        Rule.OVERLAP,
        [held("a", 0, "1", until_s=5), call(Operation.COMPLETE, 1, "a"), held("b", 20, "1")],
        {"a": row("converted"), "b": row()},
        [("1", "a")],
    ),
    "more places than there are": lambda: (
        Rule.CAPACITY,
        [held("a", 0, places=3), held("b", 1, places=2)],
        {"a": row(units=3), "b": row(units=2)},
        [],
    ),
    "a seat with two tickets": lambda: (
        Rule.SOLD_TWICE,
        [held("a", 0, "1", until_s=5), call(Operation.COMPLETE, 1, "a")],
        {"a": row("converted")},
        [("1", "a"), ("1", "b")],
    ),
    "a seat that two buyers were sold": lambda: (
        Rule.SOLD_TWICE,
        [
            held("a", 0, "1", until_s=5),
            held("b", 6, "1"),
            call(Operation.COMPLETE, 7, "b"),
            call(Operation.COMPLETE, 8, "a"),
        ],
        {"a": row("converted"), "b": row("converted")},
        [("1", "a"), ("1", "b")],
    ),
    "a hold that Postgres does not have": lambda: (Rule.LOST_HOLD, [held("a", 0, "1")], {}, []),
    "a hold of which Postgres has a part": lambda: (Rule.LOST_HOLD, [held("a", 0, "1", "2")], {"a": row()}, []),
    "a hold that was cancelled by nobody": lambda: (Rule.LOST_HOLD, [held("a", 0, "1")], {"a": row("cancelled")}, []),
    "a hold that expired early": lambda: (
        Rule.LOST_HOLD,
        [held("a", 0, "1")],
        {"a": row("expired", END_S, 50.0)},
        [],
    ),
    "an extension that Postgres does not have": lambda: (
        Rule.LOST_HOLD,
        [held("a", 0, "1"), call(Operation.EXTEND, 1, "a", told=(Told("a", END_S + 50),))],
        {"a": row()},
        [],
    ),
    "a hold that its owner is told does not exist": lambda: (
        Rule.LOST_HOLD,
        [held("a", 0, "1"), call(Operation.EXTEND, 1, "a", status=404, error="hold_not_found")],
        {"a": row()},
        [],
    ),
    "a hold that was sold without a payment": lambda: (
        Rule.LOST_HOLD,
        [held("a", 0, "1")],
        {"a": row("converted")},
        [("1", "a")],
    ),
    "a sale without a ticket": lambda: (
        Rule.LOST_SALE,
        [held("a", 0, "1"), call(Operation.COMPLETE, 1, "a")],
        {"a": row("converted")},
        [],
    ),
    "a sale that is still a hold": lambda: (
        Rule.LOST_SALE,
        [held("a", 0, "1"), call(Operation.COMPLETE, 1, "a")],
        {"a": row()},
        [],
    ),
    "a server error": lambda: (Rule.ANSWERS, [call(Operation.RESERVE, 0, status=500)], {}, []),
    "a gateway error": lambda: (Rule.ANSWERS, [call(Operation.RESERVE, 0, status=504)], {}, []),
    "an answer that nobody expects": lambda: (Rule.ANSWERS, [call(Operation.RESERVE, 0, status=400)], {}, []),
    "busy, and nobody says until when": lambda: (Rule.ANSWERS, [call(Operation.RESERVE, 0, status=503)], {}, []),
    "a call that hangs": lambda: (Rule.ANSWERS, [call(Operation.RESERVE, 0, ended_s=10.5)], {}, []),
    "no answer": lambda: (Rule.ANSWERS, [call(Operation.RESERVE, 0, status=None, error="reset")], {}, []),
}


@pytest.mark.parametrize("name", UNTRUTHS)
def test_an_untruth_is_found(name: str) -> None:
    rule, calls, holds, tickets = UNTRUTHS[name]()
    assert rules(calls, holds, *tickets)[:1] == [rule]


def test_the_first_violation_comes_first_with_the_calls_around_it() -> None:
    calls = [held("a", 0, "1"), held("c", 2, "9"), held("b", 1, "1"), call(Operation.RESERVE, 5, status=500)]
    found = check(calls, Stored({"a": row(), "b": row(), "c": row()}, []), LIMITS)
    assert [violation.rule for violation in found] == [Rule.OVERLAP, Rule.ANSWERS]
    assert found[0].calls == (str(calls[0]), str(calls[2]))


def test_a_hold_that_was_only_in_redis_counts_where_it_is_called_durable() -> None:
    calls = [held("a", 0, "1", durable=Ack.REDIS)]
    assert rules(calls, {}) == []
    strict = msgspec.structs.replace(LIMITS, durable=frozenset(Ack))
    assert [violation.rule for violation in check(calls, Stored({}, []), strict)] == [Rule.LOST_HOLD]


def test_a_front_end_that_was_killed_may_break_connections_and_no_other() -> None:
    broken = [call(Operation.RESERVE, 0, status=None, error="reset", front_end=number) for number in (0, 1)]
    limits = msgspec.structs.replace(LIMITS, breaking=frozenset({0}))
    found = check(broken, Stored({}, []), limits)
    assert [violation.calls for violation in found] == [(str(broken[1]),)]


def test_a_hold_that_is_acknowledged_again_after_an_unknown_release_lives_again() -> None:
    # Given a release that nobody answered, after which its user asks for the seat and is told of the same hold,
    calls = [
        held("a", 0, "1"),
        call(Operation.RELEASE, 1, "a", status=503, retry_after=True),
        held("a", 2, "1"),
    ]
    intervals = lives(calls)["a"].intervals

    # then it was live before and is again, and not in between.
    assert [(each.start_s, each.end_s) for each in intervals] == [(0.1, 1), (2.1, END_S)]


def test_a_history_can_be_written_and_read(tmp_path: Path) -> None:
    calls = [held("a", 0, "1", places=2), call(Operation.RELEASE, 1, "a", status=None, error="reset")]
    write_history(tmp_path / "calls.jsonl", calls)
    assert read_history(tmp_path / "calls.jsonl") == calls
