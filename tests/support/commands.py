"""Runs the real command line in processes of its own."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

DEADLINE_SECONDS = 30.0
NOBODY = 65534
HOLDFAST = [sys.executable, "-P", "-m", "holdfast"]

# Root's Python may live where nobody else can read. This much power lets a user read it, and write nothing.
READ_ANYWHERE = "-all,+dac_read_search"
AS_NOBODY = [
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    f"--inh-caps={READ_ANYWHERE}",
    f"--ambient-caps={READ_ANYWHERE}",
]


# Postgres looks for its own program with access(2), to which that power means nothing.
TRIAL = "import os, holdfast.embedded as e; assert os.access(e.find_postgres() / 'postgres', os.X_OK)"


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition is truthy, and return its value."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS:.0f} s: {what}"
        time.sleep(0.01)
    return value


def is_running(pid: int) -> bool:
    """Whether the process exists and is more than a zombie that nobody has buried yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


class Command:
    """`holdfast …` in a process and a session of its own."""

    def __init__(self, arguments: list[str], directory: Path, environment: Mapping[str, str], **identity: Any) -> None:
        self._stdout = directory / "stdout"
        self._stderr = directory / "stderr"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**inherited, **environment},
                start_new_session=True,
                **identity,
            )

    @property
    def maps(self) -> str:
        """The files that the process has mapped, libraries above all."""
        return Path(f"/proc/{self.process.pid}/maps").read_text()

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_SECONDS)

    def send(self, number: signal.Signals) -> None:
        """Signal the whole foreground process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """End the process at once; the kernel then tells its children to stop."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.wait()


def complete(
    *arguments: str, timeout_s: float = DEADLINE_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `holdfast …` to its end."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return subprocess.run(
        [*HOLDFAST, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**inherited, **environment},
        timeout=timeout_s,
        check=False,
    )


class Up(Command):
    """`holdfast up` on a data directory."""

    def __init__(self, data_dir: Path, arguments: list[str], directory: Path, **options: Any) -> None:
        self.data_dir = data_dir
        self.run_file = data_dir / "run.json"
        # One that was killed leaves its file behind, and must not be taken for this one.
        self._stale = self._read_run_file()
        super().__init__([*arguments, "up", "--data-dir", str(data_dir)], directory, **options)

    def ready(self) -> dict[str, Any]:
        """Wait until run.json appears, and read it."""

        def written() -> bytes | None:
            assert self.process.poll() is None, self.stderr
            content = self._read_run_file()
            return content if content != self._stale else None

        run: dict[str, Any] = json.loads(wait_until(written, "run.json is written"))
        return run

    def _read_run_file(self) -> bytes | None:
        try:
            return self.run_file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def left_nothing(self) -> bool:
        """Whether every child is gone: each of them keeps the lock of the data directory for as long as it lives."""
        try:
            with (self.data_dir / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except (FileNotFoundError, NotADirectoryError):
            return True
        return True


def pids(run: dict[str, Any]) -> list[int]:
    """All process ids in a run.json."""
    found = run["pids"]
    return [found["redis"], found["postgres"], *found["front_ends"], *found["keepers"]]


def ordinary_user() -> tuple[list[str], dict[str, Any]]:
    """How to run `holdfast` as a user without privileges, which root is not: the command, and arguments for Popen."""
    if os.geteuid() != 0:
        return HOLDFAST, {}
    identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
    for prefix, arguments in (([], identity), (AS_NOBODY, {"cwd": "/"})):
        with suppress(OSError):
            trial = subprocess.run([*prefix, sys.executable, "-Pc", TRIAL], check=False, **arguments)
            if trial.returncode == 0:
                return [*prefix, *HOLDFAST], arguments
    return pytest.skip("another user cannot read this Python installation")
