"""Work that many want at once, and one does."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Shared(Generic[Result]):
    """Whoever comes while the work is under way gets what comes of it, a failure too.

    With a lock each would try again when it is their turn, and behind a server that does not answer the last of a
    hundred would wait a hundred times as long as the first.
    """

    def __init__(self) -> None:
        self._work: asyncio.Task[Result] | None = None

    @property
    def under_way(self) -> bool:
        return self._work is not None and not self._work.done()

    async def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Do the work, unless somebody is at it."""
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(work())
        # One who gives up waiting must not take it away from the others.
        return await asyncio.shield(self._work)
