"""What `/openapi.json` says and what the front end does are the same.

schemathesis makes up requests from the description, good and bad ones, and compares each answer with it: never a server
error, and no status, content type, content or header that is not described.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from holdfast.http.tokens import Role
from support.checking_out import checked_out, reserve
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
    "body.seats[*]": "seats",
    "body.quantities[*].zone_id": "zones",
    "body.best_available.zone_id": "zones",
    "header.Idempotency-Key": "keys",
}

# The same for single operations: what is cancelled cannot be paid.
PLACES_OF = {"complete_checkout": {"path.checkout": "payable"}}

# Runs inside of schemathesis.
OWN_CHECK = '''
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
'''


async def test_every_answer_is_as_described(redis_url: str, database_dsn: str, tmp_path: Path) -> None:
    async with serving(redis_url, database_dsn, with_uuids()) as front:
        operations = await _operations(front)
        (tmp_path / "own_check.py").write_text(OWN_CHECK)
        (tmp_path / "schemathesis.toml").write_text(_configuration(front, operations, await _things(front)))
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


async def _things(front: FrontEnd) -> dict[str, list[str]]:
    """What the requests may name."""
    seats = list(front.event.seats)
    holds = [await reserve(front, seat) for seat in seats[:2]]
    checkouts = []
    for cart, seat in (("cancelled", seats[2]), ("paid", seats[3])):
        await reserve(front, seat, cart=cart)
        checkouts.append(await checked_out(front, cart=cart))
    member, layout = uuid4(), uuid4()
    venue = await front.call("POST", "/api/admin/venues", {"name": "Hall"}, role=Role.ADMIN)
    await front.call("PUT", f"/api/admin/members/{member}", {"tier": "friend"}, role=Role.ADMIN)
    plan = {
        "venue_id": venue.data["venue_id"],
        "name": "Plan",
        "zones": [{"zone_id": "floor", "zone_type": "ga_standing", "name": "Floor", "capacity": 10}],
    }
    saved = await front.call("PUT", f"/api/admin/layouts/{layout}", plan, role=Role.ADMIN)
    assert saved.status == 200, saved
    return {
        "events": [str(front.event.event_id)],
        "seats": seats,
        "zones": [zone.zone_id for zone in front.event.document.zones],
        "holds": list(map(str, holds)),
        "checkouts": checkouts[:1],
        "payable": checkouts[1:],
        "venues": [venue.data["venue_id"]],
        "layouts": [str(layout)],
        "users": [str(member)],
        # So many that most requests have one of their own.
        "keys": [f"key-{number}" for number in range(1000)],
    }


def _configuration(front: FrontEnd, operations: list[dict[str, Any]], things: dict[str, list[str]]) -> str:
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


def _quoted(values: list[str]) -> str:
    return msgspec.json.encode(values).decode()
