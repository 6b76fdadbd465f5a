"""A point in time, as the pure parts receive it."""

from msgspec import Struct

__all__ = ["Instant"]


class Instant(Struct, frozen=True, order=True, gc=False):
    """Both clocks, read together, in integer milliseconds.

    ``wall`` is Unix time, for what is compared with times on the wire or on disk. ``mono`` never goes
    back and has no meaning outside the process, for bounds and timers: a step of the wall clock must
    neither end a call early nor keep it for ever.
    """

    wall: int
    mono: int

    def later(self, ms: int) -> "Instant":
        """Return the instant ``ms`` milliseconds after this one, on both clocks."""
        return Instant(self.wall + ms, self.mono + ms)
