"""Events that another release has saved: their versions become the ones that this release works out."""

from uuid import uuid4

import msgspec

from holdfast.engine.audit import Actor
from holdfast.engine.epochs import Epochs
from holdfast.engine.layout import CompiledEvent, EventState, compile_event
from holdfast.engine.policy import Policy
from holdfast.engine.wire import Wire
from holdfast.persistence.catalogue import load_event
from holdfast.persistence.event_desk import EventDesk, Unconfirmed
from holdfast.persistence.pool import connect
from holdfast.persistence.reconcile import PAUSED
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.transitions import Cause, read_states, to_db
from holdfast.persistence.versions import Versions, keep_versions
from support.engine import SHARDS, document
from support.front_end import FrontEnd, Reply, serving
from support.operating import operate
from support.persisting import Rig, eventually, log_keys, running

OLD = "0123456789abcdef01234567"


async def open_as_of_old(rig: Rig, state: EventState = EventState.LIVE) -> CompiledEvent:
    """An event that an earlier release has saved and opened: it gave it another version, and knew of fewer rules."""
    event = compile_event(rig.event.organization_id, document(state=state, policy=Policy(max_holds_per_user=2)))
    of_old = msgspec.structs.replace(event, version=OLD)
    await rig.save(of_old)
    assert (await rig.on.backend.open_event(of_old)).status.succeeded
    await rig.execute(
        "UPDATE events SET document = document #- '{policy,adaptive_hold_from_percent}' WHERE id = $1", event.event_id
    )
    return event


async def look(rig: Rig, redis_url: str, versions: Versions | None = None) -> list[str]:
    """One look at every event; the names of those that were changed."""
    connection = await connect(rig.dsn, name="test")
    try:
        async with Wire(redis_url) as wire:
            epochs = Epochs(SHARDS)
            redis = Unconfirmed(wire, shards=SHARDS, epoch=epochs.redis_epoch)
            desk = EventDesk(connection, redis, RowLockBackend(rig.pool, shards=SHARDS), epochs, Actor())
            changed = await (versions or Versions()).look(connection, desk)
            return [str(each) for each in changed]
    finally:
        await connection.close()


async def version_in_redis(rig: Rig, event: CompiledEvent) -> str:
    reading = await rig.on.backend.read_event(event.organization_id, event.event_id, want_map=False)
    return reading.version


async def version_in_postgres(rig: Rig, event: CompiledEvent) -> str:
    found: str = await rig.value("SELECT config_version FROM events WHERE id = $1", event.event_id)
    return found


async def test_holds_of_an_event_of_another_release_go_on_by_themselves(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        event = await open_as_of_old(front.rig)

        assert (await hold(front, event, "A-1")).error == "stale_config"
        async with running(keep_versions(front.settings)):

            async def is_held() -> bool:
                return (await hold(front, event, "A-1")).status == 201

            await eventually(is_held, "the event has this release's version")
        third = [await hold(front, event, seat, user=front.user) for seat in ("B-1", "B-2", "B-3")][-1]

    # And the rules are those of the document.
    assert third.error == "user_limit_exceeded"


async def hold(front: FrontEnd, event: CompiledEvent, seat: str, **who: object) -> Reply:
    path = f"/api/events/{event.event_id}/seats/{seat}/reserve"
    return await front.call("POST", path, **{"user": uuid4(), **who})


async def test_both_servers_have_the_version_and_the_audit_says_so(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        rig, event = front.rig, await open_as_of_old(front.rig)
        before = await rig.value("SELECT document FROM events WHERE id = $1", event.event_id)

        assert await look(rig, redis_url) == [str(event.event_id)]
        assert await look(rig, redis_url) == []

        assert await version_in_redis(rig, event) == event.version
        assert await version_in_postgres(rig, event) == event.version
        # An earlier release that still serves can read the document as before.
        assert await rig.value("SELECT document FROM events WHERE id = $1", event.event_id) == before

        async def audited() -> int:
            return len(await rig.audit("event_changed"))

        assert await eventually(audited, "the audit has the change") == 1
        code, _, _ = operate(rig, "verify")
    assert code == 0


async def test_a_change_that_stopped_after_postgres_is_finished(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        event = await open_as_of_old(front.rig)
        await front.rig.execute("UPDATE events SET config_version = $1 WHERE id = $2", event.version, event.event_id)

        assert await look(front.rig, redis_url) == [str(event.event_id)]

        assert await version_in_redis(front.rig, event) == event.version


async def test_a_stored_version_that_is_ahead_of_the_document_is_not_believed(
    redis_url: str, database_dsn: str
) -> None:
    """A log entry may bring a version to Postgres before, or without, the document it belongs to."""
    async with serving(redis_url, database_dsn) as front:
        rig, event = front.rig, await open_as_of_old(front.rig)
        ahead = msgspec.structs.replace(event.document, policy=Policy(max_holds_per_user=50))
        await rig.on.backend.set_event_state(msgspec.structs.replace(event, version=OLD), ahead)
        newer = compile_event(event.organization_id, ahead).version

        async def applied() -> bool:
            return await version_in_postgres(rig, event) == newer

        await eventually(applied, "the log has moved the stored version")

        await look(rig, redis_url)

        connection = await connect(rig.dsn, name="test")
        try:
            stored = await load_event(connection, event.organization_id, event.event_id)
        finally:
            await connection.close()
        assert stored is not None
        assert stored.document.policy.max_holds_per_user == 2
        assert stored.version == event.version == await version_in_redis(rig, event)


async def test_an_event_is_looked_at_again_only_when_its_version_has_changed(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        rig, versions, event = front.rig, Versions(), await open_as_of_old(front.rig)
        assert await look(rig, redis_url, versions) == [str(event.event_id)]
        # Nothing that a look would have to find out again.
        await rig.redis.hset(rig.on.keys.key("counts"), "version", "another")
        assert await look(rig, redis_url, versions) == []

        await rig.execute("UPDATE events SET config_version = 'other'")

        assert set(await look(rig, redis_url, versions)) == {str(event.event_id), str(rig.event.event_id)}


async def test_an_event_that_is_being_replaced_is_left_alone(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        paused = (PAUSED + front.event.version.encode()).decode()
        await front.rig.redis.hset(front.rig.on.keys.key("counts"), "version", paused)

        await look(front.rig, redis_url)

        assert await version_in_redis(front.rig, front.event) == paused


async def test_nothing_is_put_into_service(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        event = compile_event(front.event.organization_id, document())
        await front.rig.save(msgspec.structs.replace(event, version=OLD))

        assert await look(front.rig, redis_url) == [str(event.event_id)]

        assert await version_in_redis(front.rig, event) == ""
        assert await version_in_postgres(front.rig, event) == event.version


async def test_an_event_that_postgres_serves_is_brought_along(redis_url: str, database_dsn: str) -> None:
    async with serving(redis_url, database_dsn) as front:
        rig, event = front.rig, await open_as_of_old(front.rig)
        async with rig.pool.acquire() as connection:
            shard = log_keys(event).shard
            before = (await read_states(connection, [shard]))[shard]
        await to_db(rig.pool, shard, before, Cause("test", "test"), redis=rig.redis)

        assert await look(rig, redis_url) == [str(event.event_id)]

        async def is_held() -> bool:
            return (await hold(front, event, "A-1")).status == 201

        await eventually(is_held, "Postgres holds seats of the event")
