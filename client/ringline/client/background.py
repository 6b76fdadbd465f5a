"""Work that nobody awaits: held until it ends, and never lost without a word when it fails.

A task that only the event loop knows may vanish while it runs, and what it raises is written out by asyncio
with its text, which may quote what is sealed. Here every task is held, and a failure is logged by its kind
and place.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, Final, final

from ringline.protocol.whereabouts import whereabouts

__all__ = ["Background"]

_log: Final = logging.getLogger(__name__)


@final
class Background:
    """The tasks of one owner, who closes it with everything else of his."""

    def __init__(self, what: str) -> None:
        """``what`` names them in the log."""
        self._what = what
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator["asyncio.Task[None]"]:
        """Iterate over a copy: tasks end meanwhile."""
        return iter(tuple(self._running))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it as a task of the running event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    async def wait(self) -> None:
        """Wait for the end of what runs now."""
        if self._running:
            await asyncio.wait(tuple(self._running))

    async def close(self) -> None:
        """Cancel what runs and wait for its end."""
        for task in self:
            task.cancel()
        await self.wait()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed: %s", self._what, whereabouts(error))
