"""`/healthz` says that the process is alive, `/readyz` that it can do its work."""

import asyncio
from enum import StrEnum

import msgspec
import redis.exceptions
from aiohttp import web

from holdfast.engine.epochs import Epochs, Mode
from holdfast.http.endpoints import Call, Endpoints
from holdfast.http.errors import problem
from holdfast.http.stores import ANSWER_TIMEOUT_SECONDS, breakers_key, epochs_key, postgres_key, redis_key, stopping_key
from holdfast.persistence.pool import POSTGRES_ERRORS
from holdfast.persistence.sql import query

endpoints = Endpoints()

_UNREACHABLE = (redis.exceptions.RedisError, *POSTGRES_ERRORS)


class State(StrEnum):
    OK = "ok"
    READY = "ready"


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the process is. `notes` has what an operator should know of a process that works all the same."""

    status: State
    notes: tuple[str, ...] = ()


@endpoints.get("/healthz", summary="Is the process alive?", replies={200: Health}, tag="plumbing")
async def healthz(call: Call) -> web.StreamResponse:
    """Answers as long as the process can answer anything, whatever is wrong behind it."""
    return call.answer(200, Health(State.OK))


@endpoints.get("/readyz", summary="Can it do its work?", replies={200: Health}, errors=("not_ready",), tag="plumbing")
async def readyz(call: Call) -> web.StreamResponse:
    """Asks both stores at once, and names those that do not answer, the shards that nobody serves, and those of which
    nothing can be persisted.

    Redis is not needed while Postgres serves every shard. Not ready as soon as the process is to stop.
    """
    if call.app[stopping_key].is_set():
        return call.refuse(problem("not_ready", "The front end is stopping."))
    redis_answers, halted = await asyncio.gather(_redis_answers(call.app), _ask_postgres(call.app))
    epochs, breakers = call.app[epochs_key], call.app[breakers_key]
    silent = [] if redis_answers or (epochs.heard and _shards(epochs, Mode.DB) == [*epochs.states]) else ["Redis"]
    silent += ["Postgres"] if halted is None else []
    if silent:
        return call.refuse(problem("not_ready", f"No answer from {' and '.join(silent)}."))
    if waiting := _shards(epochs, Mode.RECOVERING):
        return call.refuse(problem("not_ready", f"Not in service: {_names(waiting)}."))
    if turned_away := breakers.opinions:
        reason = next(iter(turned_away.values())).reason
        return call.refuse(problem("not_ready", f"Redis cannot be used for {_names(list(turned_away))}: {reason}."))
    if halted:
        reason = next(iter(halted.values()))
        return call.refuse(problem("not_ready", f"Nothing can be persisted of {_names(list(halted))}: {reason}."))
    rows = _shards(epochs, Mode.DB)
    return call.answer(200, Health(State.READY, (f"Served from Postgres: {_names(rows)}.",) if rows else ()))


def _shards(epochs: Epochs, mode: Mode) -> list[int]:
    return [shard for shard, state in epochs.states.items() if state.mode is mode]


def _names(shards: list[int]) -> str:
    return f"shard{'s' if len(shards) > 1 else ''} {', '.join(map(str, shards))}"


async def _redis_answers(app: web.Application) -> bool:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            await app[redis_key].ping()
    except _UNREACHABLE:
        return False
    return True


async def _ask_postgres(app: web.Application) -> dict[int, str] | None:
    """The shards whose log has a gap, and what is known of it; nothing if Postgres does not answer."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            rows = await app[postgres_key].fetch(query("list_halts"))
    except _UNREACHABLE:
        return None
    return {row["shard"]: row["reason"].rstrip(".") for row in rows}
