"""The data directory of `holdfast up`: its lock, its secret, and the file that says what runs."""

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import OperatorError

DEFAULT_DATA_DIR = Path(".holdfast")

# How long the servers of an `up` that was killed may take to stop.
ORPHAN_TIMEOUT_SECONDS = 20.0
RETRY_INTERVAL_SECONDS = 0.05


class DataDir:
    """A directory that one `holdfast up` at a time may use."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.run_file = self.path / "run.json"
        self.secret_file = self.path / "token_secret"

    @contextmanager
    def lock(self, pause: Callable[[float], None]) -> Iterator[int]:
        """Create the directory if need be and hold it, or raise an OperatorError that says why not.

        The descriptor that is yielded carries the lock. Children that keep it open keep the lock, so after a crash
        nobody starts a second server on files that the first is still writing.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OperatorError(f"The data directory {self.path} cannot be used: {error.strerror}.") from error
        try:
            self._acquire(descriptor, pause)
            os.pwrite(descriptor, b"%-20d" % os.getpid(), 0)
            yield descriptor
        finally:
            os.close(descriptor)

    def token_secret(self) -> str:
        """The secret that signs tokens, made the first time and the same ever after."""
        if not self.secret_file.exists():
            write_private(self.secret_file, secrets.token_urlsafe(32).encode())
        return self.read_token_secret()

    def read_token_secret(self) -> str:
        """The secret that an earlier `up` has made."""
        try:
            return self.secret_file.read_text().strip()
        except OSError as error:
            raise OperatorError(
                f"There is no token secret: set HOLDFAST_TOKEN_SECRET, or name the data directory of a `holdfast up` "
                f"({self.secret_file}: {error.strerror})."
            ) from error

    @contextmanager
    def run_file_written(self, run: object) -> Iterator[None]:
        """Publish what runs for the duration of the block."""
        write_private(self.run_file, msgspec.json.format(msgspec.json.encode(run)))
        try:
            yield
        finally:
            self.run_file.unlink(missing_ok=True)

    def read_run_file(self) -> dict[str, Any]:
        """What an `up` on this directory has published, or nothing if none runs."""
        try:
            content = self.run_file.read_bytes()
        except OSError:
            return {}
        return msgspec.json.decode(content, type=dict[str, Any])

    def _acquire(self, descriptor: int, pause: Callable[[float], None]) -> None:
        deadline = time.monotonic() + ORPHAN_TIMEOUT_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = int(os.pread(descriptor, 20, 0) or 0)
                if _is_alive(holder) or time.monotonic() > deadline:
                    raise OperatorError(f"Another `holdfast up` (process {holder}) uses {self.path}.") from None
                pause(RETRY_INTERVAL_SECONDS)
            else:
                return


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step by one that only its owner can read."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
