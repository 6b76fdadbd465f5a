"""Both clocks of the machine, read together."""

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import TypeAlias

from ringline.protocol.instant import Instant

__all__ = ["Clock", "system_clock"]

Clock: TypeAlias = Callable[[], Instant]
"""What the relay asks for the time, once per event."""


def system_clock() -> Instant:
    """Return the present time, in ms."""
    return Instant(time_ns() // 1_000_000, monotonic_ns() // 1_000_000)
