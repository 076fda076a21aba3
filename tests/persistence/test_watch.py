"""Work that may take long, for as long as Postgres answers others."""

import asyncio

import asyncpg
import pytest

from holdfast.embedded import Server
from holdfast.engine.errors import Unavailable, Unknown
from holdfast.persistence.pool import connect, open_pool
from holdfast.persistence.watch import unless_silent
from support.frozen import frozen


async def test_work_takes_as_long_as_it_takes_while_the_server_answers(database_dsn: str) -> None:
    connection = await connect(database_dsn, name="test", statement_timeout_ms=None)
    try:
        async with unless_silent(database_dsn, ask_s=0.01, silence_s=0.5) as watch:
            watch.guard(connection)
            # Longer than the server may be silent.
            await connection.execute("SELECT pg_sleep(1.5)")
            assert await connection.fetchval("SELECT 1") == 1
    finally:
        await connection.close()


async def test_a_server_that_falls_silent_ends_the_work(database_dsn: str, postgres_server: Server) -> None:
    async with open_pool(database_dsn, name="test", statement_timeout_ms=None) as pool:
        with frozen(postgres_server), pytest.raises(Unknown):
            async with unless_silent(database_dsn, ask_s=0.01, silence_s=0.5) as watch, pool.acquire() as connection:
                watch.guard(connection)
                async with connection.transaction():
                    await connection.execute("SELECT 1")

        # The pool has not lost its place for the connection.
        assert await pool.fetchval("SELECT 1") == 1


async def test_what_has_not_begun_may_be_tried_elsewhere(database_dsn: str, postgres_server: Server) -> None:
    with frozen(postgres_server), pytest.raises(Unavailable):
        async with unless_silent(database_dsn, ask_s=0.01, silence_s=0.5):
            await asyncio.Event().wait()


async def test_another_failure_is_told_as_what_it_is(database_dsn: str) -> None:
    connection = await connect(database_dsn, name="test")
    try:
        with pytest.raises(asyncpg.UndefinedTableError):
            async with unless_silent(database_dsn) as watch:
                watch.guard(connection)
                await connection.execute("SELECT * FROM nothing")
    finally:
        await connection.close()
