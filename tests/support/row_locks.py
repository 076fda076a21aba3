"""Shards that Postgres serves."""

from holdfast.persistence.pool import Connection
from support.engine import SHARDS

DB_EPOCH = 7


async def serve_from_postgres(connection: Connection, *, mode: str = "db") -> None:
    """Put all shards into a mode, in an epoch of their own."""
    await connection.execute(
        "INSERT INTO control (shard, epoch, mode) "
        "SELECT shard, $1, $2 FROM generate_series(0, $3::int - 1) AS t (shard) "
        "ON CONFLICT (shard) DO UPDATE SET epoch = excluded.epoch, mode = excluded.mode",
        DB_EPOCH,
        mode,
        SHARDS,
    )
