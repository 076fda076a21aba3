"""Ids of holds, which name their event: a hold is found by its id alone, also before Postgres knows of it.

An id is a UUID of version 8. Its first six bytes are the tag of the event, a digest; the rest is random, or derived
from the key under which a client repeats its request, so that a repeat asks for the same hold.
"""

import os
from collections.abc import Iterator
from hashlib import blake2b
from uuid import UUID

TAG_BYTES = 6
_REST_BYTES = 16 - TAG_BYTES
_VERSION_BYTE, _VARIANT_BYTE = 6, 8

# Asking the system for random bytes costs as much as everything else about an id, so they are drawn for many at once.
_DRAWN_AT_ONCE = 256


def event_tag(organization_id: UUID, event_id: UUID) -> bytes:
    """The tag of an event, the same in every process and release. Two events of an organisation hardly ever share it,
    and whoever looks a tag up is ready for that."""
    return blake2b(organization_id.bytes + event_id.bytes, digest_size=TAG_BYTES).digest()


def tag_of(hold_id: UUID) -> bytes:
    """The tag of the event that a hold id names."""
    return hold_id.bytes[:TAG_BYTES]


def new_hold_id(tag: bytes) -> UUID:
    """An id that nobody has or can guess, for the event with this tag."""
    return _hold_id(tag, next(_random_rests))


def derived_hold_id(tag: bytes, scope: bytes, user_id: UUID, key: str) -> UUID:
    """The id that a user's request under this key always has; `scope` names organisation and event in full."""
    source = scope + user_id.bytes + key.encode()
    return _hold_id(tag, blake2b(source, digest_size=_REST_BYTES).digest())


def _draw() -> Iterator[bytes]:
    while True:
        drawn = os.urandom(_DRAWN_AT_ONCE * _REST_BYTES)
        for at in range(0, len(drawn), _REST_BYTES):
            yield drawn[at : at + _REST_BYTES]


def _draw_anew() -> None:
    global _random_rests  # noqa: PLW0603 - see below
    _random_rests = _draw()


_random_rests = _draw()
# What a process has drawn and not used must not be used by its children as well.
os.register_at_fork(after_in_child=_draw_anew)


def _hold_id(tag: bytes, rest: bytes) -> UUID:
    packed = bytearray(tag + rest)
    packed[_VERSION_BYTE] = packed[_VERSION_BYTE] & 0x0F | 0x80
    packed[_VARIANT_BYTE] = packed[_VARIANT_BYTE] & 0x3F | 0x80
    return UUID(bytes=bytes(packed))
