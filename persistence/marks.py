"""How a process learns what is committed: by notification, and by asking when a notification may have been lost."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.engine.acks import Acks, rejection_status
from holdfast.persistence.batches import UNAPPLICABLE
from holdfast.persistence.persister import MARKS_CHANNEL, Committed
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, connect
from holdfast.persistence.sql import query

_ASK_S = 0.5
_RETRY_S = 0.2
_COMMITTED = msgspec.json.Decoder(Committed)

_log = logging.getLogger(__name__)


async def follow_marks(dsn: str, acks: Acks, shards: int) -> None:
    """Keep the acknowledgements up to date until cancelled, over every loss of the connection."""
    while True:
        try:
            connection = await connect(dsn, name="marks")
            try:
                await _follow(connection, acks, list(range(shards)))
            finally:
                await connection.close(timeout=1)
        except POSTGRES_ERRORS as error:
            _log.warning("cannot hear what is committed, trying again: %s", error)
        await asyncio.sleep(_RETRY_S)


class _Listener:
    """Hears notifications. While some may have been missed their marks are not believed, because what was rejected
    below them is not known."""

    def __init__(self, acks: Acks) -> None:
        self._acks = acks
        self._missed = 1
        self.wake = asyncio.Event()

    def hear(self, _: Any, __: int, ___: str, payload: str) -> None:
        committed = _COMMITTED.decode(payload)
        epochs = {shard: epoch for shard, epoch, _ in committed.marks}
        for shard, seq, reason in committed.rejections:
            self._acks.reject(shard, epochs[shard], seq, rejection_status(reason))
        if committed.more:
            self._missed += 1
            self.wake.set()
        if not self._missed:
            for shard, epoch, seq in committed.marks:
                self._acks.advance(shard, epoch, seq)

    async def catch_up(self, connection: Connection, shards: list[int]) -> None:
        """Ask for what may have been missed, all of it or what somebody waits for."""
        missed = self._missed
        self.wake.clear()
        await _ask(connection, self._acks, shards if missed else list(self._acks.oldest_waiting))
        self._missed -= missed


async def _follow(connection: Connection, acks: Acks, shards: list[int]) -> None:
    listener = _Listener(acks)
    await connection.add_listener(MARKS_CHANNEL, listener.hear)
    while not connection.is_closed():
        await listener.catch_up(connection, shards)
        with suppress(TimeoutError):
            async with asyncio.timeout(_ASK_S):
                await listener.wake.wait()


async def _ask(connection: Connection, acks: Acks, shards: list[int]) -> None:
    """Ask how far the log is committed and, after that, what was rejected."""
    if not shards:
        return
    marks = await connection.fetch(query("read_marks"), shards)
    for row in await connection.fetch(query("recent_rejections"), shards, UNAPPLICABLE):
        acks.reject(row["shard"], row["epoch"], row["seq"], rejection_status(row["reason"]))
    for row in marks:
        acks.advance(row["shard"], row["epoch"], row["seq"])
