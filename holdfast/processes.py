"""Child processes that are stopped cleanly and never outlive their parent."""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple, NoReturn

from holdfast.errors import OperatorError

STOP_TIMEOUT_SECONDS = 15.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Loaded here because a child between fork and exec should not import or load anything.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


class User(NamedTuple):
    """The identity a child takes on when it must not run as its parent."""

    uid: int
    gid: int


class Process:
    """A running child: its name for messages, its pid, and how to stop it."""

    def __init__(
        self, name: str, child: subprocess.Popen[bytes], log: "_Log | None", stop_signal: signal.Signals
    ) -> None:
        self.name = name
        self.pid = child.pid
        self._child = child
        self._log = log
        self._stop_signal = stop_signal

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._child.poll() is None

    def succeeded(self) -> bool:
        """Whether the process, which no longer runs, has ended as it should."""
        return self._child.wait() == 0

    def stop(self) -> None:
        """End the process and wait until it is gone. Kills it if it ignores the polite signal; safe to repeat."""
        if not self.is_alive():
            return
        self._child.send_signal(self._stop_signal)
        try:
            self._child.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def obituary(self) -> str:
        """How a process that no longer runs has ended, and where to read more; a sentence without its full stop."""
        code = self._child.wait()
        end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"The {self.name} {end}" + (f" (log: {self._log.path})" if self._log else "")

    def output(self) -> str:
        """What this process has written to its log, which earlier ones may have written to as well."""
        if self._log is None:
            return ""
        with self._log.path.open("rb") as file:
            file.seek(self._log.start)
            return file.read().decode(errors="replace")


class _Log(NamedTuple):
    path: Path
    start: int


def spawn(
    name: str,
    command: Sequence[str | Path],
    *,
    input_file: IO[Any] | int = subprocess.DEVNULL,
    log_path: Path | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    user: User | None = None,
    keep_open: Sequence[int] = (),
) -> Process:
    """Start a child that gets `stop_signal` when its parent dies, however the parent dies.

    The kernel ties that to the thread that calls this function, so call it from one that lives as long as the child
    should: usually the main thread. The child has its own session, so a Ctrl-C at the terminal reaches only the parent,
    which then stops its children in order. Without a log the child writes where its parent writes.
    """
    with log_path.open("ab") if log_path else nullcontext() as output:
        log = _Log(log_path, output.tell()) if log_path and output else None
        child = subprocess.Popen(
            command,
            stdin=input_file,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            env=environment,
            cwd=directory,
            start_new_session=True,
            pass_fds=keep_open,
            preexec_fn=_tie_to_parent(stop_signal),  # noqa: PLW1509 - it makes two system calls and takes no lock.
            **identity(user),
        )
    return Process(name, child, log, stop_signal)


def identity(user: User | None) -> dict[str, Any]:
    """The arguments that make `subprocess` run a command as this user, and with no other group than the user's own."""
    return {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}


class Stopped(BaseException):
    """A stop signal has arrived. Not an Exception, because nothing should take it for an error."""


class Watch:
    """Looks out for stop signals and dying children.

    The signal handlers only take notes. An exception raised by one could hit any line, also one in a fork hook or a
    destructor, where Python drops it; so Stopped is raised where the program waits, and nowhere else.
    """

    def __init__(self, wakeup: socket.socket) -> None:
        self._wakeup = wakeup
        self._stop_requested = False

    def request_stop(self, _: int, __: FrameType | None) -> None:
        """The handler of the stop signals."""
        self._stop_requested = True

    def pause(self, seconds: float | None = None) -> None:
        """Wait that long, or until a signal arrives. Raises Stopped if one of them, now or earlier, says so."""
        if not self._stop_requested:
            select.select([self._wakeup], [], [], seconds)
            with suppress(BlockingIOError):
                self._wakeup.recv(4096)
        if self._stop_requested:
            raise Stopped

    def await_death(self, processes: Sequence[Process]) -> Process:
        """Wait until one of the processes ends; which one."""
        while True:
            for process in processes:
                if not process.is_alive():
                    return process
            self.pause()

    def await_first_death(self, processes: Sequence[Process]) -> NoReturn:
        """Wait until one of the processes ends, then say so in an OperatorError."""
        raise OperatorError(f"{self.await_death(processes).obituary()}.")


@contextmanager
def until_stopped() -> Iterator[Watch]:
    """Run the block until it ends or a stop signal arrives, which is a proper end and not an error.

    The clean-up of the block is not interrupted by further signals. For the main thread only.
    """
    wakeup, noted = socket.socketpair()
    with wakeup, noted, suppress(Stopped):
        wakeup.setblocking(False)
        noted.setblocking(False)
        watch = Watch(wakeup)
        for number in STOP_SIGNALS:
            # nohup asks to survive the end of the terminal by ignoring SIGHUP.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, watch.request_stop)
        # A handler that does nothing still makes Python write to the socket.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(noted.fileno(), warn_on_full_buffer=False)
        try:
            yield watch
        finally:
            signal.set_wakeup_fd(-1)


def _tie_to_parent(stop_signal: signal.Signals) -> Callable[[], None] | None:
    if _libc is None:
        return None
    parent = os.getpid()
    prctl = _libc.prctl

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(stop_signal))
        # The parent may have died before the call above; then no signal would ever come.
        if os.getppid() != parent:
            os._exit(1)

    return tie
