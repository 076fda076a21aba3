"""Who may call: tokens that are missing, expired or forged, key sets, roles, and addresses behind proxies."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from holdfast.engine.policy import AckRule
from holdfast.engine.settings import Settings, SettingsError
from holdfast.http.auth import KEY_SET_FLOOR_S, Authenticator, KeySet, NotAuthenticated
from holdfast.http.clients import ClientAddresses
from holdfast.http.tokens import Role
from support.forgeries import FORGERIES, claims, signed
from support.front_end import SECRET, FrontEnd, serving, with_limits
from support.polling import eventually


async def test_whoever_cannot_show_a_token_gets_nothing(still: FrontEnd) -> None:
    before = await still.rig.on.dump()
    for name, forge in FORGERIES.items():
        reply = await still.reserve("A-1", token=forge(still))

        assert (reply.status, reply.error) == (401, "unauthorized"), name
        assert reply.headers["WWW-Authenticate"].startswith("Bearer"), name
    assert await still.rig.on.dump() == before


async def test_session_expired(still: FrontEnd) -> None:
    """Somebody who takes longer than their token lives has to come back with a new one, also if it was known here."""
    token = signed(claims(still, exp=int(time.time()) + 600))
    assert (await still.reserve("A-1", token=token)).status == 201
    late = signed(claims(still, exp=int(time.time()) - 1))

    reply = await still.reserve("A-2", token=late)

    assert (reply.status, reply.error, reply.body["detail"]) == (401, "unauthorized", "The token has expired.")


async def test_a_token_may_be_for_others_too_and_say_since_when_it_holds(still: FrontEnd) -> None:
    now = int(time.time())
    token = signed(claims(still, aud=["somebody else", "holdfast"], nbf=now - 1, iat=now - 1, exp=now + 0.5 + 600))

    assert (await still.reserve("A-1", token=token)).status == 201


async def test_a_known_token_is_believed_until_it_expires_and_no_longer() -> None:
    authenticator = Authenticator(Settings(token_secret=SECRET))
    header = "Bearer " + signed(claims(exp=int(time.time()) + 2))
    principal = await authenticator.verify(header)
    assert authenticator.known(header) == principal

    await eventually(lambda: authenticator.known(header) is None, "the token has expired")
    with pytest.raises(NotAuthenticated, match="expired"):
        await authenticator.verify(header)


async def test_the_scheme_may_be_written_in_any_case(still: FrontEnd) -> None:
    headers = {"Authorization": f"bEARER {still.token()}"}

    assert (await still.reserve("A-1", headers=headers, token="")).status == 201


async def test_without_a_secret_or_a_key_set_nobody_is_let_in() -> None:
    with pytest.raises(NotAuthenticated):
        await Authenticator(Settings()).verify("Bearer " + signed(claims()))


class Published:
    """A key set at a URL, which counts how often it is read."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[dict[str, Any]] = []
        self.reads = 0


@pytest.fixture
async def published() -> AsyncIterator[Published]:
    async def jwks(_: web.Request) -> web.Response:
        found.reads += 1
        return web.json_response({"keys": found.keys})

    app = web.Application()
    app.router.add_get("/keys", jwks)
    async with TestServer(app) as server:
        found = Published(str(server.make_url("/keys")))
        yield found


def key_pair(key_id: str, kind: str = "ES256") -> tuple[Any, dict[str, Any]]:
    if kind == "ES256":
        private: Any = ec.generate_private_key(ec.SECP256R1())
        public = jwt.algorithms.ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    else:
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    return private, {**public, "kid": key_id, "alg": kind, "use": "sig"}


@pytest.mark.parametrize("kind", ["ES256", "RS256"])
async def test_a_token_signed_with_a_published_key_is_accepted(published: Published, kind: str) -> None:
    private, public = key_pair("one", kind)
    published.keys = [public]
    authenticator = Authenticator(Settings(token_jwks=published.url))
    payload = claims()

    principal = await authenticator.verify("Bearer " + jwt.encode(payload, private, kind, headers={"kid": "one"}))

    assert (str(principal.user_id), principal.role) == (payload["sub"], Role.CUSTOMER)


async def test_a_public_key_is_no_secret_to_sign_with(published: Published) -> None:
    """The old trick: an HS256 token whose secret is the published key."""
    _, public = key_pair("one")
    published.keys = [public]
    authenticator = Authenticator(Settings(token_jwks=published.url))
    forged = jwt.encode(claims(), public["x"], "HS256", headers={"kid": "one"})

    with pytest.raises(NotAuthenticated):
        await authenticator.verify("Bearer " + forged)


async def test_a_new_key_is_found_and_unknown_ones_do_not_flood_the_publisher(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, old_public = key_pair("old")
    new, new_public = key_pair("new")
    published.keys = [old_public]
    keys = KeySet(published.url)
    assert await keys.find("old") is not None
    published.keys = [new_public]

    for _ in range(5):
        assert await keys.find("new") is None
    assert published.reads == 1

    started = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: started + KEY_SET_FLOOR_S)
    assert await keys.find("new") is not None
    assert published.reads == 2
    assert old is not new


async def test_a_key_set_may_be_a_file_and_survives_its_loss(tmp_path: Path) -> None:
    private, public = key_pair("one")
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [public]}))
    authenticator = Authenticator(Settings(token_jwks=str(path)))
    token = jwt.encode(claims(), private, "ES256", headers={"kid": "one"})
    assert (await authenticator.verify("Bearer " + token)).role is Role.CUSTOMER

    path.unlink()

    other = jwt.encode(claims(), private, "ES256", headers={"kid": "one"})
    assert (await authenticator.verify("Bearer " + other)).role is Role.CUSTOMER


@pytest.mark.parametrize("role", list(Role))
async def test_roles_decide_who_may_reserve(still: FrontEnd, role: Role) -> None:
    reply = await still.reserve("A-1", role=role)

    assert reply.status == (403 if role is Role.SERVICE else 201)


async def test_the_address_of_a_client_counts_and_not_what_it_claims(redis_url: str, database_dsn: str) -> None:
    """Without a trusted proxy X-Forwarded-For is the client's own word."""
    document = with_limits(max_holds_per_ip=1)
    async with serving(redis_url, database_dsn, document, ack=AckRule.REDIS, persist=False) as front:
        first = await front.reserve("A-1", headers={"X-Forwarded-For": "192.0.2.1"}, user=uuid4())
        second = await front.reserve("A-2", headers={"X-Forwarded-For": "192.0.2.2"}, user=uuid4())

        assert first.status == 201
        assert (second.status, second.error) == (429, "address_limit_exceeded")


async def test_behind_a_trusted_proxy_the_last_hop_that_is_not_ours_is_the_client(
    redis_url: str, database_dsn: str
) -> None:
    document = with_limits(max_holds_per_ip=1)
    trusted = {"trusted_proxies": "127.0.0.0/8,::1,10.0.0.0/8"}
    async with serving(redis_url, database_dsn, document, ack=AckRule.REDIS, persist=False, **trusted) as front:
        hops = ["192.0.2.1", "6.6.6.6, 192.0.2.2, 10.1.2.3", "192.0.2.1, 10.1.2.3", "rubbish, 192.0.2.3"]
        statuses = [
            (await front.reserve(f"A-{number}", headers={"X-Forwarded-For": hop}, user=uuid4())).status
            for number, hop in enumerate(hops, start=1)
        ]

        assert statuses == [201, 201, 429, 201]


def test_a_public_key_instead_of_a_secret_is_named_in_one_sentence() -> None:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()

    with pytest.raises(SettingsError, match=r"token_secret \(HOLDFAST_TOKEN_SECRET\) must be a secret"):
        Authenticator(Settings(token_secret=pem))


def test_proxies_that_are_no_networks_are_named_in_one_sentence() -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        ClientAddresses("10.0.0.0/99")
