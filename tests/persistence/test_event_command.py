"""`holdfast event` and `holdfast migrate` as an operator types them, on real servers."""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest
from redis.asyncio import Redis

from holdfast import demo
from holdfast.engine.backend import EventReading, Holder, HoldReply
from holdfast.engine.layout import (
    CompiledEvent,
    Coordinates,
    EventDocument,
    EventState,
    ZoneDocument,
    ZoneType,
    compile_event,
)
from holdfast.engine.plan import EventPlan, LayoutDocument, LayoutReference
from holdfast.engine.redis_backend import RedisBackend
from holdfast.engine.settings import Settings
from holdfast.engine.shards import FIRST_EPOCH, open_shards
from holdfast.engine.status import Status
from holdfast.engine.wire import Wire
from holdfast.persistence.catalogue import load_event
from holdfast.persistence.layouts import Venue, create_venue, save_layout
from holdfast.persistence.pool import connect
from holdfast.persistence.service import open_servers, put_into_service
from holdfast.persistence.sql import query
from holdfast.ports import LOOPBACK, available_port
from support.commands import complete
from support.database import dsn_of, execute
from support.engine import SHARDS, document
from support.persisting import persisted

ORGANIZATION = uuid4()


class Desk:
    """Both servers, the command on them, and the files it reads."""

    def __init__(self, redis_url: str, postgres_dsn: str, folder: Path) -> None:
        self.redis_url = redis_url
        self.postgres_dsn = postgres_dsn
        self.file = folder / "event.json"
        self.environment = {"HOLDFAST_REDIS_URL": redis_url, "HOLDFAST_POSTGRES_DSN": postgres_dsn}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return complete("event", *arguments, **{**self.environment, **environment})

    def report(self, *arguments: str) -> Any:
        """What a command that succeeds prints as JSON."""
        done = self.run(*arguments, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def complaint(self, *arguments: str, **environment: str) -> str:
        """The sentence of a command that fails."""
        done = self.run(*arguments, **environment)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("holdfast: ")
        assert done.stderr.count("\n") == 1
        return done.stderr.removeprefix("holdfast: ").strip()

    def load(self, doc: EventDocument, *flags: str) -> Any:
        self.write(doc)
        return self.report("load", str(self.file), "--org", str(ORGANIZATION), *flags)

    def write(self, content: EventDocument | bytes) -> None:
        self.file.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))

    def stored(self, event_id: UUID) -> CompiledEvent | None:
        async def load() -> CompiledEvent | None:
            connection = await connect(self.postgres_dsn, name="test")
            try:
                return await load_event(connection, ORGANIZATION, event_id)
            finally:
                await connection.close()

        return asyncio.run(load())

    def reading(self, event_id: UUID, organization_id: UUID = ORGANIZATION) -> EventReading:
        async def read() -> EventReading:
            async with Wire(self.redis_url) as wire:
                backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
                return await backend.read_event(organization_id, event_id, want_map=True)

        return asyncio.run(read())

    def hold(self, doc: EventDocument, seat_id: str) -> HoldReply:
        async def hold() -> HoldReply:
            event = compile_event(ORGANIZATION, doc)
            async with Wire(self.redis_url) as wire:
                backend = RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH)
                return await backend.hold_seats(event, Holder(uuid4(), uuid4()), seats=[event.seats[seat_id]])

        return asyncio.run(hold())

    def sql(self, statement: str) -> Any:
        return asyncio.run(execute(self.postgres_dsn, statement))

    def empty_redis(self, *, shards: int = SHARDS) -> None:
        async def empty() -> None:
            async with Redis.from_url(self.redis_url) as redis:
                await redis.flushall()
                if shards:
                    await open_shards(redis, shards)

        asyncio.run(empty())
        if shards:
            opened = list(range(shards))
            asyncio.run(execute(self.postgres_dsn, query("open_shards"), opened, FIRST_EPOCH))


@pytest.fixture
def alone(redis_url: str, database_dsn: str, tmp_path: Path) -> Iterator[Desk]:
    """A desk with nobody who brings anything to Postgres."""
    desk = Desk(redis_url, database_dsn, tmp_path)
    desk.empty_redis()
    yield desk
    desk.empty_redis(shards=0)


@pytest.fixture
def desk(alone: Desk) -> Iterator[Desk]:
    with persisted(alone.redis_url, alone.postgres_dsn):
        yield alone


def test_load_saves_and_serves_the_event_in_the_state_it_has(desk: Desk) -> None:
    doc = document(state=EventState.DRAFT, blocked_seat_ids=frozenset({"A-2"}))

    report = desk.load(doc)

    event = compile_event(ORGANIZATION, doc)
    assert report == {
        "event_id": str(doc.event_id),
        "organization_id": str(ORGANIZATION),
        "name": "Test night",
        "state": "draft",
        "config_version": event.version,
        "result": "created",
        "confirmed": True,
    }
    assert desk.stored(doc.event_id) == event
    reading = desk.reading(doc.event_id)
    assert (reading.version, reading.state, reading.map) == (event.version, "draft", event.map)


def test_what_is_done_is_in_postgres_too(desk: Desk) -> None:
    doc = document()

    desk.load(doc)
    assert desk.sql("SELECT opened_at IS NOT NULL FROM events")

    desk.report("close", str(doc.event_id))
    assert desk.sql("SELECT count(*) FROM audit_log WHERE action = 'event_changed'") == 1


@pytest.mark.parametrize("action", ["load", "open", "close"])
def test_what_postgres_does_not_confirm_is_said(alone: Desk, action: str) -> None:
    doc = document(state=EventState.DRAFT)
    arguments = ["load", str(alone.file), "--org", str(ORGANIZATION)]
    alone.write(doc)
    if action != "load":
        unasked = alone.report(*arguments, "--wait", "0")
        assert unasked["confirmed"] is False
        arguments = [action, str(doc.event_id)]

    # Also when it is tried again and finds Redis as it should be.
    complaints = [alone.complaint(*arguments, "--wait", "0.5") for _ in range(2)]

    assert all("Postgres did not confirm it within 0.5 seconds" in complaint for complaint in complaints)
    with persisted(alone.redis_url, alone.postgres_dsn):
        assert alone.report(*arguments)["confirmed"] is True


def test_who_does_not_wait_is_told_that_nobody_asked(alone: Desk) -> None:
    alone.write(document())

    done = alone.run("load", str(alone.file), "--wait", "0")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Whether Postgres has that yet was not asked.\n")


def test_load_can_put_on_sale_at_once(desk: Desk) -> None:
    doc = document(state=EventState.DRAFT)

    assert desk.load(doc, "--open")["state"] == "live"

    assert desk.reading(doc.event_id).state == "live"


def test_load_generates_an_arena_of_any_size(desk: Desk) -> None:
    arguments = ("load", "--generate", "arena", "--seats", "1,500", "--org", str(ORGANIZATION), "--open")

    report = desk.report(*arguments)

    assert (report["name"], report["state"], report["result"]) == ("Arena of 1,500 seats", "live", "created")
    reading = desk.reading(UUID(report["event_id"]))
    assert (reading.state, reading.map.count(b".")) == ("live", 1500)
    assert desk.report(*arguments)["event_id"] == report["event_id"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--generate", "arena", "--seats", "0"), "0 is not between 1 and 1,000,000"),
        (("--generate", "arena", "--seats", "many"), "many is not a number of seats"),
        (("--generate", "opera"), "invalid choice: 'opera'"),
        (("event.json", "--generate", "arena"), "not allowed with argument"),
        ((), "one of the arguments FILE --generate is required"),
    ],
)
def test_load_of_what_cannot_be_generated_is_refused_in_a_sentence(
    desk: Desk, arguments: tuple[str, ...], complaint: str
) -> None:
    done = desk.run("load", *arguments)

    assert done.returncode == 2
    assert complaint in done.stderr


def test_seats_without_generate_are_refused(desk: Desk) -> None:
    assert "it goes with --generate" in desk.complaint("load", str(desk.file), "--seats", "10")


def test_load_makes_an_event_from_a_plan_on_a_stored_layout(desk: Desk) -> None:
    venue = Venue(uuid4(), "Hall")
    floor = ZoneDocument("floor", ZoneType.GA_STANDING, "Floor", 30)
    layout_id, plan = uuid4(), LayoutDocument(venue.venue_id, "Standing", (floor,))

    async def store() -> None:
        connection = await connect(desk.postgres_dsn, name="test")
        try:
            await create_venue(connection, ORGANIZATION, venue)
            await save_layout(connection, ORGANIZATION, layout_id, plan)
        finally:
            await connection.close()

    asyncio.run(store())
    event = EventPlan(uuid4(), "Gala", LayoutReference(layout_id, 1), EventState.LIVE)
    desk.write(msgspec.json.encode(event))

    assert desk.report("load", str(desk.file), "--org", str(ORGANIZATION))["result"] == "created"

    assert desk.reading(event.event_id).zones[0].capacity == 30
    assert desk.sql("SELECT layout_version FROM event_layouts") == 1
    complaint = desk.complaint("load", str(desk.file), "--org", str(uuid4()))
    assert "there is no version 1 of a layout" in complaint


def test_load_again_changes_nothing(desk: Desk) -> None:
    doc = document()
    desk.load(doc)
    seq = desk.reading(doc.event_id).position.seq

    assert desk.load(doc)["result"] == "unchanged"

    assert desk.reading(doc.event_id).position.seq == seq


def test_load_of_a_changed_document_changes_both_servers(desk: Desk) -> None:
    doc = document(floor=50)
    desk.load(doc)
    floor = msgspec.structs.replace(doc.zones[1], capacity=70)
    later = msgspec.structs.replace(doc, zones=(doc.zones[0], floor), state=EventState.PUBLISHED)

    assert desk.load(later)["result"] == "changed"

    event = compile_event(ORGANIZATION, later)
    assert desk.stored(doc.event_id) == event
    reading = desk.reading(doc.event_id)
    assert (reading.version, reading.state, reading.zones[1].capacity) == (event.version, "published", 70)


def test_a_change_that_stopped_half_way_is_finished_by_a_repeat(desk: Desk) -> None:
    # Given an event that Postgres has in a newer version than Redis, in which a capacity differs.
    doc = document(floor=50)
    desk.load(doc)
    later = msgspec.structs.replace(doc, zones=(doc.zones[0], msgspec.structs.replace(doc.zones[1], capacity=70)))
    desk.load(later)
    desk.empty_redis()
    asyncio.run(open_in_redis(desk, doc))

    assert desk.load(later)["result"] == "unchanged"

    reading = desk.reading(doc.event_id)
    assert (reading.version, reading.zones[1].capacity) == (compile_event(ORGANIZATION, later).version, 70)


async def open_in_redis(desk: Desk, doc: EventDocument) -> None:
    async with Wire(desk.redis_url) as wire:
        reply = await RedisBackend(wire, shards=SHARDS, epoch=FIRST_EPOCH).open_event(compile_event(ORGANIZATION, doc))
        assert reply.status.succeeded


def test_coordinates_that_postgres_spells_differently_do_not_part_the_servers(desk: Desk) -> None:
    doc = document(rows=1, per_row=1)
    (seat,) = doc.zones[0].seats
    placed = msgspec.structs.replace(
        doc.zones[0], seats=(msgspec.structs.replace(seat, coordinates=Coordinates(-0.0, 1.0)),)
    )
    doc = msgspec.structs.replace(doc, zones=(placed, doc.zones[1]))

    desk.load(doc)

    stored = desk.stored(doc.event_id)
    assert stored is not None
    assert desk.reading(doc.event_id).version == stored.version


def test_load_keeps_to_the_organisation_and_else_takes_the_demo_one(desk: Desk) -> None:
    ours, new = document(), document()
    desk.load(ours)

    desk.write(ours)
    assert desk.report("load", str(desk.file))["organization_id"] == str(ORGANIZATION)
    desk.write(new)
    assert desk.report("load", str(desk.file))["organization_id"] == str(demo.ORGANIZATION_ID)


def test_close_and_open_change_both_servers(desk: Desk) -> None:
    doc = document()
    desk.load(doc)

    assert desk.report("close", str(doc.event_id))["state"] == "closed"

    closed = desk.stored(doc.event_id)
    assert closed is not None
    assert closed.document.state is EventState.CLOSED
    assert desk.reading(doc.event_id).version == closed.version
    assert desk.hold(closed.document, "A-1").status is Status.EVENT_NOT_AVAILABLE

    assert desk.report("open", str(doc.event_id))["state"] == "live"

    assert desk.hold(doc, "A-1").status is Status.DONE


def test_closing_an_event_that_redis_lacks_does_not_bring_it_there(desk: Desk) -> None:
    doc = document()
    desk.load(doc)
    desk.empty_redis()

    assert desk.report("close", str(doc.event_id))["state"] == "closed"

    assert desk.reading(doc.event_id).status is Status.EVENT_NOT_FOUND


@pytest.mark.parametrize("action", ["open", "close"])
def test_an_event_that_is_over_stays_so(desk: Desk, action: str) -> None:
    doc = document(state=EventState.CANCELLED)
    desk.load(doc)

    assert desk.complaint(action, str(doc.event_id)) == f"The event {doc.event_id} is cancelled and stays so."


def test_an_event_with_sold_seats_is_not_opened_as_if_it_were_new(desk: Desk) -> None:
    doc = document()
    desk.load(doc)
    desk.empty_redis()
    desk.sql("UPDATE seats SET status = 'sold' WHERE ordinal = 0")

    assert "has to be rebuilt" in desk.complaint("open", str(doc.event_id))
    assert "has to be rebuilt" in desk.complaint("load", str(desk.file))

    assert desk.reading(doc.event_id).status is Status.EVENT_NOT_FOUND


def test_show_counts_what_redis_has(desk: Desk) -> None:
    doc = document(rows=1, per_row=3, blocked_seat_ids=frozenset({"A-1"}))
    desk.load(doc)
    assert desk.hold(doc, "A-3").status is Status.DONE

    report = desk.report("show", str(doc.event_id))

    assert report["counted_in"] == "redis"
    assert report["zones"] == [
        {"zone_id": "orchestra", "name": "Orchestra", "capacity": 3, "free": 1, "held": 1, "sold": 0, "blocked": 1},
        {"zone_id": "floor", "name": "Floor", "capacity": 50, "free": 50, "held": 0, "sold": 0, "blocked": 0},
    ]
    text = desk.run("show", str(doc.event_id)).stdout.splitlines()
    assert text[0] == f"Test night ({doc.event_id}) is live."
    assert text[1].split() == ["zone", "capacity", "free", "held", "sold", "blocked"]
    assert text[2].split() == ["Orchestra", "3", "1", "1", "0", "1"]
    assert text[-1] == "Counted in Redis."


def test_show_counts_what_postgres_has_if_redis_lacks_the_event(desk: Desk) -> None:
    doc = document()
    desk.load(doc)
    desk.empty_redis()
    desk.sql("UPDATE zones SET sold = 5 WHERE zone = 1")

    report = desk.report("show", str(doc.event_id))

    assert (report["counted_in"], report["zones"][1]["sold"]) == ("postgres", 5)


@pytest.mark.parametrize("action", ["open", "close", "show"])
def test_an_unknown_event_is_one_sentence(desk: Desk, action: str) -> None:
    unknown = uuid4()
    assert desk.complaint(action, str(unknown)) == f"There is no event {unknown}."


def test_an_event_of_another_organisation_is_unknown(desk: Desk) -> None:
    doc = document()
    desk.load(doc)

    assert desk.complaint("show", str(doc.event_id), "--org", str(uuid4())) == f"There is no event {doc.event_id}."


def test_a_missing_file_is_one_sentence(desk: Desk) -> None:
    assert desk.complaint("load", str(desk.file)) == f"{desk.file} cannot be read: No such file or directory."


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "is not JSON: Input data was truncated."),
        (b'{"name": "\xff"}', "is not JSON: "),
        (b"[]", "is not an event: Expected `object`, got `array`."),
        (b"{}", "is not an event: Object missing required field `event_id`."),
    ],
)
def test_a_file_that_is_no_event_is_one_sentence(desk: Desk, content: bytes, complaint: str) -> None:
    desk.write(content)

    assert desk.complaint("load", str(desk.file)).startswith(f"{desk.file} {complaint}")


def test_a_fault_in_a_document_is_named_by_its_place(desk: Desk) -> None:
    plain = json.loads(msgspec.json.encode(document()))
    plain["zones"][0]["seats"][1]["number"] = "two"
    desk.write(json.dumps(plain).encode())

    assert desk.complaint("load", str(desk.file)).endswith("got `str` - at `$.zones[0].seats[1].number`.")


WHEELCHAIR = {"category": "wheelchair", "companion_seat_ids": ["Z-9"]}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"zones[0].seats[1].seat_id": "A-1"}, "zones[0].seats[1].seat_id"),
        ({"zones[0].seats[1].number": 1}, "zones[0].seats[1].number"),
        ({"zones[0].seats[1].coordinates": {"x": 0, "y": 0}}, "zones[0].seats[1].coordinates"),
        ({f"zones[0].seats[0].{name}": value for name, value in WHEELCHAIR.items()}, "zones[0].seats[0].companion_"),
        ({"zones[0].capacity": 4}, "zones[0].capacity"),
        ({"zones[0].access_mode": "membership_tier"}, "zones[0].membership_tier"),
        ({"zones[0].access_mode": "role_based", "zones[0].allowed_roles": []}, "zones[0].allowed_roles"),
        ({"zones[0].zone_type": "balcony"}, "$.zones[0].zone_type"),
        ({"zones[1].zone_id": "orchestra"}, "zones[1].zone_id"),
        ({"blocked_seat_ids": ["Z-9"]}, "blocked_seat_ids"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_document_is_refused_with_its_place_and_nothing_is_stored(
    desk: Desk, changes: dict[str, Any], place: str
) -> None:
    plain = json.loads(msgspec.json.encode(document(rows=1, per_row=3)))
    plain["zones"][0]["seats"][0]["coordinates"] = {"x": 0, "y": 0}
    for path, value in changes.items():
        *steps, name = re.findall(r"\w+", path)
        target = plain
        for step in steps:
            target = target[int(step) if step.isdecimal() else step]
        target[name] = value
    desk.write(json.dumps(plain).encode())

    assert place in desk.complaint("load", str(desk.file), "--open")

    assert desk.sql("SELECT count(*) FROM events") == 0
    assert desk.reading(UUID(plain["event_id"])).status is Status.EVENT_NOT_FOUND


def test_a_document_that_contradicts_itself_is_one_sentence(desk: Desk) -> None:
    desk.write(document(rows=1, per_row=1, capacity=2))

    fault = "zones[0].capacity: 2 is more than its 1 seats"
    assert desk.complaint("load", str(desk.file)) == f"{desk.file} is not an event: {fault}."


def test_servers_that_do_not_answer_are_one_sentence(desk: Desk) -> None:
    nobody = f"{LOOPBACK}:{available_port(LOOPBACK)}"

    doc = document()
    desk.load(doc)
    redis = desk.complaint("show", str(doc.event_id), HOLDFAST_REDIS_URL=f"redis://{nobody}")
    postgres = desk.complaint("show", str(uuid4()), HOLDFAST_POSTGRES_DSN=f"postgresql://{nobody}/x")

    assert redis.startswith("The server named in HOLDFAST_REDIS_URL cannot be used: ")
    assert postgres.startswith("The server named in HOLDFAST_POSTGRES_DSN cannot be used: ")


def test_servers_that_were_never_set_up_are_one_sentence(desk: Desk) -> None:
    desk.sql("DELETE FROM control")

    assert desk.complaint("show", str(uuid4())).startswith("No shards are in service yet")


def test_a_database_without_a_schema_is_one_sentence(desk: Desk, postgres_dsn: str) -> None:
    empty = dsn_of(postgres_dsn, "template1")

    complaint = desk.complaint("show", str(uuid4()), HOLDFAST_POSTGRES_DSN=empty)

    assert complaint == "The database has no Holdfast schema yet: run `holdfast migrate`."


@pytest.mark.parametrize("action", ["load", "open", "close", "move", "show"])
def test_every_action_explains_itself_with_an_example(action: str) -> None:
    done = complete("event", action, "--help")

    assert done.returncode == 0
    assert f"example: holdfast event {action} " in " ".join(done.stdout.split())


def test_migrate_says_what_it_did(database_dsn: str, postgres_dsn: str) -> None:
    name = f"fresh_{uuid4().hex}"
    asyncio.run(execute(postgres_dsn, f"CREATE DATABASE {name}"))
    fresh = dsn_of(postgres_dsn, name)
    try:
        first = complete("migrate", HOLDFAST_POSTGRES_DSN=fresh)
        assert (first.returncode, first.stderr) == (0, "")
        assert first.stdout.startswith("Applied 0001_schema")
    finally:
        asyncio.run(execute(postgres_dsn, f"DROP DATABASE {name} WITH (FORCE)"))

    assert complete("migrate", HOLDFAST_POSTGRES_DSN=database_dsn).stdout == "The database is up to date.\n"
    assert complete("migrate", "--json", HOLDFAST_POSTGRES_DSN=database_dsn).stdout == '{"applied":[]}\n'


def test_a_refusal_to_migrate_is_one_sentence(database_dsn: str) -> None:
    asyncio.run(execute(database_dsn, "UPDATE schema_migrations SET digest = 'other' WHERE number = 1"))

    done = complete("migrate", HOLDFAST_POSTGRES_DSN=database_dsn)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("holdfast: The migration 0001_schema is not the one that the database has")
    assert done.stderr.count("\n") == 1


async def test_the_demo_event_is_saved_and_stays_as_its_owner_changed_it(redis_url: str, database_dsn: str) -> None:
    settings = Settings(redis_url=redis_url, postgres_dsn=database_dsn, shards=SHARDS)
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
    async with open_servers(settings, "test") as servers:
        assert len(await put_into_service(servers, "test")) == SHARDS
        assert await put_into_service(servers, "test") == []
    ids = await demo.load_demo(settings)
    connection: asyncpg.Connection = await connect(database_dsn, name="test")
    try:
        assert await connection.fetchval("SELECT count(*) FROM seats") == 250
        closed = await asyncio.to_thread(
            complete,
            "event",
            "close",
            str(ids.event_id),
            "--wait",
            "0",
            HOLDFAST_REDIS_URL=redis_url,
            HOLDFAST_POSTGRES_DSN=database_dsn,
        )
        assert closed.returncode == 0, closed.stderr

        assert await demo.load_demo(settings) == ids

        assert await connection.fetchval("SELECT state FROM events") == "closed"
    finally:
        await connection.close()
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
