"""How connections to Postgres are made."""

import asyncpg
import pytest

from holdfast.persistence.pool import connect, open_pool


async def test_a_statement_that_takes_too_long_is_cancelled_and_the_pool_goes_on(database_dsn: str) -> None:
    async with open_pool(database_dsn, name="test", max_size=1, statement_timeout_ms=20) as pool:
        with pytest.raises(asyncpg.QueryCanceledError):
            await pool.execute("SELECT pg_sleep(60)")

        assert await pool.fetchval("SELECT 1") == 1


async def test_the_limit_is_two_seconds_unless_it_is_lifted(database_dsn: str) -> None:
    async with open_pool(database_dsn, name="test") as pool:
        assert await pool.fetchval("SHOW statement_timeout") == "2s"
    async with open_pool(database_dsn, name="test", statement_timeout_ms=None) as pool:
        assert await pool.fetchval("SHOW statement_timeout") == "0"


async def test_a_connection_says_what_it_is_for(database_dsn: str) -> None:
    connection = await connect(database_dsn, name="persister")
    try:
        assert await connection.fetchval("SHOW application_name") == "holdfast persister"
    finally:
        await connection.close()
