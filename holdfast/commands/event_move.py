"""`holdfast event move`: an event with sales goes to another version of its layout."""

import argparse
import asyncio
import getpass
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings
from holdfast.commands.mode import progress
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.policy import PolicyError
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError
from holdfast.events import count_shards
from holdfast.persistence.catalogue import CatalogueError
from holdfast.persistence.layout_moves import LayoutMove, move_event
from holdfast.persistence.service import open_servers
from holdfast.persistence.transitions import Cause
from holdfast.stores import failures_explained

if TYPE_CHECKING:
    from holdfast.commands import Commands


def add_parser(actions: "Commands") -> None:
    """Declare the action."""
    parser = actions.add_parser(
        "move",
        help="move an event to another version of its layout",
        description="Move an event, with all that is held and sold, to another version of its layout. Seats are found "
        "again by their ids. If one that was ever taken is missing, or a zone has no room, nothing is changed and the "
        "exit code is 1. Postgres serves the event's shard meanwhile.",
        epilog="example: holdfast event move 6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10 --version 2 "
        "--reason 'row F was rebuilt' --dry-run",
    )
    parser.add_argument("event", type=UUID, metavar="EVENT", help="the event's id")
    parser.add_argument("--version", type=int, required=True, metavar="N", help="the version to move to")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; kept in the audit log")
    parser.add_argument(
        "--rename",
        type=_names,
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="a seat that has another id in that version, may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--org", type=UUID, metavar="UUID", help="only if it is this organisation's event")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_data_dir_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Move the event, and say what became of its seats, or why it stays."""
    if not arguments.reason.strip():
        raise OperatorError("A move needs a reason: --reason 'why'.")
    move = asyncio.run(_move(read_server_settings(arguments.data_dir), arguments))
    print(msgspec.json.encode(move).decode() if arguments.json else describe(move))
    if move.objections:
        sys.exit(1)


async def _move(settings: Settings, arguments: argparse.Namespace) -> LayoutMove:
    cause = Cause(arguments.reason.strip(), f"operator {getpass.getuser()}")
    try:
        with failures_explained():
            async with open_servers(settings, "move") as opened:
                async with opened.pool.acquire() as connection:
                    shards = await count_shards(connection)
                return await move_event(
                    msgspec.structs.replace(opened, shards=shards),
                    arguments.event,
                    arguments.version,
                    renamed=dict(arguments.rename),
                    cause=cause,
                    dry_run=arguments.dry_run,
                    organization_id=arguments.org,
                    progress=progress,
                )
    except (CatalogueError, LayoutError, PolicyError) as error:
        raise OperatorError(str(error).removesuffix(".") + ".") from error


def describe(move: LayoutMove) -> str:
    """The move for people."""
    way = f"{move.event_id} from version {move.from_version} to {move.to_version} of its layout"
    seats = f"{move.seats_kept} seats kept, {move.seats_added} added, {move.seats_removed} removed."
    if move.objections:
        return "\n".join((f"Cannot move {way}:", *(f"  {objection}" for objection in move.objections)))
    return f"{'Moved' if move.moved else 'Would move'} {way}: {seats}"


def _names(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"{text} is not OLD=NEW")
    return old, new
