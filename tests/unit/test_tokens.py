import time
import uuid

import jwt
import pytest

from holdfast.engine.settings import Settings
from holdfast.http.tokens import ALGORITHM, NoTokenSecretError, Role, mint_token

SETTINGS = Settings(token_secret="s" * 32, token_issuer="box office", token_audience="front door")
USER_ID = uuid.UUID("6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10")
ORGANIZATION_ID = uuid.UUID("0b9a4c52-3f3e-4f0c-8d55-5f0a7c6e1d21")


def mint(settings: Settings = SETTINGS, tier: str | None = None) -> str:
    return mint_token(
        settings, user_id=USER_ID, organization_id=ORGANIZATION_ID, role=Role.CUSTOMER, ttl_seconds=60, tier=tier
    )


def decode(token: str, secret: str = "s" * 32) -> dict[str, object]:
    return jwt.decode(token, secret, algorithms=[ALGORITHM], issuer="box office", audience="front door")


def test_a_token_says_who_calls_for_whom_in_which_role_and_until_when() -> None:
    before = int(time.time())
    claims = decode(mint())
    after = int(time.time())

    issued_at = claims.pop("iat")
    assert isinstance(issued_at, int)
    assert before <= issued_at <= after
    assert claims == {
        "sub": str(USER_ID),
        "org": str(ORGANIZATION_ID),
        "role": "customer",
        "iss": "box office",
        "aud": "front door",
        "exp": issued_at + 60,
    }


def test_the_tier_is_a_claim_only_if_there_is_one() -> None:
    assert decode(mint(tier="gold"))["tier"] == "gold"
    assert "tier" not in decode(mint())


def test_a_token_is_signed_with_the_secret() -> None:
    with pytest.raises(jwt.InvalidSignatureError):
        decode(mint(), secret="t" * 32)


def test_without_a_secret_there_is_no_token() -> None:
    with pytest.raises(NoTokenSecretError):
        mint(Settings())
