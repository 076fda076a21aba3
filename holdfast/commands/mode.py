"""`holdfast mode`: who serves the shards, and changing it."""

import argparse
import asyncio
import getpass
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings, table
from holdfast.engine.epochs import Mode
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError
from holdfast.events import count_shards
from holdfast.persistence.ballot import Voter, list_voters
from holdfast.persistence.modes import Modes, ShardMode, read_modes, set_mode
from holdfast.persistence.pool import connect
from holdfast.persistence.service import open_servers
from holdfast.persistence.transitions import Cause
from holdfast.stores import failures_explained

if TYPE_CHECKING:
    from holdfast.commands import Commands

_POLL_S = 0.1
_SHOWN_CHANGES = 5


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "mode",
        help="show or change who serves the shards",
        description="Show who serves each shard, Redis or Postgres, who has a voice in that, and what happened last; "
        "or change it. `mode db` closes and drains Redis, if it answers, and lets Postgres serve until somebody says "
        "`mode redis`; `mode redis` builds Redis from Postgres and lets it serve. Every change gives the shard a new "
        "epoch, is written down with its reason, and may be made while seats are sold.",
        epilog="example: holdfast mode db --reason 'Redis is to be upgraded' --shard 3",
    )
    parser.add_argument(
        "mode", nargs="?", choices=("status", "db", "redis"), default="status", help="what to do (default: status)"
    )
    parser.add_argument("--reason", metavar="TEXT", help="why; needed for a change, and kept")
    parser.add_argument("--shard", type=int, action="append", metavar="N", help="only this shard, may be repeated")
    parser.add_argument("--epoch", type=int, metavar="N", help="only if the shards are still in this epoch")
    parser.add_argument("--wait", action="store_true", help="return when every live front end has followed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_data_dir_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Show the modes, or change them and show the result."""
    settings = read_server_settings(arguments.data_dir)
    if arguments.mode == "status":
        modes = asyncio.run(_read(settings))
        print(msgspec.json.encode(modes).decode() if arguments.json else describe(modes))
        return
    if not (arguments.reason or "").strip():
        raise OperatorError("A change of mode needs a reason: --reason 'why'.")
    changed = asyncio.run(_change(settings, arguments))
    print(msgspec.json.encode(changed).decode() if arguments.json else "\n".join(table(_shard_rows(changed))))


async def _read(settings: Settings) -> Modes:
    with failures_explained():
        connection = await connect(settings.postgres_dsn, name="mode")
        try:
            return await read_modes(connection, await count_shards(connection))
        finally:
            await connection.close(timeout=1)


async def _change(settings: Settings, arguments: argparse.Namespace) -> tuple[ShardMode, ...]:
    mode = Mode(arguments.mode)
    cause = Cause(arguments.reason.strip(), f"operator {getpass.getuser()}", pinned=mode is Mode.DB)
    with failures_explained():
        async with open_servers(settings, "mode") as opened:
            async with opened.pool.acquire() as connection:
                shards = await count_shards(connection)
            wanted = chosen_shards(arguments.shard, shards)
            servers = msgspec.structs.replace(opened, shards=shards)
            epochs = None if arguments.epoch is None else dict.fromkeys(wanted, arguments.epoch)
            changed = await set_mode(servers, mode, cause, wanted, epochs=epochs, progress=progress)
            if arguments.wait:
                async with servers.pool.acquire() as connection:
                    # Front ends hear of a change at once; their next sign of life comes after they have.
                    since = max(each.changed_at for each in changed if each.changed_at)
                    # There is no event to wait for: it happens in other processes.
                    while any(each.seen_at <= since for each in await list_voters(connection)):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_S)
    return changed


def chosen_shards(asked: Sequence[int] | None, shards: int) -> list[int]:
    """The shards that were asked for, or all."""
    wanted = sorted(set(asked)) if asked else list(range(shards))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < shards:
        raise OperatorError(f"There are {shards} shards, numbered from 0 to {shards - 1}.")
    return wanted


def describe(modes: Modes) -> str:
    """The modes for people."""
    lines = table(_shard_rows(modes.shards))
    if modes.voters:
        lines += ["", *table([("alive", "reaches Redis", "cannot use it for"), *map(_voter_row, modes.voters)])]
    if modes.changes:
        lines += ["", "last changes"]
        lines += [
            f"{change.created_at:%Y-%m-%d %H:%M:%S} shard {change.shard}: {change.from_mode} {change.from_epoch} to "
            f"{change.mode} {change.epoch}, {change.reason} ({change.actor})"
            for change in modes.changes[:_SHOWN_CHANGES]
        ]
    return "\n".join(lines)


def progress(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr)


def _shard_rows(shards: Sequence[ShardMode]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("shard", "mode", "epoch", "since", "reason", "by")]
    for each in shards:
        since = f"{each.changed_at:%Y-%m-%d %H:%M:%S}" if each.changed_at else "-"
        mode = f"{each.mode}, pinned" if each.pinned else each.mode
        rows.append((str(each.shard), mode, str(each.epoch), since, each.reason, each.actor))
    return rows


def _voter_row(voter: Voter) -> tuple[str, ...]:
    return voter.name, "yes" if voter.reaches_redis else "no", ", ".join(map(str, voter.shards)) or "-"
