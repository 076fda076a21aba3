"""The backend that decides in Redis: one coroutine per script, one round trip each."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from holdfast.engine.backend import (
    AdminReply,
    EventReading,
    EventRef,
    ExpireReply,
    Holder,
    HoldReply,
    HoldsReading,
    HoldsReply,
    Position,
    StoredHold,
)
from holdfast.engine.epochs import EpochOf, epoch_function
from holdfast.engine.errors import Fenced, Unavailable, Unknown
from holdfast.engine.keys import EventKeys, ShardKeys, shard_of
from holdfast.engine.layout import CompiledEvent, EventDocument, SeatCategory, compile_event
from holdfast.engine.records import (
    pack_ids,
    pack_pairs,
    pack_stretches,
    unpack_ends,
    unpack_ids,
    unpack_pairs,
    unpack_record,
    unpack_zones,
)
from holdfast.engine.shards import read_incarnation
from holdfast.engine.status import Status
from holdfast.engine.wire import NoScript, Wire
from holdfast.lua import Script, scripts

LOAD_BLOCK_BYTES = 65_536
RETENTION_MS = 3_600_000


class RedisBackend:
    """Implements engine.backend.Backend on one Redis server.

    `epoch` is the epoch of all shards, or tells that of each at the moment of a call. `max_backlog` is how many log
    entries may wait to be persisted before holds are refused as busy (0: any number); `retention_ms` how long an ended
    hold can still be told from one that never was.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        shards: int,
        epoch: int | EpochOf,
        max_backlog: int = 0,
        retention_ms: int = RETENTION_MS,
    ) -> None:
        self._wire = wire
        self._shards = shards
        self._epoch_of = epoch_function(epoch)
        self._max_backlog = max_backlog
        self._retention_ms = retention_ms
        self._scripts = scripts()
        self._heads: dict[tuple[str, str], tuple[ShardKeys, bytes]] = {}
        self._identified: dict[tuple[int, int], int] = {}

    async def hold_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
    ) -> HoldReply:
        try:
            wish = (pack_pairs(seats), pack_pairs(quantities))
        except ValueError:
            return _refused(Status.INVALID_REQUEST)
        return await self._hold("hold_seats", event, holder, wish)

    async def allocate_seats(
        self,
        event: CompiledEvent,
        holder: Holder,
        *,
        zones: Sequence[int],
        count: int,
        accessible: bool = False,
        categories: Collection[SeatCategory] = (),
    ) -> HoldReply:
        if not all(0 <= zone < len(event.zones) for zone in zones):
            return _refused(Status.SEAT_NOT_FOUND)
        wish = (_stretches(event, zones), b"%d" % count)
        if accessible:
            return await self._hold("allocate_accessible_seats", event, holder, wish)
        wanted = event.narrowed(zones, categories) if categories else None
        if wanted is not None and not wanted:
            return _refused(Status.SEAT_NOT_FOUND)
        letters = b"".join(sorted(each.letter for each in wanted or ()))
        return await self._hold("allocate_seats", event, holder, (*wish, letters))

    async def offer_seats(
        self, event: CompiledEvent, holder: Holder, *, zones: Sequence[int], count: int, near: int, take: bool
    ) -> HoldReply:
        if not all(0 <= zone < len(event.zones) for zone in zones):
            return _refused(Status.SEAT_NOT_FOUND)
        wish = (_stretches(event, zones), b"%d" % count, b"%d" % near, b"%d" % take)
        return await self._hold("offer_seats", event, holder, wish)

    async def decline_companions(
        self, event: EventRef, hold_id: UUID, *, user_id: UUID, meta: bytes = b""
    ) -> AdminReply:
        keys = self._keys(event.organization_id, event.event_id)
        status, now_ms, seq, seats = await self._run(
            "decline_companions", keys, keys.scope, meta, user_id.bytes, hold_id.bytes
        )
        return AdminReply(Status(status), now_ms, self._position(keys, seq), unpack_pairs(seats))

    async def extend_holds(
        self,
        event: EventRef,
        hold_ids: Iterable[UUID],
        *,
        user_id: UUID,
        key: str,
        extension_ms: int,
        total_ms: int,
        checkout: str = "",
        meta: bytes = b"",
    ) -> HoldsReply:
        keys = self._keys(event.organization_id, event.event_id)
        status, now_ms, seq, outcomes, ends_ms = await self._run(
            "extend_holds",
            keys,
            keys.scope,
            meta,
            user_id.bytes,
            key.encode(),
            b"%d" % extension_ms,
            b"%d" % total_ms,
            checkout.encode(),
            pack_ids(hold_ids),
        )
        return HoldsReply(
            Status(status), now_ms, self._position(keys, seq), _outcomes(outcomes), ends_ms=unpack_ends(ends_ms)
        )

    async def release_holds(
        self,
        event: EventRef,
        hold_ids: Iterable[UUID],
        *,
        user_id: UUID | None,
        reason: str,
        checkout: str = "",
        meta: bytes = b"",
    ) -> HoldsReply:
        owner = user_id.bytes if user_id else b""
        return await self._end("release_holds", event, hold_ids, meta, owner, reason.encode(), checkout.encode())

    async def confirm_holds(
        self, event: EventRef, hold_ids: Iterable[UUID], *, sale: str, user_id: UUID | None, meta: bytes = b""
    ) -> HoldsReply:
        owner = user_id.bytes if user_id else b""
        return await self._end("confirm_holds", event, hold_ids, meta, sale.encode(), owner)

    async def expire_holds(self, organization_id: UUID, event_id: UUID, *, limit: int) -> ExpireReply:
        keys = self._keys(organization_id, event_id)
        status, now_ms, seq, expired, forgotten = await self._run(
            "expire_holds", keys, keys.scope, b"", b"%d" % self._retention_ms, b"%d" % limit
        )
        return ExpireReply(Status(status), now_ms, self._position(keys, seq), expired, forgotten)

    async def block_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        retention = b"%d" % self._retention_ms
        wish = (pack_pairs(seats), pack_pairs(quantities), retention)
        return await self._administer("block_seats", event, meta, event.version.encode(), *wish)

    async def unblock_seats(
        self,
        event: CompiledEvent,
        *,
        seats: Iterable[tuple[int, int]] = (),
        quantities: Iterable[tuple[int, int]] = (),
        meta: bytes = b"",
    ) -> AdminReply:
        wish = (pack_pairs(seats), pack_pairs(quantities))
        return await self._administer("unblock_seats", event, meta, event.version.encode(), *wish)

    async def open_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        keys = self._keys(event.organization_id, event.event_id)
        places = event.map + event.kinds
        for at in range(0, len(places), LOAD_BLOCK_BYTES):
            block = places[at : at + LOAD_BLOCK_BYTES]
            status, _ = await self._run("load_event", keys, b"%d" % at, block)
            if status == Status.EVENT_EXISTS:
                break
            if status != Status.DONE:
                return AdminReply(Status(status), 0, self._position(keys, 0))
        config = _config(event)
        layout = (b"%d" % len(event.map), event.zone_specs, event.accessibility, event.paired_seats)
        return await self._administer("open_event", event, meta, *config, *layout)

    async def set_event_state(
        self, event: CompiledEvent, changed: EventDocument, *, meta: bytes = b""
    ) -> tuple[AdminReply, CompiledEvent]:
        """Change an open event's state, window, limits or capacities; returns the event to use from then on."""
        compiled = compile_event(event.organization_id, changed)
        capacities = [
            (new.index, new.document.capacity)
            for old, new in zip(event.zones, compiled.zones, strict=True)
            if old.document.capacity != new.document.capacity
        ]
        reply = await self._administer(
            "set_event_state",
            event,
            meta,
            event.version.encode(),
            *_config(compiled),
            compiled.accessibility,
            pack_pairs(capacities),
        )
        return reply, compiled if reply.status.succeeded else event

    async def close_event(self, event: CompiledEvent, *, meta: bytes = b"") -> AdminReply:
        return await self._administer("close_event", event, meta)

    async def read_event(self, organization_id: UUID, event_id: UUID, *, want_map: bool) -> EventReading:
        keys = self._keys(organization_id, event_id)
        status, now_ms, seq, version, state, opens_ms, closes_ms, zones, seat_map = await self._run(
            "read_event", keys, b"%d" % want_map
        )
        return EventReading(
            Status(status),
            now_ms,
            self._position(keys, seq),
            version.decode(),
            state.decode(),
            int(opens_ms or 0),
            int(closes_ms or 0),
            unpack_zones(zones),
            seat_map,
        )

    async def read_holds(
        self, organization_id: UUID, event_id: UUID, *, user_id: UUID | None, hold_ids: Iterable[UUID] = ()
    ) -> HoldsReading:
        keys = self._keys(organization_id, event_id)
        status, now_ms, seq, ids, ends_ms, records = await self._run(
            "read_holds", keys, user_id.bytes if user_id else b"", pack_ids(hold_ids)
        )
        found = zip(unpack_ids(ids), unpack_ends(ends_ms), records, strict=True)
        holds = tuple(StoredHold(hold_id, ends, unpack_record(record)) for hold_id, ends, record in found)
        return HoldsReading(Status(status), now_ms, self._position(keys, seq), holds)

    async def _hold(self, name: str, event: CompiledEvent, holder: Holder, wish: tuple[bytes, ...]) -> HoldReply:
        shard, head = self._heads.get((name, event.version)) or self._hold_head(name, event)
        if shard.epoch != self._epoch_of(shard.shard):
            shard, head = self._hold_head(name, event)
        ttl_ms = event.ttl_ms if holder.ttl_ms is None else holder.ttl_ms
        arguments = (
            holder.meta,
            holder.hold_id.bytes,
            holder.fingerprint.encode(),
            holder.user_id.bytes,
            holder.address.encode(),
            holder.cart.encode(),
            b"%d" % ttl_ms,
            *wish,
        )
        status, hold_id, until_ms, now_ms, seq, seats, quantities = await self._send(shard, head + _bulk(arguments))
        return HoldReply(
            Status(status),
            holder.hold_id if hold_id == holder.hold_id.bytes else UUID(bytes=hold_id) if hold_id else None,
            until_ms,
            now_ms,
            Position(shard.shard, shard.epoch, seq),
            unpack_pairs(seats),
            unpack_pairs(quantities),
        )

    def _hold_head(self, name: str, event: CompiledEvent) -> tuple[ShardKeys, bytes]:
        """The shard and epoch of an event, and what is the same in all its holds meanwhile, packed once."""
        keys = self._keys(event.organization_id, event.event_id)
        rules = event.rules(max_backlog=self._max_backlog, retention_ms=self._retention_ms)
        head = _head(self._scripts[name], keys) + _bulk((keys.scope, event.version.encode(), rules))
        self._heads[name, event.version] = keys.shard, head
        return keys.shard, head

    async def _end(
        self, name: str, event: EventRef, hold_ids: Iterable[UUID], meta: bytes, *words: bytes
    ) -> HoldsReply:
        keys = self._keys(event.organization_id, event.event_id)
        status, now_ms, seq, outcomes, seats, quantities = await self._run(
            name, keys, keys.scope, meta, *words, b"%d" % self._retention_ms, pack_ids(hold_ids)
        )
        return HoldsReply(
            Status(status),
            now_ms,
            self._position(keys, seq),
            _outcomes(outcomes),
            seats=unpack_pairs(seats),
            quantities=unpack_pairs(quantities),
        )

    async def _administer(self, name: str, event: CompiledEvent, meta: bytes, *words: bytes) -> AdminReply:
        keys = self._keys(event.organization_id, event.event_id)
        status, now_ms, seq, *changed = await self._run(name, keys, keys.scope, meta, *words)
        units = (unpack_pairs(pairs) for pairs in changed)
        return AdminReply(Status(status), now_ms, self._position(keys, seq), *units)

    async def _run(self, name: str, keys: EventKeys, *arguments: bytes) -> Any:
        script = self._scripts[name]
        if len(arguments) != len(script.arguments):
            raise TypeError(f"{name} takes {len(script.arguments)} arguments, not {len(arguments)}")
        return await self._send(keys.shard, _head(script, keys) + _bulk(arguments))

    async def _send(self, shard: ShardKeys, command: bytes) -> Any:
        # No script runs over a connection before it is known to lead to the server that the epoch was opened on.
        while self._identified.get((shard.shard, shard.epoch)) != self._wire.connections:
            await self._identify(shard)
        try:
            return await self._wire.send(command)
        except NoScript:
            await self._reload_scripts(shard)
            return await self._wire.send(command)

    async def _identify(self, shard: ShardKeys) -> None:
        """Note that the connection leads to the server the epoch was opened on. Raises Fenced if that was another one,
        or the same before it was restarted, or had to follow another."""
        connections = self._wire.connections
        try:
            incarnation = await read_incarnation(self._wire)
            opened_on = await self._wire.call("GET", shard.key("run"))
        except Unknown as error:
            raise Unavailable(f"Redis did not say which server it is, so nothing was asked of it: {error}") from error
        if opened_on != incarnation:
            raise Fenced(f"shard {shard.shard}: Redis is not the server on which epoch {shard.epoch} was opened")
        if self._wire.connections != connections:
            raise Unavailable("the connection to Redis changed while its server was identified")
        self._identified[shard.shard, shard.epoch] = connections

    async def _reload_scripts(self, shard: ShardKeys) -> None:
        """Load the scripts, which a newer release has and the server has not, if this is the epoch's server."""
        await self._identify(shard)
        # Sent in one turn of the loop, the scripts reach the server that was identified, or none.
        sources = [script.source for script in self._scripts.values()]
        await asyncio.gather(*[self._wire.send(b"*3\r\n" + _bulk((b"SCRIPT", b"LOAD", each))) for each in sources])

    def _keys(self, organization_id: UUID, event_id: UUID) -> EventKeys:
        shard = shard_of(event_id, self._shards)
        return EventKeys(ShardKeys(shard, self._epoch_of(shard)), organization_id, event_id)

    def _position(self, keys: EventKeys, seq: int) -> Position:
        return Position(keys.shard.shard, keys.shard.epoch, seq)


def _refused(status: Status) -> HoldReply:
    """A refusal of what cannot even be put into a call."""
    return HoldReply(status, None, 0, 0, Position(0, 0, 0), (), ())


def _stretches(event: CompiledEvent, zones: Sequence[int]) -> bytes:
    """Zones with their stretches of the map; one without seats has none, and the script says so."""
    found = [event.zones[zone] for zone in zones]
    return pack_stretches((each.index, each.first, max(each.last, each.first)) for each in found)


def _head(script: Script, keys: EventKeys) -> bytes:
    """The words of a script's call up to its arguments."""
    names = [keys.key(key.name) for key in script.keys]
    words = 3 + len(names) + len(script.arguments)
    return b"*%d\r\n" % words + _bulk((b"EVALSHA", script.sha.encode(), b"%d" % len(names), *names))


def _bulk(words: Iterable[bytes]) -> bytes:
    """Words as the Redis protocol wants them; calls are packed in two parts, so that the first can be kept."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def _outcomes(packed: bytes) -> tuple[Status, ...]:
    return tuple(Status(code) for code in packed)


def _config(event: CompiledEvent) -> tuple[bytes, bytes, bytes, bytes]:
    state = event.document.state.value.encode()
    return event.version.encode(), state, b"%d" % event.opens_ms, b"%d" % event.closes_ms
