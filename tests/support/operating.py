"""Runs an operator's command against the servers of a test."""

import subprocess
import sys

from support.persisting import Rig

DEADLINE_S = 60.0


def operate(rig: Rig, *arguments: str, dsn: str | None = None) -> tuple[int, str, str]:
    """`holdfast …` in a process of its own: its exit code, and what it printed to where."""
    (host, port) = (rig.redis.connection_pool.connection_kwargs[name] for name in ("host", "port"))
    environment = {
        "HOLDFAST_REDIS_URL": f"redis://{host}:{port}/0",
        "HOLDFAST_POSTGRES_DSN": dsn or rig.dsn,
        "NO_COLOR": "1",
    }
    command = [sys.executable, "-P", "-m", "holdfast", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=DEADLINE_S)
    return done.returncode, done.stdout, done.stderr
