"""The names of everything Holdfast keeps in Redis.

`hf:{s<shard>}:e<epoch>:<what>` for a shard, `…:org:<org>:event:<event>:<what>` for an event. The part in braces is
the hash tag: all keys of a shard live in one cluster slot. The epoch is in every key, so that data of an older
epoch cannot be read by mistake.
"""

from hashlib import blake2b
from uuid import UUID

import msgspec

SHARD_COUNT = b"hf:shards"
HEALTH = b"hf:health"
SHARD_KEYS = frozenset({"open", "run", "base", "seq", "mark", "log", "events"})
EVENT_KEYS = frozenset({"counts", "map", "kinds", "owners", "holds", "expiry", "ended", "loading"})


def shard_of(event_id: UUID, shards: int) -> int:
    """The shard of an event: a stable hash, the same in every process and release."""
    return int.from_bytes(blake2b(event_id.bytes, digest_size=8).digest()) % shards


def shard_of_key(name: bytes) -> int:
    """The shard in the name of a key."""
    return int(name.split(b":", 2)[1].strip(b"{s}"))


def epoch_of_key(name: bytes) -> int:
    """The epoch in the name of a key."""
    return int(name.split(b":", 3)[2].removeprefix(b"e"))


class ShardKeys(msgspec.Struct, frozen=True):
    """Names the keys of one shard in one epoch."""

    shard: int
    epoch: int

    def key(self, what: str) -> bytes:
        return f"hf:{{s{self.shard}}}:e{self.epoch}:{what}".encode()


class EventKeys(msgspec.Struct, frozen=True):
    """Names the keys of one event, and of its shard, in one epoch."""

    shard: ShardKeys
    organization_id: UUID
    event_id: UUID

    def key(self, what: str) -> bytes:
        if what in SHARD_KEYS:
            return self.shard.key(what)
        if what not in EVENT_KEYS:
            raise KeyError(what)
        return self.shard.key(f"org:{self.organization_id}:event:{self.event_id}:{what}")

    @property
    def scope(self) -> bytes:
        """What a log entry names the event by."""
        return self.organization_id.bytes + self.event_id.bytes
