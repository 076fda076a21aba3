"""`holdfast migrate`: brings the database to the schema of this release."""

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings
from holdfast.errors import OperatorError
from holdfast.events import server_errors_explained
from holdfast.persistence.migrate import MigrationError, migrate

if TYPE_CHECKING:
    from holdfast.commands import Commands


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "migrate",
        help="bring the database to this release",
        description="Apply the migrations that the database lacks. Safe to repeat and to run in many processes at "
        "once; the previous release may go on serving meanwhile. `holdfast up` does it by itself.",
        epilog="example: HOLDFAST_POSTGRES_DSN=postgresql://holdfast@127.0.0.1/holdfast holdfast migrate",
    )
    add_data_dir_flag(parser)
    parser.add_argument("--json", action="store_true", help="print what was applied as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Migrate, and say what was done."""
    applied = apply_migrations(read_server_settings(arguments.data_dir).postgres_dsn)
    if arguments.json:
        print(msgspec.json.encode({"applied": applied}).decode())
    elif applied:
        print(f"Applied {', '.join(applied)}.")
    else:
        print("The database is up to date.")


def apply_migrations(dsn: str) -> tuple[str, ...]:
    """Bring a database to this release and return what was applied; a failure is an OperatorError."""
    try:
        with server_errors_explained():
            return asyncio.run(migrate(dsn))
    except MigrationError as error:
        raise OperatorError(str(error)) from error
