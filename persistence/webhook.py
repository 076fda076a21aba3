"""Domain events as signed HTTP calls, in the form that standardwebhooks.com describes."""

import base64
import hmac
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any, Self
from uuid import UUID

import aiohttp
import msgspec

SECRET_PREFIX = "whsec_"  # noqa: S105 - it only marks a secret.
SIGNATURE_VERSION = "v1"

# Shorter than what receivers commonly grant: a POST that meets a connection which the other side is closing would count
# as a failed delivery.
KEEP_ALIVE_S = 2.0


class Message(msgspec.Struct, frozen=True):
    """A call's content: the same bytes and the same id at every attempt."""

    id: str
    body: bytes


class _Content(msgspec.Struct, frozen=True):
    type: str
    timestamp: datetime
    data: msgspec.Raw


class _Identity(msgspec.Struct, frozen=True):
    """What tells one domain event of a kind from every other: the hold, or the log entry of what concerns none."""

    timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    hold_id: UUID | None = None
    entry: str = ""


_encode = msgspec.json.Encoder().encode
_read_identity = msgspec.json.Decoder(_Identity).decode


def message_of(row: Mapping[str, Any]) -> Message:
    """The message of an outbox row.

    The id is a digest of what happened and not the row's number, because numbers start again in a database that is
    rebuilt from the log: a receiver then recognises what it has had, and never takes something new for that. The whole
    payload would not do, because a rebuilt one may list the same seats in another order.
    """
    payload = row["payload"].encode()
    try:
        identity = _read_identity(payload)
    except msgspec.DecodeError:
        timestamp, subject = row["created_at"].astimezone(UTC), payload
    else:
        timestamp = identity.timestamp.astimezone(UTC)
        name = identity.hold_id.bytes if identity.hold_id else identity.entry.encode()
        subject = name + timestamp.isoformat().encode()
    digest = blake2b(row["organization_id"].bytes + row["event_id"].bytes, digest_size=18)
    digest.update(row["kind"].encode() + b"\n" + subject)
    body = _encode(_Content(row["kind"], timestamp, msgspec.Raw(payload)))
    return Message("msg_" + base64.urlsafe_b64encode(digest.digest()).decode(), body)


def signing_key(secret: str) -> bytes:
    """The bytes to sign with: what follows `whsec_` in base64, or else the secret as it is."""
    if secret.startswith(SECRET_PREFIX):
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    return secret.encode()


def headers_of(message: Message, key: bytes, timestamp: int) -> dict[str, str]:
    """The headers of one attempt, which is made at `timestamp`, in Unix seconds."""
    signed = f"{message.id}.{timestamp}.".encode() + message.body
    signature = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return {
        "content-type": "application/json",
        "user-agent": "Holdfast",
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"{SIGNATURE_VERSION},{signature}",
    }


class Receiver:
    """The address that is called, and never another: a redirect is a failure. Use as an async context manager."""

    def __init__(self, url: str, secret: str, *, timeout_s: float, connections: int) -> None:
        self._url = url
        self._key = signing_key(secret)
        self._timeout_s = timeout_s
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, message: Message) -> str | None:
        """Deliver a message. Returns None once the receiver has taken it, and else what went wrong.

        The address is not part of the answer, because it may contain a password.
        """
        assert self._session is not None, "the receiver is not open"
        headers = headers_of(message, self._key, int(time.time()))
        try:
            async with self._session.post(
                self._url, data=message.body, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
        except TimeoutError:
            return f"it did not answer within {self._timeout_s:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return f"it could not be called ({type(error).__name__})"
        if 200 <= status < 300:
            return None
        if status == 410:
            return "it answered 410, which says that it wants no more calls"
        return f"it answered {status}"
