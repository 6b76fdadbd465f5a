"""What the relay counts and logs of its connections and requests (protocol §12).

Counters name nobody. Log lines carry numbers and words of our own, and a handle only at debug level; never a
token, a ticket, a query, or anything of a frame.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, final

__all__ = ["Telemetry"]

logger: Final = logging.getLogger("ringline.relay.connections")


@final
class Telemetry:
    """Counters since the start, and the one place that logs connections."""

    def __init__(self, core: Callable[[], Mapping[str, int]]) -> None:
        """``core`` returns what the hub counts."""
        self._core = core
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

    def snapshot(self) -> dict[str, int]:
        """Return every counter and present number by name."""
        return dict(self._core()) | dict(self._counters)
