"""What belongs to another organisation takes the same path as what exists nowhere: the same calls of both servers.

Clocks would tell little and fail often; what an answer costs is what is asked for it. Redis counts its commands, and
Postgres writes every statement into its log, with the process that ran it.
"""

import re
from collections import Counter
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import msgspec

from holdfast.embedded import Server
from holdfast.http.app import ENDPOINTS
from holdfast.http.endpoints import Endpoint
from holdfast.http.stores import catalogue_key
from holdfast.http.tokens import Role
from support.checking_out import checked_out, reserve
from support.database import execute
from support.engine import document
from support.front_end import FrontEnd, serving

STRANGERS = UUID("7d1f8f7e-6f7c-4c56-9d7a-0b9d3a6f2f10")

# Lists of one's own, the shards that are nobody's, and places where the caller says under which id something new is
# to be kept: that such an id is taken already cannot be hidden from whoever wants to take it.
WITHOUT_FOREIGN_IDS = {
    "GET /api/admin/events",
    "POST /api/admin/events",
    "GET /api/admin/venues",
    "POST /api/admin/venues",
    "GET /api/admin/layouts",
    "PUT /api/admin/layouts/{layout}",
    "GET /api/admin/policies",
    "PUT /api/admin/policies",
    "PUT /api/admin/members/{user}",
    "GET /api/admin/mode",
    "PUT /api/admin/mode",
}

# Connections of requests, and not of what goes on in the background.
REQUESTS = "application_name IN ('holdfast front end', 'holdfast fallback', 'holdfast desk')"
STATEMENT = re.compile(r"\[(\d+)\] LOG:  (?:statement|execute [^:]*): (.*)")

# What only requests do.
COMMANDS = ("evalsha", "hget", "hgetall", "hmget", "sismember", "zrange", "xrange")

# What goes on beside requests may fall into one measurement, but hardly into all.
MEASUREMENTS = 3

Cost = frozenset[tuple[str, int]]


class Meter:
    """Counts what both servers are asked in the course of a request."""

    def __init__(self, front: FrontEnd, server: Server) -> None:
        self._front = front
        self._server = server

    async def cost(self, endpoint: Endpoint, ids: dict[str, str]) -> tuple[int, Cost]:
        """The status of a request by a stranger, and what it took: commands and statements with how often they ran."""
        app = self._front.client.app
        assert app is not None
        # Otherwise what was asked a moment ago is known.
        app[catalogue_key].forget_all()
        read = len(self._server.process.output())
        commands = await self._commands()
        path, body = endpoint.path.format(**ids), body_of(endpoint, ids)
        headers = {"Idempotency-Key": str(uuid4())} if endpoint.idempotency_key else {}
        reply = await self._front.call(
            endpoint.method, path, body, headers=headers, role=Role(min(endpoint.roles or ())), org=STRANGERS
        )
        spent = await self._commands()
        spent.subtract(commands)
        pids = {row["pid"] for row in await self._front.rig.fetch(f"SELECT pid FROM pg_stat_activity WHERE {REQUESTS}")}  # noqa: S608
        log = self._server.process.output()[read:]
        statements = Counter(text for pid, text in STATEMENT.findall(log) if int(pid) in pids)
        return reply.status, frozenset(
            {**{name: times for name, times in spent.items() if times}, **statements}.items()
        )

    async def _commands(self) -> Counter[str]:
        stats: Any = await self._front.rig.redis.info("commandstats")
        return Counter({name: stats[f"cmdstat_{name}"]["calls"] for name in COMMANDS if f"cmdstat_{name}" in stats})


def body_of(endpoint: Endpoint, ids: dict[str, str]) -> Any:
    body = msgspec.to_builtins(endpoint.example) if endpoint.example is not None else None
    return body | {"event_id": ids["event"]} if isinstance(body, dict) and "event_id" in body else body


async def things(front: FrontEnd) -> dict[str, str]:
    """Something of the first organisation for every parameter, all of it in use."""
    hold = await reserve(front, "A-1")
    await reserve(front, "A-2", cart="paid")
    checkout = await checked_out(front, cart="paid")
    user, layout = str(uuid4()), str(uuid4())
    venue = await front.call("POST", "/api/admin/venues", {"name": "Hall"}, role=Role.ADMIN)
    floor = {"zone_id": "floor", "zone_type": "ga_standing", "name": "Floor", "capacity": 10}
    plan = {"venue_id": venue.data["venue_id"], "name": "Plan", "zones": [floor]}
    for path, content in ((f"layouts/{layout}", plan), (f"members/{user}", {"tier": "friend"})):
        assert (await front.call("PUT", f"/api/admin/{path}", content, role=Role.ADMIN)).status == 200
    return {
        "event": str(front.event.event_id),
        "seat": "A-3",
        "hold": str(hold),
        "checkout": checkout,
        "venue": venue.data["venue_id"],
        "layout": layout,
        "user": user,
    }


def unknown(ids: dict[str, str]) -> dict[str, str]:
    """The same with ids that nobody has."""
    return {name: "A-3" if name == "seat" else str(uuid4()) for name in ids}


async def test_a_foreign_id_costs_what_an_unknown_one_does(
    redis_url: str, database_dsn: str, postgres_server: Server
) -> None:
    name = urlsplit(database_dsn).path.removeprefix("/")
    await execute(database_dsn, f"ALTER DATABASE {name} SET log_statement = 'all'")
    async with serving(redis_url, database_dsn) as front:
        meter, existing = Meter(front, postgres_server), await things(front)
        # The stranger has something too, among which it may be looked for.
        assert (await front.call("POST", "/api/admin/events", document(), role=Role.ADMIN, org=STRANGERS)).status == 201
        differing = {}
        tried = 0
        for endpoint in ENDPOINTS:
            where = f"{endpoint.method} {endpoint.path}"
            if endpoint.roles is None or where in WITHOUT_FOREIGN_IDS:
                continue
            tried += 1
            # The first time a connection sees a query it asks for more.
            for ids in (existing, unknown(existing)):
                await meter.cost(endpoint, ids)
            foreign = [await meter.cost(endpoint, existing) for _ in range(MEASUREMENTS)]
            nowhere = [await meter.cost(endpoint, unknown(existing)) for _ in range(MEASUREMENTS)]
            assert {status for status, _ in (*foreign, *nowhere)} == {404}, where
            assert all(cost for _, cost in (*foreign, *nowhere)), f"{where} asked nobody"
            if {cost for _, cost in foreign}.isdisjoint({cost for _, cost in nowhere}):
                differing[where] = (foreign[0][1] - nowhere[0][1], nowhere[0][1] - foreign[0][1])

    assert differing == {}
    assert tried > 20
