"""`holdfast serve` and `holdfast keep` as an operator runs them, without `up`."""

import asyncio
import os
import re
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen
from uuid import uuid4

import asyncpg

from holdfast.commands.serve import DEATHS_MAX
from holdfast.embedded import start_valkey
from holdfast.engine.settings import Settings
from holdfast.http.tokens import Role, mint_token
from holdfast.open_files import ENOUGH
from holdfast.ports import LOOPBACK, available_port, listen
from support.commands import Command, is_running, wait_until
from support.database import dsn_of, execute
from support.polling import eventually
from support.servers import OwnServer

StartCommand = Callable[..., Command]


def test_serve_answers_at_the_address_it_prints_until_it_is_told_to_stop(
    holdfast: StartCommand, redis_url: str, database_dsn: str
) -> None:
    command = holdfast("serve", "--port", "0", HOLDFAST_REDIS_URL=redis_url, HOLDFAST_POSTGRES_DSN=database_dsn)

    with urlopen(f"{address(command)}/healthz", timeout=5) as response:
        assert response.status == 200
    command.process.terminate()
    assert command.wait() == 0
    assert command.stderr == ""


def test_serve_can_be_started_again_at_once_while_old_connections_linger(holdfast: StartCommand) -> None:
    first = holdfast("serve", "--port", "0")
    netloc = urlsplit(address(first)).netloc
    with closing(HTTPConnection(netloc, timeout=5)) as connection:
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        # The server closes first, so the lingering end of this connection is on its port.
        first.process.terminate()
        assert first.wait() == 0

    second = holdfast("serve", "--port", netloc.rpartition(":")[2])

    assert address(second) == f"http://{netloc}"


def test_serve_on_a_taken_port_is_one_sentence(holdfast: StartCommand) -> None:
    with listen(LOOPBACK, 0) as taken:
        port = taken.getsockname()[1]
        for workers in ("1", "2"):
            command = holdfast("serve", "--port", str(port), "--workers", workers)

            assert command.wait() == 1
            assert command.stderr == f"holdfast: Port {port} on 127.0.0.1 is already in use.\n"


def test_a_crowd_that_comes_while_the_front_end_is_busy_is_let_in(holdfast: StartCommand) -> None:
    command = holdfast("serve", "--port", "0")
    url = urlsplit(address(command))
    crowd = min(600, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    with urlopen(f"{url.geturl()}/healthz", timeout=5) as response:
        assert response.status == 200
    # Given a front end that accepts nobody for a while,
    os.kill(command.process.pid, signal.SIGSTOP)
    try:
        with ExitStack() as open_connections:
            # when many come, every one is connected at once: a first packet that is dropped is repeated after a second.
            for _ in range(crowd):
                connection = socket.create_connection((url.hostname, url.port), timeout=0.9)
                open_connections.enter_context(connection)
    finally:
        os.kill(command.process.pid, signal.SIGCONT)


def test_serve_takes_as_many_connections_as_the_system_lets_it(holdfast: StartCommand) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        command = holdfast("serve", "--port", "0")
        address(command)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert resource.prlimit(command.process.pid, resource.RLIMIT_NOFILE)[0] == min(hard, ENOUGH)


def test_workers_share_a_port_and_stop_together(holdfast: StartCommand) -> None:
    command = holdfast("serve", "--port", "0", "--workers", "2")
    wait_until(lambda: command.stdout.count("Serving on") == 2, "both workers serve")
    workers = children(command.process.pid)

    assert len(workers) == 2
    assert len(set(command.stdout.splitlines())) == 1
    with urlopen(f"{address(command)}/healthz", timeout=5) as response:
        assert response.status == 200
    command.process.terminate()
    assert command.wait() == 0
    assert not any(is_running(pid) for pid in workers)


def test_a_worker_that_dies_is_started_again_but_not_for_ever(holdfast: StartCommand) -> None:
    command = holdfast("serve", "--port", "0", "--workers", "2", "--log-format", "text")
    wait_until(lambda: command.stdout.count("Serving on") == 2, "both workers serve")
    first, second = children(command.process.pid)

    for deaths in range(1, DEATHS_MAX):
        (victim,) = set(children(command.process.pid)) - {first}
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda served=2 + deaths: command.stdout.count("Serving on") == served, "another one serves")

    said = "The worker 2 was killed by SIGKILL"
    assert command.stderr.count(f"{said}; it is started again") == DEATHS_MAX - 1
    assert is_running(first)
    assert not is_running(second)
    with urlopen(f"{address(command)}/healthz", timeout=5) as response:
        assert response.status == 200
    last = children(command.process.pid)
    os.kill(first, signal.SIGKILL)
    assert command.wait() == 1
    assert command.stderr.endswith(
        f"holdfast: The worker 1 was killed by SIGKILL, the last of {DEATHS_MAX} that ended within 60 seconds.\n"
    )
    assert not any(is_running(pid) for pid in last)


def test_keep_stays_until_it_is_told_to_stop(holdfast: StartCommand, tmp_path: Path, database_dsn: str) -> None:
    valkey = start_valkey(tmp_path / "valkey")
    try:
        stays_until_told(holdfast("keep", HOLDFAST_REDIS_URL=valkey.url, HOLDFAST_POSTGRES_DSN=database_dsn))
    finally:
        valkey.stop()


def stays_until_told(command: Command) -> None:
    # Linux shows which signals a process has a handler for; the keeper waits once it has one for SIGTERM.
    wait_until(lambda: signal.SIGTERM in caught_signals(command.process.pid), "the keeper waits")

    command.process.terminate()

    assert command.wait() == 0
    assert command.stderr == ""


def test_keep_waits_for_servers_that_are_not_there_yet(
    holdfast: StartCommand, tmp_path: Path, postgres_dsn: str, migrated_template: str
) -> None:
    """Given a Redis and a database that come when the keeper has asked for them."""
    valkey, name = OwnServer(tmp_path / "valkey"), f"late_{uuid4().hex}"
    dsn = dsn_of(postgres_dsn, name)
    try:
        valkey.stop()
        command = holdfast("keep", "--log-format", "text", HOLDFAST_REDIS_URL=valkey.url, HOLDFAST_POSTGRES_DSN=dsn)
        wait_until(lambda: command.stderr, "the keeper says what it waits for")
        assert command.stderr.endswith(
            f'the keeper waits until Postgres can be used: database "{name}" does not exist\n'
        )
        asyncio.run(execute(postgres_dsn, f"CREATE DATABASE {name} TEMPLATE {migrated_template}"))
        wait_until(lambda: "Redis cannot be used: " in command.stderr, "the keeper says what it lacks")
        valkey.start()
        wait_until(
            lambda: asyncio.run(execute(dsn, "SELECT bool_and(mode = 'redis') FROM control")), "shards are served"
        )
        assert command.process.poll() is None
        command.process.terminate()
        assert command.wait() == 0
        assert command.stderr.count("the keeper waits") == command.stderr.count("Redis cannot be used: ") == 1
    finally:
        valkey.stop()
        asyncio.run(execute(postgres_dsn, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


def test_ctrl_c_ends_a_keeper_that_waits(holdfast: StartCommand) -> None:
    nobody = f"postgresql://holdfast@127.0.0.1:{available_port(LOOPBACK)}/holdfast"
    command = holdfast("keep", HOLDFAST_POSTGRES_DSN=nobody)
    wait_until(lambda: "the keeper waits until Postgres can be used" in command.stderr, "the keeper waits")

    command.send(signal.SIGINT)

    assert command.wait() == 0
    assert len(command.stderr.splitlines()) == 1


def address(command: Command) -> str:
    found = wait_until(lambda: re.search(r"Serving on (\S+)\n", command.stdout), "the address is printed")
    url: str = found[1]
    return url


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def caught_signals(pid: int) -> set[int]:
    (mask,) = re.findall(r"SigCgt:\s+([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


async def test_what_is_under_way_is_finished_before_serve_stops(
    holdfast: StartCommand, redis_url: str, database_dsn: str
) -> None:
    """A request that waits for Postgres is answered after the signal, while new connections are not taken."""
    secret = "s" * 64
    stores = {"HOLDFAST_REDIS_URL": redis_url, "HOLDFAST_POSTGRES_DSN": database_dsn}
    command = holdfast("serve", "--port", "0", HOLDFAST_TOKEN_SECRET=secret, **stores)
    host, _, port = urlsplit(address(command)).netloc.rpartition(":")
    token = mint_token(
        Settings(token_secret=secret), user_id=uuid4(), organization_id=uuid4(), role=Role.CUSTOMER, ttl_seconds=60
    )
    blocker = await asyncpg.connect(database_dsn)
    try:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            reader, writer = await asyncio.open_connection(host, int(port))
            path = f"/api/events/{uuid4()}/seats/{uuid4()}/reserve"
            writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'events'::regclass"
            await eventually(lambda: blocker.fetchval(waiting), "the request waits for Postgres")
            command.process.terminate()
            await eventually(lambda: not answers(host, int(port)), "no new connections are taken")
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
        writer.close()
    finally:
        await blocker.close()
    assert command.wait() == 0
    assert command.stderr == ""


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def test_any_worker_answers_for_what_all_have_counted(
    holdfast: StartCommand, redis_url: str, database_dsn: str
) -> None:
    stores = {"HOLDFAST_REDIS_URL": redis_url, "HOLDFAST_POSTGRES_DSN": database_dsn}
    command = holdfast("serve", "--port", "0", "--workers", "2", **stores)
    wait_until(lambda: command.stdout.count("Serving on") == 2, "both workers serve")
    (directory,) = {numbers_dir(pid) for pid in children(command.process.pid)}

    wait_until(lambda: len(list(directory.glob("*.numbers"))) == 2, "both have written their numbers")
    with urlopen(f"{address(command)}/metrics", timeout=5) as response:
        assert b"holdfast_hold_attempts_total" in response.read()
    command.process.terminate()

    assert command.wait() == 0
    assert not directory.exists()


def test_a_keeper_serves_its_numbers_where_it_is_told_to(
    holdfast: StartCommand, tmp_path: Path, database_dsn: str
) -> None:
    valkey, port = start_valkey(tmp_path / "valkey"), available_port(LOOPBACK)
    stores = {"HOLDFAST_REDIS_URL": valkey.url, "HOLDFAST_POSTGRES_DSN": database_dsn}
    try:
        command = holdfast("keep", "--metrics-port", str(port), **stores)

        def runs() -> bool:
            try:
                with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=5) as response:
                    return re.search(r'reaper_runs_total{result="done"} [1-9]', response.read().decode()) is not None
            except OSError:
                return False

        wait_until(runs, "the reaper's runs are counted")
        command.process.terminate()
        assert command.wait() == 0
    finally:
        valkey.stop()


def test_the_log_is_json_unless_text_is_asked_for(holdfast: StartCommand, database_dsn: str) -> None:
    nowhere = {"HOLDFAST_REDIS_URL": f"redis://{LOOPBACK}:{available_port(LOOPBACK)}/0"}
    for flags, is_json in (((), True), (("--log-format", "text"), False)):
        command = holdfast("serve", "--port", "0", *flags, HOLDFAST_POSTGRES_DSN=database_dsn, **nowhere)

        line = wait_until(lambda command=command: _complaint(command.stderr), "the missing server is written down")

        assert line.startswith('{"time":') is is_json


def _complaint(log: str) -> str:
    """The line, whole, that says that Redis is away; empty until there is one."""
    whole = log.splitlines(keepends=True)
    return next((line for line in whole if "Redis does not answer" in line and line.endswith("\n")), "")


def numbers_dir(pid: int) -> Path:
    arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return Path(arguments[arguments.index("--numbers-dir") + 1])
