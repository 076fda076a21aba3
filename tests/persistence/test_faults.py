"""Faults under load: persisters killed, Postgres stopped, transactions refused, a disk that is full.

Nothing that was acknowledged may be missing afterwards, nothing may be there twice, and the log drains by itself.
"""

import asyncio
import logging
import os
import random
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from holdfast.embedded import Server, start_postgres
from holdfast.engine.acks import Ack
from holdfast.engine.durable import DurableBackend
from holdfast.engine.keys import ShardKeys
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.settings import Settings
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.persistence.migrate import migrate
from support.commands import HOLDFAST, Command
from support.database import dsn_of, execute
from support.engine import SHARDS, document
from support.keepers import Callers, History, Keeper, Keepers, is_open, keeping, port_of
from support.persisting import Rig, eventually, following, log_keys, rigged, running
from support.scripts import held

KILLS = 50
CALLERS = 6
SEED = 20_260_501


def big_event() -> Any:
    return document(rows=20, per_row=30, floor=100_000)


@asynccontextmanager
async def busy_rig(redis_url: str, dsn: str) -> AsyncIterator[tuple[Rig, list[CompiledEvent]]]:
    """A rig with an event in every shard."""
    async with rigged(redis_url, dsn, big_event()) as rig:
        events = {rig.shard: rig.event}
        while len(events) < SHARDS:
            event = await rig.open_other(same_shard=False, doc=big_event())
            events[log_keys(event).shard] = event
        yield rig, list(events.values())


async def last_numbers(rig: Rig) -> dict[int, int]:
    """The last entry of every shard's log."""
    keys = [ShardKeys(shard, FIRST_EPOCH).key("seq") for shard in range(SHARDS)]
    return {shard: int(number or 0) for shard, number in enumerate(await rig.redis.mget(keys))}


async def is_drained(rig: Rig) -> bool:
    return await rig.marks() == await last_numbers(rig)


async def drained(rig: Rig) -> None:
    await eventually(lambda: is_drained(rig), "the log is drained")


async def check(rig: Rig, *histories: History) -> None:
    """Everything acknowledged is there, once, and nothing else but what somebody asked for without an answer."""
    acknowledged = {hold_id: status for history in histories for hold_id, status in history.status.items()}
    unsure = {hold_id for history in histories for hold_id in history.unsure}
    statuses: dict[Any, set[str]] = {}
    for row in await rig.fetch("SELECT hold_id, status FROM seat_holds"):
        statuses.setdefault(row["hold_id"], set()).add(row["status"])
    assert acknowledged.keys() <= statuses.keys(), "an acknowledged hold is missing"
    assert statuses.keys() <= acknowledged.keys() | unsure, "there is a hold that nobody asked for"
    assert all(len(found) == 1 for found in statuses.values()), "a hold has ended in part"
    differing = {each: statuses[each] for each in acknowledged if statuses[each] != {acknowledged[each]}}
    assert differing.keys() <= unsure, "what was acknowledged is not so"
    for action, kind in (
        ("seat_reserved", "SeatReserved"),
        ("seat_released", "SeatReleased"),
        ("seat_sold", "SeatSold"),
    ):
        audited = [
            row["entity_id"] for row in await rig.fetch("SELECT entity_id FROM audit_log WHERE action = $1", action)
        ]
        told = await rig.fetch("SELECT payload ->> 'hold_id' AS hold_id FROM outbox WHERE kind = $1", kind)
        assert Counter(audited).keys() == Counter(row["hold_id"] for row in told).keys()
        assert len(audited) == len(told) == len(set(audited)), f"{action} was applied twice"
    assert await rig.fetch("SELECT * FROM rejections") == []
    assert await rig.fetch("SELECT * FROM dead_letters") == []
    seats = await rig.fetch(
        "SELECT z.held, z.sold, coalesce(sum(h.quantity) FILTER (WHERE h.status = 'active'), 0) AS active, "
        "coalesce(sum(h.quantity) FILTER (WHERE h.status = 'converted'), 0) AS converted "
        "FROM zones z LEFT JOIN seat_holds h USING (event_id, zone) GROUP BY z.event_id, z.zone, z.held, z.sold"
    )
    assert all((row["held"], row["sold"]) == (row["active"], row["converted"]) for row in seats)


def verify(redis_url: str, dsn: str, directory: Path) -> None:
    """`holdfast verify` finds nothing."""
    settings = Settings(redis_url=redis_url, postgres_dsn=dsn, shards=SHARDS)
    directory.mkdir()
    command = Command([*HOLDFAST, "verify"], directory, settings.environment())
    assert command.wait() == 0, command.stdout + command.stderr


async def two_at_work(keepers: Keepers) -> list[Keeper]:
    """The keepers that are at work, once there are two."""

    async def connected() -> list[Keeper]:
        found = [keeper for keeper in keepers.running if keeper.is_connected]
        return found if len(found) >= 2 else []

    at_work: list[Keeper] = await eventually(connected, "two keepers are at work")
    return at_work


async def test_persisters_killed_at_fifty_moments_lose_nothing_and_do_nothing_twice(
    redis_url: str, database_dsn: str, tmp_path: Path
) -> None:
    chance = random.Random(SEED)  # noqa: S311 - it picks moments.
    async with (
        busy_rig(redis_url, database_dsn) as (rig, events),
        following(database_dsn) as acks,
        # One more than two, so that two are at work while a third one starts.
        keeping(redis_url, database_dsn, tmp_path, count=3) as keepers,
    ):
        callers = Callers(DurableBackend(rig.on.backend, acks, timeout_s=30), events, pause_s=0.005, seed=SEED)
        async with callers.at_work(CALLERS):
            for _ in range(KILLS):
                at_work = await two_at_work(keepers)
                await asyncio.sleep(chance.uniform(0, 0.1))
                keepers.replace(chance.choice(at_work))
            await more(callers.history)
        await drained(rig)
        keepers.stop()

        assert callers.history.failed_calls == 0
        assert len(callers.history.status) > 10 * KILLS
        await check(rig, callers.history)
        assert await is_drained(rig)
    verify(redis_url, database_dsn, tmp_path / "verify")


async def more(history: History) -> None:
    """Return when some more holds were acknowledged."""
    known = len(history.status)

    async def acknowledged() -> bool:
        return len(history.status) > known + CALLERS

    await eventually(acknowledged, "holds are acknowledged")


async def test_postgres_stopped_and_started_under_load(redis_url: str, tmp_path: Path) -> None:
    # A commit must outlive the server that confirmed it; it need not outlive the machine.
    options = {"fsync": "off"}
    server = start_postgres(tmp_path / "postgres", options=options)
    dsn = server.url
    try:
        await migrate(dsn)
        async with (
            busy_rig(redis_url, dsn) as (rig, events),
            following(dsn) as acks,
            keeping(redis_url, dsn, tmp_path, count=1) as keepers,
        ):
            backend = DurableBackend(rig.on.backend, acks, timeout_s=1)
            strict = Callers(backend, events, seed=1)
            fast = Callers(backend, events, ack=Ack.REDIS, pause_s=0.005, seed=2)
            async with strict.at_work(CALLERS), fast.at_work(2):
                for number in (signal.SIGINT, signal.SIGQUIT):
                    await more(strict.history)
                    await stop(server, number)
                    await outage(strict.history, fast.history)
                    assert not is_open(dsn)
                    server = start_postgres(tmp_path / "postgres", options=options, port=port_of(dsn))
                    await more(strict.history)
            await drained(rig)
            assert [keeper.process.poll() for keeper in keepers.running] == [None]
            keepers.stop()

            assert strict.history.failed_calls >= CALLERS
            assert fast.history.failed_calls == 0
            await check(rig, strict.history, fast.history)
        verify(redis_url, dsn, tmp_path / "verify")
    finally:
        server.stop()


async def stop(server: Server, number: signal.Signals) -> None:
    """Tell Postgres to stop, with its clients (SIGINT) or as in a crash (SIGQUIT), and wait until it is gone."""
    os.kill(server.pid, number)

    async def is_gone() -> bool:
        return not server.process.is_alive()

    await eventually(is_gone, "Postgres is gone")


async def outage(strict: History, fast: History) -> None:
    """Return when those who wait for Postgres have met its absence, and those who do not have not."""
    failed, acknowledged, granted = strict.failed_calls, len(strict.status), len(fast.status)

    async def noticed() -> bool:
        return strict.failed_calls >= failed + CALLERS and len(fast.status) >= granted + 20

    await eventually(noticed, "the outage is noticed")
    # At most those whose commit was on its way when this began.
    assert len(strict.status) <= acknowledged + CALLERS


REFUSE_AS_FULL = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON seat_holds FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@asynccontextmanager
async def read_only(dsn: str) -> AsyncIterator[None]:
    """A server that takes no writes, as one that is being moved does not."""
    await execute(dsn, "ALTER SYSTEM SET default_transaction_read_only = 'on'")
    await execute(dsn, "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        await execute(dsn, "ALTER SYSTEM RESET default_transaction_read_only")
        await execute(dsn, "SELECT pg_reload_conf()")


@asynccontextmanager
async def refused_as_full(dsn: str) -> AsyncIterator[None]:
    """A table that fails as on a full disk."""
    await execute_script(dsn, REFUSE_AS_FULL)
    try:
        yield
    finally:
        await execute_script(dsn, "DROP TRIGGER refuse ON seat_holds; DROP FUNCTION refuse;")


async def execute_script(dsn: str, script: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(script)
    finally:
        await connection.close()


REFUSALS = {
    "read_only": (read_only, r"cannot execute \w+ in a read-only transaction"),
    "disk_full": (refused_as_full, "could not extend file: No space left on device"),
}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_transaction_is_tried_until_it_is_taken(
    redis_url: str, database_dsn: str, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    refuse, reason = REFUSALS[refusal]
    async with rigged(redis_url, database_dsn) as rig, running(rig.persister().run()):
        await drained(rig)
        async with refuse(database_dsn):
            holds = [await held(rig.on, f"A-{number}") for number in range(1, 4)]

            async def told() -> bool:
                return len(warnings(caplog)) >= 2

            await eventually(told, "the operator is told")
            assert await rig.value("SELECT count(*) FROM seat_holds") == 0
            assert not await is_drained(rig)
        await drained(rig)

        rows = await rig.fetch("SELECT hold_id FROM seat_holds WHERE status = 'active'")
        assert {row["hold_id"] for row in rows} == set(holds)
        assert await rig.fetch("SELECT * FROM dead_letters") == []
    first, second, *_ = warnings(caplog)
    assert re.fullmatch(f"the log is not being persisted, trying again in 0.05 s: {reason}", first)
    assert re.fullmatch(f"the log is not being persisted, trying again in 0.10 s: {reason}", second)


@contextmanager
def small_disk(server: Server, size: str) -> Iterator[Path]:
    """A file system of its own, that the server may write to. Skips where nobody may mount one."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=False)
        if mounted.returncode != 0:
            pytest.skip("only who may mount a file system can fill one up")
        try:
            owner = Path(f"/proc/{server.pid}").stat()
            directory.chmod(0o711)
            space = directory / "space"
            space.mkdir(mode=0o700)
            os.chown(space, owner.st_uid, owner.st_gid)
            yield directory
        finally:
            subprocess.run(["umount", directory], check=True)
    finally:
        directory.rmdir()


def fill(disk: Path) -> Path:
    """A file that takes all that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


@pytest.mark.skipif(os.geteuid() != 0, reason="only who may mount a file system can fill one up")
async def test_a_full_disk_is_waited_for(
    redis_url: str,
    postgres_server: Server,
    migrated_template: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin, name = postgres_server.url, f"small_{uuid4().hex}"
    with small_disk(postgres_server, "32m") as disk:
        await execute(admin, f"CREATE TABLESPACE {name} LOCATION '{disk / 'space'}'")
        await execute(admin, f"CREATE DATABASE {name} TEMPLATE {migrated_template} TABLESPACE {name}")
        dsn = dsn_of(admin, name)
        try:
            async with rigged(redis_url, dsn, big_event()) as rig, running(rig.persister().run()):
                await drained(rig)
                filler = fill(disk)
                holds = set()

                async def told() -> bool:
                    holds.update([await held(rig.on, seat) for seat in next(rows)])
                    return any("No space left on device" in message for message in warnings(caplog))

                rows = iter_rows(rig.event)
                await eventually(told, "the operator is told")
                assert not await is_drained(rig)
                filler.unlink()
                await drained(rig)

                found = await rig.fetch("SELECT hold_id FROM seat_holds WHERE status = 'active'")
                assert {row["hold_id"] for row in found} == holds
                assert await rig.value("SELECT count(*) FROM audit_log WHERE action = 'seat_reserved'") == len(holds)
        finally:
            await execute(admin, f"DROP DATABASE {name} WITH (FORCE)")
            await execute(admin, f"DROP TABLESPACE {name}")


def iter_rows(event: CompiledEvent) -> Iterator[list[str]]:
    """The seats of an event, some at a time."""
    seats = list(event.seats)
    for at in range(0, len(seats), 10):
        yield seats[at : at + 10]
