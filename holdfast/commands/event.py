"""`holdfast event`: load, open, close, move and look at events."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast import demo
from holdfast.commands import add_data_dir_flag, event_move, read_server_settings
from holdfast.engine.layout import CompiledEvent, EventDocument, compile_event
from holdfast.engine.layout_checks import LayoutError
from holdfast.engine.plan import EventPlan, read_event
from holdfast.errors import OperatorError
from holdfast.events import open_desk
from holdfast.generated import GENERATORS, MAX_SEATS
from holdfast.persistence.event_desk import EventCounts, EventDesk

if TYPE_CHECKING:
    from holdfast.commands import Commands

DEFAULT_SEATS = 10_000
CONFIRM_S = 10.0
CONFIRM_MAX_S = 3_600.0
EXAMPLE_ID = "6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10"


class EventReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the commands say of an event.

    `result` is what loading did, `confirmed` whether Postgres is known to have the change, `zones` what is counted.
    """

    event_id: UUID
    organization_id: UUID
    name: str
    state: str
    config_version: str
    result: str | None = None
    confirmed: bool | None = None
    counted_in: str | None = None
    zones: tuple["ZoneReport", ...] | None = None


class ZoneReport(msgspec.Struct, frozen=True):
    """What is counted in a zone."""

    zone_id: str
    name: str
    capacity: int
    free: int
    held: int
    sold: int
    blocked: int


def add_parser(commands: "Commands") -> None:
    """Declare the command and what it can do."""
    parser = commands.add_parser(
        "event",
        help="load, open, close, move or show an event",
        description="Change events in Postgres and Redis: the servers of HOLDFAST_POSTGRES_DSN and HOLDFAST_REDIS_URL "
        "or, where these are not set, of the `holdfast up` that runs on the data directory.",
        epilog="example: holdfast event load festival.json --open",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    load = actions.add_parser(
        "load",
        help="save an event and put it into service",
        description="Save the event of a JSON document and put it into service, in the state that the document says. "
        "A changed document replaces names, state, window, policy and capacities; seats stay as they are. A document "
        "with a `layout` instead of zones is a plan: the event is made from that version of a stored layout.",
        epilog="example: holdfast event load festival.json --open, or "
        "holdfast event load --generate arena --seats 100000 --open",
    )
    source = load.add_mutually_exclusive_group(required=True)
    source.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the event, as JSON")
    source.add_argument(
        "--generate", choices=sorted(GENERATORS), help="make an event to try things on, instead of FILE"
    )
    load.add_argument(
        "--seats",
        type=_seat_count,
        metavar="N",
        help=f"how many seats to generate, at most {MAX_SEATS:,} (default: 10,000)",
    )
    load.add_argument("--open", action="store_true", help="put it on sale at once, whatever state the document says")
    _add_wait_flag(load)
    _declare(load, _load, "whose event it is (default: whose it is already, else the demo organisation)")
    about = {
        "open": ("put an event into service and on sale", _open),
        "close": ("take an event off sale", _close),
        "show": ("print what is free, held, sold and blocked", _show),
    }
    for name, (does, action) in about.items():
        act = actions.add_parser(name, help=does, epilog=f"example: holdfast event {name} {EXAMPLE_ID}")
        act.add_argument("event", type=UUID, metavar="EVENT", help="the event's id")
        if action is not _show:
            _add_wait_flag(act)
        _declare(act, action, "only if it is this organisation's event")
    event_move.add_parser(actions)


Action = Callable[[EventDesk, argparse.Namespace], Awaitable[EventReport]]


def _declare(parser: argparse.ArgumentParser, action: Action, org_help: str) -> None:
    parser.add_argument("--org", type=UUID, metavar="UUID", help=org_help)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_data_dir_flag(parser)
    parser.set_defaults(run=run, action=action)


def _add_wait_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=CONFIRM_S,
        metavar="SECONDS",
        help="how long to wait until a keeper has brought it to Postgres, 0 for not at all (default: %(default)g)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Do what is asked, and print the event as it is then."""
    # Read first: a document that is no good needs no server.
    if "file" in arguments:
        arguments.document = _document(arguments)
    report = asyncio.run(_act(arguments))
    print(msgspec.json.encode(report).decode() if arguments.json else describe(report))


def _document(arguments: argparse.Namespace) -> EventDocument | EventPlan:
    """The event to load, out of a file or made to order."""
    if arguments.generate:
        return GENERATORS[arguments.generate](arguments.seats or DEFAULT_SEATS)
    if arguments.seats:
        raise OperatorError("--seats says how large an event to generate: it goes with --generate.")
    return read_document(arguments.file)


def _seat_count(text: str) -> int:
    digits = text.replace(",", "")
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of seats")
    count = int(digits)
    if not 1 <= count <= MAX_SEATS:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {MAX_SEATS:,}")
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= CONFIRM_MAX_S:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {CONFIRM_MAX_S:g}")
    return seconds


async def _act(arguments: argparse.Namespace) -> EventReport:
    changes = "wait" in arguments
    wait_s = arguments.wait if changes else 0.0
    async with open_desk(read_server_settings(arguments.data_dir), confirm_s=wait_s) as desk:
        report: EventReport = await arguments.action(desk, arguments)
        return msgspec.structs.replace(report, confirmed=bool(wait_s)) if changes else report


async def _load(desk: EventDesk, arguments: argparse.Namespace) -> EventReport:
    document: EventDocument | EventPlan = arguments.document
    owner = arguments.org or await desk.owner(document.event_id) or demo.ORGANIZATION_ID
    result, event = await desk.load(owner, document)
    if arguments.open:
        event = await desk.open(event)
    return _report(event, result=result)


async def _open(desk: EventDesk, arguments: argparse.Namespace) -> EventReport:
    return _report(await desk.open(await desk.find(arguments.event, arguments.org)))


async def _close(desk: EventDesk, arguments: argparse.Namespace) -> EventReport:
    return _report(await desk.close(await desk.find(arguments.event, arguments.org)))


async def _show(desk: EventDesk, arguments: argparse.Namespace) -> EventReport:
    event = await desk.find(arguments.event, arguments.org)
    return _report(event, counts=await desk.counts(event))


def read_document(path: Path) -> EventDocument | EventPlan:
    """The event in a file. Raises OperatorError with the place in the document that is wrong."""
    try:
        document = read_event(path.read_bytes())
        # Whether a document contradicts itself does not depend on whose event it is. A plan does.
        if isinstance(document, EventDocument):
            compile_event(demo.ORGANIZATION_ID, document)
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {error.strerror}.") from error
    except (msgspec.ValidationError, LayoutError) as error:
        raise OperatorError(f"{path} is not an event: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path} is not JSON: {error}.") from error
    return document


def _report(event: CompiledEvent, *, result: str | None = None, counts: EventCounts | None = None) -> EventReport:
    report = EventReport(
        event_id=event.event_id,
        organization_id=event.organization_id,
        name=event.document.name,
        state=event.document.state,
        config_version=event.version,
        result=result,
    )
    if counts is None:
        return report
    zones = tuple(
        ZoneReport(zone.zone_id, zone.name, each.capacity, each.free, each.held, each.sold, each.blocked)
        for zone, each in zip(event.document.zones, counts.zones, strict=True)
    )
    return msgspec.structs.replace(report, counted_in=counts.source, zones=zones)


def describe(report: EventReport) -> str:
    """The report for people."""
    result = f", {report.result}" if report.result else ""
    lines = [f"{report.name} ({report.event_id}) is {report.state}{result}."]
    if report.confirmed is False:
        lines.append("Whether Postgres has that yet was not asked.")
    if report.zones is not None:
        titles = ("capacity", "free", "held", "sold", "blocked")
        rows = [("zone", *titles), *((zone.name, *(getattr(zone, title) for title in titles)) for zone in report.zones)]
        width = max(len(str(row[0])) for row in rows)
        lines += [f"{name:{width}}" + "".join(f" {figure:>10}" for figure in figures) for name, *figures in rows]
        lines.append(f"Counted in {(report.counted_in or '').capitalize()}.")
    return "\n".join(lines)
