"""Repeats under an Idempotency-Key, for calls whose ids do not already make them one.

The first answer is kept, whatever it was, and given to every repeat; one that comes while the first is being worked out
waits for it. What says "not now" or that something is broken is not kept: the repeat is there to find out more.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

import msgspec

from holdfast.engine.errors import BackendError
from holdfast.engine.status import Status
from holdfast.http.endpoints import Call, failed
from holdfast.http.errors import problem, reason_of, reasons_of
from holdfast.http.stores import kept_answers_key
from holdfast.http.whole_response import WholeResponse
from holdfast.persistence.kept_answers import Answer, Claim, OtherContent, Request

# Reasons that a call gives because it may be repeated.
REPEAT_ERRORS = (*reasons_of(Status.HOLD_ID_REUSED, Status.BUSY), "unknown_outcome")

REPLAYED = "Idempotency-Replayed"
REPEAT_HEADERS = {REPLAYED: "`true` on the first answer given again to a repeat."}

_encode = msgspec.json.Encoder(order="deterministic").encode
_log = logging.getLogger(__name__)

# Takes the call and, where there is one, its body.
Handler = Callable[..., Awaitable[WholeResponse]]


def repeatable(run: Handler) -> Handler:
    """Let the answers of a handler be kept under the key of the request. Goes between it and its declaration."""

    @wraps(run)
    async def answered_once(call: Call, *body: Any) -> WholeResponse:
        if not call.idempotency_key:
            return await run(call, *body)
        who = call.principal
        digest = blake2b(_encode(body), digest_size=16).digest()
        asked = Request(who.organization_id, who.user_id, call.request.path, call.idempotency_key, digest)
        kept = call.app[kept_answers_key]
        begun = await kept.begin(asked)
        if isinstance(begun, OtherContent):
            return call.refuse(problem(reason_of(Status.HOLD_ID_REUSED)))
        if isinstance(begun, Answer):
            call.add_header(REPLAYED, "true")
            return call.respond(begun.status, begun.body, begun.content_type)
        return await _first_answer(call, asked, begun, run(call, *body))

    return answered_once


async def _first_answer(call: Call, asked: Request, claim: Claim, work: Awaitable[WholeResponse]) -> WholeResponse:
    try:
        response = await work
    except Exception as error:
        response = failed(call, error)
    kept = call.app[kept_answers_key]
    try:
        if _lasts(response.status):
            await kept.keep(asked, claim, Answer(response.status, response.media_type, response.body))
        else:
            await kept.give_up(asked, claim)
    except BackendError as error:
        # What was done is done. A repeat waits until the claim lapses, does it again, and changes nothing by it.
        _log.warning("the answer to request %s is not kept: %s", call.request_id, error, extra=call.log_extra)
    return response


def _lasts(status: int) -> bool:
    return status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS
