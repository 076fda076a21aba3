"""What events are made from, in Postgres: venues, versions of layouts, an organisation's policy, and its members."""

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from holdfast.engine.layout import EventDocument
from holdfast.engine.plan import EventPlan, LayoutDocument, check_layout, resolve
from holdfast.engine.policy import Policy, SeatingPolicy
from holdfast.persistence.catalogue import CatalogueError, Missing
from holdfast.persistence.pool import Connection
from holdfast.persistence.sql import query

# The class of the advisory locks on layouts, the bytes of "LAYO".
LAYOUT_LOCKS = int.from_bytes(b"LAYO")

# An organisation that has stored no policy lets every event have its own.
NO_POLICY = SeatingPolicy(Policy())

_read_layout = msgspec.json.Decoder(LayoutDocument).decode
_read_plan = msgspec.json.Decoder(EventPlan).decode
_read_policy = msgspec.json.Decoder(SeatingPolicy).decode


class Venue(msgspec.Struct, frozen=True):
    venue_id: UUID
    name: str
    address: str = ""


class LayoutVersion(msgspec.Struct, frozen=True):
    """What a list of layouts shows of each version."""

    layout_id: UUID
    version: int
    venue_id: UUID
    name: str
    total_capacity: int
    created_at: datetime
    events_on_sale: int


async def create_venue(connection: Connection, organization_id: UUID, venue: Venue) -> None:
    """Save a venue. Repeating it changes nothing; an id that is used otherwise raises CatalogueError or Missing."""
    await connection.execute(query("insert_organization"), organization_id)
    inserted = await connection.fetchval(
        query("insert_venue"), venue.venue_id, organization_id, venue.name, venue.address
    )
    if not inserted:
        known = await list_venues(connection, organization_id, venue.venue_id)
        if not known:
            raise Missing(f"venue_id: there is no venue {venue.venue_id}.")
        if venue not in known:
            raise CatalogueError(f"The venue id {venue.venue_id} is taken.")


async def list_venues(connection: Connection, organization_id: UUID, venue_id: UUID | None = None) -> tuple[Venue, ...]:
    rows = await connection.fetch(query("list_venues"), organization_id, venue_id)
    return tuple(Venue(**row) for row in rows)


async def save_layout(connection: Connection, organization_id: UUID, layout_id: UUID, layout: LayoutDocument) -> int:
    """Save a layout as its next version, unless the newest is the same; returns the version it is.

    Raises LayoutError for one that contradicts itself, and Missing.
    """
    check_layout(layout)
    document = msgspec.json.encode(layout, order="deterministic").decode()
    try:
        async with connection.transaction():
            await connection.execute(query("lock_layout"), LAYOUT_LOCKS, layout_id)
            latest = await connection.fetchrow(query("find_latest_layout"), layout_id, document)
            if latest and latest["organization_id"] != organization_id:
                raise Missing(f"There is no layout {layout_id}.")
            if latest and latest["same_document"]:
                return int(latest["version"])
            version = int(latest["version"]) + 1 if latest else 1
            await connection.execute(
                query("insert_layout"),
                layout_id,
                version,
                organization_id,
                layout.venue_id,
                layout.name,
                layout.capacity,
                document,
            )
            return version
    except asyncpg.ForeignKeyViolationError:
        raise Missing(f"venue_id: there is no venue {layout.venue_id}.") from None


async def load_layout(
    connection: Connection, organization_id: UUID, layout_id: UUID, version: int | None = None
) -> tuple[int, LayoutDocument] | None:
    """A version of an organisation's layout, or the newest, with its number; nothing if there is none."""
    row = await connection.fetchrow(query("load_layout"), layout_id, organization_id, version)
    return None if row is None else (row["version"], _read_layout(row["document"]))


async def list_layouts(connection: Connection, organization_id: UUID) -> tuple[LayoutVersion, ...]:
    return tuple(LayoutVersion(**row) for row in await connection.fetch(query("list_layouts"), organization_id))


async def load_policy(connection: Connection, organization_id: UUID) -> SeatingPolicy | None:
    document = await connection.fetchval(query("load_policy"), organization_id)
    return None if document is None else _read_policy(document)


async def save_policy(connection: Connection, organization_id: UUID, policy: SeatingPolicy) -> None:
    """Store an organisation's policy. Events that exist keep theirs until they are loaded again."""
    await connection.execute(query("insert_organization"), organization_id)
    document = msgspec.json.encode(policy, order="deterministic").decode()
    await connection.execute(query("save_policy"), organization_id, document)


async def set_tier(connection: Connection, organization_id: UUID, user_id: UUID, tier: str) -> None:
    """Make a user a member of a tier, whatever they were before."""
    await connection.execute(query("insert_organization"), organization_id)
    await connection.execute(query("save_membership"), organization_id, user_id, tier)


async def end_membership(connection: Connection, organization_id: UUID, user_id: UUID) -> bool:
    """Whether there was a membership to end."""
    return bool(await connection.fetchval(query("delete_membership"), organization_id, user_id))


async def tiers_of(connection: Connection, organization_id: UUID, user_ids: Collection[UUID]) -> Mapping[UUID, str]:
    """The tier of each of some users who have one."""
    rows = await connection.fetch(query("list_tiers"), organization_id, list(user_ids))
    return {row["user_id"]: row["tier"] for row in rows}


async def resolve_plan(connection: Connection, organization_id: UUID, plan: EventPlan) -> EventDocument:
    """The event that a plan makes of what is stored. Raises Missing, LayoutError or PolicyError."""
    found = await load_layout(connection, organization_id, plan.layout.layout_id, plan.layout.version)
    if found is None:
        raise Missing(f"layout: there is no version {plan.layout.version} of a layout {plan.layout.layout_id}.")
    _, layout = found
    return resolve(plan, layout, await load_policy(connection, organization_id) or NO_POLICY)


async def load_plan(connection: Connection, organization_id: UUID, event_id: UUID) -> EventPlan | None:
    """The plan by which an event was made, or nothing if it was made without a layout."""
    plan = await connection.fetchval(query("load_event_layout"), event_id, organization_id)
    return None if plan is None else _read_plan(plan)


async def remember_plan(connection: Connection, organization_id: UUID, plan: EventPlan) -> None:
    """Note from which layout a saved event is made."""
    document = msgspec.json.encode(plan, order="deterministic").decode()
    await connection.execute(
        query("save_event_layout"),
        plan.event_id,
        organization_id,
        plan.layout.layout_id,
        plan.layout.version,
        document,
    )
