"""Brings a database to the schema of this release: numbered SQL files, each applied once, in its own transaction."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from holdfast.persistence.pool import connect
from holdfast.persistence.sql import query

MIGRATIONS = Path(__file__).resolve().parent / "migrations"

# The bytes of "holdfast". Locks of one number never meet the locks of a class and a number that everything else uses.
LOCK = int.from_bytes(b"holdfast")

# A migration that waits for a table makes everybody behind it wait too, so it gives up before that is noticed.
TABLE_WAIT_MS = 5_000

_FILE_NAME = re.compile(r"^(?P<number>\d{4})_[a-z0-9_]+\.sql$")


class MigrationError(Exception):
    """The database cannot be brought to this release; the text is one sentence for the operator."""


class Migration(msgspec.Struct, frozen=True):
    """One file: its number, its name without the suffix, the digest of its text, and the text."""

    number: int
    name: str
    digest: str
    script: str


class Applied(msgspec.Struct, frozen=True):
    """What a database says about a migration that it has."""

    number: int
    name: str
    digest: str


async def migrate(dsn: str, folder: Path = MIGRATIONS) -> tuple[str, ...]:
    """Apply what the database lacks, and return the names of that.

    Any number of processes may do this at once: one works, the others wait and find nothing left to do. A migration is
    applied whole or not at all, and those before it stay. Raises MigrationError.
    """
    migrations = read_migrations(folder)
    connection = await connect(dsn, name="migrate", statement_timeout_ms=None)
    try:
        # The lock belongs to the session, so it is gone with the connection, however this ends.
        await connection.execute(query("lock_migrations"), LOCK)
        await connection.execute(query("create_schema_migrations"))
        rows = await connection.fetch(query("list_applied_migrations"))
        applied = {row["number"]: Applied(row["number"], row["name"], row["digest"]) for row in rows}
        check(migrations, applied)
        missing = migrations[len(applied) :]
        for migration in missing:
            await _apply(connection, migration)
    finally:
        await connection.close()
    return tuple(migration.name for migration in missing)


def read_migrations(folder: Path = MIGRATIONS) -> tuple[Migration, ...]:
    """The migrations of a folder in order. Raises MigrationError unless they are numbered 1, 2, 3 and so on."""
    found: list[Migration] = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE_NAME.match(path.name)
        if match is None:
            raise MigrationError(f"The migration {path.name} is not named like 0001_name.sql.")
        expected, number = len(found) + 1, int(match["number"])
        if number > expected:
            raise MigrationError(f"The migration {expected:04} is missing: {path.name} comes next.")
        if number < expected:
            raise MigrationError(f"The migrations {found[-1].name} and {path.stem} have the same number.")
        # Read as text, so that line ends that a checkout has changed do not count as a change.
        script = path.read_text(encoding="utf-8")
        found.append(Migration(number, path.stem, sha256(script.encode()).hexdigest(), script))
    return tuple(found)


def check(migrations: Sequence[Migration], applied: Mapping[int, Applied]) -> None:
    """Raise MigrationError unless what is applied is where these migrations begin."""
    newest = max(applied, default=0)
    if newest > len(migrations):
        raise MigrationError(
            f"The database is newer than this release: it has the migration {applied[newest].name}, "
            f"this release ends at {len(migrations):04}."
        )
    for migration in migrations[:newest]:
        has = applied.get(migration.number)
        if has is None:
            raise MigrationError(
                f"The database lacks the migration {migration.name} but has the later {applied[newest].name}."
            )
        if has.digest != migration.digest:
            raise MigrationError(
                f"The migration {migration.name} is not the one that the database has as {has.name}: a file must not "
                f"change once it is applied."
            )


async def _apply(connection: Any, migration: Migration) -> None:
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = {TABLE_WAIT_MS}")
            await connection.execute(migration.script)
            await connection.execute(query("record_migration"), migration.number, migration.name, migration.digest)
    except asyncpg.PostgresError as error:
        raise MigrationError(f"The migration {migration.name} failed and changed nothing: {error}.") from error
