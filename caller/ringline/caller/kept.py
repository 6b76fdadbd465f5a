"""The calls that this identity has made, as its own outbox knows them, without asking the relay."""

import contextlib
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, final

from ringline.caller.claim import claim_of, is_claim, read_claim
from ringline.caller.effects import Ended, Refused, Withdrawn
from ringline.caller.outbox import Outbox, Stored
from ringline.caller.receipt import Receipt
from ringline.client.address import RelayAddress
from ringline.client.home import Home
from ringline.protocol.bodies import decode_outcome
from ringline.protocol.errors import ConfigError

__all__ = ["KeptCall", "KeptState", "kept_call", "kept_receipt", "state_after"]

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
        state=cast("KeptState", state),
        signed=stored.receipt is not None,
        sealed_at=stored.iat,
        execute_by=stored.execute_by,
        acknowledged=stored.acked,
    )


def kept_receipt(home: Home, address: RelayAddress, handle: str, call: str) -> Receipt:
    """Return the receipt of a call of ``handle`` that was answered, without the relay and without a key.

    ``call`` is what `claim_of` gave for it, or the relay's id. Raises `ConfigError` when no such call is
    kept, or no answer to it.
    """
    path = home.outbox_file(address, handle)
    stored = None
    if path.exists():
        with contextlib.closing(Outbox(home, path)) as outbox:
            stored = outbox.find(*read_claim(call)) if is_claim(call) else outbox.find_call(call)
    if stored is None:
        raise ConfigError(
            f"{handle} has no such call in its outbox",
            still_true="Nothing was written.",
            next_step="list what this identity has sent: ringline calls ls",
        )
    if stored.receipt is None:
        raise ConfigError(
            f"{stored.callee} has not answered this call, as far as is known here: there is nothing signed",
            still_true="Nothing was written.",
            next_step=f"fetch the answer first: ringline result {claim_of(stored.callee, stored.message_id)}",
        )
    return stored.receipt
