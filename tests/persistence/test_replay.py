"""Replaying a part of the log puts right what is missing; replaying all of it gives the same database."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from holdfast.engine.status import Status
from holdfast.persistence.digest import clock, digest
from holdfast.persistence.migrate import migrate
from holdfast.persistence.pool import connect
from holdfast.persistence.replay import Place, Replay, ReplayError, replay
from holdfast.persistence.replay_into import Rebuild, replay_into
from holdfast.persistence.snapshots import sweep_overdue
from holdfast.persistence.verify import verify
from support.database import dsn_of, execute
from support.engine import SHARDS, accessible_document, document
from support.operating import operate
from support.persisting import Rig, append, rigged, running
from support.polling import eventually
from support.scripts import held, places_held, reap, release, sell
from support.workload import SHORT_MS, Story, buyers, mixed


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


@pytest.fixture
def empty_dsn(postgres_dsn: str) -> Iterator[str]:
    """A database with nothing in it, not even the schema."""
    name = f"empty_{uuid4().hex}"
    asyncio.run(execute(postgres_dsn, f"CREATE DATABASE {name}"))
    yield dsn_of(postgres_dsn, name)
    asyncio.run(execute(postgres_dsn, f"DROP DATABASE {name} WITH (FORCE)"))


async def run(rig: Rig, *, dry_run: bool = False, **options: object) -> Replay:
    connection = await connect(rig.dsn, name="replay", statement_timeout_ms=None)
    try:
        return await replay(rig.redis, connection, range(SHARDS), dry_run=dry_run, **options)
    finally:
        await connection.close()


async def rebuild(rig: Rig, dsn: str, *, with_original: bool = True) -> Rebuild:
    await migrate(dsn)
    original = await connect(rig.dsn, name="original", statement_timeout_ms=None)
    target = await connect(dsn, name="target", statement_timeout_ms=None)
    try:
        return await replay_into(rig.redis, original if with_original else None, target, SHARDS)
    finally:
        await original.close()
        await target.close()


async def digests(*dsns: str) -> list[str]:
    """The digests of databases at the same moment."""
    connections = [await connect(dsn, name="digest", statement_timeout_ms=None) for dsn in dsns]
    try:
        at = await clock(connections[-1])
        return [await digest(connection, at) for connection in connections]
    finally:
        for connection in connections:
            await connection.close()


async def is_clean(rig: Rig) -> bool:
    connection = await connect(rig.dsn, name="verify", statement_timeout_ms=None)
    try:
        found = await verify(rig.redis, connection, SHARDS)
    finally:
        await connection.close()
    assert found.findings == ()
    return found.clean


async def test_a_dry_run_on_the_original_finds_no_difference(played: Played) -> None:
    before = await played.rig.contents()

    done = await run(played.rig, dry_run=True)

    assert (done.changes, done.left, done.applied) == ((), (), False)
    assert done.entries == sum((await played.rig.marks()).values())
    assert done.administrative == 4
    assert await played.rig.contents() == before


async def test_a_replay_of_what_is_right_changes_nothing(played: Played) -> None:
    before = await played.rig.contents()

    done = await run(played.rig)

    assert (done.changes, done.left, done.applied) == ((), (), True)
    assert await played.rig.contents() == before


REMOVED = {
    "a live hold": "DELETE FROM seat_holds WHERE hold_id = '{live}'",
    "places": "DELETE FROM seat_holds WHERE hold_id = '{places}'",
    "an extended hold": "DELETE FROM seat_holds WHERE hold_id = '{extended}'",
    "a sold hold": "DELETE FROM seat_holds WHERE hold_id = '{sold}'",
    "a released hold": "DELETE FROM seat_holds WHERE hold_id = '{released}'",
    "an expired hold": "DELETE FROM seat_holds WHERE hold_id = '{expired}'",
    "a hold sold after its end": "DELETE FROM seat_holds WHERE hold_id = '{revived}'",
    "all holds": "DELETE FROM seat_holds",
    "a ticket": "DELETE FROM tickets WHERE hold_id = '{sold}'",
    "all tickets": "DELETE FROM tickets",
    "checkouts": "DELETE FROM checkouts",
    "the end of a checkout": "UPDATE checkouts SET status = 'open' WHERE id = 'checkout-3'",
    "the end of a checkout with its holds": "UPDATE seat_holds SET status = 'active', ended_at = NULL "
    "WHERE hold_id = '{declined}'",
    "a hold of a checkout that was given up late": "DELETE FROM seat_holds WHERE hold_id = '{abandoned_late}'",
    "a sale": "UPDATE seat_holds SET status = 'active', ended_at = NULL WHERE hold_id = '{sold_places}'",
    "a release": "UPDATE seat_holds SET status = 'active', ended_at = NULL WHERE hold_id = '{released}'",
    "an extension": "UPDATE seat_holds SET held_until = created_at + interval '10 minutes', checkout_id = NULL, "
    "extension_key = '' WHERE hold_id = '{extended}'",
    "seats": "UPDATE seats SET status = 'available', seat_hold_id = NULL, ticket_id = NULL, held_until = NULL "
    "WHERE status <> 'blocked'",
    "counters": "UPDATE zones SET held = 0, sold = 0",
}


@pytest.mark.parametrize("removal", REMOVED.values(), ids=REMOVED.keys())
async def test_what_was_lost_is_restored(played: Played, removal: str) -> None:
    rig = played.rig
    (before,) = await digests(rig.dsn)
    await rig.execute(removal.format(**msgspec.structs.asdict(played.story)))
    damaged = await rig.contents()

    dry = await run(rig, dry_run=True)
    assert dry.changes
    assert await rig.contents() == damaged

    done = await run(rig)
    assert done.changes == dry.changes
    assert done.left == ()
    assert await digests(rig.dsn) == [before]
    assert (await run(rig)).changes == ()
    assert await is_clean(rig)


async def test_only_what_the_range_and_the_event_name_is_touched(played: Played) -> None:
    rig = played.rig
    other = await rig.open_other(same_shard=True)
    await rig.drain()
    await rig.execute("DELETE FROM seat_holds")
    (made,) = [each.entry for each in await rig.operations() if each.entry.hold_ids == (played.story.live,)]

    assert (await run(rig, event_id=other.event_id)).changes == ()
    at = Place(made.epoch, made.seq)
    await run(rig, first=at, last=at)

    assert {row["hold_id"] for row in await rig.fetch("SELECT hold_id FROM seat_holds")} == {played.story.live}


async def test_an_old_entry_brings_nothing_back_to_life(played: Played) -> None:
    """A range that ends before a hold's end still brings the hold to its end."""
    rig, story = played.rig, played.story
    await rig.execute("DELETE FROM seat_holds WHERE hold_id = ANY ($1::uuid[])", [story.released, story.sold])
    holds = [each.entry for each in await rig.operations() if each.entry.operation == "hold"]
    last = max(entry.seq for entry in holds if set(entry.hold_ids) <= {story.released, story.sold})

    await run(rig, last=Place(1, last))

    assert [row["status"] for row in await rig.hold_rows(story.released)] == ["cancelled"]
    assert [row["status"] for row in await rig.hold_rows(story.sold)] == ["converted"] * 2


async def test_a_sale_is_never_undone(played: Played) -> None:
    """Given a hold that the log has released and Postgres has sold, the replay says so and keeps the sale."""
    rig, story = played.rig, played.story
    await rig.execute("UPDATE seat_holds SET status = 'converted' WHERE hold_id = $1", story.released)
    await rig.execute("UPDATE seat_holds SET status = 'cancelled' WHERE hold_id = $1", story.live)

    done = await run(rig)

    assert {finding.subject for finding in done.left} == {f"hold {story.released}", f"hold {story.live}"}
    assert [row["status"] for row in await rig.hold_rows(story.released)] == ["converted"]
    assert [row["status"] for row in await rig.hold_rows(story.live)] == ["cancelled"]


async def test_a_seat_that_somebody_else_has_stays_with_them(played: Played) -> None:
    rig, story = played.rig, played.story
    await rig.execute("UPDATE seat_holds SET hold_id = gen_random_uuid() WHERE hold_id = $1", story.live)
    await rig.execute("UPDATE tickets SET id = gen_random_uuid() WHERE hold_id = $1", story.revived)

    done = await run(rig)

    assert {finding.subject.partition(" ")[0] for finding in done.left} == {"hold", "ticket"}
    assert await rig.hold_rows(story.live) == []
    assert await rig.value("SELECT count(*) FROM tickets WHERE hold_id = $1", story.revived) == 1


async def test_what_postgres_refused_is_not_restored(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        refused = await _refused_hold(rig)

        assert (await run(rig)).changes == ()
        assert await rig.hold_rows(refused) == []


async def test_an_entry_that_was_trimmed_cannot_be_restored(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        kept, lost = await held(rig.on, "A-1"), await held(rig.on, "A-2")
        await rig.drain()
        await rig.redis.xtrim(rig.on.keys.key("log"), minid="1-4", approximate=False)
        await sell(rig.on, kept, lost)
        await rig.drain()
        assert (await run(rig)).changes == ()
        await rig.execute("DELETE FROM tickets WHERE hold_id = $1", kept)
        await rig.execute("DELETE FROM seat_holds WHERE hold_id = $1", lost)

        done = await run(rig)

        assert await rig.value("SELECT count(*) FROM tickets WHERE hold_id = $1", kept) == 1
    assert [str(finding) for finding in done.left] == [
        f"event {rig.event.event_id}, hold {lost}: has no row, and its first entry is no longer in the log"
    ]


async def test_it_may_run_while_people_buy(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        async with running(rig.persister().run(), buyers(rig, 4)):
            for _ in range(5):
                done = await run(rig)
                assert (done.changes, done.left) == ((), ())
        await rig.drain()
        assert await is_clean(rig)


async def test_a_shard_that_is_not_served_from_redis_is_not_replayed(played: Played) -> None:
    await played.rig.execute("UPDATE control SET mode = 'db'")

    with pytest.raises(ReplayError, match="not served from Redis"):
        await run(played.rig)


async def test_another_epoch_is_refused(played: Played) -> None:
    with pytest.raises(ReplayError, match="epoch 1, not in 7"):
        await run(played.rig, first=Place(7, 1))


async def test_an_empty_database_becomes_like_the_original(played: Played, empty_dsn: str) -> None:
    rig = played.rig
    await rig.open_other(same_shard=False)
    await rig.open_other(same_shard=True)
    await rig.drain()

    built = await rebuild(rig, empty_dsn)

    assert built.digest == built.original_digest
    assert built.equal
    assert (built.events, built.unreadable, built.refused) == (3, 0, 0)
    first, second = await digests(rig.dsn, empty_dsn)
    assert first == second
    marks = "SELECT shard, epoch, seq FROM shard_marks ORDER BY shard"
    assert await _rows(empty_dsn, marks) == await _rows(rig.dsn, marks)
    control = "SELECT shard, epoch, mode FROM control ORDER BY shard"
    assert await _rows(empty_dsn, control) == await _rows(rig.dsn, control)
    config = "SELECT id, state, config_version FROM events ORDER BY id"
    assert await _rows(empty_dsn, config) == await _rows(rig.dsn, config)


@pytest.fixture
async def accompanied(redis_url: str, database_dsn: str) -> AsyncIterator[tuple[Rig, UUID]]:
    """An event with companion seats, of which some are kept, and the hold of a buyer who declined theirs."""
    async with rigged(redis_url, database_dsn, accessible_document()) as rig:
        user, lapsed = uuid4(), await held(rig.on, "B-1", ttl_ms=SHORT_MS)
        declined = await held(rig.on, "A-1", user=user)
        reply = await rig.on.backend.decline_companions(rig.event, declined, user_id=user)
        assert reply.status is Status.DONE

        async def reaped() -> bool:
            await reap(rig.on)
            return await rig.redis.zscore(rig.on.keys.key("expiry"), lapsed.bytes) is None

        await eventually(reaped, "the first hold of a wheelchair seat is over")
        again = await held(rig.on, "B-1", "B-2")
        await sell(rig.on, again)
        await rig.drain()
        yield rig, declined


KEPT = "SELECT seat_id FROM seats s JOIN kept_seats(s.event_id) k USING (ordinal) ORDER BY seat_id"


async def test_companions_are_kept_for_the_same_people_in_an_empty_database(
    accompanied: tuple[Rig, UUID], empty_dsn: str
) -> None:
    rig, _ = accompanied
    assert [row["seat_id"] for row in await rig.fetch(KEPT)] == ["B-3"]

    built = await rebuild(rig, empty_dsn)

    assert built.digest == built.original_digest
    assert await _rows(empty_dsn, KEPT) == await _rows(rig.dsn, KEPT)
    for rows in (
        "SELECT ordinal, companion_of, category FROM seats ORDER BY event_id, ordinal",
        "SELECT hold_id, line, status, companions_declined FROM seat_holds ORDER BY hold_id, line",
    ):
        assert await _rows(empty_dsn, rows) == await _rows(rig.dsn, rows)


@pytest.mark.parametrize(
    "removal",
    [
        "UPDATE seat_holds SET companions_declined = false",
        "DELETE FROM seat_holds WHERE hold_id = '{declined}'",
        "DELETE FROM seat_holds",
    ],
)
async def test_what_was_declined_is_restored(accompanied: tuple[Rig, UUID], removal: str) -> None:
    rig, declined = accompanied
    (before,) = await digests(rig.dsn)
    await rig.execute(removal.format(declined=declined))

    done = await run(rig)

    assert (bool(done.changes), done.left) == (True, ())
    assert await rig.value("SELECT companions_declined FROM seat_holds WHERE hold_id = $1", declined)
    assert [row["seat_id"] for row in await rig.fetch(KEPT)] == ["B-3"]
    assert await digests(rig.dsn) == [before]
    assert await is_clean(rig)


async def test_the_rebuilt_database_can_be_served_from(played: Played, empty_dsn: str) -> None:
    await rebuild(played.rig, empty_dsn)
    async with asyncpg.create_pool(empty_dsn, min_size=1, max_size=2) as pool:
        rig = Rig(played.rig.on, pool, empty_dsn)
        await held(rig.on, "A-9")
        assert await rig.drain() == 1
        assert await is_clean(rig)


async def test_refusals_and_dead_letters_are_the_originals(redis_url: str, database_dsn: str, empty_dsn: str) -> None:
    """What was refused for a reason that is over must not be accepted by the copy, nor sold there."""
    async with rigged(redis_url, database_dsn) as rig:
        refused = await _refused_hold(rig)
        await append(rig, {b"op": b"nonsense"})
        await rig.drain()

        built = await rebuild(rig, empty_dsn)

    assert built.digest == built.original_digest
    assert await execute(empty_dsn, "SELECT count(*) FROM seat_holds WHERE hold_id = $1", refused) == 0
    for table in ("rejections", "dead_letters"):
        rows = f"SELECT * FROM {table} ORDER BY seq"  # noqa: S608
        assert await _rows(empty_dsn, rows) == await _rows(database_dsn, rows)


async def test_what_the_sweep_has_ended_is_equal_too(redis_url: str, database_dsn: str, empty_dsn: str) -> None:
    """Given holds ended by Postgres alone, one of which is sold afterwards, and one that nobody has ended."""
    async with rigged(redis_url, database_dsn) as rig:
        swept = await held(rig.on, "A-1", ttl_ms=SHORT_MS)
        sold = await held(rig.on, "A-2", ttl_ms=SHORT_MS)
        await rig.drain()

        async def both_swept() -> bool:
            await sweep_overdue(rig.redis, rig.pool, grace_s=0)
            return await rig.value("SELECT count(*) FROM seat_holds WHERE status = 'expired'") == 2

        await eventually(both_swept, "both holds are swept")
        late = await held(rig.on, "A-3", ttl_ms=SHORT_MS)
        await sell(rig.on, sold)
        await rig.drain()
        await eventually(
            lambda: rig.value("SELECT held_until < clock_timestamp() FROM seat_holds WHERE hold_id = $1", late),
            "the last hold is overdue",
        )

        built = await rebuild(rig, empty_dsn)

    assert built.digest == built.original_digest
    assert await execute(empty_dsn, "SELECT status FROM seat_holds WHERE hold_id = $1", swept) == "active"


async def test_capacities_are_those_of_the_time(redis_url: str, database_dsn: str, empty_dsn: str) -> None:
    """Given a zone that was fuller than it may be now."""
    async with rigged(redis_url, database_dsn, document(floor=50)) as rig:
        crowd = await places_held(rig.on, 40)
        await release(rig.on, crowd)
        zones = rig.event.document.zones
        await rig.on.change(zones=(zones[0], msgspec.structs.replace(zones[1], capacity=10)))
        await rig.drain()
        await rig.save(rig.event)

        built = await rebuild(rig, empty_dsn)

    assert (built.digest, built.refused) == (built.original_digest, 0)
    assert await execute(empty_dsn, "SELECT capacity FROM zones WHERE zone = 1") == 10


async def test_it_is_rebuilt_to_one_moment_while_people_buy(redis_url: str, database_dsn: str, empty_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        async with running(rig.persister().run(), buyers(rig, 4)):

            async def some_entries() -> bool:
                return sum((await rig.marks()).values()) > 200

            await eventually(some_entries, "there is something to replay")
            built = await rebuild(rig, empty_dsn)
    assert built.digest == built.original_digest
    assert built.entries > 200


async def test_without_the_original_the_log_alone_rebuilds_it(played: Played, empty_dsn: str) -> None:
    rig = played.rig
    await migrate(empty_dsn)
    with pytest.raises(ReplayError, match="events must be loaded"):
        await rebuild(rig, empty_dsn, with_original=False)
    async with asyncpg.create_pool(empty_dsn, min_size=1, max_size=1) as pool:
        await Rig(rig.on, pool, empty_dsn).save(rig.event)

    built = await rebuild(rig, empty_dsn, with_original=False)

    assert (built.original_digest, built.refused) == ("", 0)
    first, second = await digests(rig.dsn, empty_dsn)
    assert first == second


async def test_a_trimmed_log_rebuilds_nothing(played: Played, empty_dsn: str) -> None:
    await played.rig.redis.xtrim(played.rig.on.keys.key("log"), minid="1-3", approximate=False)

    with pytest.raises(ReplayError, match=r"begins with entry 1-3: what came before can no longer be replayed\."):
        await rebuild(played.rig, empty_dsn)


async def test_a_database_that_is_not_empty_is_left_alone(played: Played) -> None:
    with pytest.raises(ReplayError, match="not empty"):
        await rebuild(played.rig, played.rig.dsn)


async def test_the_command_shows_the_difference_then_mends_it(played: Played, empty_dsn: str) -> None:
    rig = played.rig
    await rig.execute("DELETE FROM seat_holds WHERE hold_id = $1", played.story.live)

    code, text, _ = operate(rig, "replay", "--from", "-", "--to", "+", "--dry-run")
    assert code == 0
    assert f"hold {played.story.live}: has no row for line 0, which should be active" in text
    assert "1 differences would be put right." in text
    assert await rig.hold_rows(played.story.live) == []

    code, text, _ = operate(rig, "replay", "--json", "--event", str(rig.event.event_id))
    assert (code, len(json.loads(text)["changes"])) == (0, 1)
    assert len(await rig.hold_rows(played.story.live)) == 1

    code, text, _ = operate(rig, "replay", "--into", empty_dsn, "--json")
    assert code == 0
    assert json.loads(text)["digest"] == json.loads(text)["original_digest"]

    code, _, complaint = operate(rig, "replay", "--into", empty_dsn)
    assert (code, complaint.splitlines()[-1]) == (1, "holdfast: The database to replay into is not empty.")
    assert operate(rig, "replay", "--from", "yesterday")[0] == 2


async def _refused_hold(rig: Rig) -> UUID:
    """A hold that Redis granted while Postgres had the seat blocked, given back since; its reason is over."""
    hold_id = await held(rig.on, "A-1")
    await rig.execute("UPDATE seats SET status = 'blocked' WHERE seat_id = 'A-1'")
    await rig.drain()
    await rig.execute("UPDATE seats SET status = 'available' WHERE seat_id = 'A-1'")
    assert await rig.value("SELECT reason FROM rejections WHERE hold_id = $1", hold_id) == "seat_not_available"
    return hold_id


async def _rows(dsn: str, statement: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()
