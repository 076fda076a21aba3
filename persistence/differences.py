"""Where the rows of Postgres are not what the log says, and what would put each right.

Only what goes forward is put right: a row that is missing, a hold that should have ended, an end that should be later.
A hold that is sold stays sold and one that has ended stays ended, whatever the log says; such a difference is told,
not mended. Nor is a row that names another user or another seat.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.persistence.apply import columns, moment
from holdfast.persistence.compare import Finding
from holdfast.persistence.ledger import ExpectedHold, ExpectedLine, ExpectedTicket
from holdfast.persistence.pool import Connection
from holdfast.persistence.sql import query


class NewLine(msgspec.Struct, frozen=True):
    """A line of a hold that has no row."""

    hold: ExpectedHold
    line: ExpectedLine


class Correction(msgspec.Struct, frozen=True):
    """A row of a hold that says something else."""

    hold: ExpectedHold
    line: int


class NewTicket(msgspec.Struct, frozen=True):
    """A ticket that has no row."""

    hold: ExpectedHold
    ticket: ExpectedTicket


class CheckoutStatus(msgspec.Struct, frozen=True):
    """A checkout that has no row, or is open though its holds are sold or were released with it."""

    hold: ExpectedHold
    status: str


Remedy = NewLine | Correction | NewTicket | CheckoutStatus


class Difference(msgspec.Struct, frozen=True):
    """Something that is not as the log says, and its remedy if there is one."""

    finding: Finding
    remedy: Remedy | None = None


async def find_differences(connection: Connection, holds: Sequence[ExpectedHold]) -> list[Difference]:
    """Where the rows of some holds, their tickets and their checkouts differ from the log."""
    ids = [hold.hold_id for hold in holds]
    rows = _grouped(await connection.fetch(query("list_hold_rows"), ids))
    tickets: dict[UUID, dict[UUID, Any]] = {}
    for ticket in await connection.fetch(query("list_hold_tickets"), ids):
        tickets.setdefault(ticket["hold_id"], {})[ticket["id"]] = ticket
    found: list[Difference] = []
    for hold in holds:
        found += _hold_differences(hold, rows.get(hold.hold_id, {}))
        found += _ticket_differences(hold, tickets.get(hold.hold_id, {}))
    return found + await _checkout_differences(connection, holds)


async def mend(connection: Connection, differences: Iterable[Difference]) -> list[Finding]:
    """Put right what can be, within the caller's transaction; returns what stays as it is."""
    left: list[Finding] = []
    for kind, statement in _STATEMENTS.items():
        chosen = [each for each in differences if isinstance(each.remedy, kind)]
        if chosen:
            rows = [_row(each.remedy) for each in chosen]
            done = {tuple(row) for row in await connection.fetch(query(statement), *columns(rows))}
            # What a unique index refuses belongs to somebody else, who keeps it.
            left += [each.finding for each, row in zip(chosen, rows, strict=True) if row[:2] not in done]
    return left + [each.finding for each in differences if each.remedy is None]


def _hold_differences(hold: ExpectedHold, rows: dict[int, Any]) -> Iterator[Difference]:
    def differs(problem: str, remedy: Remedy | None = None) -> Difference:
        return Difference(Finding(hold.event_id, f"hold {hold.hold_id}", problem), remedy)

    if hold.made is None and not rows:
        yield differs("has no row, and its first entry is no longer in the log")
    for line in hold.lines:
        if line.line not in rows:
            yield differs(f"has no row for line {line.line}, which should be {hold.status}", NewLine(hold, line))
    for number, row in rows.items():
        status = row["status"]
        if identity := sorted(_wrong_identity(hold, row)):
            yield differs(f"line {number} has another {', '.join(identity)}")
        elif _is_settled(hold, row):
            if wrong := sorted(_wrong_state(hold, row)):
                yield differs(f"line {number} has another {', '.join(wrong)}", Correction(hold, number))
        elif status == "active" or (status, hold.status) == ("expired", "converted"):
            yield differs(f"line {number} is {status} and should be {hold.status}", Correction(hold, number))
        else:
            yield differs(f"line {number} is {status} and should be {hold.status}; an end is never undone")
    if hold.made is not None and (extra := rows.keys() - {line.line for line in hold.lines}):
        yield differs(f"has {len(extra)} rows more than its entry in the log")


def _is_settled(hold: ExpectedHold, row: Any) -> bool:
    """Whether the row's status is right, or differs only by when Postgres lets go of a hold past its end."""
    status = row["status"]
    if status == hold.status:
        return True
    if status == "expired":
        return hold.status in ("active", "cancelled") and bool(row["overdue"])
    return (status, hold.status) == ("active", "expired") and not row["overdue"]


def _wrong_state(hold: ExpectedHold, row: Any) -> Iterator[str]:
    expected = {
        "ends_ms": hold.ends_ms,
        "checkout": hold.checkout,
        "extension": hold.extension,
        "declined": hold.declined,
    }
    if row["status"] == hold.status and hold.status in ("converted", "cancelled"):
        expected["ended_ms"] = hold.ended_ms
        if row["reason"] != hold.reason:
            yield "reason"
    for field, value in expected.items():
        if value is not None and row[field] != value:
            yield field


def _wrong_identity(hold: ExpectedHold, row: Any) -> Iterator[str]:
    if hold.made is None:
        return
    record = hold.made.record
    expected = {
        "event_id": hold.event_id,
        "user_id": record.user_id,
        "created_ms": record.created_ms,
        "ttl_ms": record.ttl_ms,
        "fingerprint": record.fingerprint,
        "address": record.address,
        "cart": record.cart,
    }
    lines = {line.line: line for line in hold.lines}
    if line := lines.get(row["line"]):
        expected |= {"zone": line.zone, "ordinal": line.ordinal, "quantity": line.quantity}
    for field, value in expected.items():
        if row[field] != value:
            yield field


def _ticket_differences(hold: ExpectedHold, tickets: dict[UUID, Any]) -> Iterator[Difference]:
    subject = f"hold {hold.hold_id}"
    for ticket in hold.tickets:
        known = tickets.get(ticket.id)
        if known is None:
            yield Difference(
                Finding(hold.event_id, f"ticket {ticket.id}", f"of {subject} has no row"), NewTicket(hold, ticket)
            )
        elif known["sale_id"] != hold.checkout:
            yield Difference(Finding(hold.event_id, f"ticket {ticket.id}", f"of {subject} is of another sale"))
    expected = {ticket.id for ticket in hold.tickets}
    if hold.made is not None:
        for unknown in tickets.keys() - expected:
            yield Difference(Finding(hold.event_id, f"ticket {unknown}", f"of {subject} is not in the log"))


async def _checkout_differences(connection: Connection, holds: Iterable[ExpectedHold]) -> list[Difference]:
    wanted: dict[tuple[UUID, str], ExpectedHold] = {}
    for hold in holds:
        if hold.checkout and hold.checkout_status:
            known = wanted.setdefault((hold.event_id, hold.checkout), hold)
            if known.checkout_status == "open":
                wanted[hold.event_id, hold.checkout] = hold
    if not wanted:
        return []
    rows = await connection.fetch(query("list_checkouts"), *columns(list(wanted)))
    statuses = {(row["event_id"], row["id"]): row["status"] for row in rows}
    found = []
    for (event_id, checkout), hold in wanted.items():
        status, should = statuses.get((event_id, checkout)), str(hold.checkout_status)
        if status is None or should not in ("open", status):
            problem = f"is {status} and should be {should}" if status else "has no row"
            # An end is never undone, but for the sale that says more than any other.
            remedy = CheckoutStatus(hold, should) if status in (None, "open") or should == "completed" else None
            found.append(Difference(Finding(event_id, f"checkout {checkout}", problem), remedy))
    return found


def _grouped(rows: Iterable[Any]) -> dict[UUID, dict[int, Any]]:
    found: dict[UUID, dict[int, Any]] = {}
    for row in rows:
        found.setdefault(row["hold_id"], {})[row["line"]] = row
    return found


def _row(remedy: Remedy | None) -> tuple[Any, ...]:
    """The arguments of a remedy's statement; the first two are what the statement returns when it is done."""
    match remedy:
        case NewLine(hold, line):
            assert hold.made is not None
            record = hold.made.record
            return (
                hold.hold_id,
                line.line,
                hold.organization_id,
                hold.event_id,
                record.user_id,
                line.zone,
                line.ordinal,
                line.quantity,
                moment(record.created_ms),
                record.ttl_ms,
                record.cart,
                record.fingerprint,
                record.address,
                *_state(hold),
                hold.made.caller.source,
            )
        case Correction(hold, number):
            return (hold.hold_id, number, *_state(hold))
        case NewTicket(hold, ticket):
            return (ticket.id, hold.hold_id, ticket.zone, ticket.ordinal, hold.checkout, moment(hold.ended_ms or 0))
        case CheckoutStatus(hold, status):
            return (hold.event_id, hold.checkout, hold.hold_id, status, moment(hold.last.at_ms))
    raise TypeError(f"{remedy!r} is no remedy")


def _state(hold: ExpectedHold) -> tuple[Any, ...]:
    return (
        hold.status,
        None if hold.ends_ms is None else moment(hold.ends_ms),
        hold.checkout,
        hold.extension,
        hold.reason,
        None if hold.ended_ms is None else moment(hold.ended_ms),
        hold.last.epoch,
        hold.last.seq,
        moment(hold.last.at_ms),
        hold.declined,
    )


_STATEMENTS: dict[type[Remedy], str] = {
    NewLine: "restore_hold_lines",
    Correction: "correct_hold_lines",
    NewTicket: "restore_tickets",
    CheckoutStatus: "restore_checkouts",
}
