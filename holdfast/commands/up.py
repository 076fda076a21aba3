"""`holdfast up`: everything on this machine with one command."""

import argparse
import asyncio
import os
import time
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

import asyncpg
import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast import demo
from holdfast.commands import add_data_dir_flag, own_command, read_settings
from holdfast.commands.migrate import apply_migrations
from holdfast.data_dir import DataDir
from holdfast.embedded import start_postgres, start_valkey
from holdfast.engine.settings import Settings, variable
from holdfast.engine.shards import ShardCountError
from holdfast.errors import OperatorError
from holdfast.http.tokens import Role, mint_token
from holdfast.persistence.pool import POSTGRES_ERRORS
from holdfast.persistence.service import open_servers, put_into_service
from holdfast.ports import http_url, reserve
from holdfast.processes import Process, Watch, spawn, until_stopped
from holdfast.stores import failures_explained

if TYPE_CHECKING:
    from holdfast.commands import Commands

HEALTH_TIMEOUT_SECONDS = 30.0
HEALTH_INTERVAL_SECONDS = 0.02
STORE_TIMEOUT_SECONDS = 5.0
TOKEN_TTL_SECONDS = 30 * 24 * 3600
TOKEN_ROLES = (Role.CUSTOMER, Role.ADMIN, Role.SERVICE)


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "up",
        help="run everything on this machine",
        description="Start Valkey and Postgres, unless HOLDFAST_REDIS_URL and HOLDFAST_POSTGRES_DSN name servers that "
        "run already, then the front end and the keeper. Stops everything on SIGTERM or Ctrl-C; started again on the "
        "same data directory it continues with its data.",
        epilog="example: holdfast up --data-dir .holdfast --port 8080",
    )
    add_data_dir_flag(parser)
    parser.add_argument("--port", type=int, metavar="N", help="port, 0 for any free one (HOLDFAST_PORT, default 8080)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Bring everything up, watch over it, and take it down in the reverse order."""
    settings = read_settings(port=arguments.port)
    data_dir = DataDir(arguments.data_dir)
    with until_stopped() as watch, data_dir.lock(watch.pause) as lock, ExitStack() as running:
        _Stack(data_dir, settings, lock, watch, running).run()


class _Stack:
    """What one `up` runs. `running` stops the processes, the youngest first, however the block is left."""

    def __init__(self, data_dir: DataDir, settings: Settings, lock: int, watch: Watch, running: ExitStack) -> None:
        reserved = running.enter_context(reserve(settings.host, settings.port))
        self._data_dir = data_dir
        self._lock = lock
        self._watch = watch
        self._running = running
        self._processes: list[Process] = []
        self._settings = msgspec.structs.replace(
            settings,
            port=reserved.getsockname()[1],
            token_secret=settings.token_secret or data_dir.token_secret(),
            # Whoever has this machine operates it, and the admin's token in run.json is theirs.
            operator_organization=settings.operator_organization or demo.ORGANIZATION_ID,
        )

    def run(self) -> NoReturn:
        """Start everything, say so, and stay until a process dies."""
        self._data_dir.run_file.unlink(missing_ok=True)
        postgres_pid = self._provide_postgres()
        redis_pid = self._provide_redis()
        apply_migrations(self._settings.postgres_dsn)
        asyncio.run(_put_into_service(self._settings))
        keeper_pid = self._spawn("keeper", "keep")
        front_end_pid = self._spawn("front end", "serve", "--reuse-port")
        # The keeper is needed for it: whoever stops `up` right afterwards finds the event in Postgres the next time.
        demo_ids = asyncio.run(demo.load_demo(self._settings, confirm_s=HEALTH_TIMEOUT_SECONDS))
        url = http_url(self._settings.host, self._settings.port)
        self._await_health(url)
        tokens = self._tokens(demo_ids)
        run = {
            "http_url": url,
            "redis_url": self._settings.redis_url,
            "postgres_dsn": self._settings.postgres_dsn,
            "pids": {
                "redis": redis_pid,
                "postgres": postgres_pid,
                "front_ends": [front_end_pid],
                "keepers": [keeper_pid],
            },
            "demo": demo_ids,
            "tokens": tokens,
        }
        with self._data_dir.run_file_written(run):
            self._announce(url, tokens[Role.CUSTOMER])
            self._watch.await_first_death(self._processes)

    def _provide_redis(self) -> int | None:
        """The pid of an embedded server, or nothing if the environment names one, which then has to answer."""
        if os.environ.get(variable("redis_url")):
            _check_redis(self._settings.redis_url)
            return None
        server = start_valkey(self._data_dir.path / "valkey", keep_open=[self._lock], pause=self._watch.pause)
        self._settings = msgspec.structs.replace(self._settings, redis_url=server.url)
        return self._look_after(server.process)

    def _provide_postgres(self) -> int | None:
        """The pid of an embedded server, or nothing if the environment names one, which then has to answer."""
        if os.environ.get(variable("postgres_dsn")):
            asyncio.run(_check_postgres(self._settings.postgres_dsn))
            return None
        server = start_postgres(self._data_dir.path / "postgres", keep_open=[self._lock], pause=self._watch.pause)
        self._settings = msgspec.structs.replace(self._settings, postgres_dsn=server.url)
        return self._look_after(server.process)

    def _spawn(self, name: str, *arguments: str) -> int:
        log_path = self._data_dir.path / f"{name.replace(' ', '_')}.log"
        environment = {**os.environ, **self._settings.environment()}
        command = own_command(*arguments)
        child = spawn(name, command, log_path=log_path, environment=environment, keep_open=[self._lock])
        return self._look_after(child)

    def _look_after(self, process: Process) -> int:
        self._running.callback(process.stop)
        self._processes.append(process)
        return process.pid

    def _await_health(self, url: str) -> None:
        deadline = time.monotonic() + HEALTH_TIMEOUT_SECONDS
        while not _is_healthy(url):
            for process in self._processes:
                if not process.is_alive():
                    raise OperatorError(f"{process.obituary()} at its start.")
            if time.monotonic() > deadline:
                raise OperatorError(f"Nothing answered at {url} within {HEALTH_TIMEOUT_SECONDS:.0f} seconds.")
            self._watch.pause(HEALTH_INTERVAL_SECONDS)

    def _tokens(self, ids: demo.DemoIds) -> dict[str, str]:
        return {
            role.value: mint_token(
                self._settings,
                user_id=demo.user_id(role),
                organization_id=ids.organization_id,
                role=role,
                ttl_seconds=TOKEN_TTL_SECONDS,
            )
            for role in TOKEN_ROLES
        }

    def _announce(self, url: str, token: str) -> None:
        print(f"Holdfast is up at {url}")
        print(f"  try it   {example_call(url, token)}")
        print(f"  details  {self._data_dir.run_file}")
        print(f"  stop it  Ctrl-C or kill {os.getpid()}", flush=True)


def example_call(url: str, token: str) -> str:
    """A command to paste into a terminal, which reserves the first seat of the demo event."""
    seat = demo.festival().zones[0].seats[0].seat_id
    path = f"/api/events/{demo.EVENT_ID}/seats/{seat}/reserve"
    return f"curl -s -X POST -H 'Authorization: Bearer {token}' {url}{path}"


def _is_healthy(url: str) -> bool:
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=STORE_TIMEOUT_SECONDS)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False


async def _put_into_service(settings: Settings) -> None:
    """Have Redis built from Postgres where it is new, restarted or empty."""
    try:
        with failures_explained():
            async with open_servers(settings, "up") as servers:
                await put_into_service(servers, "holdfast up")
    except ShardCountError as error:
        raise OperatorError(str(error)) from error


def _check_redis(url: str) -> None:
    try:
        with redis.Redis.from_url(url, socket_timeout=STORE_TIMEOUT_SECONDS, retry=Retry(NoBackoff(), 0)) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise OperatorError(f"The server named in {variable('redis_url')} does not answer: {reason}.") from error


async def _check_postgres(dsn: str) -> None:
    try:
        connection = await asyncpg.connect(dsn, timeout=STORE_TIMEOUT_SECONDS)
    except (ValueError, *POSTGRES_ERRORS) as error:
        raise OperatorError(f"The server named in {variable('postgres_dsn')} does not answer: {error}.") from error
    await connection.close()
