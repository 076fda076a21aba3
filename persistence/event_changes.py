"""How a process learns that events have changed in Postgres."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import UUID

from holdfast.persistence.catalogue import EVENTS_CHANNEL
from holdfast.persistence.pool import POSTGRES_ERRORS, Connection, connect

_CHECK_S = 1.0
_RETRY_S = 0.2

_log = logging.getLogger(__name__)


async def follow_event_changes(
    dsn: str,
    changed: Callable[[UUID], None],
    missed: Callable[[], None],
    others: Mapping[str, Callable[[str], None]] = MappingProxyType({}),
) -> None:
    """Call `changed` for each event that is changed or added, until cancelled, over every loss of the connection.

    `missed` is called when changes may have gone unheard: whenever listening starts. `others` are channels to listen to
    on the same connection, with who takes what is said there.
    """
    while True:
        try:
            connection = await connect(dsn, name="events")
            try:
                await _follow(connection, changed, missed, others)
            finally:
                await connection.close(timeout=1)
        except POSTGRES_ERRORS as error:
            _log.warning("cannot hear which events change, trying again: %s", error)
        await asyncio.sleep(_RETRY_S)


async def _follow(
    connection: Connection,
    changed: Callable[[UUID], None],
    missed: Callable[[], None],
    others: Mapping[str, Callable[[str], None]],
) -> None:
    def hear(_: Any, __: int, ___: str, payload: str) -> None:
        changed(UUID(payload))

    await connection.add_listener(EVENTS_CHANNEL, hear)
    for channel, take in others.items():
        await connection.add_listener(channel, partial(_pass_on, take))
    missed()
    while not connection.is_closed():
        # A connection that broke without a word is found out by talking on it.
        await connection.execute("SELECT 1")
        await asyncio.sleep(_CHECK_S)


def _pass_on(take: Callable[[str], None], _: Any, __: int, ___: str, payload: str) -> None:
    take(payload)
