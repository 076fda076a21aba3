"""The fence as those who repair and look after Postgres meet it: who may write a shard, and how far its log has come.

A writer takes the shard's lock shared, and only then reads mode and epoch. Locking the mark as well keeps the persister
from committing in between, so that what is read of the shard's events stays true until the transaction ends.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec

from holdfast.engine.keys import ShardKeys
from holdfast.persistence.pool import Connection
from holdfast.persistence.sql import query

# The class of the shards' advisory locks, the bytes of "HOLD".
SHARD_LOCKS = 0x484F4C44


class ShardControl(msgspec.Struct, frozen=True):
    """Who serves a shard, in which epoch and why, and the last log entry that is applied."""

    shard: int
    epoch: int
    mode: str
    mark: int
    pinned: bool = False
    reason: str = ""
    actor: str = ""
    changed_at: datetime | None = None

    @property
    def keys(self) -> ShardKeys:
        return ShardKeys(self.shard, self.epoch)


async def read_controls(connection: Connection, shards: Iterable[int]) -> dict[int, ShardControl]:
    """The shards as Postgres knows them. One that has never been in service has no epoch yet."""
    wanted = list(shards)
    rows = await connection.fetch(query("read_controls"), wanted)
    known = {row["shard"]: ShardControl(**row) for row in rows}
    return {shard: known.get(shard, ShardControl(shard, 0, "unopened", 0)) for shard in wanted}


async def enter_shard(connection: Connection, shard: int) -> ShardControl:
    """Take a shard's fence for the caller's transaction, and its mark, so that no persister moves it meanwhile."""
    await connection.execute(query("lock_shards"), SHARD_LOCKS, [shard])
    await connection.execute(query("lock_mark"), shard)
    return (await read_controls(connection, [shard]))[shard]


@asynccontextmanager
async def frozen(connection: Connection) -> AsyncIterator[None]:
    """A read-only transaction that sees one moment of the database, within the caller's if there is one."""
    if connection.is_in_transaction():
        yield
        return
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        yield
