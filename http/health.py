"""`/healthz` says that the process is alive, `/readyz` that it can do its work."""

import asyncio
from enum import StrEnum

import msgspec
import redis.exceptions
from aiohttp import web

from holdfast.http.endpoints import Call, Endpoints
from holdfast.http.errors import problem
from holdfast.http.stores import ANSWER_TIMEOUT_SECONDS, postgres_key, redis_key, stopping_key
from holdfast.persistence.pool import POSTGRES_ERRORS

endpoints = Endpoints()

_UNREACHABLE = (redis.exceptions.RedisError, *POSTGRES_ERRORS)


class State(StrEnum):
    OK = "ok"
    READY = "ready"


class Health(msgspec.Struct, frozen=True):
    """How the process is."""

    status: State


@endpoints.get("/healthz", summary="Is the process alive?", replies={200: Health}, tag="plumbing")
async def healthz(call: Call) -> web.StreamResponse:
    """Answers as long as the process can answer anything, whatever is wrong behind it."""
    return call.answer(200, Health(State.OK))


@endpoints.get("/readyz", summary="Can it do its work?", replies={200: Health}, errors=("not_ready",), tag="plumbing")
async def readyz(call: Call) -> web.StreamResponse:
    """Asks both stores at once, and names those that do not answer. Not ready as soon as the process is to stop."""
    if call.app[stopping_key].is_set():
        return call.refuse(problem("not_ready", "The front end is stopping."))
    answers = await asyncio.gather(_redis_answers(call.app), _postgres_answers(call.app))
    silent = [store for store, answer in zip(("Redis", "Postgres"), answers, strict=True) if not answer]
    if silent:
        return call.refuse(problem("not_ready", f"No answer from {' and '.join(silent)}."))
    return call.answer(200, Health(State.READY))


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
