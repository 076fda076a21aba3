import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from redis.asyncio import Redis

from holdfast.engine.settings import Settings
from holdfast.http.app import create_app
from holdfast.persistence.service import open_servers, put_into_service
from holdfast.ports import LOOPBACK, available_port
from support.database import execute
from support.engine import SHARDS
from support.polling import eventually


@asynccontextmanager
async def front_end(settings: Settings) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(create_app(settings))) as client:
        yield client


@pytest.fixture
def settings(redis_url: str, database_dsn: str) -> Settings:
    """Servers with every shard in service."""
    settings = Settings(redis_url=redis_url, postgres_dsn=database_dsn, shards=SHARDS)

    async def put() -> None:
        async with Redis.from_url(redis_url) as redis:
            await redis.flushall()
        async with open_servers(settings, "test") as servers:
            await put_into_service(servers, "test")

    asyncio.run(put())
    return settings


async def readiness(client: TestClient) -> tuple[int, Any]:
    async with client.get("/readyz") as response:
        return response.status, await response.json()


def no_redis() -> dict[str, str]:
    return {"redis_url": f"redis://{LOOPBACK}:{available_port(LOOPBACK)}/0"}


def no_postgres() -> dict[str, str]:
    return {"postgres_dsn": f"postgresql://nobody@{LOOPBACK}:{available_port(LOOPBACK)}/nothing"}


async def test_healthz_answers_even_if_nothing_is_behind_it() -> None:
    async with front_end(Settings(**no_redis(), **no_postgres())) as client, client.get("/healthz") as response:
        assert response.status == 200
        assert await response.json() == {"data": {"status": "ok"}}


async def test_readyz_answers_when_both_stores_do(settings: Settings) -> None:
    async with front_end(settings) as client:

        async def is_ready() -> bool:
            return await readiness(client) == (200, {"data": {"status": "ready"}})

        await eventually(is_ready, "the front end is ready")


async def test_readyz_names_the_shards_that_nobody_serves_and_those_that_postgres_serves(settings: Settings) -> None:
    await execute(settings.postgres_dsn, "UPDATE control SET mode = 'db' WHERE shard < 2")
    async with front_end(settings) as client:

        async def notes() -> bool:
            return (await readiness(client))[1].get("data", {}).get("notes") == ["Served from Postgres: shards 0, 1."]

        await eventually(notes, "the front end is ready and says who serves")
    await execute(settings.postgres_dsn, "UPDATE control SET mode = 'recovering' WHERE shard = 1")
    async with front_end(settings) as client:

        async def complaint() -> bool:
            status, body = await readiness(client)
            return (status, body.get("detail")) == (503, "Not in service: shard 1.")

        await eventually(complaint, "the front end is not ready and says why")


async def test_readyz_names_the_shards_whose_log_has_a_gap_until_it_is_mended(settings: Settings) -> None:
    dsn = settings.postgres_dsn
    await execute(dsn, "INSERT INTO halts SELECT shard, epoch, 2, 'its log has a gap' FROM control WHERE shard = 1")
    await execute(dsn, "UPDATE shard_marks SET seq = 2 WHERE shard = 1")
    async with front_end(settings) as client:

        async def complaint() -> bool:
            status, body = await readiness(client)
            return (status, body.get("detail")) == (503, "Nothing can be persisted of shard 1: its log has a gap.")

        await eventually(complaint, "the front end is not ready and says why")
        await execute(dsn, "UPDATE shard_marks SET seq = 4 WHERE shard = 1")
        assert (await readiness(client))[0] == 200


@pytest.mark.parametrize(
    ("missing", "detail"),
    [
        (no_redis, "No answer from Redis."),
        (no_postgres, "No answer from Postgres."),
        (lambda: no_redis() | no_postgres(), "No answer from Redis and Postgres."),
    ],
)
async def test_readyz_names_the_stores_that_are_missing(
    settings: Settings, missing: Callable[[], dict[str, str]], detail: str
) -> None:
    broken = Settings.read(settings.environment(), **missing())

    async with front_end(broken) as client, client.get("/readyz") as response:
        assert response.status == 503
        assert response.content_type == "application/problem+json"
        assert await response.json() == {
            "type": "about:blank",
            "title": "Service Unavailable",
            "status": 503,
            "error": "not_ready",
            "detail": detail,
            "retry_after_seconds": 1,
        }
        assert response.headers["Retry-After"] == "1"
