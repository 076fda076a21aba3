"""Databases for tests: making them, naming them, and asking them one question."""

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
