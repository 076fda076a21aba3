"""A whole Holdfast in a directory of its own: both servers, keepers and front ends, each behind a proxy."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from holdfast.embedded import Server, start_postgres, start_valkey
from holdfast.engine.errors import BackendError
from holdfast.engine.layout import EventDocument, EventState, SeatDocument, ZoneDocument, ZoneType
from holdfast.engine.policy import Policy
from holdfast.engine.settings import Settings
from holdfast.engine.shards import find_broken
from holdfast.engine.wire import Wire
from holdfast.errors import OperatorError
from holdfast.events import open_desk
from holdfast.http.tokens import Role, mint_token
from holdfast.loadtest.chaos.proxy import Proxy
from holdfast.loadtest.chaos.traffic import Arena
from holdfast.persistence.migrate import migrate
from holdfast.ports import LOOPBACK, available_port
from holdfast.processes import Process, spawn

START_S = 60.0
IN_ORDER_S = 10.0
_LOAD_ATTEMPTS = 5
POLL_S = 0.02

# What keeps buyers from fighting is left out.
OPEN_POLICY = Policy(rate_limit_seats=0, rate_limit_seconds=1, default_hold_ttl_minutes=1)

# A chaos run takes the power away from processes, never from the machine.
_UNSAFE_POSTGRES = {"fsync": "off", "full_page_writes": "off"}
# A server waits some seconds for more replicas to come before it serves the first.
_REDIS_OPTIONS = {"repl-diskless-sync-delay": "0"}

_HOLDFAST = [sys.executable, "-P", "-m", "holdfast"]

Result = TypeVar("Result")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a stack consists of. A front end has so many workers.

    `proxied` says whether every front end reaches Redis by a proxy of its own, and the keepers together by another,
    which can misbehave and cost something; `safe` whether Postgres survives that the machine loses its power.
    """

    shards: int = 2
    front_ends: int = 2
    workers: int = 1
    keepers: int = 2
    proxied: bool = True
    safe: bool = False


class Stack:
    """A whole Holdfast whose parts can be broken one by one. Use as an async context manager."""

    def __init__(
        self, directory: Path, *, variables: Mapping[str, str] | None = None, layout: Layout | None = None
    ) -> None:
        self._directory = directory
        self._variables = dict(variables or {})
        self.layout = layout or Layout()
        self._postgres_options = {} if self.layout.safe else _UNSAFE_POSTGRES
        self._running = AsyncExitStack()
        # The kernel stops a child when the thread that started it ends, so one thread starts them all and stays.
        self._thread = ThreadPoolExecutor(1, "servers")
        self._keepers: list[Process] = []
        self._front_ends: list[Process] = []
        self._ports: list[int] = []
        self._redis_generation = 0
        self._token_secret = secrets.token_urlsafe(32)
        self.front_end_proxies: list[Proxy] = []
        self.keeper_proxy: Proxy | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start(self) -> None:
        self._running.callback(self._thread.shutdown)
        self.postgres = await self.in_thread(
            lambda: start_postgres(self._directory / "postgres", options=self._postgres_options)
        )
        self._running.push_async_callback(self._stop_server, lambda: self.postgres)
        await migrate(self.postgres.url)
        self.redis = await self.in_thread(lambda: start_valkey(self.redis_directory, options=_REDIS_OPTIONS))
        self._running.push_async_callback(self._stop_server, lambda: self.redis)
        if self.layout.proxied:
            self.keeper_proxy = await self._running.enter_async_context(Proxy(self.redis.url))
            for _ in range(self.layout.front_ends):
                self.front_end_proxies.append(await self._running.enter_async_context(Proxy(self.redis.url)))
        self._keepers = [await self._spawn_keeper(number) for number in range(self.layout.keepers)]
        self._ports = [available_port(LOOPBACK) for _ in range(self.layout.front_ends)]
        self._front_ends = [await self._spawn_front_end(number) for number in range(self.layout.front_ends)]
        self._session = await self._running.enter_async_context(aiohttp.ClientSession())
        await self.until(self.is_ready, "everything is ready", START_S)

    async def _stop(self) -> None:
        for process in (*self._front_ends, *self._keepers):
            # One that was stopped cannot hear that it should end.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            await self.in_thread(process.stop)
        await self._running.aclose()

    async def _stop_server(self, server: Callable[[], Server]) -> None:
        with suppress(ProcessLookupError):
            os.kill(server().pid, signal.SIGCONT)
        await self.in_thread(server().stop)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Do what blocks, such as starting a server, while proxies and buyers go on."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # Where things are.

    @property
    def redis_directory(self) -> Path:
        return self._directory / f"redis-{self._redis_generation}"

    @property
    def front_end_urls(self) -> list[str]:
        return [f"http://{LOOPBACK}:{port}" for port in self._ports]

    @property
    def proxies(self) -> list[Proxy]:
        """All that stands between a process and Redis."""
        return [*([self.keeper_proxy] if self.keeper_proxy else []), *self.front_end_proxies]

    @property
    def processes(self) -> dict[str, int]:
        """The process ids by name."""
        ours = {each.name: each.pid for each in (*self._front_ends, *self._keepers)}
        return {**ours, "Redis": self.redis.pid, "Postgres": self.postgres.pid}

    @property
    def pids(self) -> list[int]:
        """Every process of the stack."""
        return list(self.processes.values())

    def settings(self, redis_url: str | None = None) -> Settings:
        return Settings(
            redis_url=redis_url or self.redis.url,
            postgres_dsn=self.postgres.url,
            shards=self.layout.shards,
            token_secret=self._token_secret,
        )

    def client(self) -> Redis:
        """The Redis in service, past the proxies. To be closed by the caller."""
        return self.client_of(self.redis)

    def client_of(self, server: Server) -> Redis:
        return Redis.from_url(server.url, socket_timeout=10.0, retry=Retry(NoBackoff(), 0))

    def token(self, user_id: UUID, organization_id: UUID, role: Role) -> str:
        return mint_token(
            self.settings(), user_id=user_id, organization_id=organization_id, role=role, ttl_seconds=86_400
        )

    async def query(self, statement: str, *arguments: object) -> list[Any]:
        """Ask Postgres on a connection of its own."""
        connection = await asyncpg.connect(self.postgres.url, timeout=10)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    async def watch(self, statement: str, what: str, within_s: float, *arguments: object) -> None:
        """Ask Postgres without a pause until it says yes, for what is over soon. Raises TimeoutError, as `until`."""
        connection = await asyncpg.connect(self.postgres.url, timeout=10)
        try:
            async with asyncio.timeout(within_s):
                while not await connection.fetchval(statement, *arguments):
                    pass
        except TimeoutError:
            raise TimeoutError(f"not within {within_s:g} s: {what}") from None
        finally:
            await connection.close()

    # What is asked of it.

    async def open_event(self, seats: int, places: int, policy: Policy = OPEN_POLICY) -> Arena:
        """Put a new event on sale, and return once Postgres has it in service too."""
        row_length = 20
        seat_ids = [str(uuid4()) for _ in range(seats)]
        rows = tuple(
            SeatDocument(seat_id, f"R{index // row_length}", index % row_length + 1)
            for index, seat_id in enumerate(seat_ids)
        )
        seated = ZoneDocument(str(uuid4()), ZoneType.RESERVED_SEATING, "Stalls", seats, rows)
        standing = ZoneDocument(str(uuid4()), ZoneType.GA_STANDING, "Floor", places)
        document = EventDocument(
            event_id=uuid4(), name="Chaos", zones=(seated, standing), state=EventState.LIVE, policy=policy
        )
        organization_id = uuid4()
        for attempt in range(_LOAD_ATTEMPTS):
            try:
                async with open_desk(self.settings()) as desk:
                    await desk.load(organization_id, document)
                break
            except OperatorError:
                # The mode of the event's shard may change between the question who serves it and the call.
                if attempt + 1 == _LOAD_ATTEMPTS:
                    raise
                await asyncio.sleep(1.0)

        async def is_persisted() -> bool:
            opened = await self.query("SELECT FROM events WHERE id = $1 AND opened_at IS NOT NULL", document.event_id)
            return bool(opened)

        # Until then an event that Redis loses is lost with it, and what is checked here is what buyers were promised.
        await self.until(is_persisted, "the event is in service in Postgres too", START_S)
        capacities = {seated.zone_id: seats, standing.zone_id: places}
        return Arena(organization_id, document.event_id, tuple(seat_ids), seated.zone_id, standing.zone_id, capacities)

    async def is_in_order(self) -> bool:
        """Whether everything works, or soon does."""
        try:
            await self.until(self.is_ready, "everything is ready", IN_ORDER_S)
        except TimeoutError:
            return False
        return True

    async def is_ready(self) -> bool:
        """Whether Redis serves every shard, with what belongs there, and every front end says that it can work."""
        rows = await self.query("SELECT shard, epoch, mode FROM control")
        if len(rows) != self.layout.shards or {row["mode"] for row in rows} != {"redis"}:
            return False
        try:
            # Not only by the books: nobody may have noticed yet that Redis is not what it was.
            async with Wire(self.redis.url) as wire:
                if await find_broken(wire, {row["shard"]: row["epoch"] for row in rows}):
                    return False
        except BackendError:
            return False
        for url in self.front_end_urls:
            try:
                timeout = aiohttp.ClientTimeout(total=5)
                async with self._session.get(f"{url}/readyz", timeout=timeout) as response:
                    if response.status != 200:
                        return False
            except (aiohttp.ClientError, TimeoutError, OSError):
                return False
        return True

    async def until(self, condition: Callable[[], Any], what: str, within_s: float) -> None:
        """Wait until a condition, a coroutine function, holds. Raises TimeoutError that says what did not."""
        try:
            async with asyncio.timeout(within_s):
                # The condition is another process's, which tells nobody when it comes true.
                while not await self._holds(condition):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise TimeoutError(f"not within {within_s:g} s: {what}") from None

    async def _holds(self, condition: Callable[[], Any]) -> bool:
        try:
            return bool(await condition())
        except (asyncpg.PostgresError, OSError):
            return False

    # What can be done to it.

    def lead_to(self, redis: Server) -> None:
        """Lead every new connection to another Redis, and cut those there are."""
        self.redis = redis
        for proxy in self.proxies:
            proxy.redirect(redis.url)
            proxy.cut()

    async def kill_redis(self) -> None:
        """Take Redis away without a word."""
        os.kill(self.redis.pid, signal.SIGKILL)
        await self.in_thread(self.redis.stop)

    async def start_redis(self, *, empty: bool = False) -> None:
        """Start Redis again on the same port: with what its files have, or with nothing."""
        if empty:
            self._redis_generation += 1
        port = urlsplit(self.redis.url).port
        self.redis = await self.in_thread(lambda: start_valkey(self.redis_directory, port=port, options=_REDIS_OPTIONS))

    async def start_replica(self) -> Server:
        """Start another Redis that follows the one in service, and return once it has caught up and all is in order.

        A server takes a new name when its first replica comes, and must be built anew before it serves on.
        """
        self._redis_generation += 1
        directory = self.redis_directory
        replica = await self.in_thread(lambda: start_valkey(directory, options=_REDIS_OPTIONS))
        self._running.push_async_callback(self._stop_server, lambda: replica)
        async with self.client_of(replica) as client:
            await self.follow(client, self.redis)
        await self.until(self.is_ready, "everything is ready again", START_S)
        return replica

    async def follow(self, client: Redis, leader: Server) -> None:
        """Make a server a replica, and return once it has caught up."""
        await client.replicaof(LOOPBACK, str(urlsplit(leader.url).port))

        async def caught_up() -> bool:
            return (await client.info("replication")).get("master_link_status") == "up"

        await self.until(caught_up, "the replica has caught up", START_S)

    async def command(self, *arguments: str, within_s: float) -> str:
        """Run `holdfast …` on this stack to its end, and return what it printed. Raises OperatorError if it fails."""
        child = await asyncio.create_subprocess_exec(
            *_HOLDFAST,
            *arguments,
            env=self._environment(self._redis_url(self.keeper_proxy)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(within_s):
                output, complaint = await child.communicate()
        except TimeoutError:
            raise OperatorError(f"`holdfast {' '.join(arguments)}` took longer than {within_s:g} s.") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            raise OperatorError(f"`holdfast {' '.join(arguments)}` failed: {complaint.decode().strip()}")
        return output.decode()

    async def stop_postgres(self) -> None:
        await self.in_thread(self.postgres.stop)

    async def start_postgres(self) -> None:
        port = urlsplit(self.postgres.url).port
        directory = self._directory / "postgres"
        self.postgres = await self.in_thread(
            lambda: start_postgres(directory, port=port, options=self._postgres_options)
        )

    async def kill_keeper(self, number: int) -> None:
        os.kill(self._keepers[number].pid, signal.SIGKILL)
        await self.in_thread(self._keepers[number].stop)

    async def start_keeper(self, number: int) -> None:
        self._keepers[number] = await self._spawn_keeper(number)

    async def kill_front_end(self, number: int) -> None:
        os.kill(self._front_ends[number].pid, signal.SIGKILL)
        await self.in_thread(self._front_ends[number].stop)

    async def start_front_end(self, number: int) -> None:
        self._front_ends[number] = await self._spawn_front_end(number)

    def output(self) -> str:
        """What the processes have written, for a report of something unexpected."""
        return "\n".join(f"{each.name}:\n{each.output()[-4_000:]}" for each in (*self._front_ends, *self._keepers))

    async def _spawn_keeper(self, number: int) -> Process:
        return await self._spawn(f"keeper {number}", self.keeper_proxy, "keep")

    async def _spawn_front_end(self, number: int) -> Process:
        proxy = self.front_end_proxies[number] if self.layout.proxied else None
        arguments = ("serve", "--port", str(self._ports[number]), "--workers", str(self.layout.workers))
        return await self._spawn(f"front end {number}", proxy, *arguments)

    async def _spawn(self, name: str, proxy: Proxy | None, *arguments: str) -> Process:
        environment = self._environment(self._redis_url(proxy))
        log_path = self._directory / f"{name.replace(' ', '_')}.log"
        command = [*_HOLDFAST, *arguments]
        return await self.in_thread(lambda: spawn(name, command, log_path=log_path, environment=environment))

    def _redis_url(self, proxy: Proxy | None) -> str:
        return proxy.url if proxy else self.redis.url

    def _environment(self, redis_url: str) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        return {**inherited, **self.settings(redis_url).environment(), **self._variables}

    def truncate_aof(self, by_bytes: int) -> None:
        """Cut the end off the last file of the append-only log, as a crash between two writes to disk does."""
        manifest = self.redis_directory / "appendonlydir"
        last = max(manifest.glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))
        size = last.stat().st_size
        os.truncate(last, max(0, size - by_bytes))
