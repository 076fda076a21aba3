"""Shards under test: servers of one's own, front ends as the application composes them, and a keeper's persister."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from redis.asyncio import Redis

from holdfast.embedded import Server, start_valkey
from holdfast.engine.acks import Acks
from holdfast.engine.backend import Backend, Holder, HoldReply
from holdfast.engine.background import beside
from holdfast.engine.breaker import Breakers
from holdfast.engine.durable import DurableBackend
from holdfast.engine.epochs import Epochs, Mode, ShardState
from holdfast.engine.failover import FailoverService
from holdfast.engine.keys import ShardKeys, shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, compile_event
from holdfast.engine.monitor import Monitor
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.settings import Settings
from holdfast.engine.wire import Wire
from holdfast.persistence.ballot import FRONT_END, Ballot
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.compensation import Compensation
from holdfast.persistence.marks import follow_marks
from holdfast.persistence.persister import Persister
from holdfast.persistence.pool import open_pool
from holdfast.persistence.recoverer import Recoverer
from holdfast.persistence.row_lock_backend import RowLockBackend
from holdfast.persistence.service import Servers, open_servers, put_into_service
from holdfast.persistence.transitions import read_states
from holdfast.persistence.verify import verify
from support.engine import SHARDS, document
from support.polling import eventually


class Valkey:
    """A server of the test's own that dies, stops and comes back in every way."""

    def __init__(self, directory: Path, **options: str) -> None:
        self._directory = directory
        # A server waits some seconds for more replicas to come before it serves the first.
        self._options = {"appendfsync": "always", "repl-diskless-sync-delay": "0"} | options
        self.server: Server = start_valkey(directory, options=self._options)
        self.url = self.server.url

    def kill(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()

    def start(self, *, empty: bool = False) -> None:
        directory = self._directory.with_name(f"{self._directory.name}-empty") if empty else self._directory
        self.server = start_valkey(directory, port=urlsplit(self.url).port, options=self._options)

    def freeze(self) -> None:
        os.kill(self.server.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.server.pid, signal.SIGCONT)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.thaw()
        self.server.stop()


@asynccontextmanager
async def replica_of(url: str) -> AsyncIterator[tuple[Server, Redis]]:
    """A server that follows another and has caught up, and a connection to it."""
    with TemporaryDirectory(prefix="holdfast-replica-") as directory:
        replica = start_valkey(Path(directory) / "replica")
        try:
            async with Redis.from_url(replica.url) as client:
                primary = urlsplit(url)
                await client.replicaof(str(primary.hostname), str(primary.port))

                async def in_step() -> bool:
                    return bool((await client.info("replication"))["master_link_status"] == "up")

                await eventually(in_step, "the replica is in step")
                yield replica, client
        finally:
            replica.stop()


class Front:
    """One front end's engine, as http.stores composes it."""

    def __init__(self, service: FailoverService, epochs: Epochs, breakers: Breakers, wire: Wire, acks: Acks) -> None:
        self.service = service
        self.epochs = epochs
        self.breakers = breakers
        self.wire = wire
        self.acks = acks

    async def hold(self, event: CompiledEvent, *seats: str, hold_id: UUID | None = None, **options: Any) -> HoldReply:
        """Hold seats as a new user."""
        holder = Holder(hold_id=hold_id or uuid4(), user_id=options.pop("user", None) or uuid4())
        return await self.service.hold_seats(event, holder, seats=[event.seats[each] for each in seats], **options)

    async def sees(self, event: CompiledEvent, mode: Mode, after: int = 0) -> ShardState:
        """Wait until it knows that an event's shard is in a mode, in an epoch after one."""
        shard = shard_of(event.event_id, SHARDS)

        def known() -> ShardState | None:
            state = self.epochs.state(shard)
            return state if state.mode is mode and state.epoch > after else None

        found: ShardState = await eventually(known, f"the front end knows of mode {mode}")
        return found


class Fallback:
    """Servers, an open event, and what tests ask of them."""

    def __init__(self, servers: Servers, event: CompiledEvent, dsn: str, redis_url: str) -> None:
        self.servers = servers
        self.event = event
        self.dsn = dsn
        self.redis_url = redis_url

    @property
    def shard(self) -> int:
        return shard_of(self.event.event_id, SHARDS)

    async def state(self) -> ShardState:
        async with self.servers.pool.acquire() as connection:
            return (await read_states(connection, [self.shard]))[self.shard]

    async def keys(self) -> ShardKeys:
        return ShardKeys(self.shard, (await self.state()).epoch)

    async def value(self, statement: str, *arguments: object) -> Any:
        async with self.servers.pool.acquire() as connection:
            return await connection.fetchval(statement, *arguments)

    async def execute(self, statement: str) -> None:
        async with self.servers.pool.acquire() as connection:
            await connection.execute(statement)

    async def findings(self) -> tuple[Any, ...]:
        """What `holdfast verify` finds."""
        async with self.servers.pool.acquire() as connection:
            return (await verify(self.servers.redis, connection, SHARDS)).findings

    async def drain(self) -> None:
        """Persist what waits."""
        persister = self.persister()
        while await persister.step(block_ms=1):
            pass

    def persister(self) -> Persister:
        def backend_in(epoch: int) -> Backend:
            return RedisBackend(self.servers.wire, shards=SHARDS, epoch=epoch)

        compensation = Compensation(backend_in, self.servers.pool, self.servers.redis)
        return Persister(self.servers.redis, self.servers.pool, shards=SHARDS, compensation=compensation)

    def recoverer(self, recover_after_s: float = 0.1) -> Recoverer:
        return Recoverer(self.servers, recover_after_s=recover_after_s)

    @asynccontextmanager
    async def front(self, url: str | None = None, *, votes: bool = True) -> AsyncIterator[Front]:
        """A front end that reaches Redis by a URL of its own, if one is given."""
        epochs, acks = Epochs(SHARDS), Acks()
        breakers = Breakers(epochs)
        async with AsyncExitStack() as stack:
            wire = await stack.enter_async_context(Wire(url or self.redis_url, timeout_s=1))
            pool = await stack.enter_async_context(open_pool(self.dsn, name="front", min_size=0))
            redis = DurableBackend(RedisBackend(wire, shards=SHARDS, epoch=epochs.redis_epoch), acks)
            service = FailoverService(redis, RowLockBackend(pool, shards=SHARDS), epochs, breakers)
            jobs = [follow_marks(self.dsn, acks, SHARDS, epochs)]
            ballot = Ballot(pool, FRONT_END)
            if votes:
                jobs.append(Monitor(wire, epochs, breakers, ballot.report, probe_s=1).run())
            await stack.enter_async_context(beside(*jobs))
            front = Front(service, epochs, breakers, wire, acks)
            await eventually(lambda: epochs.state(self.shard).epoch, "the front end knows its shards")
            yield front
        async with open_pool(self.dsn, name="front", max_size=1) as pool, pool.acquire() as connection:
            await connection.execute("DELETE FROM voters WHERE name = $1", ballot.name)

    @asynccontextmanager
    async def keeping(self, **options: float) -> AsyncIterator[None]:
        """A persister and a recoverer at work."""
        async with beside(self.persister().run(), self.recoverer(**options).run(0.05)):
            yield


@asynccontextmanager
async def fallback(redis_url: str, dsn: str, doc: EventDocument | None = None) -> AsyncIterator[Fallback]:
    """Every shard in service on an emptied server, and one event open and persisted."""
    settings = Settings(redis_url=redis_url, postgres_dsn=dsn, shards=SHARDS)
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
    async with open_servers(settings, "test") as servers:
        await put_into_service(servers, "test")
        event = compile_event(uuid4(), doc or document())
        async with servers.pool.acquire() as connection:
            await save_event(connection, event, SHARDS)
            epochs = Epochs(SHARDS, await read_states(connection, range(SHARDS)))
        backend = RedisBackend(servers.wire, shards=SHARDS, epoch=epochs.redis_epoch)
        assert (await backend.open_event(event)).status.succeeded
        under_test = Fallback(servers, event, dsn, redis_url)
        await under_test.drain()
        yield under_test
