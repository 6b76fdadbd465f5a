"""What a `CallerSession` wants done, as data. Effects are performed in order."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import (
    CallOutcome,
    CallQueued,
    CallState,
    CancelCall,
    NotCancelledReason,
    RelayCode,
)

__all__ = [
    "Cancel",
    "CancelAnswer",
    "Decided",
    "Effect",
    "End",
    "Ended",
    "Learned",
    "Lookup",
    "LostRelay",
    "Open",
    "OutOfTime",
    "Progress",
    "Queued",
    "Refused",
    "Reseal",
    "Send",
    "Tell",
    "Unopened",
    "Withdrawn",
]

Progress: TypeAlias = CallState | Literal["sent", "sent_again", "offline", "busy", "rate_limited"]
"""What happens to a call before its end; the relay's word, but for the two sendings.

The last three say that the relay refused the call for now and that it will be sent once more.
"""

CancelAnswer: TypeAlias = Literal["canceled", "requested"] | NotCancelledReason
"""What came of a request to cancel; ``requested`` when nothing was decided in time."""


@final
@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes as one text message."""

    payload: bytes


@final
@dataclass(frozen=True, slots=True)
class Cancel:
    """Send this frame."""

    frame: CancelCall


@final
@dataclass(frozen=True, slots=True)
class Lookup:
    """Ask the relay over HTTP whether it knows this call."""

    message_id: str
    call_id: str


@final
@dataclass(frozen=True, slots=True)
class Learned:
    """The call has an id now; worth keeping, for a later process."""

    message_id: str
    call_id: str


@final
@dataclass(frozen=True, slots=True)
class Queued:
    """The relay has stored a durable call, it says; the session is done with it."""

    message_id: str
    frame: CallQueued


@final
@dataclass(frozen=True, slots=True)
class Open:
    """Try to open an outcome; keep it before saying that it opened."""

    message_id: str
    frame: CallOutcome


@final
@dataclass(frozen=True, slots=True)
class Reseal:
    """Seal the call anew under the same ``message_id``: this sealing never reached anybody."""

    message_id: str


@final
@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the caller how it goes."""

    message_id: str
    progress: Progress
    call_id: str | None


@final
@dataclass(frozen=True, slots=True)
class Decided:
    """What came of a request to cancel."""

    message_id: str
    answer: CancelAnswer


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """The relay says that the call ended, or with ``call_id`` None that it was never admitted.

    ``forgotten``: it was not said by a frame; the relay does not know a call that it had admitted.
    """

    code: RelayCode
    call_id: str | None
    retry_after_ms: int | None
    forgotten: bool = False


@final
@dataclass(frozen=True, slots=True)
class LostRelay:
    """There is no connection. ``sent`` tells whether the call may be with the relay."""

    error: RinglineError
    sent: bool


@final
@dataclass(frozen=True, slots=True)
class OutOfTime:
    """The caller's own time is over. ``sent`` tells whether the call may be with the relay."""

    call_id: str | None
    sent: bool


@final
@dataclass(frozen=True, slots=True)
class Unopened:
    """The relay delivered an outcome that was not taken, and no other.

    ``error`` is why it could not be checked, or that its signer has revoked the key; None: it is forged.
    """

    error: RinglineError | None = None


@final
@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Cancelled here, before anything of it was with the relay."""


Ended: TypeAlias = Refused | LostRelay | OutOfTime | Unopened | Withdrawn
"""How a call ended without an outcome."""


@final
@dataclass(frozen=True, slots=True)
class End:
    """The call is over, without an outcome."""

    message_id: str
    end: Ended


Effect: TypeAlias = Send | Cancel | Lookup | Learned | Queued | Open | Reseal | Tell | Decided | End
