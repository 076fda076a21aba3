"""What a generator process writes down while it runs, and how others read it, also while it is being written.

`calls-<pid>.jsonl` has every call of its buyers, `pulses-<pid>.jsonl` how the process itself was doing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from holdfast.loadtest.chaos.history import Call

CALLS = "calls-{}.jsonl"
PULSES = "pulses-{}.jsonl"

# A call that was under way when the run ended: what came of it is unknown, and it is no error.
STOPPED = "the run ended"

Record = TypeVar("Record")


class Pulse(msgspec.Struct, frozen=True):
    """How a generator process did since its last pulse, `over_s` seconds earlier.

    `cpu` is the share of one core it took, `delay_s` by how much its pulse came late: a process that is asked for more
    than it can do is late with everything. `late` are arrivals that began later than they should have, `missed` those
    that were left out because too many were under way.
    """

    at_s: float
    pid: int
    over_s: float
    cpu: float
    delay_s: float
    users: int
    arrivals: int = 0
    late: int = 0
    missed: int = 0
    live_messages: int = 0


class Tail(Generic[Record]):
    """Reads the records of a directory as they come, each once."""

    def __init__(self, directory: Path, pattern: str, kind: type[Record]) -> None:
        self._directory = directory
        self._pattern = pattern.format("*")
        self._decoder = msgspec.json.Decoder(kind)
        self._read: dict[Path, int] = {}

    def more(self) -> Iterator[Record]:
        """What has been written since the last time, process by process. A line that is not complete waits."""
        for path in sorted(self._directory.glob(self._pattern)):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                lines = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(lines[0]) + len(lines[1])
            for line in lines[0].splitlines():
                yield self._decoder.decode(line)


def call_tail(directory: Path) -> Tail[Call]:
    """The calls of all processes."""
    return Tail(directory, CALLS, Call)


def pulse_tail(directory: Path) -> Tail[Pulse]:
    """The pulses of all processes."""
    return Tail(directory, PULSES, Pulse)
