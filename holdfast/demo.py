"""The demo event that `holdfast up` loads: a festival with seats, a floor, a pit and a members' lounge."""

import uuid

import msgspec

from holdfast.engine.access import AccessMode
from holdfast.engine.layout import EventDocument, EventState, SeatDocument, ZoneDocument, ZoneType
from holdfast.engine.settings import Settings
from holdfast.events import open_desk

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://holdfast.invalid/demo")

# Derived, so that they are the same in every data directory and after every restart.
ORGANIZATION_ID = uuid.uuid5(_NAMESPACE, "organization")
EVENT_ID = uuid.uuid5(_NAMESPACE, "event")

# The tier whose members may book in the lounge.
MEMBERS = "voelgoed_vriendinne"


class DemoIds(msgspec.Struct, frozen=True):
    """What a client has to know to use the demo event."""

    organization_id: uuid.UUID
    event_id: uuid.UUID


def user_id(role: str) -> uuid.UUID:
    """The demo user who has this role."""
    return uuid.uuid5(_NAMESPACE, f"user/{role}")


async def load_demo(settings: Settings, *, confirm_s: float = 0.0) -> DemoIds:
    """Make sure the demo event is saved and in service, in Postgres too where `confirm_s` is given. Safe to repeat.

    An event that was changed since it was first loaded stays as it is, which is its owner's business.
    """
    async with open_desk(settings, confirm_s=confirm_s) as desk:
        known = await desk.owner(EVENT_ID)
        document = (await desk.find(EVENT_ID, ORGANIZATION_ID)).document if known else festival()
        await desk.load(ORGANIZATION_ID, document)
    return DemoIds(organization_id=ORGANIZATION_ID, event_id=EVENT_ID)


def festival() -> EventDocument:
    """Orchestra and lounge have seats, floor and pit have places: 950 in all. The lounge is for members."""
    lounge = _seated("VIP Lounge", ZoneType.VIP_RESERVED, rows=5, seats_per_row=10)
    zones = (
        _seated("Orchestra", ZoneType.RESERVED_SEATING, rows=10, seats_per_row=20),
        ZoneDocument(_id("zone/Floor"), ZoneType.GA_SEATED, "Floor", 300),
        ZoneDocument(_id("zone/Pit"), ZoneType.GA_STANDING, "Pit", 400),
        msgspec.structs.replace(lounge, access_mode=AccessMode.MEMBERSHIP_TIER, membership_tier=MEMBERS),
    )
    return EventDocument(event_id=EVENT_ID, name="Holdfast Festival", zones=zones, state=EventState.LIVE)


def _seated(name: str, zone_type: ZoneType, *, rows: int, seats_per_row: int) -> ZoneDocument:
    seats = tuple(
        SeatDocument(_id(f"seat/{name}/{row}/{number}"), row, number)
        for row in map(chr, range(ord("A"), ord("A") + rows))
        for number in range(1, seats_per_row + 1)
    )
    return ZoneDocument(_id(f"zone/{name}"), zone_type, name, len(seats), seats)


def _id(name: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, name))
