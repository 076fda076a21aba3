"""How much processor time other processes have taken, as Linux counts it; elsewhere nothing is said."""

import os
from collections.abc import Mapping
from pathlib import Path

_PROC = Path("/proc")


def cpu_seconds(processes: Mapping[str, int]) -> dict[str, float]:
    """Seconds of processor time so far of each named process, given by its pid, and of children that have no name."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            # The name before the last bracket may contain anything.
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(entry.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    per_second = os.sysconf("SC_CLK_TCK")
    named = set(processes.values())
    return {
        name: sum(ticks[each] for each in ticks if each == pid or (parents[each] == pid and each not in named))
        / per_second
        for name, pid in processes.items()
        if pid in ticks
    }


def busy_seconds() -> float | None:
    """Seconds of processor time that all cores together have spent on anything so far."""
    try:
        user, nice, system, _idle, _waiting, *interrupts = map(
            int, (_PROC / "stat").read_text().split("\n")[0].split()[1:8]
        )
    except (FileNotFoundError, ValueError):
        return None
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
