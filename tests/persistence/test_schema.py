"""The schema as it is, written down; and what its constraints mean."""

import difflib
import os
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from holdfast.engine.status import Status
from holdfast.persistence.errors import OUTCOMES, outcome_of
from support.database import execute

SNAPSHOT = Path(__file__).with_name("schema.txt")
UPDATE = "HOLDFAST_UPDATE_SNAPSHOTS"

# One line for each thing. Names that Postgres shows with the schema in front lose it, as they would in a query.
DESCRIPTION = """
    SELECT format('table %s%s', c.relname, CASE WHEN c.relrowsecurity THEN ', row-level security' END)
    FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
    UNION ALL
    SELECT format('table %s column %s %s%s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attnotnull THEN ' not null' END,
        CASE WHEN a.attidentity <> '' THEN ' identity' END,
        ' default ' || pg_get_expr(d.adbin, d.adrelid))
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
        AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT format('table %s constraint %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND contype <> 'n'
    UNION ALL
    SELECT format('table %s index %s', tablename, indexdef) FROM pg_indexes WHERE schemaname = current_schema()
    UNION ALL
    SELECT format('table %s policy %s for %s to %s using %s%s', tablename, policyname, cmd, roles, qual,
        ' with check ' || with_check)
    FROM pg_policies WHERE schemaname = current_schema()
    UNION ALL
    SELECT format('table %s grants %s to %s', table_name, string_agg(privilege_type, ', ' ORDER BY privilege_type),
        grantee)
    FROM information_schema.role_table_grants
    WHERE table_schema = current_schema() AND grantee <> current_user
    GROUP BY table_name, grantee
    UNION ALL
    SELECT format('sequence %s', sequencename) FROM pg_sequences WHERE schemaname = current_schema()
    UNION ALL
    SELECT format('trigger %s', pg_get_triggerdef(t.oid)) FROM pg_trigger t WHERE NOT tgisinternal
    UNION ALL
    SELECT format('function %s returns %s: %s', p.oid::regprocedure, pg_get_function_result(p.oid),
        regexp_replace(trim(p.prosrc), '\\s+', ' ', 'g'))
    FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
"""


async def test_the_schema_is_the_one_that_is_written_down(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    try:
        rows = await connection.fetch(DESCRIPTION)
    finally:
        await connection.close()
    actual = "".join(f"{line}\n" for line in sorted(row[0].replace("public.", "") for row in rows))
    if os.environ.get(UPDATE):
        SNAPSHOT.write_text(actual)

    diff = difflib.unified_diff(
        SNAPSHOT.read_text().splitlines(), actual.splitlines(), SNAPSHOT.name, "the migrated database", n=0, lineterm=""
    )
    changes = "\n".join(diff)
    if changes:
        pytest.fail(
            f"{changes}\n\nIf this is what the migrations are meant to do, write it down with\n"
            f"  {UPDATE}=1 python -m pytest tests/persistence/test_schema.py",
            pytrace=False,
        )


async def test_every_constraint_that_means_something_exists(database_dsn: str) -> None:
    found = await execute(
        database_dsn,
        """
        SELECT array_agg(name) FROM (
            SELECT conname AS name FROM pg_constraint
            UNION SELECT indexrelid::regclass::text FROM pg_index WHERE indisunique
        ) t
        """,
    )

    assert OUTCOMES.keys() - set(found) == set()


HOLD = """
    INSERT INTO seat_holds (hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, held_until,
        ttl_ms, created_at, updated_at, epoch, seq)
    VALUES ($1, 0, $2, $2, $2, 0, $3, 1, now(), 1, now(), now(), 1, 1)
"""
TICKET = """
    INSERT INTO tickets (id, organization_id, event_id, zone, ordinal, hold_id, sale_id, user_id, created_at)
    VALUES (gen_random_uuid(), $1, $1, 0, 5, $1, '', $1, now())
"""


async def test_the_second_hold_of_a_seat_is_the_refusal_it_should_be(database_dsn: str) -> None:
    event = uuid4()
    await execute(database_dsn, HOLD, uuid4(), event, 5)

    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await execute(database_dsn, HOLD, uuid4(), event, 5)

    assert outcome_of(caught.value) is Status.SEAT_HELD_BY_ANOTHER_USER


async def test_the_second_use_of_a_hold_id_is_the_refusal_it_should_be(database_dsn: str) -> None:
    hold, event = uuid4(), uuid4()
    await execute(database_dsn, HOLD, hold, event, 5)

    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await execute(database_dsn, HOLD, hold, event, 6)

    assert outcome_of(caught.value) is Status.HOLD_ID_REUSED


async def test_the_second_ticket_of_a_seat_is_the_refusal_it_should_be(database_dsn: str) -> None:
    event = uuid4()
    await execute(database_dsn, TICKET, event)

    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await execute(database_dsn, TICKET, event)

    assert outcome_of(caught.value) is Status.SEAT_NOT_AVAILABLE


async def test_an_error_that_is_no_outcome_is_none(database_dsn: str) -> None:
    with pytest.raises(asyncpg.DivisionByZeroError) as caught:
        await execute(database_dsn, "SELECT 1 / 0")

    assert outcome_of(caught.value) is None
