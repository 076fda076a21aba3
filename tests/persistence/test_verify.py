"""A system that balances is clean, under traffic too; every kind of damage is found and named."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from uuid import uuid4

import msgspec
import pytest

from holdfast.commands.verify import describe
from holdfast.engine.records import pack_zone
from holdfast.engine.status import Status
from holdfast.persistence.apply import Rejection
from holdfast.persistence.compensation import Compensation
from holdfast.persistence.persister import Persister
from holdfast.persistence.pool import connect
from holdfast.persistence.verify import Verification, verify
from support.engine import SHARDS
from support.persisting import Rig, append, damage_last_entry, rigged, running
from support.scripts import held, pairs, sell
from support.workload import Story, buyers, mixed


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


async def check(rig: Rig, **options: object) -> Verification:
    connection = await connect(rig.dsn, name="verify", statement_timeout_ms=None)
    try:
        return await verify(rig.redis, connection, SHARDS, patience_s=0.2, **options)
    finally:
        await connection.close()


async def test_a_mixed_workload_is_clean(played: Played) -> None:
    found = await check(played.rig)

    assert found.findings == ()
    assert found.notices == ()
    assert found.events == 1
    assert found.entries == sum((await played.rig.marks()).values())


async def test_one_event_can_be_verified_alone(played: Played) -> None:
    other = await played.rig.open_other(same_shard=True)
    await played.rig.drain()
    await played.rig.execute("UPDATE zones SET sold = 7 WHERE event_id = $1 AND zone = 0", other.event_id)

    assert (await check(played.rig, event_id=played.rig.event.event_id)).clean
    assert not (await check(played.rig, event_id=other.event_id)).clean


async def test_it_is_clean_while_people_buy(redis_url: str, database_dsn: str) -> None:
    async with rigged(redis_url, database_dsn) as rig:
        await rig.drain()
        async with running(rig.persister().run(), buyers(rig, 8)):
            for _ in range(10):
                found = await check(rig)
                assert found.findings == ()
        await rig.drain()
        found = await check(rig)
    assert (found.findings, found.notices) == ((), ())
    assert found.entries > 100


async def test_what_is_not_persisted_yet_is_left_out_and_said(played: Played) -> None:
    await held(played.rig.on, "A-9")

    found = await check(played.rig)

    assert found.clean
    assert any("1 entries behind" in notice for notice in found.notices)


class Forgetful(Compensation):
    """Stands for a persister that dies between its commit and giving back what was refused."""

    async def __call__(self, rejections: Sequence[Rejection]) -> None:
        pass


async def test_a_refusal_may_take_a_moment_to_be_given_back_but_not_for_ever(played: Played) -> None:
    rig = played.rig
    await rig.execute("UPDATE seats SET status = 'blocked' WHERE seat_id = 'A-9'")
    hold_id = await held(rig.on, "A-9")
    forgetful = Forgetful(rig.on.backend, rig.pool, rig.redis)
    await rig.drain(Persister(rig.redis, rig.pool, shards=SHARDS, compensation=forgetful))
    await rig.execute("UPDATE seats SET status = 'available' WHERE seat_id = 'A-9'")

    soon = await check(rig)
    await rig.execute("UPDATE rejections SET created_at = now() - interval '2 minutes'")
    late = await check(rig)

    assert soon.findings == ()
    assert any("refusals are not given back" in notice for notice in soon.notices)
    problem = f"hold {hold_id}: is live in Redis and not active in Postgres, which refused it"
    assert any(problem in str(finding) for finding in late.findings)


async def test_dead_letters_are_told_and_no_finding(played: Played) -> None:
    await append(played.rig, {b"op": b"nonsense", b"head": b""})
    await played.rig.drain()

    found = await check(played.rig)

    assert found.clean
    assert any("dead letters" in notice for notice in found.notices)


@pytest.mark.parametrize("unreadable", [False, True], ids=["refused by Postgres", "unreadable"])
async def test_a_hold_whose_entry_is_a_dead_letter_is_said_to_be_one(played: Played, unreadable: bool) -> None:
    rig = played.rig
    hold_id = await held(rig.on, "A-9", cart="" if unreadable else "a\0b")
    if unreadable:
        await damage_last_entry(rig)
    forgetful = Forgetful(rig.on.backend, rig.pool, rig.redis)
    await rig.drain(Persister(rig.redis, rig.pool, shards=SHARDS, compensation=forgetful))

    soon = await check(rig)
    await rig.execute("UPDATE rejections SET created_at = now() - interval '2 minutes'")
    late = await check(rig)
    await rig.drain()
    given_back = await check(rig)

    for found in (soon, late, given_back):
        assert found.dead_lettered == 1
        assert any(f"hold {hold_id}: is dead-lettered and has no row" in notice for notice in found.notices)
    assert soon.findings == given_back.findings == ()
    told = [str(finding) for finding in late.findings]
    assert any(
        f"hold {hold_id}: is live in Redis and not active in Postgres: it is dead-lettered" in each for each in told
    )
    assert not any("no row" in each for each in told)
    assert "1 holds dead-lettered: everything agrees." in describe(given_back)


Damage = Callable[[Played], Awaitable[None]]


def statement(text: str, *fields: str) -> Damage:
    """Damage by one statement. `$1` is the event, and the holds of the story that are named follow."""

    async def do(played: Played) -> None:
        holds = [getattr(played.story, field) for field in fields]
        await played.rig.execute(text, played.rig.event.event_id, *holds)

    return do


def statements(*texts: str) -> Damage:
    async def do(played: Played) -> None:
        for text in texts:
            await played.rig.execute(text)

    return do


async def two_live_holds(played: Played) -> None:
    await played.rig.execute("DROP INDEX seat_held_by_another_user")
    await played.rig.execute(
        "UPDATE seat_holds SET ordinal = (SELECT ordinal FROM seat_holds WHERE hold_id = $1) WHERE hold_id = $2",
        played.story.live,
        played.story.extended,
    )


async def two_tickets(played: Played) -> None:
    await played.rig.execute("DROP INDEX seat_already_sold")
    await played.rig.execute(
        "INSERT INTO tickets SELECT gen_random_uuid(), organization_id, event_id, zone, ordinal, hold_id, sale_id, "
        "user_id, created_at FROM tickets WHERE hold_id = $1 LIMIT 1",
        played.story.revived,
    )


async def map_byte(played: Played) -> None:
    on = played.rig.on
    await on.redis.setrange(on.keys.key("map"), on.event.seats["A-1"].value, b".")


async def lost_separator(played: Played) -> None:
    on = played.rig.on
    await on.redis.setrange(on.keys.key("map"), on.event.map.index(b"|"), b".")


async def short_map(played: Played) -> None:
    await played.rig.redis.set(played.rig.on.keys.key("map"), b"...")


async def other_owner(played: Played) -> None:
    on = played.rig.on
    await on.redis.setrange(on.keys.key("owners"), 16 * on.event.seats["A-1"].value, uuid4().bytes)


async def forgotten_hold(played: Played) -> None:
    on = played.rig.on
    await on.redis.hdel(on.keys.key("holds"), played.story.places.bytes)
    await on.redis.zrem(on.keys.key("expiry"), played.story.places.bytes)


async def broken_record(played: Played) -> None:
    on = played.rig.on
    await on.redis.hset(on.keys.key("holds"), played.story.places.bytes, b"?")


async def other_end(played: Played) -> None:
    on = played.rig.on
    await on.redis.zincrby(on.keys.key("expiry"), 1, played.story.live.bytes)


async def counter(played: Played) -> None:
    on = played.rig.on
    await on.redis.hset(on.keys.key("counts"), "1", pack_zone(60, 0, held=9, sold=2, blocked=3))


async def version(played: Played) -> None:
    await played.rig.redis.hset(played.rig.on.keys.key("counts"), "version", "another")


async def unknown_event(played: Played) -> None:
    on = played.rig.on
    await on.redis.sadd(on.keys.key("events"), uuid4().bytes + uuid4().bytes)


async def lost_event(played: Played) -> None:
    await played.rig.redis.delete(played.rig.on.keys.key("counts"))


async def lost_entry(played: Played) -> None:
    on = played.rig.on
    await on.redis.xdel(on.keys.key("log"), "1-4")


DAMAGE: dict[str, tuple[Damage, str]] = {
    "two live holds": (two_live_holds, "has 2 live holds"),
    "two tickets": (two_tickets, "has 2 tickets"),
    "a hold without a seat": (
        statement("UPDATE seats SET status = 'available' WHERE event_id = $1 AND seat_hold_id = $2", "live"),
        "seat A-1: is available though hold",
    ),
    "a seat without a hold": (
        statement("DELETE FROM seat_holds WHERE event_id = $1 AND hold_id = $2", "live"),
        "seat A-1: is held without an active hold",
    ),
    "a hold that is gone": (
        statement("DELETE FROM seat_holds WHERE event_id = $1 AND hold_id = $2", "places"),
        "has no row for line 0, which should be active",
    ),
    "a seat of another hold": (
        statement(
            "UPDATE seats SET seat_hold_id = gen_random_uuid() WHERE event_id = $1 AND seat_hold_id = $2", "live"
        ),
        "seat A-1: names another hold or end",
    ),
    "a seat with another end": (
        statement("UPDATE seats SET held_until = now() WHERE event_id = $1 AND seat_hold_id = $2", "live"),
        "seat A-1: names another hold or end",
    ),
    "a sold seat without a ticket": (
        statement("DELETE FROM tickets WHERE event_id = $1 AND hold_id = $2", "sold"),
        "seat C-1: is sold without a ticket",
    ),
    "a ticket that is gone": (
        statement("DELETE FROM tickets WHERE event_id = $1 AND hold_id = $2", "sold_places"),
        "is sold with 2 units and 0 tickets",
    ),
    "a sold seat that is free": (
        statement("UPDATE seats SET status = 'available' WHERE event_id = $1 AND seat_hold_id = $2", "sold"),
        "seat C-1: is available though it has a ticket",
    ),
    "an undone sale": (
        statement("UPDATE seat_holds SET status = 'cancelled' WHERE event_id = $1 AND hold_id = $2", "sold_places"),
        "is cancelled and should be converted; an end is never undone",
    ),
    "a missed end": (
        statement("UPDATE seat_holds SET status = 'active' WHERE event_id = $1 AND hold_id = $2", "released"),
        "is active and should be cancelled",
    ),
    "a revoked hold": (
        statement("UPDATE seat_holds SET status = 'cancelled' WHERE event_id = $1 AND hold_id = $2", "live"),
        "is live in Redis and not active in Postgres",
    ),
    "another user": (
        statement("UPDATE seat_holds SET user_id = gen_random_uuid() WHERE event_id = $1 AND hold_id = $2", "live"),
        "has another user_id",
    ),
    "a held counter": (
        statement("UPDATE zones SET held = held + 1 WHERE event_id = $1 AND zone = 1"),
        "zone floor: counts 4 held, its holds have 3",
    ),
    "a sold counter": (
        statement("UPDATE zones SET sold = sold - 1 WHERE event_id = $1 AND zone = 0"),
        "zone orchestra: counts 2 sold, it has 3 tickets",
    ),
    "a blocked counter": (
        statement("UPDATE zones SET blocked = 0 WHERE event_id = $1 AND zone = 0"),
        "zone orchestra: counts 0 blocked, it has 1 blocked seats",
    ),
    "zones that do not add up": (
        statement("UPDATE zones SET sold = 0 WHERE event_id = $1 AND zone = 0"),
        "blocked are not its 30 seats",
    ),
    "an overfull zone": (
        statement("UPDATE zones SET capacity = 2 WHERE event_id = $1 AND zone = 1"),
        "are more than its capacity of 2",
    ),
    "a seat that is gone": (
        statement("DELETE FROM seats WHERE event_id = $1 AND seat_id = 'B-9'"),
        "seat B-9: is missing in Postgres",
    ),
    "an entry above the mark": (
        statement("UPDATE seat_holds SET seq = 1000000 WHERE event_id = $1 AND hold_id = $2", "live"),
        "is of entry 1-1000000, above the mark",
    ),
    "a mark that is ahead": (
        statements("UPDATE shard_marks SET seq = seq + 5 WHERE seq > 0"),
        "though its number was given",
    ),
    "a lost entry": (lost_entry, "has no entry 1-4"),
    "a checkout that is gone": (statements("DELETE FROM checkouts"), "checkout sale-1: has no row"),
    "a checkout that is open": (
        statements("UPDATE checkouts SET status = 'open'"),
        "checkout sale-2: is open and should be completed",
    ),
    "a byte of the map": (map_byte, "seat A-1: available in Redis, held in Postgres"),
    "a lost separator": (lost_separator, "map: a separator between rows is missing"),
    "a short map": (short_map, "map: has 3 bytes in Redis"),
    "another owner": (other_owner, "seat A-1: of hold"),
    "a hold lost in Redis": (forgotten_hold, "is active in Postgres, and unknown in Redis"),
    "a broken record": (broken_record, "its record in Redis cannot be read"),
    "another end": (other_end, "ends at"),
    "a counter in Redis": (counter, "zone floor: held is 9 in Redis, 3 in Postgres"),
    "another version": (version, "configuration: version another in Redis"),
    "an unknown event": (unknown_event, "is open in Redis and not in Postgres"),
    "an event lost in Redis": (lost_event, "is active in Postgres, but its event is not open in Redis"),
}


@pytest.mark.parametrize(("damage", "named"), DAMAGE.values(), ids=DAMAGE.keys())
async def test_damage_is_found_and_named(played: Played, damage: Damage, named: str) -> None:
    await damage(played)

    found = await check(played.rig)

    assert not found.clean
    assert any(named in str(finding) for finding in found.findings), "\n".join(map(str, found.findings))


async def test_a_sale_that_postgres_refused_is_found(played: Played) -> None:
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

    found = await check(rig)

    assert any("seat A-9: sold in Redis, available in Postgres" in str(finding) for finding in found.findings)


async def test_a_hold_overdue_for_long_is_found_when_nothing_ends_it(played: Played) -> None:
    """Given both clocks far past the end of a hold, and no reaper and no sweep."""
    rig, on = played.rig, played.rig.on
    hold_id = await held(on, "A-9")
    await rig.drain()
    ago_ms = 120_000
    seconds, _ = await on.redis.time()
    ends_ms = int(seconds) * 1000 - ago_ms
    await on.redis.zadd(on.keys.key("expiry"), {hold_id.bytes: ends_ms})
    await rig.execute(
        "UPDATE seat_holds SET held_until = to_timestamp($2 / 1000.0) WHERE hold_id = $1", hold_id, ends_ms
    )

    found = await check(rig)

    assert any(f"hold {hold_id}: is overdue for 1" in str(finding) for finding in found.findings)


async def test_a_blocked_seat_is_compared(played: Played) -> None:
    on = played.rig.on
    reply = await on.backend.block_seats(on.event, seats=pairs(on, "B-10"))
    assert reply.status is Status.DONE
    await played.rig.drain()
    assert (await check(played.rig)).clean
    await on.redis.setrange(on.keys.key("map"), on.event.seats["B-10"].value, b".")

    found = await check(played.rig)

    assert any("seat B-10: available in Redis, blocked in Postgres" in str(each) for each in found.findings)
