"""Events that are made from a stored layout, and moved to another version of it."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from holdfast.engine.layout import CompiledEvent, ZoneDocument
from holdfast.engine.plan import EventPlan, LayoutDocument, LayoutOverrides, LayoutReference
from holdfast.persistence.catalogue import load_event
from holdfast.persistence.layout_moves import LayoutMove, move_event
from holdfast.persistence.layouts import Venue, create_venue, remember_plan, save_layout
from holdfast.persistence.transitions import Cause
from support.fallback import Fallback

CAUSE = Cause("the hall was rebuilt", "a test")
LAYOUT = uuid4()
VENUE = Venue(uuid4(), "Hall")


async def save_version(shards: Fallback, zones: Sequence[ZoneDocument]) -> int:
    """Store zones as the layout's next version."""
    organization = shards.event.organization_id
    async with shards.servers.pool.acquire() as connection:
        await create_venue(connection, organization, VENUE)
        return await save_layout(connection, organization, LAYOUT, LayoutDocument(VENUE.venue_id, "Hall", tuple(zones)))


async def plan(shards: Fallback, **overrides: Any) -> None:
    """Make the event one of the first version of a layout that has its zones."""
    event = shards.event
    assert await save_version(shards, event.document.zones) == 1
    made = EventPlan(event.event_id, "Test night", LayoutReference(LAYOUT, 1), overrides=LayoutOverrides(**overrides))
    async with shards.servers.pool.acquire() as connection:
        await remember_plan(connection, event.organization_id, made)


async def move(shards: Fallback, version: int = 2, *, dry_run: bool = False, **renamed: str) -> LayoutMove:
    names = {old.replace("_", "-"): new for old, new in renamed.items()}
    return await move_event(shards.servers, shards.event.event_id, version, renamed=names, cause=CAUSE, dry_run=dry_run)


async def now(shards: Fallback) -> CompiledEvent:
    async with shards.servers.pool.acquire() as connection:
        event = await load_event(connection, shards.event.organization_id, shards.event.event_id)
    assert event is not None
    return event
