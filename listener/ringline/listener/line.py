"""What may be said on the present connection, and under which lease.

A frame goes out for a call only if the relay has offered that call on this connection. After a loss the
relay offers again what it still waits for, and is told then what became true meanwhile (RL-SYNC-025,
RL-DURABLE-037, RL-DURABLE-040); about anything else, nobody listens.
"""

from typing import Final, final

from msgspec import UNSET, UnsetType

from ringline.listener.effects import Effect, Send, Tell
from ringline.listener.entries import End, Offer
from ringline.listener.outcomes import lost
from ringline.protocol.frames import (
    CallAccepted,
    CallCancelled,
    CallNotCancelled,
    CallRejected,
    CallStarted,
    CancelCall,
    NotCancelledReason,
    Phase,
)

__all__ = ["Line", "answer_cancelled", "answer_not_cancelled"]

_TOLD: Final = 10_000


@final
class Line:
    """The calls that were offered on this connection and are not over, with their present leases."""

    def __init__(self) -> None:
        """Begin without a connection."""
        self._leases: dict[str, str | None] = {}
        self._told: dict[str, None] = {}  # in order, so that the oldest can be forgotten

    def reset(self) -> None:
        """Forget the last connection."""
        self._leases.clear()
        self._told.clear()

    def offer(self, call_id: str, lease_id: str | UnsetType) -> None:
        """Note that a call was offered."""
        self._leases[call_id] = None if lease_id is UNSET else lease_id

    def withdraw(self, call_id: str) -> None:
        """Note that the relay has given a call to nobody any more."""
        self._leases.pop(call_id, None)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._leases

    def holds(self, call_id: str, lease_id: str | UnsetType) -> bool:
        """Whether the call is here under exactly this lease; never true of a sync call."""
        lease = self._leases.get(call_id)
        return lease is not None and lease == lease_id

    def was_told(self, call_id: str) -> bool:
        """Whether its outcome was sent on this connection, as far as that is remembered."""
        return call_id in self._told

    def accepted(self, call_id: str) -> list[Effect]:
        """Say that the call is taken."""
        if call_id not in self._leases:
            return []
        return [Send(CallAccepted(call_id=call_id, lease_id=self._lease(call_id)))]

    def started(self, call_id: str) -> list[Effect]:
        """Sync: say that work has begun. Durable: ask whether it may."""
        if call_id not in self._leases:
            return []
        return [Send(CallStarted(call_id=call_id, lease_id=self._lease(call_id)))]

    def rejected(self, call_id: str) -> list[Effect]:
        """Say that the call cannot be opened, or is not from anyone known. No reason is given."""
        if call_id not in self._leases:
            return []
        frame = CallRejected(call_id=call_id, code="protocol_error", lease_id=self._lease(call_id))
        self.withdraw(call_id)
        return [Send(frame)]

    def cancelled(self, call_id: str, phase: Phase) -> list[Effect]:
        """Confirm a cancellation."""
        if call_id not in self._leases:
            return []
        frame = CallCancelled(call_id=call_id, phase=phase, lease_id=self._lease(call_id))
        self.withdraw(call_id)
        return [Send(frame)]

    def not_cancelled(self, call_id: str, reason: NotCancelledReason) -> list[Effect]:
        """Say that a cancellation did not happen."""
        if call_id not in self._leases:
            return []
        return [Send(CallNotCancelled(call_id=call_id, reason=reason, lease_id=self._lease(call_id)))]

    def tell(self, offer: Offer, end: End) -> list[Effect]:
        """Tell the outcome of a call; one whose text is gone is told as what it is, lost."""
        call_id = offer.call_id
        if call_id not in self._leases:
            return []
        if end.json is None:
            end = lost("the work was done; its outcome is not kept any more")
        effect = Tell(offer, end, self._leases[call_id])
        self.withdraw(call_id)
        self._told[call_id] = None
        if len(self._told) > _TOLD:
            del self._told[next(iter(self._told))]
        return [effect]

    def _lease(self, call_id: str) -> str | UnsetType:
        lease = self._leases[call_id]
        return UNSET if lease is None else lease


def answer_cancelled(frame: CancelCall, phase: Phase) -> list[Effect]:
    """Confirm a cancellation under the lease of the request itself, whatever this connection knows."""
    return [Send(CallCancelled(call_id=frame.call_id, phase=phase, lease_id=frame.lease_id))]


def answer_not_cancelled(frame: CancelCall, reason: NotCancelledReason) -> list[Effect]:
    """Refuse a cancellation under the lease of the request itself, whatever this connection knows."""
    return [Send(CallNotCancelled(call_id=frame.call_id, reason=reason, lease_id=frame.lease_id))]
