"""A Postgres that is there and does not answer: no request may wait for it longer than a client waits."""

import asyncio
import time
from io import BytesIO
from typing import Any
from uuid import uuid4

import msgspec

from holdfast.embedded import Server
from holdfast.generated import GENERATORS
from holdfast.http.app import ENDPOINTS
from holdfast.http.endpoints import Endpoint
from holdfast.http.tokens import Role
from support.every import body_of, role_of, things
from support.front_end import FrontEnd
from support.frozen import frozen

# What a client waits for at most, with everything asked at once.
LIMIT_S = 10.0


async def test_every_endpoint_answers_while_postgres_is_frozen(front: FrontEnd, postgres_server: Server) -> None:
    ids = await things(front)
    with frozen(postgres_server):
        answers = await asyncio.gather(*(asked(front, endpoint, ids) for endpoint in ENDPOINTS))

    late = {name: seconds for name, _, _, seconds in answers if seconds > LIMIT_S}
    assert late == {}
    wrong = [(name, status) for name, status, _, _ in answers if status not in (200, 201, 503)]
    assert wrong == []
    assert [name for name, status, headers, _ in answers if status == 503 and not headers.get("Retry-After")] == []


async def test_a_change_of_an_event_is_given_up_and_may_be_repeated(front: FrontEnd, postgres_server: Server) -> None:
    # Given a connection for such changes, over which the next one is sent
    path = f"/api/admin/events/{front.event.event_id}/state"
    assert (await front.call("PUT", path, {"state": "live"}, role=Role.ADMIN)).status == 200

    with frozen(postgres_server):
        began = time.monotonic()
        first = await front.call("PUT", path, {"state": "closed"}, role=Role.ADMIN)
        assert (first.status, first.error, first.headers["Retry-After"]) == (503, "unknown_outcome", "1")
        assert time.monotonic() - began < LIMIT_S

    again = await front.call("PUT", path, {"state": "closed"}, role=Role.ADMIN)

    assert (again.status, again.data["state"]) == (200, "closed")
    assert (await front.rig.value("SELECT state FROM events")) == "closed"
    assert (await front.reserve("B-1")).error == "event_not_available"


async def test_many_readers_do_not_wait_one_after_the_other(front: FrontEnd, postgres_server: Server) -> None:
    paths = [f"/api/events/{front.event.event_id}{rest}" for rest in ("", "/occupancy", "/seats/A-1")]
    with frozen(postgres_server):
        began = time.monotonic()
        replies = await asyncio.gather(*(front.call("GET", path) for path in paths * 20))

    assert {reply.status for reply in replies} == {503}
    assert time.monotonic() - began < LIMIT_S


async def test_a_large_hall_may_take_its_time(front: FrontEnd) -> None:
    arena = GENERATORS["arena"](100_000)
    headers = {"Authorization": f"Bearer {front.token(role=Role.ADMIN)}", "Content-Type": "application/json"}
    body = BytesIO(msgspec.json.encode(arena))

    async with front.client.post("/api/admin/events", data=body, headers=headers) as response:
        assert (response.status, (await response.json())["data"]["result"]) == (201, "created")

    assert await front.rig.value("SELECT count(*) FROM seats WHERE event_id = $1", arena.event_id) == 100_000


async def asked(front: FrontEnd, endpoint: Endpoint, ids: dict[str, str]) -> tuple[str, int, Any, float]:
    """Send an endpoint the request that it has as an example: its name, status, headers, and how long that took."""
    headers = {"Content-Type": "application/json"}
    if endpoint.roles:
        headers["Authorization"] = f"Bearer {front.token(role=role_of(endpoint))}"
    if endpoint.idempotency_key:
        headers["Idempotency-Key"] = str(uuid4())
    content = msgspec.json.encode(body_of(front, endpoint)) if endpoint.example is not None else None
    began = time.monotonic()
    path = endpoint.path.format(**ids)
    async with front.client.request(endpoint.method, path, data=content, headers=headers) as response:
        return f"{endpoint.method} {endpoint.path}", response.status, response.headers, time.monotonic() - began
