"""The servers and processes of benchmarks that go over HTTP, gone when the benchmark ends."""

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from holdfast.commands import own_command
from holdfast.commands.migrate import apply_migrations
from holdfast.embedded import start_postgres, start_valkey
from holdfast.engine.layout import EventDocument, compile_event
from holdfast.engine.settings import Settings
from holdfast.events import open_desk
from holdfast.loadtest.baselines.ways import WayName
from holdfast.loadtest.http_requests import ORGANIZATION_ID
from holdfast.persistence.catalogue import save_event
from holdfast.persistence.migrate import migrate
from holdfast.persistence.pool import connect
from holdfast.persistence.service import open_servers, put_into_service
from holdfast.ports import LOOPBACK, await_listener, reserve
from holdfast.processes import spawn

NO_PERSISTENCE = {"appendonly": "no"}


@contextmanager
def bench_servers() -> Iterator["BenchServers"]:
    """An embedded Valkey and an embedded Postgres for the block, and what is started on them."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory, ExitStack() as running:
        yield BenchServers(Path(directory), running)


class BenchServers:
    """Starts front ends on the same two servers, each on a port of its own. `pids` are the processes by their names."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        self.pids: dict[str, int] = {}
        valkey = start_valkey(directory / "valkey")
        running.callback(valkey.stop)
        postgres = start_postgres(directory / "postgres")
        running.callback(postgres.stop)
        self.pids |= {"valkey": valkey.pid, "postgres": postgres.pid}
        self._settings = Settings(redis_url=valkey.url, postgres_dsn=postgres.url, token_secret=secrets.token_hex(32))

    def start_holdfast(self, event: EventDocument) -> Settings:
        """A keeper and a front end that sells the event, and how to reach them."""
        settings = msgspec.structs.replace(self._settings, port=self._port())
        apply_migrations(settings.postgres_dsn)
        asyncio.run(_open_event(settings, event))
        self._spawn("keeper", own_command("keep"), settings)
        self._serve("front end", own_command("serve", "--reuse-port"), settings)
        return settings

    def start_noop(self) -> int:
        """A server that does nothing; its port."""
        settings = msgspec.structs.replace(self._settings, port=self._port())
        self._serve("no-op server", _module("noop_server", str(settings.port)), settings)
        return settings.port

    def start_baseline(self, way: WayName, event: EventDocument) -> int:
        """A server that holds the event's seats in one of the plain ways, in a database of its own; its port.

        The way that keeps nothing has a Valkey of its own, which writes nothing to the disk.
        """
        dsn = asyncio.run(_make_database(self._settings.postgres_dsn, f"baseline_{way.value}", event))
        settings = msgspec.structs.replace(self._settings, port=self._port(), postgres_dsn=dsn)
        if way is WayName.REDIS_ONLY:
            valkey = start_valkey(self._directory / f"valkey {way.value}", options=NO_PERSISTENCE)
            self._running.callback(valkey.stop)
            settings = msgspec.structs.replace(settings, redis_url=valkey.url)
        self._serve(f"baseline {way.value}", _module("baselines.server", way.value), settings)
        return settings.port

    def _port(self) -> int:
        port: int = self._running.enter_context(reserve(LOOPBACK, 0)).getsockname()[1]
        return port

    def _serve(self, name: str, command: list[str], settings: Settings) -> None:
        self._spawn(name, command, settings)
        await_listener(LOOPBACK, settings.port)

    def _spawn(self, name: str, command: list[str], settings: Settings) -> None:
        environment = os.environ | settings.environment()
        process = spawn(name, command, log_path=self._directory / f"{name}.log", environment=environment)
        self._running.callback(process.stop)
        self.pids[name] = process.pid


def _module(name: str, argument: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"holdfast.loadtest.{name}", argument]


async def _open_event(settings: Settings, event: EventDocument) -> None:
    async with open_servers(settings, "bench") as servers:
        await put_into_service(servers, "holdfast bench")
    async with open_desk(settings) as desk:
        await desk.load(ORGANIZATION_ID, event)


async def _make_database(postgres_dsn: str, name: str, event: EventDocument) -> str:
    """Make a database on the same server with Holdfast's tables and the event; how to reach it."""
    connection = await connect(postgres_dsn, name="bench", statement_timeout_ms=None)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    dsn = urlsplit(postgres_dsn)._replace(path=f"/{name}").geturl()
    await migrate(dsn)
    connection = await connect(dsn, name="bench", statement_timeout_ms=None)
    try:
        await save_event(connection, compile_event(ORGANIZATION_ID, event), Settings().shards)
    finally:
        await connection.close()
    return dsn
