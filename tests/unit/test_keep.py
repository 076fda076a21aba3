import asyncio

import pytest

from holdfast.commands.keep import run_jobs
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError


class Job:
    """A job that says when it runs and whether it could clean up."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.cleaned_up = False

    async def __call__(self, _: Settings) -> None:
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned_up = True


async def broken(_: Settings) -> None:
    raise ValueError("no seats left")


async def lazy(_: Settings) -> None:
    return


async def test_jobs_run_side_by_side_until_the_stop_and_then_clean_up() -> None:
    first, second, stop = Job(), Job(), asyncio.Event()
    keeping = asyncio.create_task(run_jobs({"first": first, "second": second}, Settings(), stop))

    await asyncio.gather(first.running.wait(), second.running.wait())
    assert not keeping.done()
    stop.set()
    await keeping

    assert first.cleaned_up
    assert second.cleaned_up


async def test_without_jobs_the_keeper_waits_for_the_stop() -> None:
    stop = asyncio.Event()
    keeping = asyncio.create_task(run_jobs({}, Settings(), stop))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(keeping), 0.05)
    stop.set()
    await keeping


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (broken, "The background job reaper failed: ValueError('no seats left')."),
        (lazy, "The background job reaper ended by itself."),
    ],
)
async def test_a_job_that_ends_ends_the_keeper_and_the_other_jobs(job: Job, message: str) -> None:
    other = Job()

    with pytest.raises(OperatorError) as caught:
        await run_jobs({"other": other, "reaper": job}, Settings(), asyncio.Event())

    assert str(caught.value) == message
    assert other.cleaned_up


async def test_a_job_that_overhears_its_cancellation_is_cancelled_again() -> None:
    running, stop, overheard = asyncio.Event(), asyncio.Event(), 0

    async def hard_of_hearing(_: Settings) -> None:
        nonlocal overheard
        running.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                overheard += 1
                if overheard == 2:
                    raise

    keeping = asyncio.create_task(run_jobs({"deaf": hard_of_hearing}, Settings(), stop))
    await running.wait()
    stop.set()
    await keeping

    assert overheard == 2
