"""A model of the protocol that keeps P1 and P2: who may write, what is acknowledged, and how service changes hands.

Nothing here touches a server. The world has Postgres, a few Redis servers that may be restarted, rolled back, emptied,
copied and promoted, front ends that believe what they last heard, keepers that persist, and recoverers. Every action
is one atomic step of the real system (a script, a transaction, an answer); what may come between two of them in reality
may come between them here. Buyers believe what they were told, by a watch that agrees with Postgres's clock:
`Violation` is raised at the first step after which they were told something untrue.

Each guard can be switched off, which is how it is shown to be needed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

SEATS = 3
USERS = 3
FRONT_ENDS = 2
KEEPERS = 2
MAX_SERVERS = 3
TTL = 10
EXTENSION = 6

Step = tuple[str, int, int, int]


class Violation(Exception):
    """A promise that was broken, in a sentence."""


@dataclass(frozen=True)
class Guards:
    """What keeps the promises. docs/protocol.md explains each, and what goes wrong without it."""

    unique_hold: bool = True
    unique_ticket: bool = True
    ack_after_commit: bool = True
    repeats_in_current_epoch: bool = True
    epoch_check: bool = True
    open_key: bool = True
    script_fence: bool = True
    identity_on_connect: bool = True
    postgres_clock: bool = True
    compare_and_set: bool = True
    ordered_extensions: bool = True
    quarantine: bool = True
    fresh_epochs: bool = True
    cutover_lock: bool = True
    compensate_own_epoch: bool = True


class Record(NamedTuple):
    """A hold as Redis has it; `seq` is the log entry that must be persisted for it to be durable."""

    user: int
    seat: int
    until: int
    state: str
    seq: int


class Entry(NamedTuple):
    op: str
    hold: int
    user: int
    seat: int
    until: int


class Row(NamedTuple):
    """A hold as Postgres has it: the entry that made it, and the last one that changed it."""

    user: int
    seat: int
    status: str
    until: int
    made_by: tuple[int, int]
    changed_by: tuple[int, int]


@dataclass
class Keys:
    """One epoch's keys on a server. Entry n of the log is number n + 1."""

    identity: tuple[int, int] = (0, 0)
    open: bool = False
    owners: dict[int, int] = field(default_factory=dict)
    holds: dict[int, Record] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)

    def copy(self) -> "Keys":
        return Keys(self.identity, self.open, dict(self.owners), dict(self.holds), list(self.log))

    def append(self, entry: Entry) -> int:
        self.log.append(entry)
        return len(self.log)

    def end(self, hold: int, op: str, state: str) -> None:
        record = self.holds[hold]
        seq = self.append(Entry(op, hold, record.user, record.seat, 0))
        self.holds[hold] = record._replace(state=state, seq=seq)
        if self.owners.get(record.seat) == hold:
            del self.owners[record.seat]


Data = dict[int, Keys]


@dataclass
class Server:
    """One Redis process: `run` changes when it restarts, `lineage` when it has followed another server."""

    run: int
    data: Data
    scripts: bool = False
    lineage: int = 0
    clock_offset: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        return self.run, self.lineage


class Pending(NamedTuple):
    """What a front end was answered by Redis and has not passed on yet; `repeats` if it wrote nothing by itself."""

    op: str
    hold: int
    epoch: int
    seq: int
    until: int
    asked_at: int
    repeats: bool = False


@dataclass
class Client:
    """Whoever talks to Redis over a connection: a front end or a keeper."""

    server: int = 0
    verified: bool = False


@dataclass
class FrontEnd(Client):
    mode: str = "redis"
    epoch: int = 1
    marks: dict[int, int] = field(default_factory=dict)
    rejected: frozenset[tuple[int, int]] = frozenset()
    pending: list[Pending] = field(default_factory=list)


@dataclass
class Keeper(Client):
    batch: tuple[int, int, list[Entry]] | None = None


class Attempt(NamedTuple):
    """A recoverer's attempt to serve from a server again."""

    server: int
    epoch: int
    base: int


@dataclass
class Told:
    """What a buyer knows of a hold: when it ends, and whether they gave it up or paid for it."""

    user: int
    seat: int
    until: int = 0
    acknowledged: bool = False
    given_up_at: int = -1
    paying: bool = False
    sold: bool = False


@dataclass
class Postgres:
    mode: str = "redis"
    epoch: int = 1
    marks: dict[int, int] = field(default_factory=lambda: {1: 0})
    rows: dict[int, Row] = field(default_factory=dict)
    tickets: list[tuple[int, int]] = field(default_factory=list)
    rejections: dict[tuple[int, int], int] = field(default_factory=dict)
    compensated: set[tuple[int, int]] = field(default_factory=set)

    def active(self, seat: int) -> int | None:
        return next((hold for hold, row in self.rows.items() if row.seat == seat and row.status == "active"), None)

    def sold(self, seat: int) -> bool:
        return any(seat == ticket[0] for ticket in self.tickets)


class World:
    """The whole system at one moment. `act` does one step and says in words what happened, or None if it could not."""

    def __init__(self, guards: Guards) -> None:
        self.guards = guards
        self.now = 0
        self.step = 0
        self.postgres = Postgres()
        opened = Keys(identity=(1, 0), open=True)
        self.servers = [Server(1, {1: opened}, scripts=True)]
        self.images: list[Data] = []
        self.front_ends = [FrontEnd() for _ in range(FRONT_ENDS)]
        self.keepers = [Keeper() for _ in range(KEEPERS)]
        self.attempts: list[Attempt] = []
        self.locked_by: Attempt | None = None
        self.told: dict[int, Told] = {}
        self.last_epoch = 1
        self.last_run = 1
        self.actions: dict[str, Callable[[int, int, int], str | None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    def act(self, step: Step) -> str | None:
        name, *numbers = step
        self.step += 1
        said = self.actions[name](*numbers)
        if said is not None:
            self._check()
        return said

    # Time and faults.

    def do_tick(self, a: int, _: int, __: int) -> str:
        self.now += 1 + a % 4
        return f"time passes: {self.now}"

    def do_drift(self, a: int, b: int, _: int) -> str | None:
        if b % 7 == 3:
            return None
        server = self.servers[a % len(self.servers)]
        server.clock_offset += (b % 7 - 3) * 4
        return f"the clock of server {a % len(self.servers)} is now {server.clock_offset:+d}"

    def do_copy(self, a: int, _: int, __: int) -> str:
        """What a replica, a backup or the disk has of a server now, and may have much later."""
        self.images.append(_copy(self.servers[a % len(self.servers)].data))
        return f"copy {len(self.images) - 1} of server {a % len(self.servers)} is made"

    def do_restart(self, a: int, b: int, _: int) -> str:
        """A server comes back with all its data, with an old copy of it, or empty."""
        index = a % len(self.servers)
        server = self.servers[index]
        choice = b % (len(self.images) + 2)
        server.data = [server.data, {}, *self.images][choice]
        if choice > 1:
            server.data = _copy(server.data)
        self.last_run += 1
        server.run, server.lineage, server.scripts = self.last_run, 0, False
        self._cut(index)
        return f"server {index} restarts with {['all its data', 'no data', f'copy {choice - 2}'][min(choice, 2)]}"

    def do_flush(self, a: int, _: int, __: int) -> str:
        self.servers[a % len(self.servers)].data = {}
        return f"server {a % len(self.servers)} is flushed"

    def do_promote(self, a: int, _: int, __: int) -> str | None:
        """A replica that is as old as a copy starts to serve beside the others."""
        if not self.images or len(self.servers) == MAX_SERVERS:
            return None
        self.last_run += 1
        self.servers.append(Server(self.last_run, _copy(self.images[a % len(self.images)]), clock_offset=a % 3 - 1))
        return f"copy {a % len(self.images)} is promoted as server {len(self.servers) - 1}"

    def do_follow_and_lead(self, a: int, b: int, _: int) -> str | None:
        """A server is made a replica of an older copy and then a primary again: one process, scripts and all."""
        if not self.images:
            return None
        index = a % len(self.servers)
        server = self.servers[index]
        server.data = _copy(self.images[b % len(self.images)])
        server.lineage += 1
        self._cut(index)
        return f"server {index} has followed copy {b % len(self.images)} and leads again, without a restart"

    def do_crash(self, a: int, _: int, __: int) -> str:
        """A front end starts anew: it forgets what it waits for, and asks Postgres who serves."""
        index = a % FRONT_ENDS
        control = self.postgres
        self.front_ends[index] = FrontEnd(self.front_ends[index].server, False, control.mode, control.epoch)
        return f"front end {index} is killed and started again"

    def do_reconnect(self, a: int, b: int, _: int) -> str | None:
        clients: list[Client] = [*self.front_ends, *self.keepers]
        client = clients[a % len(clients)]
        if client.server == b % len(self.servers) and not client.verified:
            return None
        client.server, client.verified = b % len(self.servers), False
        return f"{_name(a % len(clients))} is led to server {client.server}"

    def _cut(self, server: int) -> None:
        for client in (*self.front_ends, *self.keepers):
            if client.server == server:
                client.verified = False

    # Buyers, by way of a front end.

    def do_hold(self, a: int, b: int, c: int) -> str:
        hold = len(self.told)
        self.told[hold] = Told(user=b % USERS, seat=c % SEATS)
        return self._ask_for(a % FRONT_ENDS, hold)

    def do_repeat(self, a: int, b: int, _: int) -> str | None:
        """A buyer who never heard asks again, under the same id."""
        waited_for = {each.hold for front_end in self.front_ends for each in front_end.pending}
        unknown = [hold for hold, told in self.told.items() if not told.acknowledged and hold not in waited_for]
        return self._ask_for(a % FRONT_ENDS, unknown[b % len(unknown)]) if unknown else None

    def _ask_for(self, index: int, hold: int) -> str:
        front_end, told = self.front_ends[index], self.told[hold]
        asked = f"front end {index} asks for seat {told.seat} for user {told.user} as h{hold}"
        if front_end.mode == "db":
            return f"{asked} in Postgres: {self._hold_in_postgres(front_end, hold)}"
        keys = self._enter(front_end, front_end.epoch)
        if keys is None:
            return f"{asked}: fenced"
        written = len(keys.log)
        answer = _hold_script(keys, self._redis_now(front_end), hold, told)
        if isinstance(answer, str):
            return f"{asked}: {answer}"
        granted, seq, until = answer
        repeats = len(keys.log) == written
        self._answered(front_end, Pending("hold", granted, front_end.epoch, seq, until, self.step, repeats))
        return f"{asked}: Redis grants h{granted} until {until}, entry {front_end.epoch}-{seq}"

    def do_extend(self, a: int, b: int, _: int) -> str | None:
        return self._ask_owner("extend", a, b)

    def do_release(self, a: int, b: int, _: int) -> str | None:
        return self._ask_owner("release", a, b)

    def do_sell(self, a: int, b: int, _: int) -> str | None:
        return self._ask_owner("sell", a, b)

    def _ask_owner(self, op: str, a: int, b: int) -> str | None:
        known = [hold for hold, told in self.told.items() if told.acknowledged and told.given_up_at < 0]
        if not known:
            return None
        hold = known[b % len(known)]
        front_end, told = self.front_ends[a % FRONT_ENDS], self.told[hold]
        asked = f"front end {a % FRONT_ENDS} is asked to {op} h{hold}"
        was_live = self._is_live(told)
        if op == "release":
            told.given_up_at = self.step
        told.paying = told.paying or op == "sell"
        if front_end.mode == "db":
            return f"{asked} in Postgres: {self._change_in_postgres(front_end, op, hold)}"
        keys = self._enter(front_end, front_end.epoch)
        if keys is None:
            return f"{asked}: fenced"
        record = keys.holds.get(hold)
        if record is None:
            if was_live and (front_end.mode, front_end.epoch) == (self.postgres.mode, self.postgres.epoch):
                raise Violation(f"P2: h{hold} was acknowledged until {told.until} and Redis does not know it")
            return f"{asked}: not found"
        written = len(keys.log)
        answer = _change_script(keys, self._redis_now(front_end), op, hold)
        if isinstance(answer, str):
            return f"{asked}: {answer}"
        seq, until = answer
        repeats = len(keys.log) == written
        self._answered(front_end, Pending(op, hold, front_end.epoch, seq, until, self.step, repeats))
        return f"{asked}: done in Redis, entry {front_end.epoch}-{seq}"

    def _enter(self, client: Client, epoch: int) -> Keys | None:
        """The keys of an epoch for a script, or None where the fence is down."""
        server = self.servers[client.server]
        keys = server.data.get(epoch)
        if self.guards.identity_on_connect and not client.verified:
            if keys is None or keys.identity != server.identity:
                return None
            client.verified = True
        if not server.scripts:
            if self.guards.script_fence and (keys is None or keys.identity[0] != server.run):
                return None
            server.scripts = True
        if keys is None or not keys.open:
            return None if self.guards.open_key else server.data.setdefault(epoch, Keys())
        return keys

    def _redis_now(self, client: Client) -> int:
        return self.now + self.servers[client.server].clock_offset

    # What buyers are told.

    def _answered(self, front_end: FrontEnd, pending: Pending) -> None:
        if self.guards.ack_after_commit:
            front_end.pending.append(pending)
        else:
            self._acknowledge(pending)

    def do_hear(self, a: int, _: int, __: int) -> str | None:
        """A front end learns how far the log is committed, and what was refused of it."""
        front_end = self.front_ends[a % FRONT_ENDS]
        if front_end.marks == self.postgres.marks:
            return None
        front_end.marks = dict(self.postgres.marks)
        front_end.rejected = frozenset(self.postgres.rejections)
        return f"front end {a % FRONT_ENDS} hears the marks {front_end.marks}"

    def do_answer(self, a: int, b: int, _: int) -> str | None:
        front_end = self.front_ends[a % FRONT_ENDS]
        ready = [each for each in front_end.pending if each.seq <= front_end.marks.get(each.epoch, 0)]
        if not ready:
            return None
        pending = ready[b % len(ready)]
        front_end.pending.remove(pending)
        if (pending.epoch, pending.seq) in front_end.rejected:
            return f"front end {a % FRONT_ENDS} answers that h{pending.hold} was refused"
        if pending.repeats and self.guards.repeats_in_current_epoch and self.postgres.epoch != pending.epoch:
            return f"front end {a % FRONT_ENDS} finds epoch {pending.epoch} over: the outcome is unknown"
        self._acknowledge(pending)
        return f"front end {a % FRONT_ENDS} acknowledges to {pending.op} h{pending.hold} until {pending.until}"

    def do_give_up(self, a: int, b: int, _: int) -> str | None:
        """A request takes too long: its outcome is unknown."""
        front_end = self.front_ends[a % FRONT_ENDS]
        if not front_end.pending:
            return None
        pending = front_end.pending.pop(b % len(front_end.pending))
        return f"front end {a % FRONT_ENDS} gives up waiting for entry {pending.epoch}-{pending.seq}"

    def _acknowledge(self, pending: Pending) -> None:
        told = self.told[pending.hold]
        if pending.op == "release":
            return
        if told.given_up_at > pending.asked_at:
            return
        told.acknowledged, told.given_up_at = True, -1
        told.until = max(told.until, pending.until)
        if pending.op == "sell":
            told.sold = True
        for hold, other in self.told.items():
            if hold == pending.hold or other.seat != told.seat:
                continue
            if told.sold and other.sold:
                raise Violation(f"P1: seat {told.seat} was sold as h{hold} and as h{pending.hold}")
            if self._is_live(told) and self._is_live(other):
                raise Violation(f"P2: seat {told.seat} has two acknowledged live holds, h{hold} and h{pending.hold}")

    def _is_live(self, told: Told) -> bool:
        return told.acknowledged and told.given_up_at < 0 and (told.sold or told.until > self.now)

    def _check(self) -> None:
        """What Postgres must be able to show at every moment."""
        seats = [seat for seat, _ in self.postgres.tickets]
        if len(seats) != len(set(seats)):
            raise Violation("P1: a seat has two tickets")
        for hold, told in self.told.items():
            if not self._is_live(told):
                continue
            row = self.postgres.rows.get(hold)
            if row is None:
                if self._is_on_its_way(hold):
                    continue
                raise Violation(f"P2: h{hold} was acknowledged and will never be in Postgres")
            kept = row.status == "converted" if told.sold else row.status in ("active", "converted")
            if not kept or (row.status == "active" and row.until < told.until):
                raise Violation(
                    f"P2: h{hold} was acknowledged until {told.until} and is {row.status} until {row.until}"
                )

    def _is_on_its_way(self, hold: int) -> bool:
        """Whether a hold that is not in Postgres yet may still get there: nobody is to call that lost too early."""
        control = self.postgres
        mark = control.marks.get(control.epoch, 0)
        logs = [server.data[control.epoch].log[mark:] for server in self.servers if control.epoch in server.data]
        read = [keeper.batch[2] for keeper in self.keepers if keeper.batch and keeper.batch[0] == control.epoch]
        return any(entry.hold == hold and entry.op == "hold" for entries in (*logs, *read) for entry in entries)

    # Postgres in db mode.

    def _may_write(self, mode: str, epoch: int) -> bool:
        control = self.postgres
        return not self.guards.epoch_check or (control.mode, control.epoch) == (mode, epoch)

    def _hold_in_postgres(self, front_end: FrontEnd, hold: int) -> str:
        postgres, told = self.postgres, self.told[hold]
        if self.locked_by is not None or not self._may_write("db", front_end.epoch):
            return "not served here"
        known = postgres.rows.get(hold)
        if known is not None and known.status not in ("active", "converted"):
            return f"it is {known.status}"
        owner = hold if known is not None else postgres.active(told.seat)
        if owner is None or postgres.rows[owner].until <= self.now:
            if owner is not None:
                postgres.rows[owner] = postgres.rows[owner]._replace(status="expired")
            if postgres.sold(told.seat) or owner == hold:
                return "refused"
            until = self.now + TTL
            by = (front_end.epoch, 0)
            postgres.rows[hold] = Row(told.user, told.seat, "active", until, by, by)
            owner = hold
        elif postgres.rows[owner].user != told.user:
            return "refused"
        self._acknowledge(Pending("hold", owner, front_end.epoch, 0, postgres.rows[owner].until, self.step))
        return f"acknowledged as h{owner}"

    def _change_in_postgres(self, front_end: FrontEnd, op: str, hold: int) -> str:
        postgres = self.postgres
        if self.locked_by is not None or not self._may_write("db", front_end.epoch):
            return "not served here"
        row = postgres.rows.get(hold)
        if row is None:
            return "not found"
        by = (front_end.epoch, 0)
        if op == "extend":
            if row.status != "active" or row.until <= self.now:
                return "refused"
            row = row._replace(until=row.until + EXTENSION, changed_by=by)
            postgres.rows[hold] = row
        elif op == "release":
            if row.status == "active":
                postgres.rows[hold] = row._replace(status="cancelled", changed_by=by)
        elif not self._sell_row(hold, by):
            return "refused"
        self._acknowledge(Pending(op, hold, front_end.epoch, 0, row.until, self.step))
        return "acknowledged"

    def do_sweep(self, _: int, __: int, ___: int) -> str | None:
        if self.locked_by is not None:
            return None
        rows = self.postgres.rows
        overdue = [hold for hold, row in rows.items() if row.status == "active" and row.until <= self.now]
        rows.update({hold: rows[hold]._replace(status="expired") for hold in overdue})
        return f"Postgres expires {', '.join(f'h{hold}' for hold in overdue)}" if overdue else None

    # Keepers: from the log to rows.

    def do_read(self, a: int, b: int, _: int) -> str | None:
        keeper, control = self.keepers[a % KEEPERS], self.postgres
        keys = self.servers[keeper.server].data.get(control.epoch)
        if control.mode != "redis" or keys is None:
            return None
        mark = control.marks[control.epoch]
        entries = keys.log[mark : mark + 1 + b % 4]
        if not entries:
            return None
        keeper.batch = (control.epoch, mark, entries)
        return f"keeper {a % KEEPERS} reads {len(entries)} entries after {control.epoch}-{mark}"

    def do_commit(self, a: int, _: int, __: int) -> str | None:
        keeper, postgres = self.keepers[a % KEEPERS], self.postgres
        if keeper.batch is None or self.locked_by is not None:
            return None
        (epoch, mark, entries), keeper.batch = keeper.batch, None
        if not self._may_write("redis", epoch):
            return f"keeper {a % KEEPERS} finds epoch {epoch} over"
        if self.guards.compare_and_set and postgres.marks[epoch] != mark:
            return f"keeper {a % KEEPERS} finds the mark moved"
        for seq, entry in enumerate(entries, start=mark + 1):
            self._apply(epoch, seq, entry)
        postgres.marks[epoch] = mark + len(entries)
        return f"keeper {a % KEEPERS} commits up to {epoch}-{postgres.marks[epoch]}"

    def _apply(self, epoch: int, seq: int, entry: Entry) -> None:
        postgres, by = self.postgres, (epoch, seq)
        row = postgres.rows.get(entry.hold)
        taken = True
        if entry.op == "hold":
            if row is None:
                taken = not postgres.sold(entry.seat)
                taken = taken and (postgres.active(entry.seat) is None or not self.guards.unique_hold)
                if taken:
                    postgres.rows[entry.hold] = Row(entry.user, entry.seat, "active", entry.until, by, by)
            else:
                taken = row.made_by == by
        elif entry.op == "sell":
            taken = self._sell_row(entry.hold, by)
        elif row is None or row.status != "active":
            taken = entry.op != "extend" or (row is not None and row.changed_by >= by)
        elif entry.op == "extend":
            if row.changed_by < by or not self.guards.ordered_extensions:
                postgres.rows[entry.hold] = row._replace(until=entry.until, changed_by=by)
        elif entry.op == "release":
            postgres.rows[entry.hold] = row._replace(status="cancelled", changed_by=by)
        elif row.until <= self.now or not self.guards.postgres_clock:
            postgres.rows[entry.hold] = row._replace(status="expired", changed_by=by)
        if not taken:
            postgres.rejections[by] = entry.hold

    def _sell_row(self, hold: int, by: tuple[int, int]) -> bool:
        postgres = self.postgres
        row = postgres.rows.get(hold)
        if row is None or row.status == "cancelled":
            return False
        if row.status == "converted":
            return True
        if self.guards.unique_ticket and (postgres.sold(row.seat) or postgres.active(row.seat) not in (None, hold)):
            return False
        postgres.rows[hold] = row._replace(status="converted", changed_by=by)
        postgres.tickets.append((row.seat, hold))
        return True

    def do_compensate(self, a: int, _: int, __: int) -> str | None:
        """Give back in Redis what Postgres refused, by way of whoever serves now."""
        postgres, keeper = self.postgres, self.keepers[a % KEEPERS]
        for by, hold in postgres.rejections.items():
            if by in postgres.compensated:
                continue
            if by[0] != postgres.epoch and self.guards.compensate_own_epoch:
                postgres.compensated.add(by)
                return f"the refusal of entry {by[0]}-{by[1]} is history: its epoch is over"
            if postgres.mode == "db" and self.locked_by is None:
                row = postgres.rows.get(hold)
                if row is not None and row.status == "active":
                    postgres.rows[hold] = row._replace(status="cancelled")
            elif (keys := self._enter(keeper, postgres.epoch)) is None:
                return None
            elif hold in keys.holds and keys.holds[hold].state == "held":
                keys.end(hold, "release", "released")
            postgres.compensated.add(by)
            return f"h{hold}, refused as entry {by[0]}-{by[1]}, is given back"
        return None

    def do_reap(self, a: int, _: int, __: int) -> str | None:
        keeper = self.keepers[a % KEEPERS]
        keys = self._enter(keeper, self.postgres.epoch) if self.postgres.mode == "redis" else None
        if keys is None:
            return None
        now = self._redis_now(keeper)
        due = [hold for hold, record in keys.holds.items() if record.state == "held" and record.until <= now]
        for hold in due:
            keys.end(hold, "expire", "expired")
        return f"keeper {a % KEEPERS} expires {', '.join(f'h{hold}' for hold in due)} in Redis" if due else None

    # The change from one to the other.

    def do_hear_mode(self, a: int, _: int, __: int) -> str | None:
        front_end, control = self.front_ends[a % FRONT_ENDS], self.postgres
        if (front_end.mode, front_end.epoch) == (control.mode, control.epoch):
            return None
        front_end.mode, front_end.epoch, front_end.verified = control.mode, control.epoch, False
        return f"front end {a % FRONT_ENDS} hears of mode {control.mode}, epoch {control.epoch}"

    def do_close(self, a: int, _: int, __: int) -> str | None:
        """The first half of an orderly change: no more writes, so that the log can be drained."""
        keys = self.servers[a % len(self.servers)].data.get(self.postgres.epoch)
        if keys is None or not keys.open or self.postgres.mode != "redis":
            return None
        keys.open = False
        return f"epoch {self.postgres.epoch} is closed on server {a % len(self.servers)}"

    def do_fall_back(self, _: int, __: int, ___: int) -> str | None:
        control = self.postgres
        if control.mode != "redis" or self.locked_by is not None:
            return None
        control.mode, control.epoch = "db", self._next_epoch()
        return f"mode db, epoch {control.epoch}"

    def _next_epoch(self) -> int:
        if self.guards.fresh_epochs:
            self.last_epoch += 1
        return self.last_epoch

    def do_build(self, a: int, _: int, __: int) -> str | None:
        """A recoverer copies Postgres into the keys of an epoch of its own; what an old log still has is set aside."""
        control = self.postgres
        if control.mode != "db" or len(self.attempts) == 2:
            return None
        index = a % len(self.servers)
        if not self.guards.quarantine and self.locked_by is None:
            for epoch, keys in self.servers[index].data.items():
                if epoch != control.epoch:
                    mark = control.marks.get(epoch, 0)
                    for seq, entry in enumerate(keys.log[mark:], start=mark + 1):
                        self._apply(epoch, seq, entry)
        attempt = Attempt(index, self._next_epoch(), control.epoch)
        self.servers[index].data[attempt.epoch] = self._snapshot()
        self.attempts.append(attempt)
        return f"epoch {attempt.epoch} is built on server {index}"

    def _snapshot(self) -> Keys:
        keys = Keys()
        for hold, row in self.postgres.rows.items():
            if row.status in ("active", "converted"):
                state = "held" if row.status == "active" else "sold"
                keys.holds[hold] = Record(row.user, row.seat, row.until, state, 0)
                keys.owners[row.seat] = hold
        return keys

    def do_cut_over(self, a: int, _: int, __: int) -> str | None:
        """Under the exclusive lock: bring the keys up to date, load the scripts, open the epoch."""
        if not self.attempts or self.locked_by is not None:
            return None
        attempt = self.attempts[a % len(self.attempts)]
        if not self._may_write("db", attempt.base):
            self.attempts.remove(attempt)
            return f"the attempt at epoch {attempt.epoch} comes too late"
        server = self.servers[attempt.server]
        keys = self._snapshot()
        keys.identity, keys.open, server.scripts = server.identity, True, True
        server.data[attempt.epoch] = keys
        self.attempts.remove(attempt)
        if self.guards.cutover_lock:
            self.locked_by = attempt
        else:
            self.attempts.append(attempt._replace(base=-attempt.base))
        return f"epoch {attempt.epoch} is checked and opened on server {attempt.server}"

    def do_commit_mode(self, a: int, _: int, __: int) -> str | None:
        ready = [self.locked_by] if self.locked_by else [each for each in self.attempts if each.base < 0]
        if not ready:
            return None
        attempt = ready[a % len(ready)]
        self.locked_by = None
        if attempt in self.attempts:
            self.attempts.remove(attempt)
        control = self.postgres
        if control.mode != "db" or (self.guards.epoch_check and control.epoch != abs(attempt.base)):
            return f"the attempt at epoch {attempt.epoch} comes too late"
        control.mode, control.epoch = "redis", attempt.epoch
        control.marks[attempt.epoch] = 0
        return f"mode redis, epoch {attempt.epoch}"

    def do_abandon(self, _: int, __: int, ___: int) -> str | None:
        """A recoverer dies before its commit: the lock goes with its session, the keys stay behind."""
        if self.locked_by is not None:
            self.locked_by = None
            return "the recoverer dies before its commit"
        return f"the attempt at epoch {self.attempts.pop().epoch} is given up" if self.attempts else None


def _hold_script(keys: Keys, now: int, hold: int, told: Told) -> str | tuple[int, int, int]:
    """hold_seats.lua: the hold that answers, the entry to wait for, and when it ends; or the refusal."""
    known = keys.holds.get(hold)
    if known is not None:
        if known.state == "sold" or (known.state == "held" and known.until > now):
            return hold, known.seq, known.until
        return f"it is {known.state}"
    owner = keys.owners.get(told.seat)
    if owner is not None:
        record = keys.holds[owner]
        if record.state == "held" and record.until <= now:
            keys.end(owner, "expire", "expired")
        elif record.state == "held" and record.user == told.user:
            return owner, record.seq, record.until
        else:
            return "refused"
    until = now + TTL
    seq = keys.append(Entry("hold", hold, told.user, told.seat, until))
    keys.holds[hold] = Record(told.user, told.seat, until, "held", seq)
    keys.owners[told.seat] = hold
    return hold, seq, until


def _change_script(keys: Keys, now: int, op: str, hold: int) -> str | tuple[int, int]:
    """extend, release and confirm_holds.lua: the entry to wait for and the hold's end; or the refusal."""
    record = keys.holds[hold]
    if op == "release":
        if record.state == "held":
            keys.end(hold, "release", "released")
            record = keys.holds[hold]
        return record.seq, record.until
    if record.state == "sold" and op == "sell":
        return record.seq, record.until
    if op == "extend":
        if record.state != "held" or record.until <= now:
            return "refused"
        until = record.until + EXTENSION
        seq = keys.append(Entry("extend", hold, record.user, record.seat, until))
        keys.holds[hold] = record._replace(until=until, seq=seq)
        return seq, until
    owner = keys.owners.get(record.seat)
    if record.state not in ("held", "expired") or owner not in (None, hold):
        return "refused"
    seq = keys.append(Entry("sell", hold, record.user, record.seat, 0))
    keys.holds[hold] = record._replace(state="sold", seq=seq)
    keys.owners[record.seat] = hold
    return seq, record.until


def _copy(data: Data) -> Data:
    return {epoch: keys.copy() for epoch, keys in data.items()}


def _name(client: int) -> str:
    return f"front end {client}" if client < FRONT_ENDS else f"keeper {client - FRONT_ENDS}"
