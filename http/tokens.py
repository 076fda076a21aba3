"""Bearer tokens: signed claims about who calls, for which organisation, and in which role."""

import enum
import time
import uuid

import jwt

from holdfast.engine.settings import Settings

ALGORITHM = "HS256"


class Role(enum.StrEnum):
    """What a caller may do."""

    CUSTOMER = "customer"
    SCANNER = "scanner"
    ORGANIZER = "organizer"
    ADMIN = "admin"
    SERVICE = "service"


class NoTokenSecretError(Exception):
    """The settings have no secret to sign with."""


def mint_token(
    settings: Settings,
    *,
    user_id: uuid.UUID,
    organization_id: uuid.UUID,
    role: Role,
    ttl_seconds: int,
    tier: str | None = None,
) -> str:
    """Sign a token that is valid from now on for `ttl_seconds`."""
    if settings.token_secret is None:
        raise NoTokenSecretError
    now = int(time.time())
    claims: dict[str, str | int] = {
        "sub": str(user_id),
        "org": str(organization_id),
        "role": role.value,
        "iss": settings.token_issuer,
        "aud": settings.token_audience,
        "iat": now,
        "exp": now + ttl_seconds,
    }
    if tier is not None:
        claims["tier"] = tier
    return jwt.encode(claims, settings.token_secret, algorithm=ALGORITHM)
