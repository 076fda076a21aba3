"""How the workers of one front end add up what they count: each writes its numbers to a file now and then.

Whoever is asked adds its own numbers of this moment to those that the others wrote last, a second ago at most.
"""

import asyncio
import os
from pathlib import Path

import msgspec

from holdfast.engine.telemetry import Sample, add_up, samples

WRITE_INTERVAL_S = 1.0

_SUFFIX = ".numbers"
_read = msgspec.json.Decoder(tuple[Sample, ...]).decode


async def keep_writing(directory: Path, interval_s: float = WRITE_INTERVAL_S) -> None:
    """Write this process's numbers until cancelled."""
    while True:
        write(directory)
        await asyncio.sleep(interval_s)


def write(directory: Path) -> None:
    """Write this process's numbers. A reader sees the old ones or the new, never a part."""
    path = _own(directory)
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(samples()))
    draft.replace(path)


def read_all(directory: Path | None) -> tuple[Sample, ...]:
    """The numbers of all workers. Without a directory this process is the only one."""
    own = samples()
    if directory is None:
        return own
    others = [path for path in directory.glob(f"*{_SUFFIX}") if path != _own(directory)]
    return add_up([own, *(_read(path.read_bytes()) for path in others)])


def _own(directory: Path) -> Path:
    return directory / f"{os.getpid()}{_SUFFIX}"
