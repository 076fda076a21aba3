"""`/healthz` says that the process is alive, `/readyz` that it can do its work."""

import asyncio
from http import HTTPStatus

import asyncpg
import redis.exceptions
from aiohttp import web

from holdfast.http.errors import problem
from holdfast.http.stores import ANSWER_TIMEOUT_SECONDS, postgres_key, redis_key

routes = web.RouteTableDef()

_UNREACHABLE = (
    OSError,
    TimeoutError,
    redis.exceptions.RedisError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


@routes.get("/healthz")
async def healthz(_: web.Request) -> web.Response:
    """Answers as long as the process can answer anything, whatever is wrong behind it."""
    return web.json_response({"data": {"status": "ok"}})


@routes.get("/readyz")
async def readyz(request: web.Request) -> web.Response:
    """Asks both stores at once, and names those that do not answer."""
    answers = await asyncio.gather(_redis_answers(request.app), _postgres_answers(request.app))
    silent = [store for store, answer in zip(("Redis", "Postgres"), answers, strict=True) if not answer]
    if silent:
        detail = f"No answer from {' and '.join(silent)}."
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "not_ready", detail)
    return web.json_response({"data": {"status": "ready"}})


async def _redis_answers(app: web.Application) -> bool:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            await app[redis_key].ping()
    except _UNREACHABLE:
        return False
    return True


async def _postgres_answers(app: web.Application) -> bool:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            await app[postgres_key].execute("SELECT 1")
    except _UNREACHABLE:
        return False
    return True
