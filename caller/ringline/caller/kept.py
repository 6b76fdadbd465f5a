"""The calls that this identity has made, as its own outbox knows them, without asking the relay."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from ringline.caller.claim import claim_of
from ringline.caller.effects import Ended, Refused, Withdrawn
from ringline.caller.outbox import Stored
from ringline.protocol.bodies import decode_outcome

__all__ = ["KeptCall", "KeptState", "kept_call", "state_after"]

KeptState: TypeAlias = Literal[
    "sealed",
    "submitted",
    "completed",
    "failed",
    "canceled",
    "expired",
    "delivery_failed",
    "revoked",
    "indeterminate_execution",
    "timeout",
    "refused",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCall:
    """One call. Times are Unix ms, None when not known.

    ``state``: ``sealed`` until the relay is known to have it, then ``submitted``; ``completed`` and
    ``failed`` only with the callee's signature, any other end by the relay's word, or by the callee's if it
    is ``signed``. Of a sync call it says ``timeout`` for one without an answer, which may have run, and
    ``refused`` for one that was never delivered.
    """

    receipt: str
    callee: str
    mode: Literal["sync", "durable"]
    message_id: str
    call_id: str | None
    correlation_id: str
    state: KeptState
    signed: bool
    sealed_at: int
    execute_by: int | None
    acknowledged: bool


def state_after(end: Ended) -> KeptState | None:
    """Return how a call stands after an end without an outcome; None when the end says nothing of that."""
    match end:
        case Withdrawn():
            return "canceled"
        case Refused(code="timeout"):
            return "timeout"
        case Refused(call_id=None):
            return "refused"
        case Refused(code="canceled"):
            return "canceled"
        case Refused(code="protocol_error"):
            return "delivery_failed"
        case Refused(code="unauthorized"):
            return "revoked"
        case _:
            return None


def kept_call(stored: Stored) -> KeptCall:
    """Return what the outbox tells of a call."""
    state: str = "sealed" if stored.call_id is None else "submitted"
    if stored.receipt is not None:
        # A failure that is signed may be that nobody knows whether it ran: the frame's word says less.
        state = decode_outcome(stored.receipt.body, stored.receipt.terminal).reason
    elif stored.ended is not None:
        state = stored.ended
    return KeptCall(
        receipt=claim_of(stored.callee, stored.message_id),
        callee=stored.callee,
        mode=stored.mode,
        message_id=stored.message_id,
        call_id=stored.call_id,
        correlation_id=stored.correlation_id,
        state=state,  # type: ignore[arg-type]
        signed=stored.receipt is not None,
        sealed_at=stored.iat,
        execute_by=stored.execute_by,
        acknowledged=stored.acked,
    )
