"""`holdfast verify`: whether the books balance."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings
from holdfast.errors import OperatorError
from holdfast.persistence.verify import Verification, verify
from holdfast.stores import open_stores

if TYPE_CHECKING:
    from holdfast.commands import Commands

SHOWN = 100


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "verify",
        help="check that log, Redis and Postgres agree",
        description="Check that no seat has two live holds or two tickets, that every zone adds up, that every log "
        "entry below the mark was applied, and that Redis equals Postgres. May run while seats are sold. Exit code 1 "
        "when anything differs.",
        epilog="example: holdfast verify --event 6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10",
    )
    parser.add_argument("--event", type=UUID, metavar="UUID", help="only this event")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_data_dir_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Check, and print what differs."""
    found = asyncio.run(_verify(arguments))
    print(msgspec.json.encode(found).decode() if arguments.json else describe(found))
    if not found.clean:
        raise OperatorError(f"{len(found.findings)} things differ.")


async def _verify(arguments: argparse.Namespace) -> Verification:
    async with open_stores(read_server_settings(arguments.data_dir), "verify") as stores:
        return await verify(
            stores.redis, stores.connection, stores.shards, event_id=arguments.event, progress=_progress
        )


def describe(found: Verification) -> str:
    """The findings for people, at most a hundred of them."""
    lines = [f"notice: {notice}" for notice in found.notices[:SHOWN]]
    lines += [str(finding) for finding in found.findings[:SHOWN]]
    if len(found.findings) > SHOWN:
        lines.append(f"and {len(found.findings) - SHOWN} more")
    looked = f"{found.events} events and {found.entries} log entries"
    if found.dead_lettered:
        looked += f", {found.dead_lettered} holds dead-lettered"
    lines.append(f"{looked}: everything agrees." if found.clean else f"{looked}: {len(found.findings)} things differ.")
    return "\n".join(lines)


def _progress(text: str) -> None:
    print(text, file=sys.stderr)
