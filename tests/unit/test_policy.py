"""Policies: what an organisation stores, and what an event may have otherwise."""

import msgspec
import pytest

from holdfast.engine.policy import STORED_DEFAULTS, Policy, PolicyChanges, PolicyError, SeatingPolicy
from holdfast.engine.records import ZoneCounts


def test_a_stored_policy_starts_from_stricter_values_than_an_event_without_one() -> None:
    assert SeatingPolicy().values == STORED_DEFAULTS
    assert (STORED_DEFAULTS.orphan_avoidance_strict, STORED_DEFAULTS.allow_vip_zones) == (True, False)
    assert (Policy().orphan_avoidance_strict, Policy().allow_vip_zones) == (False, True)
    assert (STORED_DEFAULTS.orphan_audit_enabled, Policy().orphan_audit_enabled) == (True, False)


def test_the_defaults_of_the_specification() -> None:
    policy = STORED_DEFAULTS

    assert policy.default_hold_ttl_minutes == 10
    assert policy.companion_release_occupancy_threshold == 85
    assert policy.max_wheelchair_seats_per_booking == 1
    assert policy.max_seats_per_booking == 10
    assert policy.max_group_split == 2
    assert policy.enforce_accessibility_rules
    assert policy.accessibility_audit_enabled
    assert not policy.group_adjacency_strict


def test_an_event_changes_what_is_not_mandatory() -> None:
    stored = SeatingPolicy(Policy(max_seats_per_booking=8), frozenset({"enforce_accessibility_rules"}))

    changed = stored.for_event(PolicyChanges(default_hold_ttl_minutes=5, orphan_avoidance_strict=True))

    assert changed == Policy(max_seats_per_booking=8, default_hold_ttl_minutes=5, orphan_avoidance_strict=True)


def test_a_mandatory_rule_cannot_be_overridden() -> None:
    stored = SeatingPolicy(mandatory=frozenset({"enforce_accessibility_rules"}))

    with pytest.raises(PolicyError, match=r"seating_overrides\.enforce_accessibility_rules: the organisation does not"):
        stored.for_event(PolicyChanges(enforce_accessibility_rules=False))


def test_repeating_a_mandatory_rule_is_no_override() -> None:
    stored = SeatingPolicy(mandatory=frozenset({"enforce_accessibility_rules"}))

    assert stored.for_event(PolicyChanges(enforce_accessibility_rules=True)) == STORED_DEFAULTS


def test_a_rule_that_does_not_exist_cannot_be_mandatory() -> None:
    with pytest.raises(PolicyError, match="mandatory: there is no rule 'be_nice'"):
        SeatingPolicy(mandatory=frozenset({"be_nice"}))


def test_a_change_of_an_unknown_rule_is_refused_with_its_place() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `be_nice`"):
        msgspec.json.decode(b'{"be_nice": true}', type=PolicyChanges)
    with pytest.raises(msgspec.ValidationError, match=r"`\$\.max_group_split`"):
        msgspec.json.decode(b'{"max_group_split": -1}', type=PolicyChanges)


@pytest.mark.parametrize(
    ("taken", "ttl_s"),
    [(0, 600), (50, 600), (51, 591), (75, 360), (90, 216), (99, 130), (100, 120), (120, 120)],
)
def test_a_hold_is_the_shorter_the_fuller_its_zone(taken: int, ttl_s: int) -> None:
    policy = Policy(min_hold_ttl_minutes=2)
    zones = [ZoneCounts(0, 100, 0, taken // 2, taken - taken // 2, 0), ZoneCounts(1, 100, 0, 10, 0, 0)]

    assert policy.hold_ttl_ms(600_000, zones) == ttl_s * 1000


def test_a_hold_is_never_longer_than_asked_for() -> None:
    full = [ZoneCounts(0, 10, 0, 10, 0, 0)]

    assert Policy(min_hold_ttl_minutes=15).hold_ttl_ms(600_000, full) == 600_000
    assert Policy(min_hold_ttl_minutes=2, adaptive_hold_from_percent=100).hold_ttl_ms(600_000, full) == 600_000
    assert Policy().hold_ttl_ms(600_000, full) == 600_000
