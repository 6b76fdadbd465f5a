"""The error for each way a durable call ends without an outcome, by the relay's record."""

from typing import Final, final

from ringline.protocol.codes import Family
from ringline.protocol.errors import RinglineError

__all__ = [
    "CallCanceled",
    "CallEnded",
    "CallExpired",
    "CallIndeterminate",
    "CallRevoked",
    "CallUndelivered",
    "StillRunning",
    "ended_error",
]


class CallEnded(RinglineError):
    """The relay's record says how the call ended; nobody has signed that.

    ``receipt`` is the string by which the call is asked about.
    """

    family = Family.END
    default_code = "failed"
    receipt: str | None = None


@final
class CallExpired(CallEnded):
    """Its time was over before the work began: nothing has run."""

    default_code = "expired"


@final
class CallUndelivered(CallEnded):
    """No listener could take it. Until its time is over the callee may have it handed out again."""

    default_code = "delivery_failed"


@final
class CallIndeterminate(CallEnded):
    """The work may have run, and its outcome is lost."""

    default_code = "indeterminate_execution"


@final
class CallCanceled(CallEnded):
    """The cancellation is confirmed: the work never began, or was seen to stop."""

    default_code = "canceled"


@final
class CallRevoked(CallEnded):
    """One side has lost its authority."""

    default_code = "revoked"


@final
class StillRunning(CallEnded):
    """It has not ended within the time that was waited; ask again."""

    default_code = "still_running"


_ENDS: Final[dict[str, type[CallEnded]]] = {
    "expired": CallExpired,
    "delivery_failed": CallUndelivered,
    "indeterminate_execution": CallIndeterminate,
    "canceled": CallCanceled,
    "revoked": CallRevoked,
}


def ended_error(
    state: str, receipt: str, *, call_id: str | None, message_id: str, parked: bool = False
) -> CallEnded | None:
    """Return the error for a state of the record; None for one that is no end, or has an outcome."""
    kind = _ENDS.get(state)
    if kind is None:
        return None
    error = kind(call_id=call_id, message_id=message_id)
    error.receipt = receipt
    if parked:
        error.still_true = "Nothing has run. Until its time is over the callee may have it handed out again."
    return error
