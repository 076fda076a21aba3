"""The registry of outcomes: one table in Lua, one in Python, and what each means to a caller."""

import re

import pytest

from holdfast.engine.status import Status
from holdfast.lua import SCRIPTS, scripts

NUMBERED = re.findall(
    r"^local ([A-Z_]+) = (\d+)$", (SCRIPTS / "include" / "status.lua").read_text(), flags=re.MULTILINE
)


def test_lua_and_python_number_the_same_outcomes_alike() -> None:
    assert [(name, int(number)) for name, number in NUMBERED] == [(status.name, status.value) for status in Status]


def test_no_number_and_no_name_is_used_twice() -> None:
    names, numbers = [name for name, _ in NUMBERED], [number for _, number in NUMBERED]

    assert len(set(names)) == len(names)
    assert len(set(numbers)) == len(numbers)
    # An alias would hide a second name for a number from every iteration over the members.
    assert len(Status.__members__) == len(list(Status))


def test_an_outcome_fits_into_the_byte_that_carries_it() -> None:
    assert max(Status) < 256


def test_every_outcome_can_be_returned_by_some_script() -> None:
    declared = {name for script in scripts().values() for name in script.statuses}

    assert declared == {status.name.lower() for status in Status}


@pytest.mark.parametrize("status", Status)
def test_every_outcome_has_a_meaning_over_http(status: Status) -> None:
    assert status.http in ((200,) if status.succeeded else (400, 404, 409, 422, 429, 503))


@pytest.mark.parametrize("status", Status)
def test_a_caller_told_to_come_back_may_succeed(status: Status) -> None:
    """Lost (409, do not retry) and busy (429 or 503) are never mixed."""
    assert (status.http in (429, 503)) == status.retryable


@pytest.mark.parametrize("status", [Status.DONE, Status.REPEATED, Status.ALREADY_HELD])
def test_repeats_succeed(status: Status) -> None:
    assert status.succeeded


def test_another_users_hold_looks_like_none_at_all() -> None:
    assert Status.NOT_HOLD_OWNER.http == Status.HOLD_NOT_FOUND.http == 404
