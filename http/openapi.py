"""The OpenAPI 3.1 description of the endpoints, made from their declarations."""

from typing import Any

import msgspec
from aiohttp import web

import holdfast
from holdfast.http.endpoints import IDEMPOTENCY_KEY_MAX, Call, Endpoint, Text
from holdfast.http.errors import REASONS, Problem, statuses_of

_REFERENCE = "#/components/schemas/{name}"
_TOKEN = "token"  # noqa: S105 - the name of the scheme.


def openapi_endpoint(document: bytes) -> Endpoint:
    """The endpoint that serves the description."""

    async def openapi(_: Call) -> web.StreamResponse:
        return web.Response(body=document, content_type="application/json")

    return Endpoint(
        method="GET",
        path="/openapi.json",
        handler=openapi,
        summary="This description",
        replies={200: None},
        tag="plumbing",
    )


def openapi_document(endpoints: list[Endpoint]) -> bytes:
    """The description, as JSON."""
    kinds = [Problem]
    for endpoint in endpoints:
        for kind in (endpoint.body, endpoint.query, *endpoint.replies.values()):
            kinds += _alternatives(kind)
    _, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    _allow_repeats(components)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": holdfast.__version__,
            "description": "Holds seats while people pay for them. Errors are problem documents (RFC 9457); their "
            "member `error` is the reason. 409 means lost: do not retry. 429 and 503 mean not now: see Retry-After.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {_TOKEN: {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }
    return msgspec.json.encode(document)


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint),
        "responses": _responses(endpoint),
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    if endpoint.roles is not None:
        operation["security"] = [{_TOKEN: []}]
        operation["x-roles"] = sorted(endpoint.roles)
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": _schema(endpoint.body)}
        if endpoint.example is not None:
            content["example"] = msgspec.to_builtins(endpoint.example)
        operation["requestBody"] = {"required": endpoint.body_required, "content": {"application/json": content}}
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    uuid = {"type": "string", "format": "uuid"}
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1} if name in endpoint.texts else uuid,
        }
        for name in endpoint.parameters
    ]
    found.append(
        {
            "name": "X-Request-ID",
            "in": "header",
            "description": "Comes back with the reply, and is in the audit. Made up if there is none.",
            "schema": {"type": "string"},
        }
    )
    found += [
        {"name": name, "in": "header", "description": purpose, "schema": {"type": "string"}}
        for name, purpose in endpoint.headers.items()
    ]
    if endpoint.idempotency_key:
        found.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "A repeat under the same key gets the first result; other content under it is a 422.",
                "schema": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[ -~]+$"},
            }
        )
    if endpoint.prefer:
        found.append(
            {
                "name": "Prefer",
                "in": "header",
                "description": "`ack=redis` answers before the commit in Postgres, where the event allows that.",
                "schema": {"type": "string"},
                "example": "ack=redis",
            }
        )
    if endpoint.query is not None:
        _, components = msgspec.json.schema_components([endpoint.query], ref_template=_REFERENCE)
        described = components[endpoint.query.__name__]
        required = described.get("required", ())
        for name, kind in described["properties"].items():
            found.append({"name": name, "in": "query", "required": name in required, "schema": kind})
    return found


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {}
    headers = _HEADERS | {name: _header(says) for name, says in endpoint.reply_headers.items()}
    if endpoint.prefer:
        headers |= _PREFERENCE_HEADERS
    for status, kind in endpoint.replies.items():
        described: dict[str, Any] = {"description": "Done.", "headers": headers}
        if isinstance(kind, Text):
            described["content"] = {kind.media_type: {"schema": dict(kind.schema)}}
        elif kind is not None:
            envelope = {"type": "object", "properties": {"data": _schema(kind)}, "required": ["data"]}
            described["content"] = {"application/json": {"schema": envelope}}
        found[str(status)] = described
    for status, errors in sorted(statuses_of(endpoint.all_errors).items()):
        examples = {error: {"value": _example(error)} for error in errors}
        content = {"schema": {"$ref": _REFERENCE.format(name="Problem")}, "examples": examples}
        found[str(status)] = {
            "description": " ".join(f"`{error}`: {REASONS[error].detail}" for error in errors),
            "headers": headers | _HEADERS_OF_STATUS.get(status, {}),
            "content": {"application/problem+json": content},
        }
    return found


def _example(error: str) -> dict[str, Any]:
    reason = REASONS[error]
    return {
        "type": "about:blank",
        "title": reason.status.phrase,
        "status": reason.status.value,
        "error": error,
        "detail": reason.detail,
    }


def _schema(kind: Any) -> dict[str, Any]:
    schemas, _ = msgspec.json.schema_components(_alternatives(kind), ref_template=_REFERENCE)
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types that content may have, none if it is no JSON."""
    if kind is None or isinstance(kind, Text):
        return ()
    return kind if isinstance(kind, tuple) else (kind,)


def _allow_repeats(described: Any) -> None:
    """A set may name a thing twice: that is the same set."""
    if isinstance(described, dict):
        described.pop("uniqueItems", None)
    for part in described.values() if isinstance(described, dict) else described if isinstance(described, list) else ():
        _allow_repeats(part)


def _header(says: str, *, required: bool = False) -> dict[str, Any]:
    return {"description": says, "required": required, "schema": {"type": "string"}}


_HEADERS = {"X-Request-ID": _header("The id of this request.", required=True)}
_PREFERENCE_HEADERS = {"Preference-Applied": _header("The preference that was honoured.")}
_RETRY_HEADERS = {
    "Retry-After": {"description": "Seconds to wait.", "required": True, "schema": {"type": "integer", "minimum": 1}}
}
_HEADERS_OF_STATUS = {
    401: {"WWW-Authenticate": _header("What to authenticate with.", required=True)},
    429: _RETRY_HEADERS,
    503: _RETRY_HEADERS,
}
