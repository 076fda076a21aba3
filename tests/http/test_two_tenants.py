"""Another organisation's things do not exist: every endpoint of the application, called with ids of somebody else's."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast.http.app import ENDPOINTS
from holdfast.http.endpoints import Endpoint
from holdfast.http.tokens import Role
from support.checking_out import checked_out, complete, reserve
from support.front_end import FrontEnd

STRANGERS = UUID("7d1f8f7e-6f7c-4c56-9d7a-0b9d3a6f2f10")

# The catalogue: lists of one's own, and things that test_catalogue and test_admin_events make and then ask for as
# another organisation.
CATALOGUE = {
    "/api/admin/events",
    "/api/admin/venues",
    "/api/admin/layouts",
    "/api/admin/layouts/{layout}",
    "/api/admin/venues/{venue}",
    "/api/admin/policies",
    "/api/admin/members/{user}",
}
# The shards are nobody's: test_admin_mode has who may see and change them.
NOBODYS = {"/api/admin/mode"}
FOREIGN = [each for each in ENDPOINTS if each.roles is not None and each.path not in CATALOGUE | NOBODYS]


async def things(front: FrontEnd) -> dict[str, str]:
    """Something of the first organisation for every parameter, all of it in use."""
    hold = await reserve(front, "A-1")
    await reserve(front, "A-2", cart="paid")
    sold = await checked_out(front, cart="paid")
    assert (await complete(front, sold)).status == 200
    return {"event": str(front.event.event_id), "seat": "A-3", "hold": str(hold), "checkout": sold}


@pytest.mark.parametrize("endpoint", FOREIGN, ids=[f"{each.method} {each.path}" for each in FOREIGN])
async def test_what_belongs_to_another_organisation_is_not_found(front: FrontEnd, endpoint: Endpoint) -> None:
    ids = await things(front)
    path = endpoint.path.format(**ids)
    body = msgspec.to_builtins(endpoint.example) if endpoint.example is not None else None
    if isinstance(body, dict) and "event_id" in body:
        body["event_id"] = ids["event"]
    before = await front.rig.contents()
    secrets = {str(front.user), str(front.event.organization_id), front.event.document.name}

    for role in sorted(endpoint.roles or ()):
        reply = await front.call(endpoint.method, path, body, role=Role(role), org=STRANGERS)

        assert reply.status == 404, (role, reply)
        told = f"{reply.headers} {reply.body}"
        assert [secret for secret in secrets if secret in told] == []
        assert _as_if_unknown(reply.body) == _as_if_unknown(
            (await front.call(endpoint.method, _unknown(endpoint, ids), _unknown_body(body), role=Role(role))).body
        )
    assert await front.rig.contents() == before


def _unknown(endpoint: Endpoint, ids: dict[str, str]) -> str:
    """The same path with ids that nobody has."""
    nothing = {name: "3f0b8f9e-9f06-4a52-8e0e-8a6a3a0f5d11" for name in ids if name != "seat"}
    return endpoint.path.format(**ids | nothing)


def _unknown_body(body: Any) -> Any:
    if isinstance(body, dict) and "event_id" in body:
        return body | {"event_id": "3f0b8f9e-9f06-4a52-8e0e-8a6a3a0f5d11"}
    return body


def _as_if_unknown(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "request_id"}
