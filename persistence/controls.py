"""How a process learns who serves each shard: by notification, and by asking now and then and when it is refused."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.engine.backend import Position
from holdfast.engine.epochs import Epochs, Mode, ShardState
from holdfast.engine.errors import Uncommitted
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, Pool, connect
from holdfast.persistence.sql import query

CONTROL_CHANNEL = "holdfast_control"

_ASK_S = 1.0
_RETRY_S = 0.2
_CHANGE = msgspec.json.Decoder(tuple[int, int, Mode])

_log = logging.getLogger(__name__)


async def read_epochs(connection: Connection, shards: int) -> Epochs:
    """Every shard as it is now."""
    epochs = Epochs(shards)
    await ask_controls(connection, epochs)
    return epochs


async def follow_controls(dsn: str, epochs: Epochs) -> None:
    """Keep the states of the shards up to date until cancelled, over every loss of the connection."""
    while True:
        try:
            connection = await connect(dsn, name="modes")
            try:
                await listen_for_controls(connection, epochs)
                while not connection.is_closed():
                    await ask_controls(connection, epochs)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_ASK_S):
                            await epochs.wanted.wait()
                    epochs.wanted.clear()
            finally:
                await connection.close(timeout=1)
        except POSTGRES_ERRORS as error:
            _log.warning("cannot hear which shards are served from where, trying again: %s", error)
        await asyncio.sleep(_RETRY_S)


async def listen_for_controls(connection: Connection, epochs: Epochs) -> None:
    """Hear of every change from now on. What was missed before is for `ask_controls`."""

    def hear(_: Any, __: int, ___: str, payload: str) -> None:
        shard, epoch, mode = _CHANGE.decode(payload)
        learn(epochs, shard, mode, epoch)

    await connection.add_listener(CONTROL_CHANNEL, hear)


async def ask_controls(connection: Connection, epochs: Epochs) -> None:
    """Ask for the state of every shard."""
    for row in await connection.fetch(query("read_controls"), list(range(epochs.shards))):
        learn(epochs, row["shard"], Mode(row["mode"]), row["epoch"])


async def check_current(pool: Pool, epochs: Epochs, position: Position) -> None:
    """Ask Postgres whether a shard is still in the epoch of a position. Raises Uncommitted if not, or not known."""
    try:
        async with pool.acquire() as connection:
            await ask_controls(connection, epochs)
    except POSTGRES_ERRORS as error:
        raise Uncommitted(f"Postgres cannot say whether the epoch is over: {error!r}") from error
    if epochs.state(position.shard).epoch != position.epoch:
        raise Uncommitted("the shard was taken over meanwhile; repeat with the same key")


def learn(epochs: Epochs, shard: int, mode: Mode, epoch: int) -> None:
    """Take in a shard's state, and say so when it is news."""
    before = epochs.state(shard) if shard < epochs.shards else None
    if epochs.learn(shard, ShardState(mode, epoch)) and before is not None and before.epoch:
        _log.warning(
            "shard %d: mode %s, epoch %d; was %s, epoch %d", shard, mode.value, epoch, before.mode.value, before.epoch
        )
