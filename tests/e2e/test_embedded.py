"""The embedded servers, and what becomes of them when something goes wrong."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
import redis

from holdfast import embedded
from holdfast.embedded import EmbeddedError, Server, find_postgres, find_valkey, start_postgres, start_valkey
from holdfast.errors import OperatorError
from holdfast.ports import LOOPBACK, listen
from support.commands import is_running, wait_until

ORPHAN_MAKER = """
import sys, time
from pathlib import Path
from holdfast.embedded import start_postgres, start_valkey
directory = Path(sys.argv[1])
print(start_valkey(directory / "valkey").pid, start_postgres(directory / "postgres").pid, flush=True)
time.sleep(600)
"""


def test_valkey_runs_with_the_settings_that_durability_needs(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        for name, value in embedded.VALKEY_OPTIONS.items():
            assert client.config_get(name) == {name: value}
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


async def test_postgres_speaks_utf8_and_wants_a_password(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        assert await connection.fetchval("SHOW server_encoding") == "UTF8"
        assert await connection.fetchval("SHOW listen_addresses") == "127.0.0.1"
        assert await connection.fetchval("SELECT datcollate FROM pg_database LIMIT 1") == "C.UTF-8"
    finally:
        await connection.close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres_dsn, password="guessed")


def test_only_the_owner_can_read_what_the_servers_keep(tmp_path: Path) -> None:
    start_valkey(tmp_path / "valkey").stop()
    start_postgres(tmp_path / "postgres").stop()

    for path in (tmp_path / "valkey", tmp_path / "postgres"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "postgres" / embedded.PASSWORD_FILE).stat().st_mode) == 0o600


def test_options_are_passed_on(tmp_path: Path) -> None:
    server = start_valkey(tmp_path / "valkey", options={"appendonly": "no", "maxclients": "77"})
    try:
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.config_get("appendonly", "maxclients") == {"appendonly": "no", "maxclients": "77"}
    finally:
        server.stop()


@pytest.mark.parametrize("own", [None, "glibc.malloc.check=0"])
def test_the_allocator_is_told_what_suits_scripts_unless_somebody_has_told_it_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    if own:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    else:
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    server = start_valkey(tmp_path / "valkey")
    try:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
        expected = own or embedded.VALKEY_ENVIRONMENT["GLIBC_TUNABLES"]
        assert f"GLIBC_TUNABLES={expected}".encode() in environment
        assert f"PATH={os.environ['PATH']}".encode() in environment
    finally:
        server.stop()


def test_a_requested_port_is_used_or_refused(tmp_path: Path) -> None:
    with listen(LOOPBACK, 0) as taken:
        port = taken.getsockname()[1]
        for start in (start_valkey, start_postgres):
            with pytest.raises(OperatorError, match=f"^Port {port} on 127.0.0.1 is already in use.$"):
                start(tmp_path / start.__name__, port=port)

    server = start_valkey(tmp_path / "valkey", port=port)
    server.stop()
    assert server.url == f"redis://127.0.0.1:{port}/0"


def test_a_port_that_is_lost_before_the_server_binds_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen(LOOPBACK, 0) as taken, listen(LOOPBACK, 0) as spare:
        lost, free = taken.getsockname()[1], spare.getsockname()[1]
        spare.close()
        ports = iter([lost, free, lost, free])
        monkeypatch.setattr(embedded, "available_port", lambda _: next(ports))
        for start in (start_valkey, start_postgres):
            server = start(tmp_path / start.__name__)
            server.stop()
            assert f":{free}/" in server.url


def test_a_program_that_is_no_server_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"^The Valkey server ended with exit code 1 \(log: \S+\) at its start: "):
        start_valkey(tmp_path / "valkey", executable=Path("/bin/false"))
    with pytest.raises(EmbeddedError, match=r"^/no/such/server cannot be used: No such file or directory.$"):
        start_valkey(tmp_path / "valkey", executable=Path("/no/such/server"))


def test_a_damaged_database_is_one_sentence(tmp_path: Path) -> None:
    start_postgres(tmp_path / "postgres").stop()
    (tmp_path / "postgres" / "PG_VERSION").write_text("7\n")

    with pytest.raises(EmbeddedError, match=r"^The Postgres server ended with .* at its start: .*incompatible with "):
        start_postgres(tmp_path / "postgres")


def test_half_a_database_of_a_crashed_start_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "postgres.new").mkdir()
    (tmp_path / "postgres.new" / "PG_VERSION").write_text("18\n")

    start_postgres(tmp_path / "postgres").stop()

    assert not (tmp_path / "postgres.new").exists()


def test_servers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", ORPHAN_MAKER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        servers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(servers) == 2
        assert all(is_running(pid) for pid in servers)
        parent.kill()

    wait_until(lambda: not any(is_running(pid) for pid in servers), "the servers end")


def test_a_server_that_ignores_the_stop_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.processes.STOP_TIMEOUT_SECONDS", 0.1)
    server = start_valkey(tmp_path / "valkey")
    os.kill(server.pid, signal.SIGSTOP)

    server.stop()

    assert not is_running(server.pid)


def test_servers_on_path_serve_where_there_is_no_wheel(
    public_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = embedded._reachable(find_postgres(), embedded._service_user(tmp_path / "postgres"))
    (public_path / "redis-server").symlink_to(find_valkey())
    (public_path / "postgres").symlink_to(programs / "postgres")
    monkeypatch.setattr(embedded, "_wheel_directory", lambda _: None)
    monkeypatch.setenv("PATH", str(public_path))

    start_valkey(tmp_path / "valkey").stop()
    start_postgres(tmp_path / "postgres").stop()


def test_without_any_server_the_operator_learns_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_wheel_directory", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(EmbeddedError, match=r"^No Valkey server was found: .* HOLDFAST_REDIS_URL.$"):
        start_valkey(tmp_path / "valkey")
    with pytest.raises(EmbeddedError, match=r"^No Postgres server was found: .* HOLDFAST_POSTGRES_DSN.$"):
        start_postgres(tmp_path / "postgres")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as another user")
def test_root_can_have_its_files_where_nobody_else_can_go(
    public_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_postgres().parent.parent
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        shutil.copytree(part, hidden / part.name)
    monkeypatch.setattr(embedded, "_wheel_directory", lambda _: hidden / wheel.name)
    monkeypatch.setattr(embedded, "SERVICE_CACHE", public_path / "cache")

    for _ in ("copies the wheel", "finds the copy"):
        server: Server = start_postgres(hidden / "data" / "postgres")
        server.stop()

    assert stat.S_IMODE(hidden.stat().st_mode) == 0o700
    assert (hidden / "data" / "postgres").stat().st_uid != 0
    assert len(list((public_path / "cache").iterdir())) == 1


@pytest.mark.skipif(not shutil.which("redis-server"), reason="there is no redis-server on PATH")
def test_a_redis_server_serves_as_well(tmp_path: Path) -> None:
    found = shutil.which("redis-server")
    assert found
    server = start_valkey(tmp_path / "redis", executable=Path(found))
    try:
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    finally:
        server.stop()
