"""`holdfast replay`: apply what the log has again."""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError
from holdfast.persistence.migrate import MigrationError, migrate
from holdfast.persistence.pool import POSTGRES_ERRORS, connect
from holdfast.persistence.replay import Place, Replay, replay
from holdfast.persistence.replay_into import Rebuild, replay_into
from holdfast.stores import count_shards_in_redis, failures_explained, open_redis, open_stores

if TYPE_CHECKING:
    from holdfast.commands import Commands

SHOWN = 100


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "replay",
        help="apply a part of the log again",
        description="Bring every hold that a part of the log names to where the log says it is, after printing what "
        "that changes. Sales are never undone, ended holds never come back, and a second run changes nothing. With "
        "--into, rebuild an empty database from the whole log instead. Exit code 1 when something cannot be put right, "
        "or the rebuilt database is not like the original; differences that a dry run finds are no failure.",
        epilog="example: holdfast replay --from 1-200 --to + --dry-run",
    )
    parser.add_argument("--from", dest="first", type=place, metavar="EPOCH-SEQ", help="first entry, - for the oldest")
    parser.add_argument("--to", dest="last", type=place, metavar="EPOCH-SEQ", help="last entry, + for the newest")
    parser.add_argument("--shard", type=int, metavar="N", help="only this shard (default: all)")
    parser.add_argument("--event", type=UUID, metavar="UUID", help="only this event")
    parser.add_argument("--dry-run", action="store_true", help="only print what would change")
    parser.add_argument("--into", metavar="DSN", help="rebuild this empty database from the whole log")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_data_dir_flag(parser)
    parser.set_defaults(run=run)


def place(text: str) -> Place | None:
    """A place in the log, as an argument type."""
    try:
        return Place.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> None:
    """Replay, and print what changed."""
    settings = read_server_settings(arguments.data_dir)
    if arguments.into:
        _run_into(arguments, settings)
        return
    done = asyncio.run(_replay(arguments, settings))
    print(msgspec.json.encode(done).decode() if arguments.json else describe(done))
    if done.left:
        raise OperatorError(f"{len(done.left)} differences cannot be put right by a replay.")


def _run_into(arguments: argparse.Namespace, settings: Settings) -> None:
    chosen = (arguments.first, arguments.last, arguments.shard, arguments.event)
    if arguments.dry_run or any(each is not None for each in chosen):
        raise OperatorError("A database is rebuilt from the whole log: --into goes with none of the other choices.")
    built = asyncio.run(_rebuild(arguments.into, settings))
    print(msgspec.json.encode(built).decode() if arguments.json else describe_rebuild(built))
    if not built.equal:
        raise OperatorError("The rebuilt database is not like the original: run `holdfast verify` on that.")


async def _replay(arguments: argparse.Namespace, settings: Settings) -> Replay:
    async with open_stores(settings, "replay") as stores:
        if arguments.shard is not None and arguments.shard not in range(stores.shards):
            raise OperatorError(f"There is no shard {arguments.shard}: there are {stores.shards}, counted from 0.")
        shards = range(stores.shards) if arguments.shard is None else [arguments.shard]
        return await replay(
            stores.redis,
            stores.connection,
            shards,
            first=arguments.first,
            last=arguments.last,
            event_id=arguments.event,
            dry_run=arguments.dry_run,
            progress=_progress,
        )


async def _rebuild(dsn: str, settings: Settings) -> Rebuild:
    with failures_explained():
        async with AsyncExitStack() as stack:
            redis = await stack.enter_async_context(open_redis(settings))
            shards = await count_shards_in_redis(redis)
            try:
                applied = await migrate(dsn)
                target = await connect(dsn, name="replay", statement_timeout_ms=None)
            except (*POSTGRES_ERRORS, MigrationError) as error:
                raise OperatorError(f"The database to replay into cannot be used: {error}.") from error
            stack.push_async_callback(target.close, timeout=1)
            if applied:
                _progress(f"applied {len(applied)} migrations")
            original = None
            try:
                original = await connect(settings.postgres_dsn, name="replay", statement_timeout_ms=None)
                stack.push_async_callback(original.close, timeout=1)
            except POSTGRES_ERRORS as error:
                _progress(f"the configured database cannot be read: {error}")
            return await replay_into(redis, original, target, shards, progress=_progress)


def describe(done: Replay) -> str:
    """What a replay changed, for people: at most a hundred lines of each kind."""
    lines = [str(finding) for finding in done.changes[:SHOWN]]
    if len(done.changes) > SHOWN:
        lines.append(f"and {len(done.changes) - SHOWN} more")
    lines += [f"stays: {finding}" for finding in done.left[:SHOWN]]
    if len(done.left) > SHOWN:
        lines.append(f"and {len(done.left) - SHOWN} more that stay")
    if done.administrative:
        lines.append(f"{done.administrative} administrative entries are not replayed.")
    what = "were put right" if done.applied else "would be put right"
    lines.append(f"{done.entries} entries about {done.holds} holds: {len(done.changes)} differences {what}.")
    return "\n".join(lines)


def describe_rebuild(built: Rebuild) -> str:
    """What was rebuilt, for people."""
    lines = [
        f"{built.events} events copied, {built.entries} log entries applied, {built.unreadable} unreadable, "
        f"{built.refused} refused that were not refused before.",
        f"digest   {built.digest}",
    ]
    if built.original_digest:
        lines.append(f"original {built.original_digest}{'' if built.equal else ', which is another'}")
    return "\n".join(lines)


def _progress(text: str) -> None:
    print(text, file=sys.stderr)
