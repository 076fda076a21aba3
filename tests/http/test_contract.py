"""What `/openapi.json` says and what the front end does are the same.

schemathesis makes up requests from the description, good and bad ones, and compares each answer with it: never a server
error, and no status, content type, content or header that is not described. Before those it sends every operation the
request that the description itself gives as an example, about things that exist, which has to succeed.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from holdfast.engine.layout import EventDocument
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.http.tokens import Role
from support.checking_out import checked_out, reserve
from support.engine import SHARDS, accessible, document
from support.front_end import FrontEnd, serving, with_uuids

EXAMPLES = 15

# Most requests name things that exist; the rest find out that others do not.
SHARE = 0.8

# Which things may be named where.
PLACES = {
    "path.event": "events",
    "path.seat": "seats",
    "path.hold": "holds",
    "path.checkout": "checkouts",
    "path.venue": "venues",
    "path.layout": "layouts",
    "path.user": "users",
    "body.event_id": "events",
    "body.venue_id": "venues",
    "body.layout.layout_id": "layouts",
    "body.seats[*]": "seats",
    "body.shards[*].shard": "shards",
    "body.shards[*].epoch": "epochs",
    "body.quantities[*].zone_id": "zones",
    "body.best_available.zone_id": "zones",
    "header.Idempotency-Key": "keys",
}

# The same for single operations, each with things of its own where others would use them up.
PLACES_OF = {
    "decline_companions": {"path.hold": "wheelchair_holds"},
    "complete_checkout": {"path.checkout": "payable"},
    "put_event_state": {"path.event": "others"},
    "load_event": {"body.event_id": "new"},
    "release": {"path.hold": "given_up"},
    "release_seats": {"body.seats[*]": "freed"},
    "delete_member": {"path.user": "leaving"},
    "block_seats": {"body.seats[*]": "blocked"},
    "unblock_seats": {"body.seats[*]": "blocked"},
}

# Runs inside of schemathesis.
OWN_CHECK = '''
import json
from pathlib import Path

import schemathesis

FOR_ALL = {"allow", "cache-control", "connection", "content-length", "content-type", "date", "server"}


@schemathesis.check
def headers_are_described(ctx, response, case):
    """What HTTP needs, and what the description says, and nothing else. What was answered is noted for the test."""
    with Path("answers").open("a") as answers:
        print(case.operation.definition.raw["operationId"], response.status_code, file=answers)
    described = case.operation.responses.find_by_status_code(response.status_code)
    if described is not None:
        known = FOR_ALL | {name.lower() for name, _ in described.headers.items()}
        unknown = {name.lower() for name in response.headers} - known - {"transfer-encoding"}
        assert not unknown, f"not described: {sorted(unknown)}"


@schemathesis.hook
def before_add_examples(context, examples):
    """What is described as an example is sent about things that exist."""
    sure = json.loads(Path("sure.json").read_text())[context.operation.definition.raw["operationId"]]
    examples.append(context.operation.Case(**sure))
'''


async def test_every_answer_is_as_described(redis_url: str, database_dsn: str, tmp_path: Path) -> None:
    async with serving(redis_url, database_dsn, with_uuids(_with_a_wheelchair_seat())) as front:
        operations, things = await _operations(front), await _things(front)
        sure = {operation["operationId"]: _sure_request(operation, things) for operation in operations}
        (tmp_path / "own_check.py").write_text(OWN_CHECK)
        (tmp_path / "sure.json").write_bytes(msgspec.json.encode(sure))
        (tmp_path / "schemathesis.toml").write_text(_configuration(front, operations, things))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "schemathesis.cli", "run", str(front.client.make_url("/openapi.json"))),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()

    assert process.returncode == 0, said.decode()
    answers = {tuple(line.split()) for line in (tmp_path / "answers").read_text().splitlines()}
    succeeded = {operation for operation, status in answers if status.startswith("2")}
    assert succeeded == {operation["operationId"] for operation in operations}


async def _operations(front: FrontEnd) -> list[dict[str, Any]]:
    description = (await front.call("GET", "/openapi.json")).body
    return [operation for methods in description["paths"].values() for operation in methods.values()]


def _with_a_wheelchair_seat() -> EventDocument:
    """The usual event, in which the last row begins with a wheelchair seat and its companion."""
    doc = document()
    hall = msgspec.structs.replace(doc.zones[0], seats=accessible(doc.zones[0].seats, "C-1", "C-2"))
    return msgspec.structs.replace(doc, zones=(hall, *doc.zones[1:]))


async def _things(front: FrontEnd) -> dict[str, list[Any]]:
    """What the requests may name."""
    seats = list(front.event.seats)
    holds = [await reserve(front, seat) for seat in seats[:3]]
    checkouts = []
    for cart, seat in (("cancelled", seats[3]), ("paid", seats[4])):
        await reserve(front, seat, cart=cart)
        checkouts.append(await checked_out(front, cart=cart))
    # The cart of the example of a checkout.
    await reserve(front, seats[5], cart="cart-1")
    other = document()
    loaded = await front.call("POST", "/api/admin/events", other, role=Role.ADMIN)
    assert loaded.status == 201, loaded
    members, layout = [str(uuid4()) for _ in range(2)], uuid4()
    venue = await front.call("POST", "/api/admin/venues", {"name": "Hall"}, role=Role.ADMIN)
    plan = {
        "venue_id": venue.data["venue_id"],
        "name": "Plan",
        "zones": [{"zone_id": "floor", "zone_type": "ga_standing", "name": "Floor", "capacity": 10}],
    }
    for path, content in (
        *((f"members/{member}", {"tier": "friend"}) for member in members),
        (f"layouts/{layout}", plan),
        ("policies", {}),
    ):
        saved = await front.call("PUT", f"/api/admin/{path}", content, role=Role.ADMIN)
        assert saved.status == 200, saved
    return {
        "events": [str(front.event.event_id)],
        "others": [str(other.event_id)],
        "new": [str(uuid4()) for _ in range(20)],
        "seats": seats[:20],
        "freed": seats[10:20],
        "blocked": seats[22:],
        "wheelchair_holds": [str(await reserve(front, seats[20]))],
        "zones": [zone.zone_id for zone in front.event.document.zones],
        "holds": list(map(str, holds[:2])),
        "given_up": list(map(str, holds[2:])),
        "checkouts": checkouts[:1],
        "payable": checkouts[1:],
        "venues": [venue.data["venue_id"]],
        "layouts": [str(layout)],
        # One of which the rest is independent, because it may be taken to Postgres.
        "shards": [(front.rig.shard + 1) % SHARDS],
        "epochs": [FIRST_EPOCH],
        "users": members[:1],
        "leaving": members[1:],
        # So many that most requests have one of their own.
        "keys": [f"key-{number}" for number in range(1000)],
    }


def _sure_request(operation: dict[str, Any], things: dict[str, list[Any]]) -> dict[str, Any]:
    """The example of an operation, with what exists in the places of what it names."""
    places = PLACES | PLACES_OF.get(operation["operationId"], {})
    named = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
    sure: dict[str, Any] = {"path_parameters": {name: things[places[f"path.{name}"]][0] for name in named}}
    if "requestBody" in operation:
        (media_type, content), *_ = operation["requestBody"]["content"].items()
        sure |= {"body": _with_things(content["example"], "body", places, things), "media_type": media_type}
    return sure


def _with_things(content: Any, place: str, places: dict[str, str], things: dict[str, list[Any]]) -> Any:
    if isinstance(content, dict):
        return {name: _with_things(value, f"{place}.{name}", places, things) for name, value in content.items()}
    if isinstance(content, list):
        return [_with_things(value, f"{place}[*]", places, things) for value in content]
    return things[places[place]][0] if place in places and content is not None else content


def _configuration(front: FrontEnd, operations: list[dict[str, Any]], things: dict[str, list[Any]]) -> str:
    lines = [
        'hooks = "own_check"',
        f'generation = {{ deterministic = true, database = "none", max-examples = {EXAMPLES} }}',
        "continue-on-failure = true",
        "request-timeout = 20.0",
        # A live stream is left after its first message.
        "max-stream-events = 1",
        "phases.stateful.enabled = false",
        # Which fields go together, and what the event allows, is more than a schema can say.
        "checks.positive_data_acceptance.enabled = false",
        "[dictionaries]",
        *(f"{name} = {{ values = {_quoted(values)} }}" for name, values in things.items()),
        "[parameters]",
        *_bindings(PLACES),
    ]
    for operation in operations:
        if roles := operation.get("x-roles"):
            name, token = operation["operationId"], front.token(role=Role(roles[0]))
            lines += [
                "[[operations]]",
                f'include-operation-id = "{name}"',
                f'headers = {{ Authorization = "Bearer {token}" }}',
                "[operations.parameters]",
                *_bindings(PLACES_OF.get(name, {})),
            ]
    return "\n".join(lines)


def _bindings(places: dict[str, str]) -> list[str]:
    return [f'"{place}" = {{ dictionary = "{name}", probability = {SHARE} }}' for place, name in places.items()]


def _quoted(values: list[Any]) -> str:
    return msgspec.json.encode(values).decode()
