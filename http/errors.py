"""Errors as `application/problem+json` (RFC 9457)."""

from http import HTTPStatus

import msgspec
from aiohttp import web


def problem(status: HTTPStatus, error: str, detail: str) -> web.Response:
    """A problem document; `error` is the reason a program can rely on, `detail` a sentence for a person."""
    body = {"type": "about:blank", "title": status.phrase, "status": status.value, "error": error, "detail": detail}
    return web.Response(
        status=status.value, body=msgspec.json.encode(body), content_type="application/problem+json", charset="utf-8"
    )
