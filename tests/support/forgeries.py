"""Tokens that are no good, each in its own way, and the claims of one that is."""

import time
from typing import Any
from uuid import uuid4

import jwt

from support.front_end import SECRET, FrontEnd


def claims(front: FrontEnd | None = None, **changes: Any) -> dict[str, Any]:
    organization = front.event.organization_id if front else uuid4()
    found = {
        "sub": str(uuid4()),
        "org": str(organization),
        "role": "customer",
        "iss": "holdfast",
        "aud": "holdfast",
        "exp": int(time.time()) + 600,
    } | changes
    return {name: value for name, value in found.items() if value is not None}


def signed(payload: dict[str, Any], secret: str = SECRET, algorithm: str = "HS256") -> str:
    return jwt.encode(payload, secret, algorithm=algorithm)


FORGERIES = {
    "an expired token": lambda front: signed(claims(front, exp=int(time.time()) - 1)),
    "a token without an end": lambda front: signed(claims(front, exp=None)),
    "a token for another audience": lambda front: signed(claims(front, aud="somebody else")),
    "a token for several others": lambda front: signed(claims(front, aud=["somebody else", "nobody"])),
    "a token for a part of our name": lambda front: signed(claims(front, aud="hold")),
    "a token that begins later": lambda front: signed(claims(front, nbf=int(time.time()) + 300)),
    "a token from the future": lambda front: signed(claims(front, iat=int(time.time()) + 300)),
    "a beginning that is no time": lambda front: signed(claims(front, nbf="now")),
    "an end that is no time": lambda front: signed(claims(front, exp=str(int(time.time()) + 600))),
    "an end beyond all time": lambda front: signed(claims(front, exp=10**300)),
    "claims that are a list": lambda _: jwt.PyJWS().encode(b"[]", SECRET, algorithm="HS256"),
    "a token without an audience": lambda front: signed(claims(front, aud=None)),
    "a token of another issuer": lambda front: signed(claims(front, iss="somebody else")),
    "a token without an issuer": lambda front: signed(claims(front, iss=None)),
    "a token signed with another key": lambda front: signed(claims(front), secret="x" * 64),
    "a token signed with another algorithm": lambda front: signed(claims(front), algorithm="HS512"),
    "a token that is not signed": lambda front: jwt.encode(claims(front), None, algorithm="none"),
    "a token without a user": lambda front: signed(claims(front, sub=None)),
    "a user that is no UUID": lambda front: signed(claims(front, sub="alice")),
    "an organisation that is no UUID": lambda front: signed(claims(front, org="acme")),
    "a token without an organisation": lambda front: signed(claims(front, org=None)),
    "an unknown role": lambda front: signed(claims(front, role="root")),
    "no role": lambda front: signed(claims(front, role=None)),
    "something that is no token": lambda _: "not.a.token",
    "a token with a changed payload": lambda front: _tampered(signed(claims(front))),
    "no token": lambda _: "",
}


def _tampered(token: str) -> str:
    head, _, signature = token.split(".")
    forged = signed(claims(), secret="y" * 64).split(".")[1]
    return f"{head}.{forged}.{signature}"
