"""`holdfast reconcile`: bring an event in Redis back to what Postgres says."""

import argparse
import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings
from holdfast.persistence.reconcile import Reconciliation, reconcile
from holdfast.stores import open_stores

if TYPE_CHECKING:
    from holdfast.commands import Commands

SHOWN = 100


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "reconcile",
        help="rebuild an event in Redis from Postgres",
        description="Compare an event in Redis with Postgres and, where they differ, replace it in Redis in one step. "
        "The event takes no new holds meanwhile, and needs a keeper that persists the log. Exit code 0 when they agree "
        "afterwards, or in a dry run.",
        epilog="example: holdfast reconcile 6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10 --dry-run",
    )
    parser.add_argument("event", type=UUID, metavar="EVENT", help="the event's id")
    parser.add_argument("--dry-run", action="store_true", help="only print what differs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_data_dir_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Reconcile, and print what differed."""
    done = asyncio.run(_reconcile(arguments))
    print(msgspec.json.encode(done).decode() if arguments.json else describe(done))


async def _reconcile(arguments: argparse.Namespace) -> Reconciliation:
    async with open_stores(read_server_settings(arguments.data_dir), "reconcile") as stores:
        return await reconcile(stores.redis, stores.connection, arguments.event, dry_run=arguments.dry_run)


def describe(done: Reconciliation) -> str:
    """What differed, for people, at most a hundred lines of it."""
    lines = [str(finding) for finding in done.findings[:SHOWN]]
    if len(done.findings) > SHOWN:
        lines.append(f"and {len(done.findings) - SHOWN} more")
    if done.repaired:
        lines.append(f"Replaced the event in Redis by what Postgres has; {len(done.findings)} things differed.")
    else:
        lines.append(f"{len(done.findings)} things differ." if done.findings else "Redis and Postgres agree.")
    return "\n".join(lines)
