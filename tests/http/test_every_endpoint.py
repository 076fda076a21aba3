"""Requests that make no sense, sent to every endpoint there is: each has its 4xx, and nothing is written."""

from typing import Any
from uuid import uuid4

import pytest

from holdfast.http.app import ENDPOINTS
from holdfast.http.endpoints import BODY_BYTES_MAX, Endpoint
from holdfast.http.tokens import Role
from support.forgeries import FORGERIES
from support.front_end import FrontEnd

GUARDED = [each for each in ENDPOINTS if each.roles is not None]
WITH_BODY = [each for each in GUARDED if each.body is not None]
WITH_UUIDS = [each for each in GUARDED if set(each.parameters) - set(each.texts)]

BODIES: dict[str, tuple[bytes, int, str]] = {
    "bad JSON": (b'{"a": ', 400, "invalid_request"),
    "no JSON": (b"a=b", 400, "invalid_request"),
    "bytes that are no text": (b'"\xff\xfe"', 400, "invalid_request"),
    "a list": (b"[]", 400, "invalid_request"),
    "a number": (b"7", 400, "invalid_request"),
    "null": (b"null", 400, "invalid_request"),
    "an unknown field": (b'{"organization_id": "x"}', 400, "invalid_request"),
}


def path_of(endpoint: Endpoint, **ids: str) -> str:
    """The path with an id for every parameter, which nobody has unless it is given."""
    return endpoint.path.format(**{name: ids.get(name) or str(uuid4()) for name in endpoint.parameters})


def too_much(endpoint: Endpoint) -> list[tuple[bytes, int, str]]:
    """A body that is too large, where that is not too large for a test that sends many."""
    if endpoint.body_bytes_max > BODY_BYTES_MAX:
        return []
    return [(b'{"a": "' + b"x" * endpoint.body_bytes_max + b'"}', 413, "body_too_large")]


def any_role(endpoint: Endpoint) -> Role:
    return Role(min(endpoint.roles or ()))


async def refused(front: FrontEnd, endpoint: Endpoint, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
    """The refusal of a request, which is a problem with a sentence."""
    reply = await front.call(endpoint.method, path, body, **options)
    assert reply.headers["Content-Type"] == "application/problem+json", (endpoint.path, reply)
    assert reply.body["detail"].endswith("."), endpoint.path
    assert reply.error is not None
    return reply.status, reply.error


@pytest.fixture
async def untouched(still: FrontEnd) -> Any:
    """A front end behind which nothing may change in the course of the test."""
    before = await still.rig.on.dump(), await still.rig.contents()
    yield still
    assert (await still.rig.on.dump(), await still.rig.contents()) == before


async def test_no_endpoint_is_open_to_a_bad_token(untouched: FrontEnd) -> None:
    for name, forge in FORGERIES.items():
        token = forge(untouched)
        for endpoint in GUARDED:
            found = await refused(untouched, endpoint, path_of(endpoint), token=token)

            assert found == (401, "unauthorized"), (endpoint.path, name)


async def test_no_endpoint_is_open_to_a_role_that_it_does_not_name(untouched: FrontEnd) -> None:
    for endpoint in GUARDED:
        for role in sorted(set(Role) - set(endpoint.roles or ())):
            found = await refused(untouched, endpoint, path_of(endpoint), role=role)

            assert found == (403, "forbidden"), (endpoint.path, role)


async def test_no_endpoint_takes_an_id_that_is_no_uuid(untouched: FrontEnd) -> None:
    for endpoint in WITH_UUIDS:
        for name in set(endpoint.parameters) - set(endpoint.texts):
            for bad in ("nonsense", str(uuid4())[:-1], uuid4().hex, "%00"):
                path = path_of(endpoint, **{name: bad})

                found = await refused(untouched, endpoint, path, role=any_role(endpoint))

                assert found == (400, "invalid_request"), path


async def test_no_endpoint_takes_a_body_that_makes_no_sense(untouched: FrontEnd) -> None:
    for endpoint in WITH_BODY:
        for body, status, error in (*BODIES.values(), *too_much(endpoint)):
            found = await refused(untouched, endpoint, path_of(endpoint), body, role=any_role(endpoint))

            assert found == (status, error), (endpoint.path, body[:20])
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        found = await refused(untouched, endpoint, path_of(endpoint), b"{}", headers=form, role=any_role(endpoint))
        assert found == (415, "unsupported_media_type"), endpoint.path


async def test_no_endpoint_takes_a_field_of_another_type(untouched: FrontEnd) -> None:
    """Each field of each body in turn is something that no field here is."""
    for endpoint in WITH_BODY:
        kinds: Any = endpoint.body if isinstance(endpoint.body, tuple) else (endpoint.body,)
        for field in {field for kind in kinds for field in kind.__struct_encode_fields__}:
            body = {field: {"of another": ["type"]}}

            found = await refused(untouched, endpoint, path_of(endpoint), body, role=any_role(endpoint))

            assert found == (400, "invalid_request"), (endpoint.path, field)


async def test_every_other_method_is_told_the_right_ones(untouched: FrontEnd) -> None:
    known: dict[str, set[str]] = {}
    for endpoint in ENDPOINTS:
        known.setdefault(endpoint.path, set()).add(endpoint.method)
    for path, methods in known.items():
        endpoint = next(each for each in ENDPOINTS if each.path == path)
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - methods:
            reply = await untouched.call(method, path_of(endpoint))

            assert (reply.status, reply.error) == (405, "method_not_allowed"), (method, path)
            assert set(reply.headers["Allow"].split(", ")) == methods, path
