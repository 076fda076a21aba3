"""Who the buyers are: tokens from a file, or made here with the secret of the deployment."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID, uuid4

import jwt

from holdfast.engine.settings import Settings
from holdfast.http.tokens import Role, mint_token

TTL_SECONDS = 24 * 3600


class CannotBegin(Exception):
    """Something is missing that buyers need; the text says what to do about it."""


class Tokens:
    """The token of the payment side, and one for each buyer who comes. Those of a file come round again at its end."""

    def __init__(self, service: str, buyers: Iterator[str]) -> None:
        self.service = service
        self._buyers = buyers

    def next(self) -> str:
        """The token of the next buyer."""
        return next(self._buyers)


def read_tokens(path: Path, worker: int, workers: int) -> Tokens:
    """Tokens from a file with one per line, of customers and a service; every worker takes others."""
    roles: dict[str, list[str]] = {}
    for line in path.read_text().split():
        claims = jwt.decode(line, options={"verify_signature": False})
        roles.setdefault(claims.get("role", ""), []).append(line)
    customers = roles.get(Role.CUSTOMER, [])[worker::workers]
    if not customers or not roles.get(Role.SERVICE):
        raise CannotBegin("The token file needs a token of a customer for every process, and one of the role service.")
    return Tokens(roles[Role.SERVICE][0], itertools.cycle(customers))


def make_tokens(environment: Mapping[str, str], organization_id: UUID) -> Tokens:
    """Tokens signed with HOLDFAST_TOKEN_SECRET, every one of a new buyer."""
    settings = Settings.read(environment)
    if settings.token_secret is None:
        raise CannotBegin("Give a --token-file, or HOLDFAST_TOKEN_SECRET and --organization to make tokens with.")

    def mint(role: Role) -> str:
        return mint_token(
            settings, user_id=uuid4(), organization_id=organization_id, role=role, ttl_seconds=TTL_SECONDS
        )

    return Tokens(mint(Role.SERVICE), (mint(Role.CUSTOMER) for _ in itertools.repeat(None)))
