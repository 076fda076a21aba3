"""An event in Redis becomes what Postgres says of it, in one step, and nothing that was decided meanwhile is lost."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast.engine.policy import Policy
from holdfast.engine.records import pack_record, unpack_ids, unpack_record
from holdfast.engine.search_digits import search_digits
from holdfast.engine.status import Status
from holdfast.persistence import reconcile as module
from holdfast.persistence.pool import connect
from holdfast.persistence.reconcile import ReconcileError, Reconciliation, reconcile
from holdfast.persistence.verify import Verification, verify
from support.engine import SHARDS, document
from support.operating import operate
from support.persisting import Rig, rigged, running
from support.scripts import audit, contents, held, release, sell
from support.workload import Story, buyers, give_up, mixed


class Played(msgspec.Struct, frozen=True):
    """A rig on which a mixed workload was played and persisted."""

    rig: Rig
    story: Story


@pytest.fixture
async def played(redis_url: str, database_dsn: str) -> AsyncIterator[Played]:
    async with rigged(redis_url, database_dsn) as rig:
        story = await mixed(rig)
        await rig.drain()
        yield Played(rig, story)


async def run(
    rig: Rig, *, dry_run: bool = False, event_id: UUID | None = None, patience_s: float = 10.0
) -> Reconciliation:
    connection = await connect(rig.dsn, name="reconcile", statement_timeout_ms=None)
    try:
        event_id = event_id or rig.event.event_id
        return await reconcile(rig.redis, connection, event_id, dry_run=dry_run, patience_s=patience_s)
    finally:
        await connection.close()


async def verified(rig: Rig) -> Verification:
    connection = await connect(rig.dsn, name="verify", statement_timeout_ms=None)
    try:
        return await verify(rig.redis, connection, SHARDS)
    finally:
        await connection.close()


async def wreck(rig: Rig) -> None:
    """Take everything but the name of the event away."""
    for what in ("map", "owners", "holds", "expiry", "ended", "counts"):
        await rig.redis.delete(rig.on.keys.key(what))


async def test_what_agrees_is_left_alone(played: Played) -> None:
    before = await contents(played.rig.on)

    done = await run(played.rig)

    assert (done.findings, done.repaired) == ((), False)
    assert await contents(played.rig.on) == before


async def test_an_event_that_lost_everything_comes_back_as_it_was(played: Played) -> None:
    """Every key, but for what nobody would miss: hints may be better, and the owners of free seats are gone."""
    rig, on = played.rig, played.rig.on
    before = await contents(on)
    await wreck(rig)

    done = await run(rig)

    assert done.repaired
    assert done.findings
    assert (await verified(rig)).findings == ()
    await audit(on)
    after = await contents(on)
    assert before.keys() == after.keys()
    for what in ("map", "expiry"):
        assert after[on.keys.key(what)] == before[on.keys.key(what)]
    for name in ("log", "seq", "mark", "events", "open"):
        assert after[on.keys.key(name)] == before[on.keys.key(name)]
    digits = {b"runs": search_digits(await rig.redis.get(on.keys.key("map")))}
    assert after[on.keys.key("counts")][1] == before[on.keys.key("counts")][1] | digits
    assert after[on.keys.key("ended")] == before[on.keys.key("ended")]
    assert _records(after[on.keys.key("holds")][1]) == _records(before[on.keys.key("holds")][1])


async def test_a_restored_event_can_be_served_from(played: Played) -> None:
    rig, story = played.rig, played.story
    await wreck(rig)
    await run(rig)

    assert (await rig.on.hold("A-1")).status is Status.SEAT_HELD_BY_ANOTHER_USER
    assert (await rig.on.hold("C-1")).status is Status.SEAT_NOT_AVAILABLE
    await sell(rig.on, story.live, story.places, sale="sale-9")
    await give_up(rig, "checkout-1", "user_cancelled", story.extended)
    again = await rig.on.backend.confirm_holds(rig.event, [story.sold], sale="sale-1", user_id=None)
    assert again.status is Status.REPEATED
    ended = await rig.on.backend.confirm_holds(rig.event, [story.released], sale="sale-9", user_id=None)
    assert ended.status is Status.HOLD_RELEASED
    await held(rig.on, "A-2")
    await rig.drain()
    assert (await verified(rig)).findings == ()
    await audit(rig.on)


async def test_limits_remember_who_has_what(redis_url: str, database_dsn: str) -> None:
    policy = Policy(max_holds_per_user=2, max_holds_per_ip=3, rate_limit_seats=0)
    async with rigged(redis_url, database_dsn, document(policy=policy)) as rig:
        user = uuid4()
        await held(rig.on, "A-1", "A-2", user=user, address="1234567890")
        await rig.drain()
        await wreck(rig)
        await run(rig)

        own = await rig.on.hold("A-3", user=user)
        neighbour = await rig.on.hold("A-3", "A-4", address="1234567890")

    assert own.status is Status.USER_LIMIT_EXCEEDED
    assert neighbour.status is Status.ADDRESS_LIMIT_EXCEEDED


async def test_a_dry_run_tells_and_touches_nothing(played: Played) -> None:
    on = played.rig.on
    await on.redis.setrange(on.keys.key("map"), on.event.seats["A-1"].value, b".")
    before = await contents(on)

    done = await run(played.rig, dry_run=True)

    assert [str(finding) for finding in done.findings] == [
        f"event {on.event.event_id}, seat A-1: available in Redis, held in Postgres"
    ]
    assert not done.repaired
    assert await contents(on) == before


async def test_a_sale_that_postgres_refused_is_taken_back(played: Played) -> None:
    rig = played.rig
    hold_id = await held(rig.on, "A-9")
    await rig.drain()
    await rig.execute("UPDATE seat_holds SET status = 'cancelled', ended_at = now() WHERE hold_id = $1", hold_id)
    await rig.execute(
        "UPDATE seats SET status = 'available', seat_hold_id = NULL, held_until = NULL WHERE seat_id = 'A-9'"
    )
    await rig.execute("UPDATE zones SET held = held - 1 WHERE zone = 0")
    await sell(rig.on, hold_id, sale="sale-9")
    await rig.drain()

    done = await run(rig)

    assert any("seat A-9: sold in Redis" in str(finding) for finding in done.findings)
    assert (await rig.on.hold("A-9")).status is Status.DONE


async def test_what_is_decided_meanwhile_is_not_lost(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a release between the reading of the rows and the replacement, the replacement starts over."""
    rig, on = played.rig, played.rig.on
    await on.redis.setrange(on.keys.key("map"), on.event.seats["A-5"].value, b"b")
    written, interruptions = module._Reconciler._write_beside, 0

    async def interrupted(self: Any, built: Any) -> None:
        nonlocal interruptions
        await written(self, built)
        interruptions += 1
        if interruptions == 1:
            await release(on, played.story.live)
            await rig.drain()

    monkeypatch.setattr(module._Reconciler, "_write_beside", interrupted)
    done = await run(rig)

    assert (done.repaired, interruptions) == (True, 2)
    assert (await verified(rig)).findings == ()
    assert (await on.hold("A-1")).status is Status.DONE


async def test_no_new_hold_is_taken_while_it_lasts(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    on, refusals = played.rig.on, []
    await on.redis.setrange(on.keys.key("map"), on.event.seats["A-5"].value, b"b")
    written = module._Reconciler._write_beside

    async def interrupted(self: Any, built: Any) -> None:
        refusals.append((await on.hold("A-6")).status)
        await written(self, built)

    monkeypatch.setattr(module._Reconciler, "_write_beside", interrupted)
    await run(played.rig)

    assert refusals == [Status.STALE_CONFIG]
    assert (await on.hold("A-6")).status is Status.DONE


async def test_one_that_fails_leaves_the_event_as_it_was(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    on = played.rig.on
    await on.redis.setrange(on.keys.key("map"), on.event.seats["A-5"].value, b"b")
    before = await contents(on)

    async def failing(*_: Any) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(module._Reconciler, "_write_beside", failing)
    with pytest.raises(ConnectionError):
        await run(played.rig)

    assert await contents(on) == before


async def test_one_that_was_killed_is_completed_by_the_next(played: Played) -> None:
    rig, on = played.rig, played.rig.on
    await on.redis.hset(on.keys.key("counts"), "version", b"paused:" + on.event.version.encode())
    assert (await on.hold("A-6")).status is Status.STALE_CONFIG

    done = await run(rig)

    assert done.repaired
    assert (await on.hold("A-6")).status is Status.DONE


async def test_it_waits_for_the_persister_and_gives_up_without_one(played: Played) -> None:
    rig = played.rig
    await held(rig.on, "A-6")

    with pytest.raises(ReconcileError, match="let the keeper catch up first"):
        await run(rig, patience_s=0.1)
    assert (await rig.on.hold("A-7")).status is Status.DONE


async def test_it_works_while_people_buy(redis_url: str, database_dsn: str) -> None:
    """Given seats that nobody else can touch, and that Redis calls blocked again and again."""
    async with rigged(redis_url, database_dsn, document(rows=10)) as rig:
        on, mine = rig.on, ("A-1", "B-1", "C-1")
        await held(on, *mine)
        await rig.drain()
        async with running(rig.persister().run(), buyers(rig, 4)):
            for seat_id in mine:
                # Blocked, so that no buyer takes it before it is put right.
                await on.redis.setrange(on.keys.key("map"), on.event.seats[seat_id].value, b"b")
                done = await run(rig)
                assert done.repaired
                assert any(f"seat {seat_id}: blocked in Redis" in str(finding) for finding in done.findings)
        await rig.drain()
        assert (await verified(rig)).findings == ()
        await audit(on)


async def test_what_cannot_be_reconciled_is_said_in_a_sentence(played: Played) -> None:
    rig = played.rig
    with pytest.raises(ReconcileError, match="There is no event"):
        await run(rig, event_id=uuid4())
    await rig.execute("UPDATE zones SET held = 7 WHERE zone = 1")
    with pytest.raises(ReconcileError, match="Postgres itself does not balance"):
        await run(rig)
    await rig.redis.srem(rig.on.keys.key("events"), rig.on.keys.scope)
    with pytest.raises(ReconcileError, match="is not open in Redis"):
        await run(rig)
    await rig.execute("UPDATE control SET mode = 'db'")
    with pytest.raises(ReconcileError, match="not served from Redis"):
        await run(rig)


async def test_a_record_is_packed_as_scripts_pack_it(played: Played) -> None:
    stored: Any = await played.rig.redis.hget(played.rig.on.keys.key("holds"), played.story.extended.bytes)

    assert pack_record(unpack_record(stored)) == stored


async def test_the_command_tells_then_repairs(played: Played) -> None:
    rig, on = played.rig, played.rig.on
    await on.redis.setrange(on.keys.key("map"), on.event.seats["A-1"].value, b".")
    event_id = str(on.event.event_id)

    code, text, _ = operate(rig, "reconcile", event_id, "--dry-run")
    assert (code, text.splitlines()[-1]) == (0, "1 things differ.")
    code, text, _ = operate(rig, "reconcile", event_id, "--json")
    assert (code, json.loads(text)["repaired"]) == (0, True)
    code, text, _ = operate(rig, "verify")
    assert (code, text.splitlines()[-1].endswith("everything agrees.")) == (0, True)
    code, _, complaint = operate(rig, "reconcile", str(uuid4()))
    assert (code, complaint.startswith("holdfast: There is no event")) == (1, True)


def _records(fields: dict[bytes, bytes]) -> dict[bytes, Any]:
    """The records, and the lists of holders without their order: a millisecond does not tell who was first in it."""
    return {name: unpack_record(value) if len(name) == 16 else set(unpack_ids(value)) for name, value in fields.items()}
