"""Endpoints: declared once, served by aiohttp and described in OpenAPI.

A module has a table of them, `endpoints = Endpoints()`, and declares each above the coroutine that answers:

    @endpoints.post("/api/events/{event}/seats/{seat}/reserve", summary=…, roles=BUYERS, body=ReserveRequest,
                    replies={201: Reserved}, errors=…)
    async def reserve(call: Call, body: ReserveRequest) -> web.StreamResponse:
        return call.answer(201, Reserved(…))

Everything that is the same for all happens here, in this order: path ids, token, role, Idempotency-Key, query, body. It
is plain functions, not middleware, because it runs for every request of a flash sale.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from itertools import count
from os import urandom
from time import perf_counter
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import web

from holdfast.engine.audit import Actor, Caller
from holdfast.engine.errors import BackendError, ScriptFault
from holdfast.http.auth import Authenticator, NotAuthenticated, Principal
from holdfast.http.clients import ClientAddresses, address_digest, printable
from holdfast.http.errors import EncodedProblem, Problem, Refused, backend_reason, encode_problem, problem
from holdfast.http.tokens import Role
from holdfast.http.whole_response import WholeResponse

BODY_BYTES_MAX = 64 * 1024
BODY_TIMEOUT_S = 10.0
IDEMPOTENCY_KEY_MAX = 255

ANYONE = frozenset(Role)
BUYERS = frozenset({Role.CUSTOMER, Role.SCANNER, Role.ORGANIZER, Role.ADMIN})

authenticator_key = web.AppKey("authenticator", Authenticator)
addresses_key = web.AppKey("addresses", ClientAddresses)

Handler = Callable[..., Awaitable[web.StreamResponse]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_PRINTABLE_ASCII = re.compile(r"[\x20-\x7e]+")
_PARAMETER = re.compile(r"{(\w+)}")
# JSON has the character NUL as an escape only, and Postgres does not have it at all.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
# How an answer with an ETag may be kept: for oneself, and asked for again each time.
REVALIDATED = "private, no-cache"
_SERVER_ERROR = HTTPStatus.INTERNAL_SERVER_ERROR.value
_JSON = "application/json"
_PROBLEM = "application/problem+json"

# Unique among processes by its random part, among requests of one by its number.
_request_ids = map(f"{urandom(8).hex()}-{{:x}}".format, count(1))

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class Text(msgspec.Struct, frozen=True):
    """A reply that is no JSON, and what it is instead. Of a stream of events, `schema` describes each."""

    media_type: str
    schema: Mapping[str, Any] = MappingProxyType({"type": "string"})


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path: what it takes, what it answers, and who answers.

    Path parameters are UUIDs, except those named in `texts`. `roles` of None makes it public. `body` and `query` are
    msgspec structs; a body all of whose fields have defaults may be left out. A body that may be one of several is a
    tuple, with `read_body` to tell them apart. `headers` are those of the request that
    the endpoint itself reads, with what each is for. `replies` has the type of `data` for each success, a tuple where
    it may be one of several, a Text for what is no JSON, and None for a reply that is no JSON envelope. Any of them,
    and any refusal, may have `reply_headers`, with what each says. `errors` are the reasons the endpoint itself gives;
    those that everything here can give are added.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    replies: Mapping[int, Any]
    description: str = ""
    roles: frozenset[Role] | None = None
    body: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None = None
    read_body: Callable[[bytes], Any] | None = None
    query: type[msgspec.Struct] | None = None
    texts: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    reply_headers: Mapping[str, str] = {}
    errors: tuple[str, ...] = ()
    example: Any = None
    idempotency_key: bool = False
    prefer: bool = False
    body_bytes_max: int = BODY_BYTES_MAX
    tag: str = "holds"

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))

    @property
    def body_required(self) -> bool:
        kinds = self.body if isinstance(self.body, tuple) else (self.body,) if self.body is not None else ()
        return any(field.required for kind in kinds for field in msgspec.structs.fields(kind))

    @property
    def all_errors(self) -> tuple[str, ...]:
        """Every reason this endpoint can give."""
        found = ["internal_error", *self.errors]
        if self.roles is not None:
            found += ["unauthorized", "unavailable"]
        if self.roles is not None and self.roles != ANYONE:
            found.append("forbidden")
        if self.body is not None:
            found += ["body_too_large", "unsupported_media_type", "request_timeout"]
        if self.body is not None or self.query is not None or self.idempotency_key or self.parameters:
            found.append("invalid_request")
        return tuple(dict.fromkeys(found))


class Call:
    """One request on its way: who calls, what for, and how to answer."""

    __slots__ = (
        "_address",
        "_began",
        "app",
        "headers",
        "idempotency_key",
        "ids",
        "principal",
        "query",
        "request",
        "request_id",
    )

    # Set before the handler of an endpoint that declares them runs.
    principal: Principal
    query: Any

    def __init__(self, app: web.Application, request: web.Request, request_id: str) -> None:
        self.app = app
        self.request = request
        self.request_id = request_id
        self.ids: dict[str, UUID] = {}
        self.idempotency_key = ""
        self.headers = {"Cache-Control": "no-store", "X-Request-ID": request_id}
        self._address: str | None = None
        self._began = perf_counter()

    @property
    def log_extra(self) -> dict[str, str]:
        """What a line in the log needs to be found by the request."""
        return {"request_id": self.request_id}

    @property
    def address(self) -> str:
        """The client's address."""
        if self._address is None:
            self._address = self.app[addresses_key].of(self.request)
        return self._address

    @property
    def address_digest(self) -> str:
        """What limits per address know the client's address by."""
        return address_digest(self.address)

    def caller(self, source: str = "web") -> Caller:
        """What the audit is told of this request."""
        return Caller(self.address, printable(self.request.headers.get("User-Agent", "")), self.request_id, source)

    def actor(self, notes: str = "") -> Actor:
        """What the audit is told of a caller who ends or changes what may belong to others."""
        caller = self.caller()
        who = str(self.principal.user_id)
        return Actor(caller.address, caller.user_agent, caller.request_id, caller.source, who, notes)

    def add_header(self, name: str, value: str) -> None:
        """A header that goes with whatever is answered."""
        self.headers[name] = value

    def answer(self, status: int, data: Any) -> WholeResponse:
        """A success with its data in the usual envelope. `headers` of the call go with it."""
        return self.respond(status, b'{"data":' + _encode(data) + b"}", _JSON)

    def answer_encoded(self, status: int, data: bytes) -> WholeResponse:
        """The same, for data that is encoded already."""
        return self.respond(status, b'{"data":' + data + b"}", _JSON)

    def answer_text(self, text: bytes, media_type: str) -> WholeResponse:
        """A success that is no JSON."""
        return self.respond(200, text, media_type)

    def answer_unchanged(self, etag: str, kept: str = REVALIDATED) -> web.Response | None:
        """Name the version that is answered. If it is the one that the client has, that is the answer: 304."""
        self.add_header("ETag", etag)
        self.add_header("Cache-Control", kept)
        known = self.request.headers.get("If-None-Match", "")
        if etag in (each.strip().removeprefix("W/") for each in known.split(",")):
            return web.Response(status=304, headers=self.headers)
        return None

    def stream(self, media_type: str) -> web.StreamResponse:
        """A success whose content is yet to come."""
        return web.StreamResponse(headers={**self.headers, "Content-Type": media_type})

    def refuse(self, document: Problem) -> WholeResponse:
        """A problem."""
        return self.refuse_encoded(encode_problem(document))

    def refuse_encoded(self, document: EncodedProblem) -> WholeResponse:
        """The same, for a problem that is encoded already. One that is ours and not the client's is written down."""
        if document.status >= _SERVER_ERROR:
            self._write_down(document)
        if document.retry_after_seconds is not None:
            self.add_header("Retry-After", str(document.retry_after_seconds))
        return self.respond(document.status, document.body, _PROBLEM)

    def respond(self, status: int, body: bytes, content_type: str) -> WholeResponse:
        """A body that is ready to be sent."""
        return WholeResponse(status, body, content_type, self.headers)

    def _write_down(self, document: EncodedProblem) -> None:
        resource = self.request.match_info.route.resource
        _log.warning(
            "%s %s answered %d %s after %.0f ms, request %s",
            self.request.method,
            resource.canonical if resource is not None else "",
            document.status,
            document.error,
            (perf_counter() - self._began) * 1000,
            self.request_id,
            extra=self.log_extra,
        )


class Endpoints(list[Endpoint]):
    """The endpoints of one module."""

    def add(self, method: str, path: str, **declared: Any) -> Callable[[Handler], Handler]:
        """Declare the endpoint that the decorated coroutine answers."""

        def declare(handler: Handler) -> Handler:
            self.append(Endpoint(method=method, path=path, handler=handler, **declared))
            return handler

        return declare

    def get(self, path: str, **declared: Any) -> Callable[[Handler], Handler]:
        return self.add("GET", path, **declared)

    def post(self, path: str, **declared: Any) -> Callable[[Handler], Handler]:
        return self.add("POST", path, **declared)

    def put(self, path: str, **declared: Any) -> Callable[[Handler], Handler]:
        return self.add("PUT", path, **declared)

    def delete(self, path: str, **declared: Any) -> Callable[[Handler], Handler]:
        return self.add("DELETE", path, **declared)


def add_endpoints(app: web.Application, endpoints: list[Endpoint]) -> None:
    """Serve endpoints. Every other request to the application gets 404, or 405 with what is allowed."""
    for endpoint in endpoints:
        app.router.add_route(endpoint.method, endpoint.path, _served(app, endpoint))

    async def nothing_here(request: web.Request) -> WholeResponse:
        call = Call(app, request, _request_id(request))
        allowed = await _allowed_methods(app, request)
        if not allowed:
            return call.refuse(problem("not_found"))
        call.add_header("Allow", ", ".join(sorted(allowed)))
        return call.refuse(problem("method_not_allowed"))

    app.router.add_route("*", "/{tail:.*}", nothing_here)


def _served(app: web.Application, endpoint: Endpoint) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The aiohttp handler of an endpoint."""
    run = endpoint.handler
    uuids = tuple(name for name in endpoint.parameters if name not in endpoint.texts)
    read = endpoint.read_body
    if read is None and endpoint.body is not None:
        read = msgspec.json.Decoder(endpoint.body).decode
    roles = endpoint.roles

    async def handle(request: web.Request) -> web.StreamResponse:
        call = Call(app, request, _request_id(request))
        try:
            for name in uuids:
                call.ids[name] = _path_id(request, name)
            if roles is not None:
                header = request.headers.get("Authorization")
                authenticator = app[authenticator_key]
                call.principal = authenticator.known(header) or await authenticator.verify(header)
                if call.principal.role not in roles:
                    return call.refuse(problem("forbidden"))
            if endpoint.idempotency_key:
                call.idempotency_key = _idempotency_key(request)
            if endpoint.query is not None:
                call.query = _query(request, endpoint.query)
            if read is None:
                return await run(call)
            return await run(call, _decode(read, await _body(request, endpoint)))
        except Exception as error:
            return failed(call, error)

    return handle


def failed(call: Call, error: Exception) -> WholeResponse:
    """What ended a request before its handler could answer, as a problem."""
    if isinstance(error, Refused):
        return call.refuse(error.problem)
    if isinstance(error, NotAuthenticated):
        call.add_header("WWW-Authenticate", 'Bearer realm="holdfast", error="invalid_token"')
        return call.refuse(problem("unauthorized", str(error)))
    if isinstance(error, BackendError) and not isinstance(error, ScriptFault):
        return call.refuse(problem(backend_reason(error)))
    _log.error("request %s failed", call.request_id, exc_info=error, extra=call.log_extra)
    return call.refuse(problem("internal_error"))


def _request_id(request: web.Request) -> str:
    given = request.headers.get("X-Request-ID")
    return given if given is not None and _REQUEST_ID.fullmatch(given) else next(_request_ids)


@lru_cache(maxsize=100_000)
def parse_uuid(text: str) -> UUID | None:
    """A UUID in its usual form with hyphens, or None. Remembered, because the same few are asked for all the time."""
    try:
        parsed = UUID(text)
    except ValueError:
        return None
    return parsed if str(parsed) == text.lower() else None


def _path_id(request: web.Request, name: str) -> UUID:
    parsed = parse_uuid(request.match_info[name])
    if parsed is None:
        raise Refused(problem("invalid_request", f"The {name} id in the path is not a UUID."))
    return parsed


def _idempotency_key(request: web.Request) -> str:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return ""
    if len(key) > IDEMPOTENCY_KEY_MAX or not _PRINTABLE_ASCII.fullmatch(key):
        detail = f"Idempotency-Key takes 1 to {IDEMPOTENCY_KEY_MAX} printable ASCII characters."
        raise Refused(problem("invalid_request", detail))
    return key


def _query(request: web.Request, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.convert(dict(request.query), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(problem("invalid_request", f"The query is not right: {error}.")) from None


async def _body(request: web.Request, endpoint: Endpoint) -> bytes:
    """The body, checked for its size and kind before it is looked at."""
    if not request.body_exists:
        return b""
    if request.headers.get("Content-Type", _JSON) != _JSON and request.content_type != _JSON:
        raise Refused(problem("unsupported_media_type"))
    limit = endpoint.body_bytes_max
    try:
        body = await _arrived(request, limit)
    except web.RequestPayloadError:
        # Pieces or a compression that are not what the headers say.
        raise Refused(problem("invalid_request", "The body cannot be read.")) from None
    if len(body) > limit:
        raise Refused(_too_large(limit))
    return body


async def _arrived(request: web.Request, limit: int) -> bytes:
    """The body, or enough of it to see that it is larger than the limit."""
    content = request.content
    # What came together with the headers is there already, and needs no clock.
    if content.is_eof():
        return content.read_nowait()
    if (request.content_length or 0) > limit:
        raise Refused(_too_large(limit))
    body = b""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while len(body) <= limit and (chunk := await content.readany()):
                body += chunk
    except TimeoutError:
        raise Refused(problem("request_timeout")) from None
    return body


def _too_large(limit: int) -> Problem:
    return problem("body_too_large", f"A body here has at most {limit} bytes.")


def _decode(read: Callable[[bytes], Any], body: bytes) -> Any:
    # The first look is quick, the second one sees a backslash that is a character itself.
    if rb"\u0000" in body and _NUL.search(body):
        raise Refused(problem("invalid_request", "The body has the character NUL in it, which cannot be kept."))
    try:
        return read(body or b"{}")
    except msgspec.ValidationError as error:
        raise Refused(problem("invalid_request", f"The body is not right: {error}.")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(problem("invalid_request", f"The body is not JSON: {error}.")) from None


async def _allowed_methods(app: web.Application, request: web.Request) -> set[str]:
    allowed: set[str] = set()
    for resource in app.router.resources():
        _, methods = await resource.resolve(request)
        allowed |= methods
    return allowed - {"*"}
