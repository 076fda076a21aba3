"""Row-level security: what a session sees that serves one organisation, and one that serves none."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.engine.layout import compile_event
from holdfast.persistence.catalogue import list_events, load_event, save_event
from holdfast.persistence.pool import Pool, as_organization, open_pool
from support.database import execute
from support.engine import SHARDS, document

# Every table with rows of organisations, and what gives one a row unless an event does: $1 organisation, $2 event.
ROWS = {
    "organizations": None,
    "events": None,
    "zones": None,
    "seats": None,
    "seat_holds": """
        INSERT INTO seat_holds (hold_id, line, organization_id, event_id, user_id, zone, quantity, held_until, ttl_ms,
            created_at, updated_at, epoch, seq)
        VALUES (gen_random_uuid(), 0, $1, $2, $1, 1, 1, now(), 1, now(), now(), 1, 1)
    """,
    "checkouts": """
        INSERT INTO checkouts (id, organization_id, event_id, user_id, created_at, updated_at)
        VALUES ('c', $1, $2, $1, now(), now())
    """,
    "tickets": """
        INSERT INTO tickets (id, organization_id, event_id, zone, hold_id, sale_id, user_id, created_at)
        VALUES (gen_random_uuid(), $1, $2, 1, $1, '', $1, now())
    """,
    "audit_log": """
        INSERT INTO audit_log (organization_id, event_id, action, entity_type, entity_id, changes, created_at)
        VALUES ($1, $2, 'seat_reserved', 'SeatHold', '', '{}', now())
    """,
    "outbox": "INSERT INTO outbox (organization_id, event_id, kind, payload) VALUES ($1, $2, 'SeatSold', '{}')",
    "occupancy_snapshots": """
        INSERT INTO occupancy_snapshots (event_id, taken_at, organization_id, capacity, held, sold, blocked)
        VALUES ($2, now(), $1, 1, 0, 0, 0)
    """,
    "kept_answers": """
        INSERT INTO kept_answers (organization_id, user_id, path, key, fingerprint, claim)
        VALUES ($1, $2, '/', 'k', '', gen_random_uuid())
    """,
    "rejections": """
        INSERT INTO rejections (shard, epoch, seq, organization_id, event_id, hold_id, operation, reason)
        VALUES (0, 1, (SELECT count(*) FROM rejections), $1, $2, gen_random_uuid(), 'hold', '')
    """,
    "venues": "INSERT INTO venues (id, organization_id, name) SELECT $1, $1, 'Hall' WHERE $2::uuid IS NOT NULL",
    "layouts": """
        INSERT INTO layouts (id, version, organization_id, venue_id, name, total_capacity, document)
        SELECT $1, 1, $1, $1, 'Main Hall', 1, '{}' WHERE $2::uuid IS NOT NULL
    """,
    "event_layouts": """
        INSERT INTO event_layouts (event_id, organization_id, layout_id, layout_version, plan)
        VALUES ($2, $1, $1, 1, '{}')
    """,
    "seating_policies": """
        INSERT INTO seating_policies (organization_id, document) SELECT $1, '{}' WHERE $2::uuid IS NOT NULL
    """,
    "memberships": "INSERT INTO memberships (organization_id, user_id, tier) VALUES ($1, $2, 'gold')",
}


class Tenants:
    """Two organisations with a row in every table."""

    def __init__(self, dsn: str, pool: Pool) -> None:
        self.dsn = dsn
        self.pool = pool
        self.ours, self.theirs = uuid4(), uuid4()
        self.events: dict[UUID, UUID] = {}

    async def fill(self) -> None:
        async with self.pool.acquire() as connection:
            for organization in (self.ours, self.theirs):
                event = compile_event(organization, document(rows=1, per_row=2))
                await save_event(connection, event, SHARDS)
                self.events[organization] = event.event_id
                for statement in filter(None, ROWS.values()):
                    await connection.execute(statement, organization, event.event_id)


@pytest.fixture
async def tenants(database_dsn: str) -> AsyncIterator[Tenants]:
    async with open_pool(database_dsn, name="test") as pool:
        tenants = Tenants(database_dsn, pool)
        await tenants.fill()
        yield tenants


async def test_an_organisation_sees_its_own_rows_and_no_others(tenants: Tenants) -> None:
    for table in ROWS:
        column = "id" if table == "organizations" else "organization_id"
        both = await execute(tenants.dsn, f"SELECT count(DISTINCT {column}) FROM {table}")  # noqa: S608
        assert both == 2, f"{table} has no rows to hide"
        for organization in (tenants.ours, tenants.theirs):
            async with as_organization(tenants.pool, organization) as connection:
                seen = await connection.fetch(f"SELECT DISTINCT {column} FROM {table}")  # noqa: S608
            assert [row[0] for row in seen] == [organization], table


async def test_a_session_that_named_no_organisation_sees_nothing(tenants: Tenants) -> None:
    async with tenants.pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL ROLE holdfast_tenant")
        for table in ROWS:
            seen = await connection.fetchval(f"SELECT count(*) FROM {table}")  # noqa: S608
            assert seen == 0, table


async def test_every_table_with_an_organisation_is_guarded_and_known_here(database_dsn: str) -> None:
    guarded = await execute(
        database_dsn,
        "SELECT array_agg(relname::text) FROM pg_class "
        "WHERE relrowsecurity AND relnamespace = current_schema()::regnamespace",
    )
    tenant = await execute(
        database_dsn,
        "SELECT array_agg(table_name::text) FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND column_name = 'organization_id'",
    )

    assert set(guarded) == set(ROWS)
    assert set(tenant) <= set(guarded)


async def test_a_tenant_cannot_write_or_read_what_is_nobodys(tenants: Tenants) -> None:
    for statement in ("DELETE FROM seats", "UPDATE zones SET capacity = 1", "SELECT * FROM control"):
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)):
            async with as_organization(tenants.pool, tenants.ours) as connection:
                await connection.execute(statement)


async def test_a_connection_is_itself_again_afterwards(tenants: Tenants) -> None:
    async with open_pool(tenants.dsn, name="test", max_size=1) as pool:
        with pytest.raises(RuntimeError, match="the reader fails"):
            async with as_organization(pool, tenants.ours):
                raise RuntimeError("the reader fails")

        assert await pool.fetchval("SELECT count(*) FROM events") == 2
        assert await pool.fetchval("SELECT current_user = session_user")
        assert await pool.fetchval("SELECT current_organization()") is None


async def test_the_catalogue_can_be_read_as_an_organisation(tenants: Tenants) -> None:
    async with as_organization(tenants.pool, tenants.ours) as connection:
        own = await load_event(connection, tenants.ours, tenants.events[tenants.ours])
        assert own is not None
        assert [event.event_id for event in await list_events(connection, None)] == [tenants.events[tenants.ours]]
        # Even a caller that mixes up the organisations gets nothing.
        assert await load_event(connection, tenants.theirs, tenants.events[tenants.theirs]) is None
