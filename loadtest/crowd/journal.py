"""Writes down, once a second, what this generator process has seen."""

import os
import time
from pathlib import Path

import gevent
import msgspec

from holdfast.loadtest.chaos.history import Call
from holdfast.loadtest.crowd.records import CALLS, PULSES, Pulse

PULSE_S = 0.5
# An arrival that begins this much after its time is late.
LATE_S = 0.1


class Journal:
    """The records of this process. Without a directory nothing is written. Times are seconds since `began_at`."""

    def __init__(self, directory: Path | None, began_at: float) -> None:
        self.began_at = began_at
        # One clock that is never set back; on one machine it is the same for all processes.
        self._offset_s = time.time() - time.monotonic() - began_at
        self._directory = directory
        self._encoder = msgspec.json.Encoder()
        self._waiting: list[bytes] = []
        self._cpu_s = time.process_time()
        self._pulse_at = time.monotonic()
        self.users = self.arrivals = self.late = self.missed = self.live_messages = 0
        self._told = Pulse(0, 0, 0, 0, 0, 0)

    @property
    def now_s(self) -> float:
        return time.monotonic() + self._offset_s

    def write(self, call: Call) -> None:
        """Keep a call; it reaches the file with the next pulse."""
        if self._directory is not None:
            self._waiting.append(self._encoder.encode(call))

    def arrive(self, late_s: float, *, admitted: bool) -> None:
        """Count somebody who should have come `late_s` seconds ago."""
        self.arrivals += 1
        self.late += admitted and late_s > LATE_S
        self.missed += not admitted

    def run(self) -> None:
        """Write until killed."""
        while True:
            gevent.sleep(PULSE_S)
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet, and how this process is doing."""
        now, cpu_s = time.monotonic(), time.process_time()
        over_s = now - self._pulse_at
        if self._directory is None or over_s <= 0:
            return
        pulse = Pulse(
            at_s=self.now_s,
            pid=os.getpid(),
            over_s=over_s,
            cpu=(cpu_s - self._cpu_s) / over_s,
            delay_s=max(0.0, over_s - PULSE_S),
            users=self.users,
            arrivals=self.arrivals - self._told.arrivals,
            late=self.late - self._told.late,
            missed=self.missed - self._told.missed,
            live_messages=self.live_messages - self._told.live_messages,
        )
        self._told = Pulse(0, 0, 0, 0, 0, 0, self.arrivals, self.late, self.missed, self.live_messages)
        self._pulse_at, self._cpu_s = now, cpu_s
        waiting, self._waiting = self._waiting, []
        self._append(CALLS, waiting)
        self._append(PULSES, [self._encoder.encode(pulse)])

    def _append(self, name: str, lines: list[bytes]) -> None:
        assert self._directory is not None
        with (self._directory / name.format(os.getpid())).open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
