"""Named points at which a test ends this process, to see what a crash there leaves behind.

Whoever stores something has two points for each of its steps, ``<step>.before`` and ``<step>.after`` the
commit, and names its steps as a type, so that no step can be stored without a name. The environment alone
chooses a point: ``RINGLINE_FAULT=<point>`` kills the process with SIGKILL when that point is reached,
``<point>:<n>`` when it is reached for the n-th time. Without the variable there are no points.
"""

import re
import signal
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["VARIABLE", "fault_points"]

VARIABLE: Final = "RINGLINE_FAULT"

_WANTED: Final = re.compile(r"([a-z]+\.(?:before|after))(?::([1-9][0-9]{0,5}))?", re.ASCII)


def fault_points(environment: Mapping[str, str]) -> Callable[[str], None] | None:
    """Return what is to be called at each point of this process; None when no fault is asked for.

    ``environment`` is that of the process. Raises `ValueError` for a value that names no point: a fault that
    is misspelt would otherwise look like a crash that did no harm.
    """
    wanted = environment.get(VARIABLE)
    if wanted is None:
        return None
    found = _WANTED.fullmatch(wanted)
    if found is None:
        raise ValueError(f"{VARIABLE} is <step>.before or <step>.after, and :<n> for the n-th time")
    name, left = found[1], int(found[2] or 1)

    def reach(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGKILL)

    return reach
