"""That Postgres understands every query against the schema."""

import re

import asyncpg

from holdfast.persistence.sql import QUERIES, query

DECLARED = re.compile(r"^-- \$\d+ [a-z_]+ (?P<type>[a-z][a-z0-9 ]*(?:\[\])?): ", re.MULTILINE)


async def test_postgres_takes_every_query_with_the_types_that_its_header_says(database_dsn: str) -> None:
    connection = await asyncpg.connect(database_dsn)
    faults = []
    try:
        for name in sorted(path.stem for path in QUERIES.glob("*.sql")):
            try:
                prepared = await connection.prepare(query(name))
                declared = await connection.fetchval(
                    "SELECT $1::text[]::regtype[]::oid[]", DECLARED.findall(query(name))
                )
            except asyncpg.PostgresError as error:
                faults.append(f"{name}: {error}")
                continue
            wanted = [parameter.oid for parameter in prepared.get_parameters()]
            if declared != wanted:
                faults.append(f"{name}: takes {[parameter.name for parameter in prepared.get_parameters()]}")
    finally:
        await connection.close()
    assert faults == []
