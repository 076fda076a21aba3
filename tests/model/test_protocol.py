"""The argument for P1 and P2: no random history of the protocol breaks them, and without a guard some history does.

`run` plays the history of a seed, `shorten` leaves out what it does not need; a failure prints both. docs/protocol.md
explains the guards.
"""

from typing import NamedTuple

import pytest
from model.histories import Broken, replay, run, shorten
from model.protocol import Guards, Step, World

ALL = Guards()
HISTORIES = 6_000
HUNT = 12_000

# The guards without which random histories break a promise, and the promise.
NEEDED = {
    "Postgres takes a second active hold of a seat": ("P2", ["unique_hold"]),
    "a hold is acknowledged when Redis has it": ("P2", ["ack_after_commit"]),
    "writers do not look at mode and epoch": ("P2", ["epoch_check"]),
    "scripts do not look for the open key": ("P2", ["open_key"]),
    "nobody asks a new connection which server it leads to": ("P2", ["identity_on_connect"]),
    "missing scripts are loaded on any server": ("P2", ["script_fence", "identity_on_connect"]),
    "the scripts serve on any server, whatever it has": ("P2", ["open_key", "script_fence", "identity_on_connect"]),
    "Redis's clock decides in Postgres what has expired": ("P2", ["postgres_clock"]),
    "what an old epoch left in its log is applied": ("P2", ["quarantine"]),
    "an epoch's number is used again": ("P2", ["fresh_epochs"]),
    "holds go on in Postgres while Redis takes over": ("P2", ["cutover_lock"]),
}


class Course(NamedTuple):
    """What random histories meet too seldom to wait for it."""

    promise: str
    without: list[str]
    steps: list[Step]


def _step(name: str, a: int = 0, b: int = 0, c: int = 0) -> Step:
    return name, a, b, c


_PERSIST = [_step("read", 0, 3), _step("commit", 0)]
_HELD = [_step("hold"), *_PERSIST, _step("hear"), _step("answer")]
_HOLD_TIME = [_step("tick", 3)] * 3

COURSES = {
    "a hold that was sold to another after it had expired is sold as well": Course(
        "P1",
        ["unique_ticket"],
        [
            _step("fall_back"),
            _step("hear_mode"),
            _step("hold", 0, 0),
            *_HOLD_TIME,
            _step("hold", 0, 1),
            _step("sell", 0, 1),
            _step("sell", 0, 0),
        ],
    ),
    "a front end that missed the change repeats what has ended since": Course(
        "P2",
        ["repeats_in_current_epoch"],
        [
            *_HELD,
            _step("fall_back"),
            _step("hear_mode", 0),
            _step("release", 0),
            _step("hold", 1),
            _step("hear", 1),
            _step("answer", 1),
        ],
    ),
    "a hold that was refused once and granted later is given back for the refusal": Course(
        "P2",
        ["compensate_own_epoch"],
        [
            *_HELD,
            _step("drift", 0, 6),
            _step("hold", 1, 1),
            *_PERSIST,
            _step("give_up", 1),
            _step("fall_back"),
            _step("hear_mode", 1),
            _step("release", 1),
            _step("repeat", 1),
            _step("compensate"),
        ],
    ),
    "a keeper that was overtaken applies an old extension": Course(
        "P2",
        ["compare_and_set", "ordered_extensions"],
        [
            *_HELD,
            _step("extend"),
            _step("read", 1),
            _step("extend"),
            *_PERSIST,
            _step("hear"),
            _step("answer"),
            _step("answer"),
            _step("commit", 1),
        ],
    ),
}

# Guards that another one stands behind: removing one of them alone breaks no promise.
SECOND_LINES = ["script_fence", "compare_and_set", "ordered_extensions"]


def test_no_history_breaks_a_promise() -> None:
    broken = _first_broken(ALL, HISTORIES)
    assert broken is None, f"seed {broken.seed}, shortened:\n{broken}"


def test_histories_come_to_all_that_matters() -> None:
    # Given what has happened by the end of some histories,
    ended = [_play(seed) for seed in range(200)]

    # then they are no idle walks: holds were acknowledged, sold and refused, and Redis was lost and came back.
    assert sum(told.acknowledged for world in ended for told in world.told.values()) > 300
    assert sum(len(world.postgres.tickets) for world in ended) > 20
    assert sum(len(world.postgres.rejections) for world in ended) > 5
    assert sum(world.postgres.epoch > 2 and world.postgres.mode == "redis" for world in ended) > 20


@pytest.mark.parametrize("name", NEEDED)
def test_without_a_guard_a_promise_is_broken(name: str) -> None:
    promise, without = NEEDED[name]
    broken = _first_broken(_without(without), HUNT)
    assert broken is not None, f"nothing was broken in {HUNT} histories without {', '.join(without)}"

    # The shortest form of what happened tells the same, and with all guards it is harmless.
    assert promise in broken.promise, broken
    assert replay(ALL, broken.seed, broken.steps) is None


@pytest.mark.parametrize("name", COURSES)
def test_a_course_of_events_breaks_a_promise_without_a_guard(name: str) -> None:
    course = COURSES[name]
    steps = tuple(course.steps)
    broken = replay(_without(course.without), 0, steps)
    assert broken is not None
    assert course.promise in broken.promise, broken
    assert len(broken.steps) == len(steps), f"not all of it was possible:\n{broken}"
    assert replay(ALL, 0, steps) is None


@pytest.mark.parametrize("guard", SECOND_LINES)
def test_a_second_line_is_not_needed_while_the_first_holds(guard: str) -> None:
    assert _first_broken(_without([guard]), HISTORIES // 4) is None


def _first_broken(guards: Guards, histories: int) -> Broken | None:
    for seed in range(histories):
        if broken := run(guards, seed):
            return shorten(broken)
    return None


def _without(names: list[str]) -> Guards:
    return Guards(**dict.fromkeys(names, False))


def _play(seed: int) -> World:
    world = World(ALL)
    run(ALL, seed, world)
    return world
