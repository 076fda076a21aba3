"""Applying operations of the log to Postgres: many of a kind in one statement, in the order that matters."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from holdfast.persistence.operations import (
    Accessible,
    Administer,
    Decline,
    End,
    Extend,
    Hold,
    Operation,
    Sell,
    checkout_status,
    split_phases,
    ticket_id,
)
from holdfast.persistence.sql import query

_log = logging.getLogger(__name__)


class Rejection(msgspec.Struct, frozen=True):
    """A hold that Redis granted, or an operation on it, and that Postgres refuses.

    Of a `block` that is refused, the hold is the one that has a seat of it here.
    """

    seq: int
    organization_id: UUID
    event_id: UUID
    hold_id: UUID
    operation: str
    reason: str


class Collision(Exception):
    """Something stands in the way of a hold that was placed without looking: the transaction is to be undone."""


async def apply_operations(
    connection: asyncpg.Connection, operations: Sequence[Operation], *, optimistic: bool = False
) -> list[Rejection]:
    """Apply operations of one or more shards, each shard's in its order, within the caller's transaction.

    With `optimistic`, holds are placed as if nothing could stand in their way, which is quicker. If something does,
    Collision is raised, and the caller undoes its transaction and applies the same operations without it.
    """
    rejections: list[Rejection] = []
    planned = False
    for phase in split_phases(operations):
        if isinstance(phase[0], Administer):
            rejections += await _administer(connection, phase[0])
            continue
        for kind, apply in _OPTIMISTIC_APPLIERS if optimistic else _APPLIERS:
            chosen = [operation for operation in phase if isinstance(operation, kind)]
            if not chosen:
                continue
            if not planned and apply is not _place_holds:
                await connection.execute(query("plan_anew"))
                planned = True
            rejections += await apply(connection, chosen)
    return rejections


async def _apply_holds(connection: asyncpg.Connection, holds: Sequence[Hold]) -> list[Rejection]:
    refused = await connection.fetch(query("apply_holds"), *hold_columns(holds))
    rejections = _rejections(refused, {hold.hold_id: hold for hold in holds})
    rejected = {each.hold_id for each in rejections}
    await _note_orphans(connection, [hold for hold in holds if hold.hold_id not in rejected])
    return rejections


async def _place_holds(connection: asyncpg.Connection, holds: Sequence[Hold]) -> list[Rejection]:
    try:
        had_room = await connection.fetchval(query("place_holds"), *hold_columns(holds))
    except asyncpg.UniqueViolationError as error:
        raise Collision(str(error)) from error
    if not had_room:
        raise Collision("a seat or a zone of a hold has no room")
    await _note_orphans(connection, holds)
    return []


async def _note_orphans(connection: asyncpg.Connection, holds: Sequence[Hold]) -> None:
    """Tell the audit which seats holds have left alone, where the log says so."""
    rows = [
        (
            hold.hold_id,
            hold.entry.organization_id,
            hold.entry.event_id,
            hold.record.user_id,
            orphan.value,
            moment(hold.record.created_ms),
            hold.caller.address,
            hold.caller.user_agent,
            hold.caller.request_id,
        )
        for hold in holds
        for orphan in hold.entry.orphans
    ]
    if rows:
        await connection.execute(query("note_orphans"), *columns(rows))


def hold_columns(holds: Sequence[Hold]) -> list[list[Any]]:
    """The rows that holds become, as statements take them: one for each seat, and for each zone and quantity."""
    lines: list[tuple[Any, ...]] = []
    for hold in holds:
        entry, record, caller = hold.entry, hold.record, hold.caller
        units: list[tuple[int, int | None, int]] = [(seat.zone, seat.value, 1) for seat in record.seats]
        units += [(wish.zone, None, wish.value) for wish in record.quantities]
        lines += [
            (
                hold.hold_id,
                line,
                entry.organization_id,
                entry.event_id,
                record.user_id,
                zone,
                ordinal,
                quantity,
                record.created_ms,
                record.ttl_ms,
                record.cart,
                record.fingerprint,
                record.address,
                entry.epoch,
                entry.seq,
                caller.address,
                caller.user_agent,
                caller.request_id,
                caller.source,
            )
            for line, (zone, ordinal, quantity) in enumerate(units)
        ]
    return columns(lines)


async def _apply_ends(connection: asyncpg.Connection, ends: Sequence[End]) -> list[Rejection]:
    rows = [
        (
            hold_id,
            "expired" if end.entry.operation == "expire" else "cancelled",
            end.reason,
            moment(end.entry.at_ms),
            end.entry.epoch,
            end.entry.seq,
            end.caller.address,
            end.caller.user_agent,
            end.caller.request_id,
            end.entry.event_id,
            end.checkout,
            checkout_status(end.reason),
            end.caller.user_id,
            end.caller.notes,
        )
        for end in ends
        for hold_id in end.entry.hold_ids
    ]
    # A hold that was never accepted, or that ended here already, has nothing to give back.
    await connection.fetch(query("apply_ends"), *columns(rows))
    return []


async def _apply_extensions(connection: asyncpg.Connection, extensions: Sequence[Extend]) -> list[Rejection]:
    rows = [
        (
            hold_id,
            moment(ends_ms),
            extension.checkout,
            extension.key,
            moment(extension.entry.at_ms),
            extension.entry.epoch,
            extension.entry.seq,
            extension.caller.address,
            extension.caller.user_agent,
            extension.caller.request_id,
            extension.entry.event_id,
        )
        for extension in extensions
        for hold_id, ends_ms in zip(extension.entry.hold_ids, extension.ends_ms, strict=True)
    ]
    refused = await connection.fetch(query("apply_extensions"), *columns(rows))
    return _rejections(refused, {hold_id: each for each in extensions for hold_id in each.entry.hold_ids})


async def _apply_sales(connection: asyncpg.Connection, sales: Sequence[Sell]) -> list[Rejection]:
    rows: list[tuple[Any, ...]] = []
    tickets: list[tuple[Any, ...]] = []
    for sale in sales:
        entry, caller = sale.entry, sale.caller
        for hold_id, block in zip(entry.hold_ids, sale.blocks, strict=True):
            rows.append(
                (
                    hold_id,
                    sale.sale,
                    moment(entry.at_ms),
                    entry.epoch,
                    entry.seq,
                    caller.address,
                    caller.user_agent,
                    caller.request_id,
                    entry.event_id,
                )
            )
            tickets += [(ticket_id(hold_id, *seat), hold_id, seat.zone, seat.value) for seat in block.seats]
            tickets += [
                (ticket_id(hold_id, wish.zone, unit), hold_id, wish.zone, None)
                for wish in block.quantities
                for unit in range(wish.value)
            ]
    refused = await connection.fetch(query("apply_sales"), *columns(rows), *columns(tickets))
    return _rejections(refused, {hold_id: sale for sale in sales for hold_id in sale.entry.hold_ids})


async def _note_bookings(connection: asyncpg.Connection, bookings: Sequence[Accessible]) -> list[Rejection]:
    for booking in bookings:
        (hold_id,), caller = booking.entry.hold_ids, booking.caller
        await connection.execute(
            query("note_accessible_booking"),
            hold_id,
            booking.entry.event_id,
            [seat.value for seat in booking.wheelchairs],
            [seat.value for seat in booking.kept],
            moment(booking.entry.at_ms),
            caller.address,
            caller.user_agent,
            caller.request_id,
        )
    return []


async def _apply_declines(connection: asyncpg.Connection, declines: Sequence[Decline]) -> list[Rejection]:
    for decline in declines:
        (hold_id,), entry, caller = decline.entry.hold_ids, decline.entry, decline.caller
        await connection.execute(
            query("apply_decline"),
            hold_id,
            entry.event_id,
            [seat.value for seat in decline.wheelchairs],
            moment(entry.at_ms),
            entry.epoch,
            entry.seq,
            caller.address,
            caller.user_agent,
            caller.request_id,
        )
    return []


async def _administer(connection: asyncpg.Connection, operation: Administer) -> list[Rejection]:
    entry, caller = operation.entry, operation.caller
    number = f"{entry.epoch}-{entry.seq}"
    told = (moment(entry.at_ms), caller.address, caller.user_agent, caller.request_id, number)
    who = (*told, caller.user_id, caller.notes)
    if operation.block is not None:
        refused = await connection.fetch(
            query("apply_block"),
            entry.event_id,
            entry.organization_id,
            [seat.value for seat in operation.block.seats],
            entry.operation == "block",
            [wish.zone for wish in operation.block.quantities],
            [wish.value for wish in operation.block.quantities],
            *who,
        )
        return _rejections(refused, {row["hold_id"]: operation for row in refused})
    version, state, opens_ms, closes_ms = (*operation.config, None, None, "0", "0")[:4] if operation.config else _CLOSED
    await connection.execute(
        query("apply_state"),
        entry.event_id,
        entry.organization_id,
        _ACTIONS[entry.operation],
        version,
        state,
        _window(opens_ms),
        _window(closes_ms),
        [pair.zone for pair in operation.capacities],
        [pair.value for pair in operation.capacities],
        *who,
    )
    return []


def moment(milliseconds: int) -> datetime:
    """A time as the log has it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as the arrays that statements unnest."""
    return [list(column) for column in zip(*rows, strict=True)]


def _window(milliseconds: str | None) -> datetime | None:
    return moment(int(milliseconds)) if milliseconds and milliseconds != "0" else None


def _rejections(refused: Sequence[asyncpg.Record], operations: dict[UUID, Any]) -> list[Rejection]:
    found = []
    for row in refused:
        entry = operations[row["hold_id"]].entry
        found.append(
            Rejection(entry.seq, entry.organization_id, entry.event_id, row["hold_id"], entry.operation, row["reason"])
        )
    return found


_ACTIONS = {"open": "event_opened", "state": "event_changed", "close": "event_closed"}
_CLOSED = (None, None, None, None)
_Appliers = tuple[tuple[type[Operation], Any], ...]
_APPLIERS: _Appliers = (
    (End, _apply_ends),
    (Hold, _apply_holds),
    (Extend, _apply_extensions),
    (Sell, _apply_sales),
    (Decline, _apply_declines),
    (Accessible, _note_bookings),
)
_OPTIMISTIC_APPLIERS: _Appliers = tuple((kind, _place_holds if kind is Hold else apply) for kind, apply in _APPLIERS)
