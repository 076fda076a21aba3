"""`holdfast up` from the outside: what it promises an operator, and what is left of it afterwards."""

import json
import os
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import asyncpg
import jwt
import pytest
import redis

from holdfast.embedded import Server
from holdfast.ports import LOOPBACK, available_port, listen
from support.commands import NOBODY, Up, is_running, pids, wait_until

StartUp = Callable[..., Up]


def test_the_call_that_up_prints_reserves_a_seat(up: StartUp) -> None:
    command = up()
    command.ready()
    # What runs is published before it is announced.
    wait_until(lambda: "stop it" in command.stdout, "the announcement is printed")
    (line,) = [line for line in command.stdout.splitlines() if line.startswith("  try it")]
    call = shlex.split(line.removeprefix("  try it"))

    first, again = (json.loads(subprocess.run(call, capture_output=True, check=True).stdout) for _ in range(2))

    assert first["data"]["status"] == "held"
    assert first["data"]["durability"] == "postgres"
    assert again["data"]["hold_id"] == first["data"]["hold_id"]


def test_up_serves_and_writes_down_what_runs(up: StartUp) -> None:
    command = up()
    run = command.ready()

    assert stat.S_IMODE(command.run_file.stat().st_mode) == 0o600
    assert {name: type(value) for name, value in run.items()} == {
        "http_url": str,
        "redis_url": str,
        "postgres_dsn": str,
        "pids": dict,
        "demo": dict,
        "tokens": dict,
    }
    assert set(run["pids"]) == {"redis", "postgres", "front_ends", "keepers"}
    assert set(run["demo"]) == {"organization_id", "event_id"}
    assert all(is_running(pid) for pid in pids(run))
    assert get(f"{run['http_url']}/healthz") == b'{"data":{"status":"ok"}}'
    assert get(f"{run['http_url']}/readyz") == b'{"data":{"status":"ready"}}'


def test_up_says_where_it_is_how_to_try_it_and_how_to_stop_it(up: StartUp) -> None:
    command = up()
    run = command.ready()
    wait_until(lambda: "stop it" in command.stdout, "the announcement")

    assert f"Holdfast is up at {run['http_url']}\n" in command.stdout
    assert f" {run['http_url']}/api/events/{run['demo']['event_id']}/seats/" in command.stdout
    assert f"Ctrl-C or kill {command.process.pid}\n" in command.stdout


def test_the_tokens_in_the_run_file_are_for_the_demo_organisation(up: StartUp) -> None:
    command = up()
    run = command.ready()
    secret = (command.data_dir / "token_secret").read_text()

    assert set(run["tokens"]) == {"customer", "admin", "service"}
    # Whoever runs it operates it.
    assert get(f"{run['http_url']}/api/admin/mode", run["tokens"]["admin"]).startswith(b'{"data":{"shards":[')
    for role, token in run["tokens"].items():
        claims = jwt.decode(token, secret, algorithms=["HS256"], issuer="holdfast", audience="holdfast")
        assert (claims["role"], claims["org"]) == (role, run["demo"]["organization_id"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_stops_everything(up: StartUp, number: signal.Signals) -> None:
    command = up()
    run = command.ready()

    command.send(number)

    assert command.wait() == 0
    assert command.stderr == ""
    assert not any(is_running(pid) for pid in pids(run))
    assert command.left_nothing()
    assert not command.run_file.exists()
    assert "database system is shut down" in (command.data_dir / "postgres.log").read_text()


def test_a_stop_signal_during_the_start_stops_everything(up: StartUp) -> None:
    command = up()
    wait_until((command.data_dir / "postgres.log").exists, "Postgres is being started")

    command.send(signal.SIGTERM)

    assert command.wait() == 0
    assert command.stderr == ""
    assert command.left_nothing()


def test_an_interrupt_while_everything_is_imported_is_a_clean_end(up: StartUp) -> None:
    command = up()
    # The first library of ours that is not Python: from here to the last import it takes a while.
    wait_until(lambda: "msgspec" in command.maps, "the command imports what it needs")

    command.send(signal.SIGINT)

    assert command.wait() == 130
    assert command.stderr == ""


@pytest.mark.parametrize("first", [0.0, 0.25, 0.5])
def test_an_interrupt_at_any_moment_of_the_start_is_a_clean_end(up: StartUp, first: float) -> None:
    """Each on what the one before has left behind, from when libraries are imported to when everything runs."""
    for moment in (first, first + 0.75, first + 1.5, first + 2.25):
        command = up()
        wait_until(lambda command=command: "msgspec" in command.maps, "the command imports what it needs")
        time.sleep(moment)

        command.send(signal.SIGINT)

        assert command.wait() in (0, 130), (moment, command.stderr)
        assert command.stderr == "", moment
        wait_until(command.left_nothing, "what initdb had started is gone")
        assert not command.run_file.exists(), moment
    again = up()
    again.ready()
    again.send(signal.SIGINT)
    assert again.wait() == 0


@pytest.mark.parametrize(
    ("victim", "name"),
    [
        (lambda run: run["pids"]["front_ends"][0], "front end"),
        (lambda run: run["pids"]["keepers"][0], "keeper"),
        (lambda run: run["pids"]["redis"], "Valkey server"),
        (lambda run: run["pids"]["postgres"], "Postgres server"),
    ],
)
def test_the_death_of_one_process_ends_all(up: StartUp, victim: Callable[[dict[str, Any]], int], name: str) -> None:
    command = up()
    run = command.ready()

    os.kill(victim(run), signal.SIGKILL)

    assert command.wait() == 1
    assert command.stderr.startswith(f"holdfast: The {name} was killed by SIGKILL (log: {command.data_dir}/")
    assert command.stderr.count("\n") == 1
    assert not any(is_running(pid) for pid in pids(run))
    wait_until(command.left_nothing, "the backends of a killed Postgres notice")
    assert not command.run_file.exists()


async def test_killed_and_started_again_it_continues(up: StartUp) -> None:
    killed = up()
    before = killed.ready()
    secret = (killed.data_dir / "token_secret").read_text()
    with redis.Redis.from_url(before["redis_url"]) as client:
        client.set("seat", "held")
    await execute(before["postgres_dsn"], "CREATE TABLE seat AS SELECT 'held' AS status")

    killed.kill()
    # The second start has to wait for the servers of the first, which nobody told to stop but the kernel.
    after = up().ready()

    assert not any(is_running(pid) for pid in pids(before))
    with redis.Redis.from_url(after["redis_url"], decode_responses=True) as client:
        assert client.get("seat") == "held"
    assert await execute(after["postgres_dsn"], "SELECT status FROM seat") == "held"
    assert (killed.data_dir / "token_secret").read_text() == secret
    assert after["demo"] == before["demo"]


def test_a_second_up_on_the_same_directory_is_refused(up: StartUp) -> None:
    first = up()
    run = first.ready()

    second = up()

    assert second.wait() == 1
    assert second.stderr == f"holdfast: Another `holdfast up` (process {first.process.pid}) uses {first.data_dir}.\n"
    assert all(is_running(pid) for pid in pids(run))
    assert first.run_file.exists()


def test_a_taken_port_is_noticed_before_anything_starts(up: StartUp) -> None:
    with listen(LOOPBACK, 0) as taken:
        port = taken.getsockname()[1]
        command = up(port=port)

        assert command.wait() == 1

    assert command.stderr == f"holdfast: Port {port} on 127.0.0.1 is already in use.\n"
    assert command.left_nothing()
    assert not list(command.data_dir.glob("*.log"))


def test_a_directory_that_cannot_be_made_is_one_sentence(up: StartUp, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    command = up(data_dir=tmp_path / "file" / "data")

    assert command.wait() == 1
    assert command.stderr == f"holdfast: The data directory {command.data_dir} cannot be used: Not a directory.\n"


def test_a_directory_that_cannot_be_written_is_one_sentence(up: StartUp, public_path: Path) -> None:
    public_path.chmod(0o555)

    command = up(data_dir=public_path / "data", ordinary=True)

    assert command.wait() == 1
    assert command.stderr == f"holdfast: The data directory {command.data_dir} cannot be used: Permission denied.\n"


def test_a_server_that_dies_at_its_start_is_one_sentence(up: StartUp, tmp_path: Path) -> None:
    log_directory = tmp_path / ".holdfast" / "valkey" / "appendonlydir"
    log_directory.mkdir(parents=True)
    (log_directory / "appendonly.aof.manifest").write_text("this is no manifest\n")

    command = up()

    assert command.wait() == 1
    assert command.stderr.startswith("holdfast: The Valkey server ended with exit code 1")
    assert "manifest" in command.stderr
    assert command.stderr.count("\n") == 1
    assert command.left_nothing()


def test_an_ordinary_user_can_run_it(up: StartUp, public_path: Path) -> None:
    user = os.geteuid() or NOBODY
    os.chown(public_path, user, -1)

    command = up(data_dir=public_path / "data", ordinary=True)
    run = command.ready()

    assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids(run)} == {user}
    assert get(f"{run['http_url']}/readyz") == b'{"data":{"status":"ready"}}'
    command.process.terminate()
    assert command.wait() == 0
    assert command.left_nothing()


def test_servers_named_in_the_environment_are_used_and_left_alone(
    up: StartUp, valkey_server: Server, postgres_server: Server, database_dsn: str
) -> None:
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    command = up(HOLDFAST_REDIS_URL=valkey_server.url, HOLDFAST_POSTGRES_DSN=database_dsn)
    run = command.ready()

    assert (run["redis_url"], run["postgres_dsn"]) == (valkey_server.url, database_dsn)
    assert run["pids"]["redis"] is run["pids"]["postgres"] is None
    assert get(f"{run['http_url']}/readyz") == b'{"data":{"status":"ready"}}'
    command.send(signal.SIGTERM)
    assert command.wait() == 0
    assert valkey_server.process.is_alive()
    assert postgres_server.process.is_alive()


@pytest.mark.parametrize(
    ("variable", "scheme"), [("HOLDFAST_REDIS_URL", "redis"), ("HOLDFAST_POSTGRES_DSN", "postgresql")]
)
def test_a_named_server_that_does_not_answer_is_one_sentence(up: StartUp, variable: str, scheme: str) -> None:
    command = up(**{variable: f"{scheme}://{LOOPBACK}:{available_port(LOOPBACK)}/0"})

    assert command.wait() == 1
    assert command.stderr.startswith(f"holdfast: The server named in {variable} does not answer: ")
    assert command.stderr.endswith(".\n")
    assert not command.stderr.endswith("..\n")
    assert command.stderr.count("\n") == 1
    assert command.left_nothing()


def get(url: str, token: str = "") -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urlopen(Request(url, headers=headers), timeout=5) as response:
        body: bytes = response.read()
        return body


async def execute(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
