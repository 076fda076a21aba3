"""Real servers for the tests: one of each per xdist worker, started when the first test asks for it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.embedded import Server, start_postgres, start_valkey
from holdfast.persistence.migrate import migrate
from support.database import FORGETFUL_POSTGRES, TEMPLATE, dsn_of, execute


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The worker's Valkey. A test that stops or restarts its server starts one of its own."""
    yield from _until_the_end(start_valkey(_directory(tmp_path_factory, "valkey")))


@pytest.fixture(scope="session")
def redis_url(valkey_server: Server) -> str:
    """Where the worker's Valkey answers. Tests of one worker share it, one after the other."""
    return valkey_server.url


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The worker's Postgres."""
    directory = _directory(tmp_path_factory, "postgres")
    yield from _until_the_end(start_postgres(directory, options=FORGETFUL_POSTGRES))


@pytest.fixture(scope="session")
def postgres_dsn(postgres_server: Server) -> str:
    """Where the worker's Postgres answers."""
    return postgres_server.url


@pytest.fixture(scope="session")
def migrated_template(postgres_dsn: str) -> str:
    """A database with the current schema and nothing in it; copying it is faster than migrating one for each test."""
    asyncio.run(execute(postgres_dsn, f"CREATE DATABASE {TEMPLATE}"))
    asyncio.run(migrate(dsn_of(postgres_dsn, TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def database_dsn(postgres_dsn: str, migrated_template: str) -> Iterator[str]:
    """A migrated database of the test's own, which is dropped with whatever is still connected to it."""
    name = f"test_{uuid4().hex}"
    asyncio.run(execute(postgres_dsn, f"CREATE DATABASE {name} TEMPLATE {migrated_template}"))
    yield dsn_of(postgres_dsn, name)
    asyncio.run(execute(postgres_dsn, f"DROP DATABASE {name} WITH (FORCE)"))


def _directory(factory: pytest.TempPathFactory, name: str) -> Path:
    return factory.mktemp(name) / name


def _until_the_end(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.stop()
