"""What the audit is told of a caller, and of what a caller was refused."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.engine.status import Status


class Caller(msgspec.Struct, frozen=True, array_like=True):
    """Where a request came from. It travels through the log as a JSON array, because every hold carries one."""

    address: str = ""
    user_agent: str = ""
    request_id: str = ""
    source: str = "web"

    def meta(self) -> bytes:
        """The form in which scripts take it."""
        return msgspec.json.encode(self)


class Actor(Caller, frozen=True, array_like=True):
    """A caller who acts on what belongs to others, and why. The array of a plain caller reads as one of nobody."""

    user_id: str = ""
    notes: str = ""


class RefusalLog(Protocol):
    """Takes note of refused requests. Who called is asked only where it is written down."""

    def record(
        self,
        organization_id: UUID,
        event_id: UUID,
        status: Status,
        *,
        user_id: UUID,
        seat_ids: tuple[str, ...],
        caller: Callable[[], Caller],
    ) -> None: ...
