"""A small event on a real server, and the ways tests look at and tamper with it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import msgspec
from redis.asyncio import Redis

from holdfast.engine.backend import Holder, HoldReply
from holdfast.engine.keys import EventKeys, ShardKeys, shard_of
from holdfast.engine.layout import (
    CompiledEvent,
    EventDocument,
    EventState,
    GroupType,
    Policy,
    SeatCategory,
    SeatDocument,
    SeatGroupDocument,
    ZoneDocument,
    ZoneType,
    compile_event,
)
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.wire import Wire

SHARDS = 4
UNLIMITED = Policy(rate_limit_seats=0, max_seats_per_booking=100)


def seats(rows: int, per_row: int, prefix: str = "") -> tuple[SeatDocument, ...]:
    """Rows A, B, … of seats 1, 2, …, called 'A-1' and so on."""
    return tuple(
        SeatDocument(seat_id=f"{prefix}{_letters(row)}-{number}", row=_letters(row), number=number)
        for row in range(rows)
        for number in range(1, per_row + 1)
    )


def _letters(row: int) -> str:
    return chr(65 + row) if row < 26 else f"R{row}"


def document(
    *,
    rows: int = 3,
    per_row: int = 10,
    capacity: int | None = None,
    floor: int = 50,
    policy: Policy = UNLIMITED,
    state: EventState = EventState.LIVE,
    **changes: Any,
) -> EventDocument:
    """An event with a seated zone (index 0) and a general-admission floor (index 1)."""
    places = seats(rows, per_row)
    zones = (
        ZoneDocument("orchestra", ZoneType.RESERVED_SEATING, "Orchestra", capacity or len(places), places),
        ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", floor),
    )
    return EventDocument(event_id=uuid4(), name="Test night", zones=zones, state=state, policy=policy, **changes)


def accessible(
    places: tuple[SeatDocument, ...], wheelchair: str, *companions: str, grouped: bool = False
) -> tuple[SeatDocument, ...]:
    """Seats of which one is a wheelchair seat with these companions; it names them unless a group does."""
    special: dict[str, dict[str, Any]] = {each: {"category": SeatCategory.COMPANION} for each in companions}
    named = () if grouped else companions
    special[wheelchair] = {"category": SeatCategory.WHEELCHAIR, "companion_seat_ids": named}
    return tuple(msgspec.structs.replace(seat, **special.get(seat.seat_id, {})) for seat in places)


def accessible_document(**changes: Any) -> EventDocument:
    """Two rows of ten: A-1 is a wheelchair seat with the companion A-2, B-1 one with the companions B-2 and B-3."""
    plain = document(rows=2, **changes)
    places = accessible(accessible(plain.zones[0].seats, "A-1", "A-2"), "B-1", "B-2", "B-3", grouped=True)
    zones = (msgspec.structs.replace(plain.zones[0], seats=places), *plain.zones[1:])
    groups = (SeatGroupDocument(GroupType.WHEELCHAIR_PAIR, ("B-1", "B-2", "B-3")),)
    return msgspec.structs.replace(plain, zones=zones, seat_groups=groups)


class Stage:
    """One open event on a freshly emptied server, the backend that serves it, and the raw connection under it."""

    def __init__(self, redis: Redis, backend: RedisBackend, event: CompiledEvent) -> None:
        self.redis = redis
        self.backend = backend
        self.event = event

    @property
    def keys(self) -> EventKeys:
        return event_keys(self.event)

    async def dump(self) -> dict[bytes, bytes | None]:
        """Everything on the server, byte for byte."""
        names = sorted(await self.redis.keys())
        return {name: await self.redis.dump(name) for name in names}

    async def log(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return list(await self.redis.xrange(self.keys.key("log")))

    async def hold(self, *seat_ids: str, user: UUID | None = None, **holder: Any) -> HoldReply:
        """Hold seats by their ids, as a new user unless told otherwise."""
        who = Holder(hold_id=holder.pop("hold_id", None) or uuid4(), user_id=user or uuid4(), **holder)
        return await self.backend.hold_seats(self.event, who, seats=[self.event.seats[each] for each in seat_ids])

    async def lapse(self, *hold_ids: UUID) -> None:
        """Move the end of holds into the past, as if their time had passed."""
        await self.redis.zadd(self.keys.key("expiry"), dict.fromkeys((each.bytes for each in hold_ids), 1))

    async def age_ended(self) -> None:
        """Move every ended hold past its time on record."""
        ended = await self.redis.zrange(self.keys.key("ended"), 0, -1)
        if ended:
            await self.redis.zadd(self.keys.key("ended"), dict.fromkeys(ended, 1))

    async def change(self, **changes: Any) -> CompiledEvent:
        """Change the event's document in service, and use the result from now on."""
        changed = msgspec.structs.replace(self.event.document, **changes)
        reply, self.event = await self.backend.set_event_state(self.event, changed)
        assert reply.status.succeeded, reply
        return self.event


def event_keys(event: CompiledEvent) -> EventKeys:
    shard = ShardKeys(shard_of(event.event_id, SHARDS), FIRST_EPOCH)
    return EventKeys(shard, event.organization_id, event.event_id)


def ordinals(event: CompiledEvent, seat_ids: Sequence[str]) -> list[tuple[int, int]]:
    return [event.seats[each] for each in seat_ids]


@asynccontextmanager
async def stage(url: str, doc: EventDocument | None = None, **backend: Any) -> AsyncIterator[Stage]:
    """Empty the server, open its shards, and open one event on it."""
    redis: Redis = Redis.from_url(url)
    try:
        await redis.flushall()
        await open_shards(redis, SHARDS)
        async with Wire(url, timeout_s=10) as wire:
            serving = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH, **backend)
            event = compile_event(uuid4(), doc or document())
            opened = await serving.open_event(event)
            assert opened.status.succeeded, opened
            yield Stage(redis, serving, event)
    finally:
        await redis.aclose()
