"""`holdfast status`: how far the log is persisted, and whether Redis and Postgres agree."""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.commands import add_data_dir_flag, read_server_settings, table
from holdfast.errors import OperatorError
from holdfast.persistence.digest import clock, digest
from holdfast.persistence.status import Counts, HotStatus, SystemStatus, read_status
from holdfast.stores import open_stores

if TYPE_CHECKING:
    from holdfast.commands import Commands


class DigestReport(msgspec.Struct, frozen=True):
    """A digest, and the moment it is of."""

    digest: str
    at: datetime


def add_parser(commands: "Commands") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "status",
        help="show how far the log is persisted",
        description="Show each shard's log and how far it is persisted, and each event's counts in the hot caches of "
        "the front ends, in Redis and in Postgres. Exit code 1 when a shard is not served or an event differs.",
        epilog="example: holdfast status --json",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--digest", action="store_true", help="print the digest of the database instead, to compare it with another"
    )
    parser.add_argument(
        "--at", type=_moment, metavar="TIME", help="the moment of the digest, as ISO 8601 (default: now)"
    )
    add_data_dir_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Look, and print what there is to see."""
    if arguments.digest:
        report = asyncio.run(_digest(arguments))
        print(msgspec.json.encode(report).decode() if arguments.json else f"{report.digest} at {report.at.isoformat()}")
        return
    status = asyncio.run(_status(arguments))
    print(msgspec.json.encode(status).decode() if arguments.json else describe(status))
    if not status.healthy:
        raise OperatorError(
            "Something needs attention: a shard is not served, lags with refusals, or an event differs."
        )


async def _status(arguments: argparse.Namespace) -> SystemStatus:
    async with open_stores(read_server_settings(arguments.data_dir), "status") as stores:
        return await read_status(stores.redis, stores.connection, stores.shards)


async def _digest(arguments: argparse.Namespace) -> DigestReport:
    async with open_stores(read_server_settings(arguments.data_dir), "status") as stores:
        at = arguments.at or await clock(stores.connection)
        return DigestReport(await digest(stores.connection, at), at)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text} has no time zone")
    return moment


def describe(status: SystemStatus) -> str:
    """The status for people."""
    shards = [("shard", "mode", "epoch", "log", "last", "mark", "lag", "seconds", "dead", "refused")]
    shards += [
        (
            str(shard.shard),
            shard.mode if shard.open or shard.mode != "redis" else f"{shard.mode}, closed",
            str(shard.epoch),
            str(shard.log_entries),
            str(shard.last_seq),
            str(shard.mark),
            str(shard.lag_entries),
            f"{shard.lag_seconds:.1f}",
            str(shard.dead_letters),
            str(shard.uncompensated),
        )
        for shard in status.shards
    ]
    events = [("event", "state", "shard", "hot", "in Redis", "in Postgres", "")]
    events += [
        (
            str(event.event_id),
            event.state,
            str(event.shard),
            _hot(event.hot),
            _counts(event.redis),
            _counts(event.postgres),
            event.agreement,
        )
        for event in status.events
    ]
    legend = "Counts are held/sold/blocked of the capacity; hot are the seats that each front end has seen taken."
    return "\n".join([*table(shards), "", *table(events), legend] if status.events else table(shards))


def _counts(counts: Counts | None) -> str:
    return f"{counts.held}/{counts.sold}/{counts.blocked} of {counts.capacity}" if counts else "-"


def _hot(layers: Sequence[HotStatus]) -> str:
    """What each front end knows, and how that goes together with Redis where it does not agree."""
    told = []
    for hot in layers:
        counts = f"{hot.held}/{hot.sold}/{hot.blocked}"
        told.append(counts if hot.agreement == "agrees" else f"{counts} {hot.agreement}")
    return ", ".join(told) or "-"
