"""Named points at which a test ends this process, to see what a crash there leaves behind.

``RINGLINE_FAULT=<name>`` kills the process with SIGKILL when that point is reached, ``<name>:<n>`` at the
n-th time. Unset, nothing here does anything. The points are ``<step>.before`` and ``<step>.after`` the
commit of each step that is stored; `STEPS` names them.
"""

import os
import signal
from collections.abc import Callable
from typing import Final

__all__ = ["STEPS", "VARIABLE", "fault_points"]

VARIABLE: Final = "RINGLINE_FAULT"

STEPS: Final = ("admission", "start", "cancel", "attempt", "replay", "outcome", "end", "ack", "purge")
"""What is stored of a durable call: its admission, the grant of its start, a cancel request or its end, a
counted attempt or one taken back, a replay, the end by an outcome, any other end, the caller's
acknowledgement, the deletion of the record."""


def fault_points() -> Callable[[str], None] | None:
    """Return what is to be called at each point, None when no fault is asked for."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return None
    name, _, count = wanted.partition(":")
    left = int(count or 1)

    def reach(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reach
