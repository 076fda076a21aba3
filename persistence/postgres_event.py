"""An event as it is in Postgres, in the terms of Redis: ordinals, hold ids, times in milliseconds."""

from uuid import UUID

import msgspec

from holdfast.engine.records import ZoneCounts
from holdfast.persistence.pool import Connection
from holdfast.persistence.sql import query


class SeatRow(msgspec.Struct, frozen=True):
    ordinal: int
    seat_id: str
    zone: int
    status: str
    hold_id: UUID | None


class HoldLine(msgspec.Struct, frozen=True):
    """One line of a hold: a seat, or a quantity of a zone's places."""

    hold_id: UUID
    line: int
    user_id: UUID
    zone: int
    ordinal: int | None
    quantity: int
    status: str
    ends_ms: int
    created_ms: int
    ended_ms: int | None
    ttl_ms: int
    fingerprint: str
    address: str
    cart: str
    checkout: str
    extension: str
    epoch: int
    seq: int


class Taker(msgspec.Struct, frozen=True):
    """Who has taken a wheelchair seat, and whether they do not want its companion seats."""

    user_id: UUID
    declined: bool


class RejectedHold(msgspec.Struct, frozen=True):
    """A hold that Postgres has refused, and how long ago; `dead_letter` is its log entry if it could not be applied."""

    hold_id: UUID
    operation: str
    reason: str
    age_s: float
    dead_letter: str | None


class PostgresEvent(msgspec.Struct, frozen=True):
    """What Postgres has of an event. `holds` has the active ones and those that ended within the time asked for."""

    version: str
    state: str
    opens_ms: int
    closes_ms: int
    now_ms: int
    zones: tuple[ZoneCounts, ...]
    seats: dict[int, SeatRow]
    holds: dict[UUID, tuple[HoldLine, ...]]
    takers: dict[int, Taker]
    rejections: dict[UUID, RejectedHold]

    @property
    def active(self) -> dict[UUID, tuple[HoldLine, ...]]:
        return {hold_id: lines for hold_id, lines in self.holds.items() if lines[0].status == "active"}


async def read_postgres_event(connection: Connection, event_id: UUID, *, ended_for_ms: int = 0) -> PostgresEvent | None:
    """An event, or nothing if there is none. The caller's transaction decides whether all of it is of one moment."""
    config = await connection.fetchrow(query("read_event_config"), event_id)
    if config is None:
        return None
    zones = await connection.fetch(query("read_zone_counts"), event_id, config["organization_id"])
    seats = await connection.fetch(query("list_event_seats"), event_id)
    lines = await connection.fetch(query("list_event_holds"), event_id, ended_for_ms)
    takers = await connection.fetch(query("list_wheelchair_takers"), event_id)
    rejections = await connection.fetch(query("list_event_rejections"), event_id)
    holds: dict[UUID, list[HoldLine]] = {}
    for row in lines:
        holds.setdefault(row["hold_id"], []).append(HoldLine(**row))
    return PostgresEvent(
        version=config["config_version"],
        state=config["state"],
        opens_ms=config["opens_ms"],
        closes_ms=config["closes_ms"],
        now_ms=config["now_ms"],
        zones=tuple(ZoneCounts(**row) for row in zones),
        seats={row["ordinal"]: SeatRow(**row) for row in seats},
        holds={hold_id: tuple(found) for hold_id, found in holds.items()},
        takers={row["ordinal"]: Taker(row["user_id"], row["declined"]) for row in takers},
        rejections={row["hold_id"]: RejectedHold(**row) for row in rejections},
    )
