"""What a run was made on: enough to judge figures by, and nothing that says whose machine it was."""

import importlib.metadata
import os
import platform

import msgspec

import holdfast
from holdfast.loadtest.chaos.stack import Stack


class Machine(msgspec.Struct, frozen=True):
    """Cores that may be used, how busy they were before the run, and the versions of all that took part."""

    cores: int
    load_before: float
    system: str
    versions: dict[str, str]


async def describe_machine(stack: Stack) -> Machine:
    """This machine, and the servers of a stack."""
    async with stack.client() as client:
        server = await client.info("server")
    postgres = (await stack.query("SHOW server_version"))[0][0]
    name = "Valkey" if "valkey_version" in server else "Redis"
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        load_before=round(os.getloadavg()[0], 2),
        system=f"{platform.system()} {platform.machine()}",
        versions={
            "Holdfast": holdfast.__version__,
            "Python": platform.python_version(),
            name: server.get("valkey_version") or server["redis_version"],
            "Postgres": str(postgres),
            "locust": importlib.metadata.version("locust"),
        },
    )
