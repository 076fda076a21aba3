"""How a process learns what is committed: by notification, and by asking when a notification may have been lost.

With the states of the shards it learns as well when an epoch is over. Whoever waits for that epoch is then answered
from its last mark, which nobody moves any more: committed, or never to be.
"""

import asyncio
import logging
from typing import Any

import msgspec

from holdfast.engine.acks import Acks, rejection_status
from holdfast.engine.epochs import Epochs
from holdfast.persistence.batches import UNAPPLICABLE
from holdfast.persistence.controls import ask_controls, listen_for_controls
from holdfast.persistence.persister import MARKS_CHANNEL, Committed
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, connect
from holdfast.persistence.sql import query

_ASK_S = 0.5
_RETRY_S = 0.2
_COMMITTED = msgspec.json.Decoder(Committed)

_log = logging.getLogger(__name__)


async def follow_marks(dsn: str, acks: Acks, shards: int, epochs: Epochs | None = None) -> None:
    """Keep the acknowledgements up to date until cancelled, over every loss of the connection; the epochs too."""
    while True:
        try:
            connection = await connect(dsn, name="marks")
            try:
                await _follow(connection, acks, epochs or Epochs(shards))
            finally:
                if epochs is not None:
                    epochs.heard = False
                await connection.close(timeout=1)
        except POSTGRES_ERRORS as error:
            _log.warning("cannot hear what is committed, trying again: %s", error)
        await asyncio.sleep(_RETRY_S)


class _Listener:
    """Hears notifications. While some may have been missed their marks are not believed, because what was rejected
    below them is not known."""

    def __init__(self, acks: Acks, epochs: Epochs) -> None:
        self._acks = acks
        self._epochs = epochs
        self._missed = 1

    def hear(self, _: Any, __: int, ___: str, payload: str) -> None:
        committed = _COMMITTED.decode(payload)
        epochs = {shard: epoch for shard, epoch, _ in committed.marks}
        for shard, seq, reason in committed.rejections:
            self._acks.reject(shard, epochs[shard], seq, rejection_status(reason))
        if committed.more:
            self._missed += 1
            self._epochs.wanted.set()
        if not self._missed:
            for shard, epoch, seq in committed.marks:
                self._acks.advance(shard, epoch, seq)

    async def catch_up(self, connection: Connection) -> None:
        """Ask for what may have been missed, all of it or what somebody waits for."""
        missed = self._missed
        everything = list(range(self._epochs.shards))
        await _ask(connection, self._acks, everything if missed else list(self._acks.oldest_waiting))
        self._missed -= missed
        await self._end_epochs(connection)

    async def _end_epochs(self, connection: Connection) -> None:
        """Answer those who wait for epochs that are over. In this order: the marks are final once the epoch is over."""
        await ask_controls(connection, self._epochs)
        over = [
            (shard, epoch)
            for shard, (epoch, _) in self._acks.oldest_waiting.items()
            if epoch < self._epochs.state(shard).epoch
        ]
        if not over:
            return
        shards = [shard for shard, _ in over]
        marks = await connection.fetch(query("read_final_marks"), shards, [epoch for _, epoch in over])
        await _hear_rejections(connection, self._acks, shards)
        for row in marks:
            self._acks.advance(row["shard"], row["epoch"], row["seq"])
        for shard, epoch in over:
            self._acks.end(shard, epoch)


async def _follow(connection: Connection, acks: Acks, epochs: Epochs) -> None:
    listener = _Listener(acks, epochs)
    await connection.add_listener(MARKS_CHANNEL, listener.hear)
    await listen_for_controls(connection, epochs)
    while not connection.is_closed():
        epochs.wanted.clear()
        changes = epochs.changes
        await listener.catch_up(connection)
        epochs.heard = True
        if epochs.changes == changes:
            await _wake_up_call(epochs)


async def _wake_up_call(epochs: Epochs) -> None:
    """Wait until somebody wants to know, a shard changes, or some time has passed."""
    wanted = asyncio.ensure_future(epochs.wanted.wait())
    changed = asyncio.ensure_future(epochs.next_change(_ASK_S))
    try:
        await asyncio.wait([wanted, changed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        wanted.cancel()
        changed.cancel()
        await asyncio.gather(wanted, changed, return_exceptions=True)


async def _ask(connection: Connection, acks: Acks, shards: list[int]) -> None:
    """Ask how far the log is committed and, after that, what was rejected."""
    if not shards:
        return
    marks = await connection.fetch(query("read_marks"), shards)
    await _hear_rejections(connection, acks, shards)
    for row in marks:
        acks.advance(row["shard"], row["epoch"], row["seq"])


async def _hear_rejections(connection: Connection, acks: Acks, shards: list[int]) -> None:
    for row in await connection.fetch(query("recent_rejections"), shards, UNAPPLICABLE):
        acks.reject(row["shard"], row["epoch"], row["seq"], rejection_status(row["reason"]))
