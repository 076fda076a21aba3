"""Answers under an Idempotency-Key: the first one is kept, repeats get it, and nobody holds a connection meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast.engine.errors import Overloaded
from holdfast.persistence.kept_answers import Answer, Claim, KeptAnswers, OtherContent, Request, forget_answers
from holdfast.persistence.pool import Pool, open_pool

ANSWER = Answer(201, "application/json", b'{"data":1}')


@pytest.fixture
async def pool(database_dsn: str) -> AsyncIterator[Pool]:
    """One connection only: whoever held on to it would keep everybody else from working."""
    async with open_pool(database_dsn, name="answers", max_size=1) as opened:
        yield opened


def request(**changes: Any) -> Request:
    whose = Request(uuid4(), uuid4(), "/api/checkouts", "key-1", b"digest")
    return msgspec.structs.replace(whose, **changes)


async def claimed(answers: KeptAnswers, asked: Request) -> Claim:
    claim = await answers.begin(asked)
    assert isinstance(claim, Claim)
    return claim


async def test_the_first_answer_is_given_to_repeats(pool: Pool) -> None:
    answers, asked = KeptAnswers(pool), request()
    await answers.keep(asked, await claimed(answers, asked), ANSWER)

    assert await answers.begin(asked) == ANSWER
    assert await answers.begin(asked) == ANSWER


async def test_other_content_under_the_same_key(pool: Pool) -> None:
    answers, asked = KeptAnswers(pool), request()
    claim = await claimed(answers, asked)
    other = msgspec.structs.replace(asked, fingerprint=b"another")

    assert await answers.begin(other) == OtherContent()
    await answers.keep(asked, claim, ANSWER)
    assert await answers.begin(other) == OtherContent()


@pytest.mark.parametrize("change", [{"organization_id": uuid4()}, {"user_id": uuid4()}, {"path": "/x"}, {"key": "k"}])
async def test_a_key_belongs_to_one_organisation_user_and_path(pool: Pool, change: dict[str, Any]) -> None:
    answers, asked = KeptAnswers(pool), request()
    await answers.keep(asked, await claimed(answers, asked), ANSWER)

    await claimed(answers, msgspec.structs.replace(asked, **change))


async def test_concurrent_repeats_wait_for_the_first_answer(pool: Pool) -> None:
    """Twenty at once over one connection: one works, the others are told what came of it."""
    answers, asked, worked = KeptAnswers(pool), request(), []

    async def ask() -> Answer:
        begun = await answers.begin(asked)
        if isinstance(begun, Claim):
            worked.append(begun)
            async with pool.acquire() as connection:
                await connection.execute("SELECT pg_sleep(0.05)")
            await answers.keep(asked, begun, ANSWER)
            return ANSWER
        assert isinstance(begun, Answer)
        return begun

    assert await asyncio.gather(*(ask() for _ in range(20))) == [ANSWER] * 20
    assert len(worked) == 1


async def test_an_answer_that_was_given_up_is_worked_out_by_the_next(pool: Pool) -> None:
    answers, asked = KeptAnswers(pool), request()
    await answers.give_up(asked, await claimed(answers, asked))

    await claimed(answers, asked)


async def test_who_waits_too_long_is_told_to_come_again(pool: Pool) -> None:
    answers, asked = KeptAnswers(pool, patience_s=0.05), request()
    await claimed(answers, asked)

    with pytest.raises(Overloaded):
        await answers.begin(asked)


async def test_a_claim_that_nobody_keeps_is_taken_over(pool: Pool) -> None:
    """Its owner has died. Should it come back after all, it changes nothing."""
    asked = request()
    dead = await claimed(KeptAnswers(pool), asked)
    answers = KeptAnswers(pool, lease_s=0)
    successor = await claimed(answers, asked)

    await answers.keep(asked, dead, Answer(500, "text/plain", b""))
    await answers.give_up(asked, dead)
    await answers.keep(asked, successor, ANSWER)

    assert await answers.begin(asked) == ANSWER


async def test_old_answers_are_forgotten(pool: Pool) -> None:
    answers, old, recent = KeptAnswers(pool), request(), request()
    for asked in (old, recent):
        await answers.keep(asked, await claimed(answers, asked), ANSWER)
    async with pool.acquire() as connection:
        await connection.execute(
            "UPDATE kept_answers SET claimed_at = now() - interval '25 hours' WHERE user_id = $1", old.user_id
        )

    assert await forget_answers(pool) == 1

    assert await answers.begin(recent) == ANSWER
    await claimed(answers, old)
