"""What the relay counts and logs of its connections and requests (RL-PRIVACY-001 to RL-PRIVACY-003).

Counters name nobody. Log lines carry numbers and words of our own, and a handle only at debug level; never a
token, a ticket, a query, or anything of a frame.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from ringline.protocol.whereabouts import whereabouts

__all__ = ["Telemetry", "log_fault"]

logger: Final = logging.getLogger("ringline.relay.connections")


@final
class Telemetry:
    """Counters since the start, and the one place that logs connections."""

    def __init__(self, *sources: Callable[[], Mapping[str, int]]) -> None:
        """``sources`` return what others count: the hub, the store."""
        self._sources = sources
        self._counters: Counter[str] = Counter()

    def opened(self, connection: int, role: str, handle: str) -> None:
        """A connection was let in."""
        self._counters[f"connections_{role}"] += 1
        logger.debug("connection %d opened: %s %s", connection, role, handle)

    def closed(self, connection: int, code: int | None, clean: bool) -> None:
        """A connection is gone; ``code`` None when the socket just ended."""
        self._counters["connections_closed" if clean else "connections_lost"] += 1
        logger.debug("connection %d closed: %s", connection, "no close frame" if code is None else code)

    def refused(self, status: int) -> None:
        """A handshake was answered with an HTTP status."""
        self._counters[f"handshakes_{status}"] += 1

    def answered(self, status: int) -> None:
        """An HTTP request was answered."""
        self._counters[f"requests_{status}"] += 1

    def fault(self, what: str, error: BaseException) -> None:
        """Something of the relay itself raised: log where, and nothing that it says."""
        self._counters["faults"] += 1
        logger.error("%s raised %s", what, whereabouts(error))

    def snapshot(self) -> dict[str, int]:
        """Return every counter and present number by name."""
        found: dict[str, int] = {}
        for source in self._sources:
            found |= source()
        return found | self._counters


def log_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Be the exception handler of a relay's own loop: log where a fault arose, and nothing that it says.

    asyncio's own would log the text, the traceback and what a future holds.
    """
    error = context.get("exception")
    where = "no exception" if error is None else whereabouts(error)
    logger.error("something that the loop ran failed: %s", where)
