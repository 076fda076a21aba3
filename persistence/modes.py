"""Changing modes by hand: what `holdfast mode` and `PUT /api/admin/mode` have in common."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from holdfast.engine.epochs import Mode
from holdfast.engine.errors import BackendError
from holdfast.engine.shards import find_broken
from holdfast.persistence.ballot import Voter, list_voters
from holdfast.persistence.fence import ShardControl, read_controls
from holdfast.persistence.pool import Connection
from holdfast.persistence.service import Servers, bring_back
from holdfast.persistence.sql import query
from holdfast.persistence.transitions import Cause, Moved, state_of, to_db

Progress = Callable[[str], None]

_SHOWN_CHANGES = 20


class ShardMode(msgspec.Struct, frozen=True):
    """A shard: who serves it, since when, why, and who wanted it so."""

    shard: int
    mode: str
    epoch: int
    pinned: bool
    reason: str
    actor: str
    changed_at: datetime | None


class Change(msgspec.Struct, frozen=True):
    """A change of mode that was made. `details` has what was drained, built, quarantined, and how long it took."""

    id: int
    shard: int
    from_mode: str
    from_epoch: int
    mode: str
    epoch: int
    reason: str
    actor: str
    details: dict[str, float]
    created_at: datetime


class Modes(msgspec.Struct, frozen=True):
    """Every shard, who has a voice in its mode, and what happened last."""

    shards: tuple[ShardMode, ...]
    voters: tuple[Voter, ...]
    changes: tuple[Change, ...]


async def read_modes(connection: Connection, shards: int) -> Modes:
    """How things are."""
    controls = await read_controls(connection, range(shards))
    rows = await connection.fetch(query("list_transitions"), _SHOWN_CHANGES)
    changes = tuple(Change(**{**row, "details": msgspec.json.decode(row["details"])}) for row in rows)
    return Modes(tuple(map(_shard_mode, controls.values())), await list_voters(connection), changes)


async def set_mode(
    servers: Servers,
    mode: Mode,
    cause: Cause,
    shards: Iterable[int],
    *,
    epochs: Mapping[int, int] | None = None,
    anew: bool = False,
    progress: Progress = lambda _: None,
) -> tuple[ShardMode, ...]:
    """Let Redis or Postgres serve shards; returns how they are then.

    Raises Moved, before anything is changed, if one of them is not in the epoch that `epochs` says. A shard that is in
    the mode already stays in its epoch, unless Redis is to be built `anew`. A change to Postgres closes and drains
    Redis first if it answers.
    """
    wanted = list(shards)
    async with servers.pool.acquire() as connection:
        controls = await read_controls(connection, wanted)
    for shard, epoch in (epochs or {}).items():
        if controls[shard].epoch != epoch:
            raise Moved(f"Shard {shard} is in epoch {controls[shard].epoch}, not in {epoch}.")
    for shard in wanted:
        control = controls[shard]
        if mode is Mode.DB:
            await _to_postgres(servers, control, cause)
        else:
            await _to_redis(servers, control, cause, anew=anew)
        progress(f"shard {shard}: {mode.value}")
    async with servers.pool.acquire() as connection:
        return tuple(map(_shard_mode, (await read_controls(connection, wanted)).values()))


async def _to_postgres(servers: Servers, control: ShardControl, cause: Cause) -> None:
    state = state_of(control)
    if state.mode is not Mode.DB:
        await to_db(servers.pool, control.shard, state, cause, redis=servers.redis)
        return
    async with servers.pool.acquire() as connection:
        await connection.execute(
            query("pin_mode"), control.shard, control.epoch, cause.pinned, cause.reason, cause.actor
        )


async def _to_redis(servers: Servers, control: ShardControl, cause: Cause, *, anew: bool) -> None:
    state = state_of(control)
    if state.mode is Mode.REDIS:
        if not anew and not await _is_broken(servers, control):
            return
        moved = await to_db(servers.pool, control.shard, state, cause, redis=servers.redis)
        state = moved.after
    await bring_back(servers, control.shard, state, cause)


async def _is_broken(servers: Servers, control: ShardControl) -> bool:
    try:
        return bool(await find_broken(servers.wire, {control.shard: control.epoch}))
    except BackendError:
        # Whether it can be built anew is seen when that is tried.
        return True


def _shard_mode(control: ShardControl) -> ShardMode:
    return ShardMode(
        control.shard,
        control.mode,
        control.epoch,
        control.pinned,
        control.reason,
        control.actor,
        control.changed_at,
    )
