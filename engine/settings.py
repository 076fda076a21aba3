"""The settings of one process: defaults, then `HOLDFAST_*` variables, then flags."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.engine.policy import AckRule

VARIABLE_PREFIX = "HOLDFAST_"


class LogFormat(StrEnum):
    """How a process writes its log."""

    JSON = "json"
    TEXT = "text"


# HS256 needs a key at least as long as its hash, which has 32 bytes.
SECRET_LENGTH_MIN = 32

# Each description finishes the sentence "<name> must be …", which is what an operator reads about a bad value.
# A name or an address, perhaps with a port, and before it perhaps who logs in.
_LOGIN = r"([^/?#\[\]]*@)?"
_HOST = r"(\[[^\]]+\]|[^:,/?#\[\]@]*)(:\d+)?"
_REST = r"([/?].*)?$"
RedisUrl = Annotated[
    str,
    Meta(
        pattern=rf"^(rediss?://(?=.){_LOGIN}{_HOST}{_REST}|unix://.)",
        description="a redis://, rediss:// or unix:// URL",
    ),
]
PostgresDsn = Annotated[
    str,
    Meta(
        pattern=rf"^postgres(ql)?://(?=.){_LOGIN}{_HOST}(,{_HOST})*{_REST}",
        description="a postgresql:// URL",
    ),
]
Port = Annotated[int, Meta(ge=0, le=65535, description="a whole number from 0 to 65535")]
Shards = Annotated[int, Meta(ge=1, le=16384, description="a whole number from 1 to 16384")]
Entries = Annotated[int, Meta(ge=0, le=1_000_000_000, description="a whole number from 0 to 1000000000")]
Seconds = Annotated[float, Meta(gt=0, le=86_400, description="a number of seconds above 0, at most 86400")]
Failures = Annotated[int, Meta(ge=1, le=1_000, description="a whole number from 1 to 1000")]
Text = Annotated[str, Meta(min_length=1, description="text that is not empty")]
Secret = Annotated[str, Meta(min_length=SECRET_LENGTH_MIN, description=f"at least {SECRET_LENGTH_MIN} characters long")]
HttpUrl = Annotated[str, Meta(pattern=r"^https?://[^\s/?#]+[^\s#]*$", description="an http:// or https:// URL")]
AckChoice = Annotated[AckRule, Meta(description="postgres, on_request or redis")]
KeySet = Annotated[str, Meta(pattern=r"^(https?://[^\s/]|/).", description="an http(s):// URL or an absolute path")]
Networks = Annotated[
    str, Meta(pattern=r"^[0-9a-fA-F.:/]+(,[0-9a-fA-F.:/]+)*$", description="addresses or networks with commas between")
]
Organization = Annotated[UUID, Meta(description="the id of an organisation, a UUID")]
LogForm = Annotated[LogFormat, Meta(description="json or text")]
# Standard Webhooks asks for 24 bytes, which are eight groups of base64.
WebhookSecret = Annotated[
    str,
    Meta(
        pattern=r"^(whsec_([A-Za-z0-9+/]{4}){8,}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?|(?!whsec_).{24,})$",
        description="at least 24 characters long, or whsec_ followed by at least 24 bytes in base64",
    ),
]


class SettingsError(Exception):
    """A setting has a value that cannot be used; the text is one sentence for the operator."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a Holdfast process can be told from outside. Units come last in the names."""

    redis_url: RedisUrl = "redis://127.0.0.1:6379/0"
    postgres_dsn: PostgresDsn = "postgresql://postgres@127.0.0.1:5432/postgres"
    host: Text = "127.0.0.1"
    port: Port = 8080
    shards: Shards = 16
    recover_after_s: Seconds = 10.0
    breaker_failures: Failures = 5
    breaker_probe_s: Seconds = 30.0
    replay_retention_entries: Entries = 100_000
    max_backlog_entries: Entries = 100_000
    token_secret: Secret | None = None
    token_issuer: Text = "holdfast"  # noqa: S105 - the linter takes every token for a secret.
    token_audience: Text = "holdfast"  # noqa: S105
    token_jwks: KeySet | None = None
    operator_organization: Organization | None = None
    trusted_proxies: Networks | None = None
    ack: AckChoice = AckRule.POSTGRES
    log_format: LogForm = LogFormat.JSON
    metrics_port: Port | None = None
    webhook_url: HttpUrl | None = None
    webhook_secret: WebhookSecret | None = None

    def __post_init__(self) -> None:
        if (self.webhook_url is None) != (self.webhook_secret is None):
            names = " and ".join(f"{name} ({variable(name)})" for name in ("webhook_url", "webhook_secret"))
            raise SettingsError(f"{names} must be set together or not at all.")

    @classmethod
    def read(cls, environment: Mapping[str, str], **flags: object) -> Self:
        """Settings from the variables and flags that are given.

        An empty variable counts as absent, because that is how Compose passes one that is not set; so does a flag
        that is `None`. Raises SettingsError for a bad value, which is never quoted: it may contain a password.
        """
        given: dict[str, Any] = {name: environment.get(variable(name)) or None for name in cls.__struct_fields__}
        given.update((name, value) for name, value in flags.items() if value is not None)
        kinds = {field.name: field.type for field in msgspec.structs.fields(cls)}
        return cls(**{name: _convert(name, value, kinds[name]) for name, value in given.items() if value is not None})

    def environment(self) -> dict[str, str]:
        """The variables from which another process reads the same settings."""
        return {variable(name): str(value) for name, value in msgspec.structs.asdict(self).items() if value is not None}


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return VARIABLE_PREFIX + name.upper()


def _convert(name: str, value: object, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise SettingsError(f"{name} ({variable(name)}) must be {_description(kind)}.") from None


def _description(kind: Any) -> str:
    """The description of an annotated type, also when the type is optional."""
    candidates = (kind, *getattr(kind, "__args__", ()))
    found = (meta for candidate in candidates for meta in getattr(candidate, "__metadata__", ()))
    return next(str(meta.description) for meta in found)
