import asyncio
import base64
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from holdfast.engine.settings import Settings, SettingsError
from holdfast.persistence.outbox import Pace
from holdfast.persistence.webhook import Message, Receiver, headers_of, message_of, signing_key
from holdfast.ports import available_port
from support.outbox import SECRET, SECRET_BYTES, Call, receiving, verified

MESSAGE = Message("msg_1", b'{"type":"SeatSold","timestamp":"2026-03-01T10:00:00Z","data":{"seat_ids":["A-1"]}}')


def payload(**changes: Any) -> str:
    """The text of a row's payload."""
    return json.dumps({"hold_id": str(UUID(int=9)), "timestamp": "2026-03-01T10:00:00.5+00:00"} | changes)


def row(**changes: Any) -> dict[str, Any]:
    """An outbox row as asyncpg gives it."""
    return {
        "id": 7,
        "organization_id": UUID(int=1),
        "event_id": UUID(int=2),
        "kind": "SeatReleased",
        "payload": payload(),
        "created_at": datetime(2026, 3, 1, 11, tzinfo=UTC),
    } | changes


def caller(url: str, timeout_s: float = 5.0, secret: str = SECRET) -> Receiver:
    return Receiver(url, secret, timeout_s=timeout_s, connections=4)


def test_the_signature_is_the_one_of_the_specification() -> None:
    # Given the example that the reference implementations of Standard Webhooks test themselves with
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    message = Message("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}')

    headers = headers_of(message, key, 1614265330)

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-id"] == message.id
    assert headers["webhook-timestamp"] == "1614265330"


def test_a_secret_without_the_prefix_is_the_key_itself() -> None:
    assert signing_key("correct horse battery staple") == b"correct horse battery staple"
    assert signing_key(SECRET) == SECRET_BYTES


def test_a_message_says_what_happened_and_when() -> None:
    message = message_of(row())

    assert message.body == (
        b'{"type":"SeatReleased","timestamp":"2026-03-01T10:00:00.500000Z","data":' + payload().encode() + b"}"
    )


def test_a_row_without_a_time_has_that_of_its_insertion() -> None:
    assert b'"timestamp":"2026-03-01T11:00:00Z"' in message_of(row(payload="{}")).body


def test_the_id_depends_on_what_happened_and_not_on_how_the_row_says_it() -> None:
    first = message_of(row()).id

    assert first.startswith("msg_")
    # A full stop would make the signed text ambiguous.
    assert "." not in first
    same = [
        row(id=8, created_at=datetime(2027, 1, 1, tzinfo=UTC)),
        row(payload=payload(seat_ids=["A-2", "A-1"])),
        row(payload=payload(timestamp="2026-03-01T12:00:00.5+02:00")),
    ]
    assert {message_of(each).id for each in same} == {first}
    others = [
        row(kind="SeatSold"),
        row(event_id=UUID(int=3)),
        row(organization_id=UUID(int=3)),
        row(payload=payload(hold_id=str(UUID(int=3)))),
        row(payload=payload(timestamp="2026-03-01T10:00:00.6+00:00")),
        row(payload="{}"),
        row(payload='{"hold_id": 7}'),
    ]
    assert len({first, *(message_of(each).id for each in others)}) == 8


@pytest.mark.parametrize("secret", [SECRET, "correct horse battery staple"])
async def test_a_call_is_signed_so_that_the_receiver_can_verify_it(secret: str) -> None:
    async with receiving() as receiver, caller(receiver.url + "?token=1", secret=secret) as hook:
        assert await hook.post(MESSAGE) is None

    (call,) = receiver.calls
    assert verified(call, SECRET_BYTES if secret == SECRET else secret.encode())
    assert not verified(call, b"another key, just as long as it")
    assert call.body == MESSAGE.body
    assert call.path == "/hook?token=1"
    assert call.headers["content-type"] == "application/json"
    assert abs(int(call.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_is_a_delivery(status: int) -> None:
    async def answer(_: Call) -> web.Response:
        return web.Response(status=status)

    async with receiving() as receiver, caller(receiver.url) as hook:
        receiver.answer = answer
        assert await hook.post(MESSAGE) is None


@pytest.mark.parametrize("status", [304, 400, 404, 429, 500, 503])
async def test_every_other_answer_is_a_failure(status: int) -> None:
    async def answer(_: Call) -> web.Response:
        return web.Response(status=status)

    async with receiving() as receiver, caller(receiver.url) as hook:
        receiver.answer = answer
        assert await hook.post(MESSAGE) == f"it answered {status}"


async def test_gone_is_told_in_words() -> None:
    async def answer(_: Call) -> web.Response:
        return web.Response(status=410)

    async with receiving() as receiver, caller(receiver.url) as hook:
        receiver.answer = answer
        assert await hook.post(MESSAGE) == "it answered 410, which says that it wants no more calls"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with receiving() as elsewhere, receiving() as receiver, caller(receiver.url) as hook:

        async def answer(_: Call) -> web.Response:
            return web.Response(status=status, headers={"location": elsewhere.url})

        receiver.answer = answer
        assert await hook.post(MESSAGE) == f"it answered {status}"
        assert elsewhere.calls == []


async def test_a_receiver_that_does_not_answer_in_time_has_not_taken_it() -> None:
    async def answer(_: Call) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with receiving() as receiver, caller(receiver.url, timeout_s=0.05) as hook:
        receiver.answer = answer
        assert await hook.post(MESSAGE) == "it did not answer within 0.05 s"


async def test_a_refused_connection_is_told_without_the_address() -> None:
    port = available_port("127.0.0.1")
    async with caller(f"http://user:password@127.0.0.1:{port}/") as hook:
        assert await hook.post(MESSAGE) == "it could not be called (ClientConnectorError)"


def test_delays_double_up_to_a_limit_and_vary() -> None:
    pace = Pace(retry_first_s=1.0, retry_max_s=300.0)

    for failures, longest in [(0, 1), (1, 2), (2, 4), (8, 256), (9, 300), (100_000, 300)]:
        delays = {pace.retry_delay_s(failures) for _ in range(50)}
        assert longest / 2 <= min(delays) <= max(delays) <= longest
        assert len(delays) > 1


@pytest.mark.parametrize(
    "given", [{"HOLDFAST_WEBHOOK_URL": "https://example.com"}, {"HOLDFAST_WEBHOOK_SECRET": "s" * 24}]
)
def test_address_and_secret_are_set_together(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.read(given)

    assert str(caught.value) == (
        "webhook_url (HOLDFAST_WEBHOOK_URL) and webhook_secret (HOLDFAST_WEBHOOK_SECRET) must be set together "
        "or not at all."
    )


@pytest.mark.parametrize("url", ["ftp://example.com", "example.com", "https://", "https:///path", "http://a b/"])
def test_the_address_is_an_http_url(url: str) -> None:
    with pytest.raises(SettingsError, match=r"must be an http:// or https:// URL\.$"):
        Settings.read({"HOLDFAST_WEBHOOK_URL": url, "HOLDFAST_WEBHOOK_SECRET": "s" * 24})


@pytest.mark.parametrize(
    "secret",
    [
        "s" * 23,
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(24)).decode()[:-1],
        "whsec_" + "not base64 but long enough, one would think",
    ],
)
def test_a_secret_too_short_or_garbled_is_refused(secret: str) -> None:
    with pytest.raises(SettingsError, match=r"must be at least 24 characters long, or whsec_ followed by"):
        Settings.read({"HOLDFAST_WEBHOOK_URL": "https://example.com/hook", "HOLDFAST_WEBHOOK_SECRET": secret})


@pytest.mark.parametrize("length", [24, 25, 26, 27, 64])
def test_a_secret_in_base64_may_have_any_padding(length: int) -> None:
    secret = "whsec_" + base64.b64encode(bytes(length)).decode()

    settings = Settings.read({"HOLDFAST_WEBHOOK_URL": "https://example.com/hook", "HOLDFAST_WEBHOOK_SECRET": secret})

    assert signing_key(str(settings.webhook_secret)) == bytes(length)
