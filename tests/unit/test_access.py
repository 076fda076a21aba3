"""Who may book in a zone."""

from uuid import UUID

import pytest

from holdfast.engine.access import Access, AccessMode, Person, booking_refusal, refusal

ANNA, BERTA, CLARA = (UUID(int=number) for number in (1, 2, 3))
VRIENDINNE = "voelgoed_vriendinne"

MEMBERS = Access(AccessMode.MEMBERSHIP_TIER, tier=VRIENDINNE)
CREW = Access(AccessMode.ROLE_BASED, roles=frozenset({"organizer", "admin"}))
LISTED = Access(AccessMode.WHITELIST, listed=frozenset({ANNA}))


@pytest.mark.parametrize(
    ("access", "person"),
    [
        (Access(), Person(ANNA)),
        (MEMBERS, Person(ANNA, tier=VRIENDINNE)),
        (CREW, Person(ANNA, role="organizer")),
        (LISTED, Person(ANNA)),
        (Access(AccessMode.MEMBERSHIP_TIER, tier=VRIENDINNE, listed=frozenset({ANNA})), Person(ANNA)),
    ],
    ids=["public", "member", "role", "whitelist", "listed guest of the members' zone"],
)
def test_who_is_entitled_may_book(access: Access, person: Person) -> None:
    assert refusal(access, person) is None


@pytest.mark.parametrize(
    ("access", "person", "reason"),
    [
        (MEMBERS, Person(ANNA), "for members of voelgoed_vriendinne"),
        (MEMBERS, Person(ANNA, tier="gold"), "for members of voelgoed_vriendinne"),
        (CREW, Person(ANNA, role="customer"), "for: admin, organizer"),
        (LISTED, Person(BERTA, role="admin", tier=VRIENDINNE), "on its list"),
    ],
)
def test_who_is_not_entitled_is_told_why(access: Access, person: Person, reason: str) -> None:
    assert reason in str(refusal(access, person))


def test_a_vriendinne_books_for_friends_who_are_members() -> None:
    booker = Person(ANNA, tier=VRIENDINNE)
    tiers = {BERTA: VRIENDINNE, CLARA: VRIENDINNE}

    assert booking_refusal(MEMBERS, booker, 3, [BERTA, CLARA], tiers) is None


def test_a_vriendinne_books_for_a_friend_who_is_listed() -> None:
    access = Access(AccessMode.MEMBERSHIP_TIER, tier=VRIENDINNE, listed=frozenset({BERTA}))

    assert booking_refusal(access, Person(ANNA, tier=VRIENDINNE), 2, [BERTA], {}) is None


def test_a_friend_who_is_neither_member_nor_listed_is_refused() -> None:
    refused = booking_refusal(MEMBERS, Person(ANNA, tier=VRIENDINNE), 3, [BERTA, CLARA], {BERTA: VRIENDINNE})

    assert refused == f"The guest {CLARA} is not entitled to this zone."


def test_every_place_in_a_restricted_zone_is_for_somebody() -> None:
    refused = booking_refusal(MEMBERS, Person(ANNA, tier=VRIENDINNE), 3, [], {})

    assert refused == "This zone is restricted: name the guests for whom the other 2 places are."


def test_a_public_zone_asks_nothing() -> None:
    assert booking_refusal(Access(), Person(ANNA), 10, [], {}) is None
