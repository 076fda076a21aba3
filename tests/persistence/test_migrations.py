"""Migrating: from nothing, again, at the same time, and when files and database disagree."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from holdfast.embedded import start_postgres
from holdfast.persistence.migrate import MIGRATIONS, MigrationError, migrate, read_migrations
from support.database import FORGETFUL_POSTGRES, dsn_of, execute

NAMES = tuple(migration.name for migration in read_migrations())


@pytest.fixture
def empty_dsn(postgres_dsn: str) -> Iterator[str]:
    """A database with nothing in it."""
    name = f"empty_{uuid4().hex}"
    asyncio.run(execute(postgres_dsn, f"CREATE DATABASE {name}"))
    yield dsn_of(postgres_dsn, name)
    asyncio.run(execute(postgres_dsn, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def own_dsns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two databases of a cluster of their own, in which nobody has made the role that databases share."""
    server = start_postgres(tmp_path_factory.mktemp("cluster") / "postgres", options=FORGETFUL_POSTGRES)
    try:
        for name in ("one", "two"):
            asyncio.run(execute(server.url, f"CREATE DATABASE {name}"))
        yield dsn_of(server.url, "one"), dsn_of(server.url, "two")
    finally:
        server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three small migrations."""
    for number, name in enumerate(("first", "second", "third"), 1):
        (tmp_path / f"000{number}_{name}.sql").write_text(f"CREATE TABLE {name} (id integer);\n")
    return tmp_path


async def test_a_fresh_database_gets_everything_in_order(empty_dsn: str) -> None:
    assert await migrate(empty_dsn) == NAMES
    assert await applied(empty_dsn) == list(NAMES)
    assert await execute(empty_dsn, "SELECT count(*) FROM seats") == 0


async def test_a_migrated_database_has_nothing_left_to_do(database_dsn: str) -> None:
    assert await migrate(database_dsn) == ()
    assert await applied(database_dsn) == list(NAMES)


async def test_only_what_is_new_is_applied(empty_dsn: str, folder: Path) -> None:
    third = (folder / "0003_third.sql").rename(folder / "later")
    assert await migrate(empty_dsn, folder) == ("0001_first", "0002_second")

    third.rename(folder / "0003_third.sql")

    assert await migrate(empty_dsn, folder) == ("0003_third",)


async def test_many_processes_at_once_apply_everything_once(empty_dsn: str) -> None:
    results = await asyncio.gather(*(migrate(empty_dsn) for _ in range(8)))

    assert sorted(results) == [()] * 7 + [NAMES]
    assert await applied(empty_dsn) == list(NAMES)


async def test_two_databases_of_one_cluster_can_be_migrated_at_once(own_dsns: tuple[str, str]) -> None:
    results = await asyncio.gather(*(migrate(dsn) for dsn in own_dsns))

    assert results == [NAMES, NAMES]


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
async def test_a_role_that_another_database_is_making_is_waited_for(own_dsns: tuple[str, str], ending: str) -> None:
    other = await asyncpg.connect(own_dsns[1])
    try:
        await other.execute("BEGIN")
        await other.execute("CREATE ROLE holdfast_tenant NOLOGIN")
        migrating = asyncio.create_task(migrate(own_dsns[0]))
        while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            assert not migrating.done()
        await other.execute(ending)
        assert await migrating == NAMES
    finally:
        await other.close()


async def test_an_owner_who_is_no_superuser_can_migrate_and_become_the_tenant(own_dsns: tuple[str, str]) -> None:
    await execute(own_dsns[0], "CREATE ROLE landlord LOGIN PASSWORD 'secret' CREATEROLE")
    await execute(own_dsns[0], "ALTER DATABASE one OWNER TO landlord")
    parts = urlsplit(own_dsns[0])
    landlord = parts._replace(netloc=f"landlord:secret@{parts.netloc.rpartition('@')[2]}").geturl()

    assert await migrate(landlord) == NAMES

    await execute(landlord, "SET ROLE holdfast_tenant")


async def test_a_file_that_changed_after_it_was_applied_is_refused(empty_dsn: str, folder: Path) -> None:
    await migrate(empty_dsn, folder)
    (folder / "0002_second.sql").write_text("CREATE TABLE second (id bigint);\n")

    with pytest.raises(MigrationError, match=r"^The migration 0002_second is not the one .* once it is applied\.$"):
        await migrate(empty_dsn, folder)


async def test_line_ends_do_not_count_as_a_change(empty_dsn: str, folder: Path) -> None:
    await migrate(empty_dsn, folder)
    first = folder / "0001_first.sql"
    first.write_bytes(first.read_bytes().replace(b"\n", b"\r\n"))

    assert await migrate(empty_dsn, folder) == ()


async def test_a_missing_number_among_the_files_is_refused(empty_dsn: str, folder: Path) -> None:
    (folder / "0002_second.sql").unlink()

    with pytest.raises(MigrationError, match=r"^The migration 0002 is missing: 0003_third\.sql comes next\.$"):
        await migrate(empty_dsn, folder)
    assert await execute(empty_dsn, "SELECT to_regclass('first')") is None


async def test_a_missing_number_in_the_database_is_refused(empty_dsn: str, folder: Path) -> None:
    await migrate(empty_dsn, folder)
    await execute(empty_dsn, "DELETE FROM schema_migrations WHERE number = 2")

    with pytest.raises(MigrationError, match=r"^The database lacks the migration 0002_second but has the later 0003"):
        await migrate(empty_dsn, folder)


async def test_a_database_newer_than_the_release_is_refused(empty_dsn: str, folder: Path) -> None:
    await migrate(empty_dsn, folder)
    (folder / "0003_third.sql").unlink()

    with pytest.raises(MigrationError, match=r"^The database is newer than this release: .* 0003_third, .* at 0002\.$"):
        await migrate(empty_dsn, folder)


async def test_a_migration_that_fails_leaves_nothing_and_those_before_it_stay(empty_dsn: str, folder: Path) -> None:
    (folder / "0002_second.sql").write_text("CREATE TABLE second (id integer);\nSELECT 1 / 0;\n")

    with pytest.raises(
        MigrationError, match=r"^The migration 0002_second failed and changed nothing: division by zero"
    ):
        await migrate(empty_dsn, folder)

    assert await applied(empty_dsn) == ["0001_first"]
    assert await execute(empty_dsn, "SELECT to_regclass('second')") is None


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("4_fourth", "is not named like 0001_name.sql"), ("0003_again", "have the same number")],
)
def test_badly_named_files_are_refused(folder: Path, name: str, complaint: str) -> None:
    (folder / f"{name}.sql").touch()

    with pytest.raises(MigrationError, match=complaint):
        read_migrations(folder)


async def test_a_changed_copy_of_our_own_files_is_noticed(database_dsn: str, tmp_path: Path) -> None:
    copy = shutil.copytree(MIGRATIONS, tmp_path / "migrations")
    with (copy / f"{NAMES[0]}.sql").open("a") as file:
        file.write("-- one more line\n")

    with pytest.raises(MigrationError, match=NAMES[0]):
        await migrate(database_dsn, copy)


async def applied(dsn: str) -> list[str]:
    names: list[str] = await execute(dsn, "SELECT array_agg(name ORDER BY number) FROM schema_migrations")
    return names
