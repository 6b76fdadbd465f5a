"""What the core asks the edge to do. Effects are data; the edge performs them in order.

They are msgspec structs rather than dataclasses because several are made for each frame, and a struct is
made in C; they are frozen and compare by value all the same.
"""

from enum import StrEnum
from typing import TypeAlias, final

from msgspec import Struct

from ringline.protocol.frames import Frame

__all__ = ["CancelAnswer", "Close", "Decided", "Effect", "Retire", "Send"]


class CancelAnswer(StrEnum):
    """What became of ``POST /v1/calls/{id}/cancel`` (RL-CANCEL-011, RL-CANCEL-012)."""

    CANCELED = "canceled"  # confirmed by the listener
    REQUESTED = "requested"  # no word of the listener yet; the request stands
    ALREADY_TERMINAL = "already_terminal"  # the call had ended, or ended otherwise meanwhile
    TOO_LATE = "too_late"  # the listener's word
    UNKNOWN = "unknown"  # the listener's word: it does not know the call
    MISSING = "missing"  # no call of this caller has that id
    UNAVAILABLE = "unavailable"  # the request could not be stored: it does not stand

    @property
    def status(self) -> int:
        """The HTTP status: 200, 202, 409, and 404 for a call that is another's or none."""
        return _STATUSES.get(self, 409)


_STATUSES = {
    CancelAnswer.CANCELED: 200,
    CancelAnswer.REQUESTED: 202,
    CancelAnswer.MISSING: 404,
    CancelAnswer.UNAVAILABLE: 503,
}


@final
class Send(Struct, frozen=True):
    """Send one frame on a connection. The edge encodes it: a ciphertext is carried, never read."""

    connection: int
    frame: Frame


@final
class Close(Struct, frozen=True):
    """Close a connection. The core has forgotten it: what still arrives on it is ignored."""

    connection: int
    code: int
    reason: str


@final
class Decided(Struct, frozen=True):
    """Answer the waiting HTTP cancel request that `Hub.cancel` was given as ``request``."""

    request: int
    answer: CancelAnswer


@final
class Retire(Struct, frozen=True):
    """A call's end became visible in its record: wake whoever waits for it."""

    call_id: str


Effect: TypeAlias = Send | Close | Decided | Retire
