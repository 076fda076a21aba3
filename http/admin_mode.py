"""Who serves the shards, Redis or Postgres: the operator's view, and changing it."""

import asyncio
from typing import Annotated, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from holdfast.engine.epochs import Mode
from holdfast.engine.settings import variable
from holdfast.http.catalogue import ADMINS
from holdfast.http.endpoints import Call, Endpoints
from holdfast.http.errors import Refused, problem
from holdfast.http.stores import asking_postgres, asking_redis, database, settings_key
from holdfast.persistence.modes import Modes, ShardMode, read_modes, set_mode
from holdfast.persistence.pool import Connection
from holdfast.persistence.recovery import RecoveryError
from holdfast.persistence.service import open_servers
from holdfast.persistence.sql import query
from holdfast.persistence.transitions import Cause, Moved
from holdfast.persistence.watch import unless_silent

endpoints = Endpoints()

# As many as a body has room for; those who have more shards change them in several steps.
_SHARDS_AT_ONCE = 1_000

_NOBODY = (
    f"Nobody may over HTTP, because {variable('operator_organization')} does not say which organisation operates "
    "this. Use `holdfast mode`."
)

# A change has connections of its own, so there is one at a time.
changing_key = web.AppKey("changing_modes", asyncio.Lock)

# Postgres keeps it, which does not take the character NUL.
Reason = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f]$")]


class ShardEpoch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard, and the epoch in which it is to be changed: the one that was looked at."""

    shard: Annotated[int, Meta(ge=0, le=16_383)]
    epoch: Annotated[int, Meta(ge=0, le=1 << 62)]


class ModeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["redis", "db"]
    reason: Reason
    shards: Annotated[tuple[ShardEpoch, ...], Meta(min_length=1, max_length=_SHARDS_AT_ONCE)]


@endpoints.get(
    "/api/admin/mode",
    summary="Who serves the shards",
    description="The mode and epoch of every shard, which processes have a voice in that, and the last changes with "
    "their reasons. For administrators of the organisation that operates the servers, and of no other.",
    roles=ADMINS,
    replies={200: Modes},
    tag="operation",
)
async def mode(call: Call) -> web.StreamResponse:
    _refuse_strangers(call)
    async with database(call.app) as connection:
        return call.answer(200, await read_modes(connection, call.app[settings_key].shards))


@endpoints.put(
    "/api/admin/mode",
    summary="Let Redis or Postgres serve shards",
    description="`db` closes and drains Redis, if it answers, and lets Postgres serve until somebody says `redis`, "
    "which builds Redis from Postgres first. Names each shard with the epoch it was seen in: if one has moved on, "
    "nothing is changed (409). A shard that is in the mode already stays as it is. May be done while seats are sold. "
    "For administrators of the organisation that operates the servers.",
    roles=ADMINS,
    body=ModeRequest,
    replies={200: tuple[ShardMode, ...]},
    errors=("epoch_moved", "unknown_outcome"),
    example=ModeRequest("db", "Redis is to be upgraded.", (ShardEpoch(3, 41),)),
    tag="operation",
)
async def put_mode(call: Call, body: ModeRequest) -> web.StreamResponse:
    _refuse_strangers(call)
    epochs = {each.shard: each.epoch for each in body.shards}
    if len(epochs) < len(body.shards):
        raise Refused(problem("invalid_request", "A shard is named twice."))
    shards = call.app[settings_key].shards
    if max(epochs) >= shards:
        raise Refused(problem("invalid_request", f"There are {shards} shards, numbered from 0 to {shards - 1}."))
    try:
        changed = await _change(call, body, epochs)
    except Moved as error:
        raise Refused(problem("epoch_moved", str(error))) from None
    except RecoveryError as error:
        raise Refused(problem("unavailable", str(error))) from None
    return call.answer(200, changed)


async def _change(call: Call, body: ModeRequest, epochs: dict[int, int]) -> tuple[ShardMode, ...]:
    wanted = Mode(body.mode)
    cause = Cause(body.reason, f"admin {call.principal.user_id}", pinned=wanted is Mode.DB)
    settings = call.app[settings_key]
    with asking_postgres(), asking_redis():
        async with (
            unless_silent(settings.postgres_dsn) as watch,
            call.app[changing_key],
            open_servers(settings, "mode") as servers,
        ):
            watch.guard(servers.pool)
            changed = await set_mode(servers, wanted, cause, sorted(epochs), epochs=epochs)
            async with servers.pool.acquire() as connection:
                await _tell_audit(call, connection, body, sorted(epochs))
    return changed


async def _tell_audit(call: Call, connection: Connection, body: ModeRequest, shards: list[int]) -> None:
    who, caller = call.principal, call.caller()
    await connection.execute(
        query("audit_mode"),
        who.organization_id,
        who.user_id,
        body.mode,
        shards,
        body.reason,
        caller.address,
        caller.user_agent,
        caller.request_id,
    )


def _refuse_strangers(call: Call) -> None:
    """The shards are everybody's, so administrators of one tenant do not decide for the others unless they operate."""
    operator = call.app[settings_key].operator_organization
    if operator is None:
        raise Refused(problem("forbidden", _NOBODY))
    if operator != call.principal.organization_id:
        raise Refused(problem("forbidden", "Only administrators of the organisation that operates this may."))
