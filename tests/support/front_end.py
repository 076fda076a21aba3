"""A front end on real servers: an event in both, a persister at work, and clients with tokens."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import msgspec
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from holdfast.engine.epochs import Mode
from holdfast.engine.layout import CompiledEvent, EventDocument, ZoneDocument
from holdfast.engine.settings import Settings
from holdfast.http.app import create_app
from holdfast.http.tokens import Role, mint_token
from support.engine import SHARDS, UNLIMITED, document
from support.persisting import Rig, is_listening, rigged, running
from support.polling import eventually
from support.row_locks import serve_from_postgres

SECRET = "a secret that is only good for tests, and long enough for every algorithm"


class Reply(msgspec.Struct, frozen=True):
    """What a client was answered."""

    status: int
    headers: Any
    body: Any

    @property
    def data(self) -> Any:
        return self.body["data"]

    @property
    def error(self) -> str | None:
        """The reason of a problem."""
        return self.body.get("error") if isinstance(self.body, dict) else None


class FrontEnd:
    """The front end, the rig behind it, and a customer who calls it unless a test says otherwise."""

    def __init__(self, client: TestClient[Any, Any], settings: Settings, rig: Rig) -> None:
        self.client = client
        self.settings = settings
        self.rig = rig
        self.user = uuid4()

    @property
    def event(self) -> CompiledEvent:
        return self.rig.event

    def token(
        self, *, user: UUID | None = None, org: UUID | None = None, role: Role = Role.CUSTOMER, tier: str = ""
    ) -> str:
        return mint_token(
            self.settings,
            user_id=user or self.user,
            organization_id=org or self.event.organization_id,
            role=role,
            ttl_seconds=600,
            tier=tier or None,
        )

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        token: str | None = None,
        **who: Any,
    ) -> Reply:
        """One request. `who` are the claims of the token; an empty `token` sends none."""
        sent = dict(headers or {})
        bearer = self.token(**who) if token is None else token
        if bearer:
            sent["Authorization"] = f"Bearer {bearer}"
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        async with self.client.request(method, path, data=body, headers=sent) as response:
            return await _read(response)

    async def reserve(self, seat: str, body: Any = None, **options: Any) -> Reply:
        return await self.call("POST", f"/api/events/{self.event.event_id}/seats/{seat}/reserve", body, **options)


async def _read(response: ClientResponse) -> Reply:
    content = await response.read()
    is_json = response.content_type in ("application/json", "application/problem+json")
    return Reply(response.status, response.headers, msgspec.json.decode(content) if is_json else content)


@asynccontextmanager
async def serving(
    redis_url: str,
    dsn: str,
    doc: EventDocument | None = None,
    *,
    persist: bool = True,
    mode: Mode = Mode.REDIS,
    **settings: Any,
) -> AsyncIterator[FrontEnd]:
    """A front end that serves one event, whose holds are persisted unless a test does that itself.

    Its organisation operates the servers, unless a test says which does, or with None that nobody knows.
    """
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(rigged(redis_url, dsn, doc))
        whose = {"operator_organization": rig.event.organization_id, **settings}
        chosen = Settings(redis_url=redis_url, postgres_dsn=dsn, shards=SHARDS, token_secret=SECRET, **whose)
        if mode is Mode.DB:
            await rig.drain()
            async with rig.pool.acquire() as connection:
                await serve_from_postgres(connection)
        client = await stack.enter_async_context(TestClient(TestServer(create_app(chosen))))
        await eventually(lambda: is_listening(dsn), "the front end hears what is committed")
        if not persist:
            yield FrontEnd(client, chosen, rig)
            return
        async with running(rig.persister().run()):
            yield FrontEnd(client, chosen, rig)


def with_uuids(doc: EventDocument | None = None) -> EventDocument:
    """An event whose seats and zones have UUIDs for names, as most have."""
    doc = doc or document()
    names = {seat.seat_id: str(uuid4()) for zone in doc.zones for seat in zone.seats}
    groups = tuple(
        msgspec.structs.replace(group, seat_ids=tuple(names[each] for each in group.seat_ids))
        for group in doc.seat_groups
    )
    zones = tuple(_renamed(zone, names) for zone in doc.zones)
    return msgspec.structs.replace(doc, zones=zones, seat_groups=groups)


def _renamed(zone: ZoneDocument, names: dict[str, str]) -> ZoneDocument:
    seats = tuple(
        msgspec.structs.replace(
            seat,
            seat_id=names[seat.seat_id],
            companion_seat_ids=tuple(names[each] for each in seat.companion_seat_ids),
        )
        for seat in zone.seats
    )
    return msgspec.structs.replace(zone, zone_id=str(uuid4()), seats=seats)


def with_limits(**limits: Any) -> EventDocument:
    """The usual event with a policy that limits."""
    return document(policy=msgspec.structs.replace(UNLIMITED, **limits))
