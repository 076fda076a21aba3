"""`holdfast rebuild`: Redis built anew from Postgres."""

import argparse
import asyncio
import getpass
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings
from holdfast.commands.mode import chosen_shards, progress
from holdfast.engine.epochs import Mode
from holdfast.engine.settings import Settings
from holdfast.errors import OperatorError
from holdfast.events import count_shards
from holdfast.persistence.digest import clock, digest
from holdfast.persistence.modes import ShardMode, set_mode
from holdfast.persistence.service import open_servers
from holdfast.persistence.transitions import Cause
from holdfast.persistence.verify import verify
from holdfast.stores import failures_explained

if TYPE_CHECKING:
    from holdfast.commands import Commands


class Rebuilt(msgspec.Struct, frozen=True):
    """The shards afterwards, the digest of Postgres before and after, and what Redis then says otherwise."""

    shards: tuple[ShardMode, ...]
    digest_before: str
    digest_after: str
    differences: tuple[str, ...]
    seconds: float


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "rebuild",
        help="build Redis anew from Postgres",
        description="Close and drain every shard, or those named, build it anew in Redis from Postgres, compare the "
        "two and let Redis serve it again. Postgres serves each shard meanwhile. Its digest is taken before "
        "and after: without traffic it is the same. Exit code 1 when Redis and Postgres differ afterwards.",
        epilog="example: holdfast rebuild --reason 'yearly drill' --json",
    )
    parser.add_argument("--reason", default="rebuild", metavar="TEXT", help="why, which is kept (default: %(default)s)")
    parser.add_argument("--shard", type=int, action="append", metavar="N", help="only this shard, may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_data_dir_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Rebuild, compare, and say what came of it."""
    done = asyncio.run(_rebuild(read_server_settings(arguments.data_dir), arguments))
    print(msgspec.json.encode(done).decode() if arguments.json else describe(done))
    if done.differences:
        raise OperatorError(f"{len(done.differences)} things differ after the rebuild.")


async def _rebuild(settings: Settings, arguments: argparse.Namespace) -> Rebuilt:
    started = time.monotonic()
    cause = Cause(arguments.reason, f"operator {getpass.getuser()}")
    with failures_explained():
        async with open_servers(settings, "rebuild") as opened:
            async with opened.pool.acquire() as connection:
                shards = await count_shards(connection)
                at = await clock(connection)
                before = await digest(connection, at)
            servers = msgspec.structs.replace(opened, shards=shards)
            wanted = chosen_shards(arguments.shard, shards)
            changed = await set_mode(servers, Mode.REDIS, cause, wanted, anew=True, progress=progress)
            async with servers.pool.acquire() as connection:
                after = await digest(connection, at)
                found = await verify(servers.redis, connection, shards, progress=progress)
    differences = tuple(map(str, found.findings))
    return Rebuilt(changed, before, after, differences, time.monotonic() - started)


def describe(done: Rebuilt) -> str:
    """What came of it, for people."""
    lines = [*done.differences]
    same = "the same" if done.digest_before == done.digest_after else "another, as people went on buying"
    lines.append(f"Rebuilt {len(done.shards)} shards in {done.seconds:.1f} s.")
    lines.append(f"The digest of Postgres is {same}: {done.digest_after}.")
    lines.append("Redis and Postgres agree." if not done.differences else "Redis and Postgres differ.")
    return "\n".join(lines)
