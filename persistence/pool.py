"""Connections to Postgres: the one place that says how they are made, limited and named.

There is no codec for JSON on purpose: a jsonb value comes as text, which msgspec decodes straight into the type that
is wanted, and goes as text that it has encoded.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg

from holdfast.persistence.sql import query

STATEMENT_TIMEOUT_MS = 2_000
CONNECT_TIMEOUT_SECONDS = 5.0

# How long a request waits for its turn on a connection, or for one to be made.
TURN_SECONDS = 3.0

# How much longer the client waits than the server: only a server that cannot even answer "cancelled" is given up.
NETWORK_SLACK_SECONDS = 1.0

# What Postgres being away looks like, a session that it ends while it answers included.
POSTGRES_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

# asyncpg has no types.
Connection = Any
Pool = Any


async def connect(dsn: str, *, name: str, statement_timeout_ms: int | None = STATEMENT_TIMEOUT_MS) -> Connection:
    """One connection, for a command or a listener. `name` is what pg_stat_activity shows after "holdfast "."""
    return await asyncpg.connect(dsn, **_options(name, statement_timeout_ms))


@asynccontextmanager
async def open_pool(
    dsn: str,
    *,
    name: str,
    min_size: int = 1,
    max_size: int = 8,
    statement_timeout_ms: int | None = STATEMENT_TIMEOUT_MS,
    resets: bool = True,
) -> AsyncIterator[Pool]:
    """A pool for the duration of the block. `None` lifts the limit on statements, for work that takes long.

    With a `min_size` of 0 a server that is away is met when the pool is first used, and not before.

    Work that leaves nothing behind in its session saves a round trip each time without `resets`.
    """
    async with asyncpg.create_pool(
        dsn,
        min_size=min_size,
        max_size=max_size,
        reset=None if resets else _leave_as_it_is,
        **_options(name, statement_timeout_ms),
    ) as pool:
        yield pool


@asynccontextmanager
async def borrowed(pool: Pool, *, turn_s: float = TURN_SECONDS) -> AsyncIterator[Connection]:
    """A connection for the block, for a caller who waits for an answer.

    One that did not answer in time is thrown away: to give it back would mean to wait for that answer after all.
    """
    async with pool.acquire(timeout=turn_s) as connection:
        try:
            yield connection
        except TimeoutError:
            connection.terminate()
            raise


class SingleQueries:
    """A pool for those who ask one question and wait for the answer."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch(self, statement: str, *arguments: object) -> Any:
        """The rows of one query."""
        async with borrowed(self._pool) as connection:
            return await connection.fetch(statement, *arguments)


@asynccontextmanager
async def as_organization(pool: Pool, organization_id: UUID) -> AsyncIterator[Connection]:
    """A read-only transaction that sees the rows of one organisation, whatever its queries forget to ask for.

    It runs as the role holdfast_tenant, because row-level security does not bind the owner of a table.
    """
    async with borrowed(pool) as connection, connection.transaction(readonly=True):
        await connection.execute(query("become_organization"), str(organization_id))
        yield connection


async def _leave_as_it_is(_: Connection) -> None:
    """Instead of asyncpg's clearing up. What a transaction sets for itself, and its locks, end with it anyway."""


def _options(name: str, statement_timeout_ms: int | None) -> dict[str, Any]:
    settings = {"application_name": f"holdfast {name}"}
    command_timeout = None
    if statement_timeout_ms is not None:
        settings["statement_timeout"] = str(statement_timeout_ms)
        command_timeout = statement_timeout_ms / 1000 + NETWORK_SLACK_SECONDS
    return {"server_settings": settings, "timeout": CONNECT_TIMEOUT_SECONDS, "command_timeout": command_timeout}
