"""Who may book in a zone.

What this depends on is in the token, in the document and in the list of members, never on what else is being booked:
so it is asked before the call, and the call makes sure that the document is still the one that was asked.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from uuid import UUID

import msgspec


class AccessMode(StrEnum):
    PUBLIC = "public"
    MEMBERSHIP_TIER = "membership_tier"
    ROLE_BASED = "role_based"
    WHITELIST = "whitelist"


class Access(msgspec.Struct, frozen=True):
    """The rule of a zone."""

    mode: AccessMode = AccessMode.PUBLIC
    tier: str = ""
    roles: frozenset[str] = frozenset()
    listed: frozenset[UUID] = frozenset()

    @property
    def is_public(self) -> bool:
        return self.mode is AccessMode.PUBLIC


class Person(msgspec.Struct, frozen=True):
    """What is known of somebody who books, or for whom is booked."""

    user_id: UUID
    role: str = ""
    tier: str = ""


def refusal(access: Access, person: Person) -> str | None:
    """Why somebody may not book in a zone, as a sentence, or nothing if they may. Whoever is listed always may."""
    if access.is_public or person.user_id in access.listed:
        return None
    match access.mode:
        case AccessMode.MEMBERSHIP_TIER:
            return None if person.tier == access.tier else f"This zone is for members of {access.tier}."
        case AccessMode.ROLE_BASED:
            roles = ", ".join(sorted(access.roles))
            return None if person.role in access.roles else f"This zone is for: {roles}."
        case _:
            return "This zone is for people who are on its list."


def booking_refusal(
    access: Access, booker: Person, units: int, guests: Sequence[UUID], tiers: Mapping[UUID, str]
) -> str | None:
    """Why a booking of some places in a zone is not permitted, or nothing if it is.

    In a restricted zone every place is for somebody: the booker has one, each guest another, and each of them must be
    entitled. `tiers` has the membership of those guests who have one.
    """
    if access.is_public:
        return None
    if reason := refusal(access, booker):
        return reason
    if units > 1 + len(guests):
        return f"This zone is restricted: name the guests for whom the other {units - 1} places are."
    for guest in guests:
        if refusal(access, Person(guest, tier=tiers.get(guest, ""))):
            return f"The guest {guest} is not entitled to this zone."
    return None
