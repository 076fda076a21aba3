"""Names of keys. Data on real servers lives under them, so what they are today they must stay."""

from collections import Counter
from uuid import UUID, uuid4

import pytest
from redis.crc import key_slot

from holdfast.engine.keys import EVENT_KEYS, SHARD_COUNT, SHARD_KEYS, EventKeys, ShardKeys, shard_of
from holdfast.lua import scripts

ORGANIZATION = UUID("11111111-1111-4111-8111-111111111111")
EVENT = UUID("22222222-2222-4222-8222-222222222222")
KEYS = EventKeys(ShardKeys(3, 7), ORGANIZATION, EVENT)


def test_a_shard_key_names_shard_and_epoch() -> None:
    assert ShardKeys(3, 7).key("log") == b"hf:{s3}:e7:log"
    assert SHARD_COUNT == b"hf:shards"


def test_an_event_key_names_organisation_and_event_too() -> None:
    assert KEYS.key("map") == (
        b"hf:{s3}:e7:org:11111111-1111-4111-8111-111111111111:event:22222222-2222-4222-8222-222222222222:map"
    )


@pytest.mark.parametrize("what", sorted(SHARD_KEYS))
def test_keys_of_the_shard_are_shared_by_its_events(what: str) -> None:
    assert KEYS.key(what) == KEYS.shard.key(what)


@pytest.mark.parametrize("what", ["", "maps", "counts:1"])
def test_an_unknown_key_is_refused(what: str) -> None:
    with pytest.raises(KeyError):
        KEYS.key(what)


def test_all_keys_of_a_call_live_in_one_slot_of_a_cluster() -> None:
    slots = {key_slot(KEYS.key(what)) for what in SHARD_KEYS | EVENT_KEYS}

    assert slots == {key_slot(b"s3")}


def test_no_two_keys_have_the_same_name() -> None:
    others = [
        EventKeys(ShardKeys(3, 8), ORGANIZATION, EVENT),
        EventKeys(ShardKeys(3, 7), EVENT, ORGANIZATION),
        EventKeys(ShardKeys(3, 7), ORGANIZATION, ORGANIZATION),
    ]
    names = [keys.key(what) for keys in (KEYS, *others) for what in EVENT_KEYS]

    assert len(set(names)) == len(names)


def test_every_key_a_script_declares_has_a_name() -> None:
    declared = {key.name for script in scripts().values() for key in script.keys}

    assert declared <= SHARD_KEYS | EVENT_KEYS
    assert declared >= EVENT_KEYS


def test_the_scope_is_organisation_then_event() -> None:
    assert KEYS.scope == ORGANIZATION.bytes + EVENT.bytes


@pytest.mark.parametrize(
    ("event_id", "of_4", "of_16", "of_1000"),
    [
        ("00000000-0000-0000-0000-000000000000", 2, 14, 166),
        ("22222222-2222-4222-8222-222222222222", 0, 4, 476),
        ("0191e3b2-6f1c-7cc3-98c4-dc0c0c07398f", 1, 13, 669),
    ],
)
def test_the_shard_of_an_event_never_changes(event_id: str, of_4: int, of_16: int, of_1000: int) -> None:
    """Another value would look for the events of a running deployment in the wrong place."""
    event = UUID(event_id)

    assert (shard_of(event, 4), shard_of(event, 16), shard_of(event, 1000)) == (of_4, of_16, of_1000)


def test_events_spread_over_the_shards() -> None:
    found = Counter(shard_of(uuid4(), 16) for _ in range(4000))

    assert found.keys() == set(range(16))
    # Chance puts the fullest of 16 shards at some 300 of 4,000; a constant bit in the hash would double it.
    assert max(found.values()) < 400
