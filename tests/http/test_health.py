from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer

from holdfast.engine.settings import Settings
from holdfast.http.app import create_app
from holdfast.ports import LOOPBACK, available_port


@asynccontextmanager
async def front_end(settings: Settings) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(create_app(settings))) as client:
        yield client


@pytest.fixture
def settings(redis_url: str, postgres_dsn: str) -> Settings:
    return Settings(redis_url=redis_url, postgres_dsn=postgres_dsn)


def no_redis() -> dict[str, str]:
    return {"redis_url": f"redis://{LOOPBACK}:{available_port(LOOPBACK)}/0"}


def no_postgres() -> dict[str, str]:
    return {"postgres_dsn": f"postgresql://nobody@{LOOPBACK}:{available_port(LOOPBACK)}/nothing"}


async def test_healthz_answers_even_if_nothing_is_behind_it() -> None:
    async with front_end(Settings(**no_redis(), **no_postgres())) as client, client.get("/healthz") as response:
        assert response.status == 200
        assert await response.json() == {"data": {"status": "ok"}}


async def test_readyz_answers_when_both_stores_do(settings: Settings) -> None:
    async with front_end(settings) as client, client.get("/readyz") as response:
        assert response.status == 200
        assert await response.json() == {"data": {"status": "ready"}}


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
