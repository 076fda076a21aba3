"""The circuit breaker: what opens it, what closes it, and what it forgets."""

from collections.abc import Callable

import pytest

from holdfast.engine.breaker import PAUSE_S, Breakers
from holdfast.engine.epochs import Epochs, Mode, ShardState
from holdfast.engine.settings import Settings

SHARD, OTHER = 1, 2
EPOCH = 7


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def epochs() -> Epochs:
    return Epochs.fixed(4, EPOCH)


@pytest.fixture
def breakers(epochs: Epochs, clock: Clock) -> Breakers:
    return Breakers(epochs, clock=clock)


@pytest.fixture
def fail(breakers: Breakers, clock: Clock) -> Callable[..., None]:
    """Lets calls fail one after the other, far enough apart to count."""

    def several(times: int, shard: int = SHARD) -> None:
        for _ in range(times):
            clock.now += 2 * PAUSE_S
            breakers.failed(shard, "no answer")

    return several


def test_five_failures_in_a_row_are_the_default() -> None:
    assert Settings().breaker_failures == 5


def test_it_opens_with_the_fifth_failure_in_a_row_and_only_for_its_shard(
    breakers: Breakers, fail: Callable[..., None]
) -> None:
    fail(4)
    assert breakers.opinion(SHARD) is None

    fail(1)
    opinion = breakers.opinion(SHARD)
    assert opinion is not None
    assert (opinion.epoch, opinion.fenced) == (EPOCH, False)
    assert breakers.opinions == {SHARD: opinion}
    assert breakers.opinion(OTHER) is None


def test_an_answer_starts_the_count_again(breakers: Breakers, fail: Callable[..., None]) -> None:
    fail(4)
    breakers.succeeded(SHARD)
    fail(4)
    assert breakers.opinion(SHARD) is None
    assert breakers.troubled

    fail(1)
    assert breakers.opinion(SHARD) is not None


def test_the_calls_that_fail_with_one_connection_are_one_failure(breakers: Breakers) -> None:
    for _ in range(500):
        breakers.failed(SHARD, "the connection broke")
    assert breakers.opinion(SHARD) is None


def test_the_first_failure_is_noticed_at_once(breakers: Breakers, fail: Callable[..., None]) -> None:
    assert not breakers.noticed.is_set()
    fail(1)
    assert breakers.noticed.is_set()


def test_the_fence_opens_it_at_once(breakers: Breakers) -> None:
    breakers.trip(SHARD, EPOCH, "Redis has lost its data")
    opinion = breakers.opinion(SHARD)
    assert opinion is not None
    assert (opinion.reason, opinion.fenced) == ("Redis has lost its data", True)
    assert breakers.noticed.is_set()


def test_what_the_fence_says_of_an_epoch_that_is_over_counts_for_nothing(breakers: Breakers) -> None:
    breakers.trip(SHARD, EPOCH - 1, "closed")
    assert breakers.opinion(SHARD) is None


def test_a_look_that_succeeds_closes_it(breakers: Breakers, fail: Callable[..., None]) -> None:
    fail(5)
    breakers.close(SHARD)
    assert breakers.opinion(SHARD) is None
    assert not breakers.troubled

    # And the count begins anew.
    fail(4)
    assert breakers.opinion(SHARD) is None


def test_an_opinion_is_forgotten_with_its_epoch(breakers: Breakers, epochs: Epochs, fail: Callable[..., None]) -> None:
    fail(4)
    breakers.trip(OTHER, EPOCH, "closed")
    for shard in (SHARD, OTHER):
        epochs.learn(shard, ShardState(Mode.REDIS, EPOCH + 1))

    assert breakers.opinions == {}
    fail(4)
    assert breakers.opinion(SHARD) is None, "failures of the epoch before do not count"
