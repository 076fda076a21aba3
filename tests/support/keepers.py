"""`holdfast keep` in processes that can be killed, and callers that remember what they were told."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from holdfast.engine.acks import Ack
from holdfast.engine.backend import Holder
from holdfast.engine.durable import DurableBackend
from holdfast.engine.errors import BackendError
from holdfast.engine.layout import CompiledEvent
from holdfast.engine.settings import Settings
from holdfast.engine.status import Status
from support.commands import HOLDFAST, Command
from support.engine import SHARDS

ESTABLISHED = "01"


class Keeper(Command):
    """A keeper, and whether its persister has got as far as Postgres."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        directory.mkdir()
        self._port = urlsplit(settings.postgres_dsn).port or 0
        super().__init__([*HOLDFAST, "keep"], directory, settings.environment())

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection to Postgres, by what the kernel knows of its sockets."""
        mine = set()
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                mine.add(str(link.readlink()))
            except FileNotFoundError:
                continue
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, _, remote, state, *rest = line.split()
            port = int(remote.rpartition(":")[2], 16)
            if state == ESTABLISHED and port == self._port and f"socket:[{rest[5]}]" in mine:
                return True
        return False


class Keepers:
    """Several keepers; one that is killed is replaced at once."""

    def __init__(self, settings: Settings, directory: Path, count: int) -> None:
        self._settings = settings
        self._directory = directory
        self._started = 0
        self.running = [self._start() for _ in range(count)]

    def _start(self) -> Keeper:
        self._started += 1
        return Keeper(self._settings, self._directory / f"keeper-{self._started}")

    def replace(self, victim: Keeper) -> None:
        """Kill a keeper, whatever it is doing, and start another."""
        assert victim.process.poll() is None, victim.stderr
        victim.kill()
        self.running[self.running.index(victim)] = self._start()

    def stop(self) -> None:
        for keeper in self.running:
            keeper.process.terminate()
        for keeper in self.running:
            keeper.wait()


@asynccontextmanager
async def keeping(redis_url: str, dsn: str, directory: Path, count: int) -> AsyncIterator[Keepers]:
    """Keepers that run until the end of the block, however that is reached."""
    settings = Settings(redis_url=redis_url, postgres_dsn=dsn, shards=SHARDS)
    keepers = Keepers(settings, directory, count)
    try:
        yield keepers
    finally:
        for keeper in keepers.running:
            keeper.kill()
            # Shown when the test fails.
            print(f"keeper {keeper.process.pid} ended with {keeper.process.returncode}:", keeper.stderr)  # noqa: T201


class History:
    """What callers were told of their holds.

    `status` is the last that was acknowledged; `unsure` are those of which a call got no answer.
    """

    def __init__(self) -> None:
        self.status: dict[UUID, str] = {}
        self.unsure: set[UUID] = set()
        self.failed_calls = 0
        self.calls = 0


class Callers:
    """Customers who hold seats, and then release, extend, buy or forget them, until they are told to stop."""

    def __init__(
        self,
        backend: DurableBackend,
        events: Sequence[CompiledEvent],
        *,
        ack: Ack = Ack.POSTGRES,
        pause_s: float = 0,
        seed: int = 1,
    ) -> None:
        self._backend = backend
        self._events = events
        self._ack = ack
        self._pause_s = pause_s
        self._stopped = False
        self._random = random.Random(seed)  # noqa: S311 - it picks seats, not secrets.
        self.history = History()

    @asynccontextmanager
    async def at_work(self, count: int) -> AsyncIterator[None]:
        """So many of them for the duration of the block; each gets the answer to its last call."""
        tasks = [asyncio.create_task(self._call_on()) for _ in range(count)]
        try:
            yield
        finally:
            self._stopped = True
            await asyncio.gather(*tasks)

    async def _call_on(self) -> None:
        while not self._stopped:
            await self._call()
            await asyncio.sleep(self._pause_s)

    async def _call(self) -> None:
        """One customer: a hold, and what becomes of it."""
        event = self._random.choice(self._events)
        seats = self._random.sample(sorted(event.seats), self._random.choice((1, 1, 2)))
        places = [(1, self._random.randint(1, 3))] if self._random.random() < 0.3 else []
        holder = Holder(hold_id=uuid4(), user_id=uuid4())
        history, hold_id = self.history, holder.hold_id
        history.calls += 1
        try:
            reply = await self._backend.hold_seats(
                event, holder, seats=[event.seats[each] for each in seats], quantities=places, ack=self._ack
            )
            if reply.status is not Status.DONE:
                return
            history.status[hold_id] = "active"
            await self._go_on(event, holder)
        except BackendError:
            history.failed_calls += 1
            history.unsure.add(hold_id)
            # Nobody hammers a server that does not answer.
            await asyncio.sleep(0.01)

    async def _go_on(self, event: CompiledEvent, holder: Holder) -> None:
        choice, history, hold_id = self._random.random(), self.history, holder.hold_id
        if choice < 0.2:
            await self._backend.extend_holds(
                event,
                [hold_id],
                user_id=holder.user_id,
                key="k",
                extension_ms=1000,
                total_ms=3_600_000,
                checkout=str(hold_id),
                ack=self._ack,
            )
        if choice < 0.75:
            reply = await self._backend.release_holds(
                event, [hold_id], user_id=holder.user_id, reason="user_cancelled", ack=self._ack
            )
            if reply.status is Status.DONE:
                history.status[hold_id] = "cancelled"
        elif choice < 0.85 and self._ack is Ack.POSTGRES:
            reply = await self._backend.confirm_holds(event, [hold_id], sale=str(hold_id), user_id=holder.user_id)
            if reply.status is Status.DONE:
                history.status[hold_id] = "converted"


def port_of(dsn: str) -> int:
    port = urlsplit(dsn).port
    assert port is not None
    return port


def is_open(dsn: str) -> bool:
    """Whether anybody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port_of(dsn))) == 0
