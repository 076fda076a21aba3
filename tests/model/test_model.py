"""Random workloads against the oracle, on every server at hand, and proof that the oracle notices a broken rule."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from model.machine import ADDRESSES, BOX, FLOOR, POLICIES, SEATS, USERS, EngineMachine
from model.rig import redis_rig
from model.row_lock_rig import row_lock_rig

from holdfast.embedded import start_valkey
from holdfast.engine import redis_backend, shards
from holdfast.engine.errors import ScriptFault
from holdfast.engine.policy import Policy
from holdfast.engine.status import Status
from holdfast.lua import SCRIPTS, load_scripts
from holdfast.persistence import row_lock_admin, row_lock_changes, row_lock_holds

# A failure prints its steps and a blob for @reproduce_failure on the machine; `--hypothesis-seed` repeats a whole run.
WORKLOADS = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase != Phase.explain],
)
# Every step is several transactions here.
ROW_LOCK_WORKLOADS = settings(WORKLOADS, max_examples=40, stateful_step_count=30)
# A broken rule only has to be noticed, always in the same way: no shrinking, no memory.
HUNT = settings(WORKLOADS, max_examples=300, derandomize=True, database=None, print_blob=False, phases=[Phase.generate])


class Guard(NamedTuple):
    """Where a guard is, and what is left of it once it is broken."""

    file: str
    text: str
    rest: str


# What any workload trips over soon.
COMMON_GUARDS = {
    "a taken seat is not noticed": Guard("include/find_obstacles.lua", "if byte ~= '.' then", "if byte == '|' then"),
    "a full zone is not noticed": Guard(
        "include/find_short_zones.lua", "elseif totals[zone] > room then", "elseif false then"
    ),
    "blocked places count as free": Guard("include/find_short_zones.lua", "(zone_seats == 0 and blocked or 0)", "0"),
    "a hold id can be used twice": Guard("include/known_hold.lua", "hold.fingerprint ~= ARG_FINGERPRINT", "false"),
    "an old configuration is served": Guard("include/admission.lua", "event_version ~= ARG_VERSION", "false"),
    "seats are together across an aisle": Guard("include/clean_run.lua", "string.rep('.', units)", "'.'"),
    "a seat is left alone": Guard("include/clean_run.lua", "found + units + 1) == FREE", "found + units) == FREE"),
    "an extension has no limit": Guard("extend_holds.lua", "hold.created_ms + total_ms", "ends[i] + extension_ms"),
    "anybody's hold can be released": Guard("release_holds.lua", "hold.user ~= ARG_USER", "false"),
    "expired units are not given back": Guard("include/end_holds.lua", "move_units(negate(freed), {}, {})", ""),
}

Play = Callable[[EngineMachine], None]


def two_expired_holds_of_a_seat_in_one_sale(machine: EngineMachine) -> None:
    machine.hold(user=USERS[0], address="", wish=[SEATS[0]], places=[], stale=False)
    machine.let_lapse_to_another(pick=0, user=USERS[1], again=True, reap=True)
    machine.confirm_rivals(pick=0, sale="s1")


def an_expired_and_an_overdue_hold_of_a_seat_in_one_sale(machine: EngineMachine) -> None:
    machine.hold(user=USERS[0], address="", wish=[SEATS[0]], places=[], stale=False)
    machine.let_lapse(pick=0, reap=True)
    machine.hold(user=USERS[1], address="", wish=[SEATS[0]], places=[], stale=False)
    machine.let_lapse(pick=0, reap=False)
    machine.confirm_rivals(pick=0, sale="s1")


def a_payment_for_an_expired_hold_of_a_taken_seat(machine: EngineMachine) -> None:
    machine.hold(user=USERS[0], address="", wish=[SEATS[0]], places=[], stale=False)
    machine.let_lapse_to_another(pick=0, user=USERS[1], again=False, reap=True)
    machine.confirm(picks=[1], nonsense=False, user=None, sale="s1")


def a_payment_for_expired_places_of_a_full_zone(machine: EngineMachine) -> None:
    machine.hold_places(user=USERS[0], address="", count=4)
    machine.let_lapse(pick=0, reap=True)
    machine.hold_places(user=USERS[1], address="", count=4)
    machine.let_lapse(pick=0, reap=False)
    machine.confirm(picks=[1], nonsense=False, user=None, sale="s1")


def a_release_after_a_sale(machine: EngineMachine) -> None:
    machine.hold(user=USERS[0], address="", wish=[SEATS[0]], places=[], stale=False)
    machine.confirm(picks=[0], nonsense=False, user=None, sale="s1")
    machine.release(picks=[0], nonsense=False, user=None, reason="user_cancelled", checkout="")


def a_second_sale(machine: EngineMachine) -> None:
    machine.hold(user=USERS[0], address="", wish=[SEATS[0]], places=[], stale=False)
    machine.confirm(picks=[0], nonsense=False, user=None, sale="s1")
    machine.confirm(picks=[0], nonsense=False, user=None, sale="s2")


def own_seats_in_a_full_zone(machine: EngineMachine) -> None:
    box = [seat for seat in SEATS if seat.zone == BOX]
    machine.hold(user=USERS[0], address="", wish=box[:3], places=[], stale=False)
    machine.hold(user=USERS[0], address="", wish=box[2:4], places=[(FLOOR, 1)], stale=False)


def a_block_of_a_held_seat(machine: EngineMachine) -> None:
    machine.hold(user=USERS[0], address="", wish=[SEATS[0]], places=[], stale=False)
    machine.administer(blocking=True, wish=[SEATS[0]], places=[], stale=False)


def more_than_an_address_may_hold(machine: EngineMachine) -> None:
    for user in USERS[:2]:
        machine.hold_places(user=user, address=ADDRESSES[1], count=4)


def more_than_a_user_may_reserve_at_a_time(machine: EngineMachine) -> None:
    for _ in range(3):
        machine.hold_places(user=USERS[0], address="", count=4)
        machine.release(picks=[0], nonsense=False, user=None, reason="user_cancelled", checkout="")


# What a workload meets too seldom to wait for it: what happens is written down.
RARE_GUARDS: dict[str, tuple[Play, Policy, Guard]] = {
    "two holds of one sale get the same seat": (
        two_expired_holds_of_a_seat_in_one_sale,
        POLICIES[0],
        Guard("include/find_lost_seats.lua", "named[ordinal] or", ""),
    ),
    "a hold of the sale makes way for another": (
        an_expired_and_an_overdue_hold_of_a_seat_in_one_sale,
        POLICIES[0],
        Guard("include/find_lost_seats.lua", "not keeping[owner] and", ""),
    ),
    "a lost seat is sold again": (
        a_payment_for_an_expired_hold_of_a_taken_seat,
        POLICIES[0],
        Guard("include/find_lost_seats.lua", "not is_free and not is_due", "false"),
    ),
    "an overdue hold is in the way of a payment": (
        a_payment_for_expired_places_of_a_full_zone,
        POLICIES[0],
        Guard("confirm_holds.lua", "not due_seen[id] and not keeping[id]", "false"),
    ),
    "a sold seat can be released": (
        a_release_after_a_sale,
        POLICIES[0],
        Guard("release_holds.lua", "elseif hold.state == STATE_SOLD then", "elseif false then"),
    ),
    "a sale may be repeated by another": (
        a_second_sale,
        POLICIES[0],
        Guard("confirm_holds.lua", "hold.checkout == ARG_SALE and", ""),
    ),
    "own seats count against the room": (
        own_seats_in_a_full_zone,
        POLICIES[0],
        Guard("include/leave_out_own_seats.lua", "and lacking > 0", ""),
    ),
    "a held seat can be blocked": (
        a_block_of_a_held_seat,
        POLICIES[0],
        Guard("block_seats.lua", "find_lost_seats(seat[3]) ~= ''", "false"),
    ),
    "the limit of an address is ignored": (
        more_than_an_address_may_hold,
        POLICIES[2],
        Guard("include/holder_limits.lua", "address_live + units > address_units", "false"),
    ),
    "the window of the rate limit is ignored": (
        more_than_a_user_may_reserve_at_a_time,
        POLICIES[1],
        Guard("include/holder_limits.lua", "user_recent + units > window_units", "user_recent > window_units"),
    ),
}

# The same for row locks, whose rules are functions.
ROW_LOCK_GUARDS: dict[str, tuple[ModuleType, str, object]] = {
    "a taken seat is not noticed": (row_lock_holds, "_obstacle", lambda *_: None),
    "a limit is ignored": (row_lock_holds, "_over_limit", lambda *_: None),
    "an old configuration is served": (row_lock_holds, "_admission", lambda *_: None),
    "a hold id can be used twice": (row_lock_holds, "_known", lambda *_: None),
    "a lost seat is sold again": (row_lock_changes, "_find_lost_seats", lambda *_: ({}, [])),
    "a hold can be sold twice": (row_lock_changes, "_sellable", lambda *_: Status.DONE),
    "an extension has no limit": (row_lock_changes, "_extended", lambda hold, wish: hold.ends_ms + wish.extension_ms),
}


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Valkey that Holdfast brings along, and a Redis where there is one."""
    if request.param == "valkey":
        yield request.getfixturevalue("redis_url")
        return
    executable = shutil.which("redis-server")
    if executable is None:
        pytest.skip("there is no redis-server on PATH")
    server = start_valkey(tmp_path_factory.mktemp("redis") / "redis", executable=Path(executable))
    try:
        yield server.url
    finally:
        server.stop()


def test_every_answer_and_the_whole_state_are_as_the_rules_say(server_url: str) -> None:
    class Machine(EngineMachine):
        open_rig = partial(redis_rig, server_url)

    run_state_machine_as_test(Machine, settings=WORKLOADS)


def test_row_locks_answer_and_keep_everything_as_the_rules_say(database_dsn: str) -> None:
    class Machine(EngineMachine):
        open_rig = partial(row_lock_rig, database_dsn)

    run_state_machine_as_test(Machine, settings=ROW_LOCK_WORKLOADS)


@pytest.mark.parametrize("guard", ROW_LOCK_GUARDS)
def test_a_workload_shows_a_broken_rule_of_row_locks(
    database_dsn: str, guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine(EngineMachine):
        open_rig = partial(row_lock_rig, database_dsn)

    monkeypatch.setattr(*ROW_LOCK_GUARDS[guard])

    # Some workload shows it: by a wrong answer, a wrong state, or a change that Postgres does not take.
    with pytest.raises((AssertionError, ScriptFault)):
        run_state_machine_as_test(Machine, settings=HUNT)


@pytest.mark.parametrize("guard", COMMON_GUARDS)
def test_a_workload_shows_a_broken_rule(
    redis_url: str, guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine(EngineMachine):
        open_rig = partial(redis_rig, redis_url)

    # Given scripts in which one guard is broken, and nothing else has changed,
    _serve_with_broken(COMMON_GUARDS[guard], tmp_path, monkeypatch)

    # then some workload shows it: by a wrong answer, a wrong state, or a script that trips over what it finds.
    with pytest.raises((AssertionError, ScriptFault)):
        run_state_machine_as_test(Machine, settings=HUNT)


@pytest.mark.parametrize("guard", RARE_GUARDS)
def test_a_course_of_events_shows_a_broken_rule(
    redis_url: str, guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine(EngineMachine):
        open_rig = partial(redis_rig, redis_url)

    play, policy, broken = RARE_GUARDS[guard]

    # Given a course of events to which the true scripts answer as the rules say,
    _act(Machine, policy, play)

    # when one guard is broken,
    _serve_with_broken(broken, tmp_path, monkeypatch)

    # then the machine notices.
    with pytest.raises((AssertionError, ScriptFault)):
        _act(Machine, policy, play)


@pytest.mark.parametrize("guard", RARE_GUARDS)
def test_row_locks_take_the_same_course(database_dsn: str, guard: str) -> None:
    class Machine(EngineMachine):
        open_rig = partial(row_lock_rig, database_dsn)

    play, policy, _ = RARE_GUARDS[guard]
    _act(Machine, policy, play)


def test_a_course_of_events_shows_a_broken_rule_of_row_locks(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine(EngineMachine):
        open_rig = partial(row_lock_rig, database_dsn)

    monkeypatch.setattr(row_lock_admin, "_unblockable_seat", lambda *_: None)
    with pytest.raises(AssertionError):
        _act(Machine, POLICIES[0], a_block_of_a_held_seat)


def _act(machine: type[EngineMachine], policy: Policy, play: Play) -> None:
    acting = machine()
    try:
        acting.open_event(policy=policy)
        play(acting)
        acting.state_is_as_expected()
    finally:
        acting.teardown()


def _serve_with_broken(guard: Guard, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything that loads scripts load them with one guard broken."""
    copy = shutil.copytree(SCRIPTS, folder / "lua", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    path = copy / guard.file
    text = path.read_text()
    assert text.count(guard.text) == 1, f"{guard.file} no longer has the guard {guard.text!r} once"
    path.write_text(text.replace(guard.text, guard.rest))
    broken = load_scripts(copy)
    monkeypatch.setattr(redis_backend, "scripts", lambda: broken)
    monkeypatch.setattr(shards, "scripts", lambda: broken)
