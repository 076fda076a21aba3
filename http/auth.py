"""Who calls: bearer tokens, verified once and then remembered until they expire.

HS256 tokens are signed with the secret of the settings; RS256, PS256, ES256 and EdDSA tokens with a key of the JWKS. An
algorithm that is not on this list, `none` above all, is no algorithm. The organisation and the user come from here and
from nowhere else.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import aiohttp
import jwt
import msgspec
from jwt.algorithms import HMACAlgorithm
from msgspec import Meta

from holdfast.engine.settings import Settings, SettingsError, variable
from holdfast.http.tokens import ALGORITHM, Role

KEY_SET_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
REMEMBERED_TOKENS = 20_000

# A key that is not known may be new, so the key set is read again; a flood of forgeries must not turn into a flood of
# requests to whoever publishes it.
KEY_SET_FLOOR_S = 10.0
KEY_SET_TIMEOUT_S = 5.0
KEY_SET_BYTES_MAX = 1 << 20

_BEARER = "bearer "

_log = logging.getLogger(__name__)


class Principal(msgspec.Struct, frozen=True):
    """A caller whose token was verified."""

    user_id: UUID
    organization_id: UUID
    role: Role
    tier: str
    expires_at: float


class NotAuthenticated(Exception):
    """No token, or one that cannot be accepted; the text is a sentence for whoever sent it."""


# Seconds, as many as a date may be away from 1970.
_Moment = Annotated[float, Meta(ge=0, le=253_402_300_799)]


class _Claims(msgspec.Struct, frozen=True):
    sub: UUID
    org: UUID
    role: Role
    iss: str
    aud: str | tuple[str, ...]
    exp: _Moment
    nbf: _Moment = 0
    iat: _Moment = 0
    tier: str = ""


_read_claims = msgspec.json.Decoder(_Claims).decode


class _SharedSecret(HMACAlgorithm):
    """HS256. PyJWT looks with every token whether the secret is a public key, which takes longer than everything else
    about the token; once is enough."""

    def __init__(self, secret: str) -> None:
        super().__init__(HMACAlgorithm.SHA256)
        try:
            self._secret = super().prepare_key(secret)
        except jwt.InvalidKeyError:
            name = "token_secret"
            raise SettingsError(f"{name} ({variable(name)}) must be a secret, not a public key.") from None

    def prepare_key(self, _: str | bytes) -> bytes:
        return self._secret


class Authenticator:
    """Turns the Authorization header into a principal."""

    def __init__(self, settings: Settings) -> None:
        self._secret = settings.token_secret
        self._keys = KeySet(settings.token_jwks) if settings.token_jwks else None
        self._issuer = settings.token_issuer
        self._audience = settings.token_audience
        self._signatures = jwt.PyJWS()
        self._signatures.unregister_algorithm(ALGORITHM)
        if self._secret is not None:
            self._signatures.register_algorithm(ALGORITHM, _SharedSecret(self._secret))
        self._known: OrderedDict[str, Principal] = OrderedDict()

    def known(self, header: str | None) -> Principal | None:
        """The principal of a header that was verified before and still holds; None says nothing."""
        found = self._known.get(header) if header else None
        if found is None or found.expires_at <= time.time():
            return None
        return found

    async def verify(self, header: str | None) -> Principal:
        """The principal of a header. Raises NotAuthenticated."""
        if not header or not header[: len(_BEARER)].lower() == _BEARER:
            raise NotAuthenticated("Send a token as `Authorization: Bearer <token>`.")
        principal = await self._verify(header[len(_BEARER) :].strip())
        self._known[header] = principal
        while len(self._known) > REMEMBERED_TOKENS:
            self._known.popitem(last=False)
        return principal

    async def _verify(self, token: str) -> Principal:
        try:
            # With a secret and nothing else there is but one key, and no need to read the header twice.
            if self._secret is not None and self._keys is None:
                algorithm, key = ALGORITHM, self._secret
            else:
                algorithm, key = await self._key(token)
            claims = _read_claims(self._signatures.decode(token, key, algorithms=[algorithm]))
        except (jwt.PyJWTError, msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError):
            raise NotAuthenticated("The token is not valid here.") from None
        now = time.time()
        addressed = self._audience == claims.aud or (not isinstance(claims.aud, str) and self._audience in claims.aud)
        if claims.iss != self._issuer or not addressed or claims.nbf > now or claims.iat > now:
            raise NotAuthenticated("The token is not valid here.")
        if claims.exp <= now:
            raise NotAuthenticated("The token has expired.")
        return Principal(claims.sub, claims.org, claims.role, claims.tier, claims.exp)

    async def _key(self, token: str) -> tuple[str, Any]:
        """The algorithm of a token, which is an allowed one, and the key for it."""
        head = jwt.get_unverified_header(token)
        algorithm = head.get("alg")
        if algorithm == ALGORITHM and self._secret is not None:
            return ALGORITHM, self._secret
        if algorithm in KEY_SET_ALGORITHMS and self._keys is not None:
            key = await self._keys.find(head.get("kid"))
            if key is not None and key.algorithm_name == algorithm:
                return algorithm, key
        raise NotAuthenticated("The token is not valid here.")


class KeySet:
    """The public keys at a URL or in a file, read when one is asked for that is not known."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at = -KEY_SET_FLOOR_S
        self._reading = asyncio.Lock()

    async def find(self, key_id: object) -> jwt.PyJWK | None:
        """The key with this id; without an id, the only key there is."""
        if not isinstance(key_id, str | None):
            return None
        found = self._keys.get(key_id)
        if found is None:
            async with self._reading:
                if time.monotonic() - self._read_at >= KEY_SET_FLOOR_S:
                    await self._read()
            found = self._keys.get(key_id)
        return found

    async def _read(self) -> None:
        """Replace the keys. Those that are known stay when the source cannot be read."""
        self._read_at = time.monotonic()
        try:
            document = await self._fetch()
            keys = [key for key in jwt.PyJWKSet.from_json(document).keys if key.algorithm_name in KEY_SET_ALGORITHMS]
        except (OSError, TimeoutError, aiohttp.ClientError, jwt.PyJWTError, ValueError) as error:
            _log.warning("the keys at %s cannot be read: %r", self._source, error)
            return
        self._keys = {key.key_id: key for key in keys}
        if len(keys) == 1:
            self._keys[None] = keys[0]

    async def _fetch(self) -> str:
        if not self._source.startswith("http"):
            return await asyncio.to_thread(Path(self._source).read_text, encoding="utf-8")
        timeout = aiohttp.ClientTimeout(total=KEY_SET_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._source) as response:
            if response.status != HTTPStatus.OK:
                raise ValueError(f"status {response.status}")
            body = await response.content.read(KEY_SET_BYTES_MAX)
            return body.decode()
