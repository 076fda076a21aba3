"""Databases for tests: making them, naming them, and asking them one question."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg

# A database that ends with the test run need not survive a power cut.
FORGETFUL_POSTGRES = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

TEMPLATE = "holdfast_template"


def dsn_of(server_dsn: str, database: str) -> str:
    """The DSN of another database on the same server."""
    return urlsplit(server_dsn)._replace(path=f"/{database}").geturl()


async def execute(dsn: str, statement: str, *arguments: object) -> Any:
    """Run one statement on a connection of its own, and return the first value of its first row, if there is one."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement, *arguments)
    finally:
        await connection.close()


@asynccontextmanager
async def unreachable(dsn: str) -> AsyncIterator[None]:
    """A database that nobody reaches for the duration of the block: connections end, and no new ones are taken."""
    admin, name = dsn_of(dsn, "postgres"), urlsplit(dsn).path.removeprefix("/")
    await execute(admin, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    try:
        await execute(admin, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1", name)
        yield
    finally:
        await execute(admin, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
