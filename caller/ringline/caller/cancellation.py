"""What came of a request to cancel (RL-CANCEL-012, RL-CANCEL-014)."""

from dataclasses import dataclass
from typing import TypeAlias, final

from ringline.protocol.frames import NotCancelledReason

__all__ = ["Cancellation", "Cancelled", "NotCancelled", "Requested"]


@final
@dataclass(frozen=True, slots=True)
class Cancelled:
    """The relay says that it is confirmed: the work never began, or the listener saw it stop."""

    call_id: str | None
    """None when the call was withdrawn here before the relay had it."""


@final
@dataclass(frozen=True, slots=True)
class NotCancelled:
    """It did not happen: the call has ended, is unknown, or cannot be stopped any more."""

    call_id: str | None
    reason: NotCancelledReason


@final
@dataclass(frozen=True, slots=True)
class Requested:
    """It was asked for, and nothing was decided within ten seconds. The work may still run."""

    call_id: str | None


Cancellation: TypeAlias = Cancelled | NotCancelled | Requested
