"""Every outcome a backend can answer, and what it means to a caller. lua/include/status.lua has the same numbers."""

from enum import IntEnum
from http import HTTPStatus


class Status(IntEnum):
    """An outcome. Numbers are append-only; 0 to 9 are successes."""

    DONE = 0
    REPEATED = 1
    ALREADY_HELD = 2
    OFFERED = 3
    FENCED = 10
    INVALID_REQUEST = 11
    TOO_MANY_SEATS = 12
    EVENT_NOT_FOUND = 13
    HOLD_ID_REUSED = 14
    STALE_CONFIG = 15
    EVENT_NOT_AVAILABLE = 16
    EVENT_UNAVAILABLE = 17
    EVENT_SALES_CLOSED = 18
    BUSY = 19
    SEAT_NOT_FOUND = 20
    SEAT_NOT_AVAILABLE = 21
    SEAT_HELD_BY_ANOTHER_USER = 22
    USER_LIMIT_EXCEEDED = 23
    ADDRESS_LIMIT_EXCEEDED = 24
    RATE_LIMIT_EXCEEDED = 25
    BLOCK_AT_CAPACITY = 26
    NO_AVAILABLE_SEATS = 27
    LEAVES_ORPHAN = 28
    WHEELCHAIR_LIMIT_EXCEEDED = 29
    HOLD_NOT_FOUND = 30
    NOT_HOLD_OWNER = 31
    HOLD_SOLD = 32
    HOLD_RELEASED = 33
    HOLD_EXPIRED = 34
    SEATS_LOST = 35
    EXTENSION_LIMIT = 36
    HOLD_IN_CHECKOUT = 37
    EVENT_EXISTS = 40
    LOAD_INCOMPLETE = 41
    EVENT_IN_USE = 42

    @property
    def succeeded(self) -> bool:
        return self < Status.FENCED

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without anybody changing their mind."""
        return self in _RETRYABLE

    @property
    def http(self) -> HTTPStatus:
        return _HTTP[self]


_RETRYABLE = frozenset(
    {
        Status.FENCED,
        Status.STALE_CONFIG,
        Status.BUSY,
        Status.USER_LIMIT_EXCEEDED,
        Status.ADDRESS_LIMIT_EXCEEDED,
        Status.RATE_LIMIT_EXCEEDED,
    }
)

_HTTP = {
    Status.DONE: HTTPStatus.OK,
    Status.REPEATED: HTTPStatus.OK,
    Status.ALREADY_HELD: HTTPStatus.OK,
    Status.OFFERED: HTTPStatus.OK,
    Status.FENCED: HTTPStatus.SERVICE_UNAVAILABLE,
    Status.INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    Status.TOO_MANY_SEATS: HTTPStatus.BAD_REQUEST,
    Status.EVENT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Status.HOLD_ID_REUSED: HTTPStatus.UNPROCESSABLE_ENTITY,
    Status.STALE_CONFIG: HTTPStatus.SERVICE_UNAVAILABLE,
    Status.EVENT_NOT_AVAILABLE: HTTPStatus.BAD_REQUEST,
    Status.EVENT_UNAVAILABLE: HTTPStatus.BAD_REQUEST,
    Status.EVENT_SALES_CLOSED: HTTPStatus.BAD_REQUEST,
    Status.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Status.SEAT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Status.SEAT_NOT_AVAILABLE: HTTPStatus.CONFLICT,
    Status.SEAT_HELD_BY_ANOTHER_USER: HTTPStatus.CONFLICT,
    Status.USER_LIMIT_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
    Status.ADDRESS_LIMIT_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
    Status.RATE_LIMIT_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
    Status.BLOCK_AT_CAPACITY: HTTPStatus.CONFLICT,
    Status.NO_AVAILABLE_SEATS: HTTPStatus.CONFLICT,
    Status.LEAVES_ORPHAN: HTTPStatus.CONFLICT,
    Status.WHEELCHAIR_LIMIT_EXCEEDED: HTTPStatus.CONFLICT,
    Status.HOLD_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Status.NOT_HOLD_OWNER: HTTPStatus.NOT_FOUND,
    Status.HOLD_SOLD: HTTPStatus.CONFLICT,
    Status.HOLD_RELEASED: HTTPStatus.CONFLICT,
    Status.HOLD_EXPIRED: HTTPStatus.CONFLICT,
    Status.SEATS_LOST: HTTPStatus.CONFLICT,
    Status.EXTENSION_LIMIT: HTTPStatus.CONFLICT,
    Status.HOLD_IN_CHECKOUT: HTTPStatus.CONFLICT,
    Status.EVENT_EXISTS: HTTPStatus.CONFLICT,
    Status.LOAD_INCOMPLETE: HTTPStatus.CONFLICT,
    Status.EVENT_IN_USE: HTTPStatus.CONFLICT,
}
