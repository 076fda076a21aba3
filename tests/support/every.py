"""The request that an endpoint has as its example, about things that exist."""

from typing import Any
from uuid import uuid4

import msgspec

from holdfast.engine.shards import FIRST_EPOCH
from holdfast.http.endpoints import Endpoint
from holdfast.http.tokens import Role
from support.checking_out import checked_out, reserve
from support.front_end import FrontEnd, Reply


async def things(front: FrontEnd) -> dict[str, str]:
    """Something for every parameter of a path; of the catalogue only an id."""
    hold = await reserve(front, "A-1")
    await reserve(front, "A-2", cart="paid")
    checkout = await checked_out(front, cart="paid")
    nobody = dict.fromkeys(("venue", "layout", "user"), str(uuid4()))
    return {"event": str(front.event.event_id), "seat": "A-3", "hold": str(hold), "checkout": checkout, **nobody}


def body_of(front: FrontEnd, endpoint: Endpoint) -> Any:
    """The example, about things that exist."""
    if endpoint.example is None:
        return None
    if endpoint.path == "/api/admin/events":
        return front.event.document
    if endpoint.path == "/api/events/{event}/holds":
        return {"seats": ["B-2"]}
    body = msgspec.to_builtins(endpoint.example)
    exists = {
        "event_id": str(front.event.event_id),
        "seats": ["B-1"],
        "quantities": [],
        "shards": [{"shard": front.rig.shard, "epoch": FIRST_EPOCH}],
    }
    return body | {name: value for name, value in exists.items() if name in body}


def role_of(endpoint: Endpoint) -> Role:
    return Role(min(endpoint.roles or ()))


async def ask(front: FrontEnd, endpoint: Endpoint, ids: dict[str, str], *, key: str = "") -> Reply:
    """Send it, as somebody who may."""
    headers = {"Idempotency-Key": key} if key else {}
    path, body = endpoint.path.format(**ids), body_of(front, endpoint)
    return await front.call(endpoint.method, path, body, headers=headers, role=role_of(endpoint))
