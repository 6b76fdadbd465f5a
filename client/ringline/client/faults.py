"""Named points at which a test ends this process, to see what a crash there leaves behind.

``RINGLINE_FAULT=<name>`` kills the process with SIGKILL when that point is reached, ``<name>:<n>`` at the
n-th time. Unset, nothing here does anything. The points are ``<step>.before`` and ``<step>.after`` the
commit of each step that a listener's journal or a caller's outbox stores.
"""

import os
import signal
from typing import Final

__all__ = ["VARIABLE", "reach"]

VARIABLE: Final = "RINGLINE_FAULT"

_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_left = int(_count or 1) if (_count or "1").isdigit() else 1


def reach(point: str) -> None:
    """Note that a point was reached."""
    global _left
    if _name and point == _name:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
