"""What a party is shown of a durable call (RL-HTTP-035, RL-DURABLE-062)."""

from collections.abc import Sequence
from typing import Final

from ringline.protocol.frames import CallOutcome, NotCancelledReason
from ringline.protocol.lifecycle import State
from ringline.protocol.shapes import CallEnd, CallRecord
from ringline.relay.call_store import CallRow
from ringline.relay.effects import CancelAnswer
from ringline.relay.errands import Errand

__all__ = ["BY_REASON", "is_hidden", "shown_ended", "states_of", "stored_record"]

BY_REASON: Final[dict[NotCancelledReason, CancelAnswer]] = {
    "already_terminal": CancelAnswer.ALREADY_TERMINAL,
    "too_late": CancelAnswer.TOO_LATE,
    "unknown": CancelAnswer.UNKNOWN,
}

_STORED: Final[dict[str, tuple[State, ...]]] = {
    # The stored states behind a word of a record: some are finer, some are hidden from the caller.
    "queued": (State.QUEUED, State.REVOKED),
    "started": (State.STARTED, State.REVOKED),
    "leased": (State.QUEUED,),
    "accepted": (State.QUEUED,),
    "canceled": (State.CANCELED, State.REVOKED),
    "delivery_failed": (State.DELIVERY_FAILED, State.PARKED, State.REVOKED),
}


def is_hidden(row: CallRow) -> bool:
    """True while a caller must not see that the callee took his authority away (RL-DURABLE-062).

    To him the call is queued until its time is over.
    """
    return row.state is State.REVOKED and row.error == "offline" and row.due_at <= row.execute_by


def shown_ended(row: CallRow, viewer: str) -> bool:
    """True if ``viewer`` may know that the call has ended."""
    return row.ended and not (is_hidden(row) and viewer == row.caller != row.callee)


def states_of(word: str | None) -> Sequence[State]:
    """Return the stored states that a record's ``word`` may stand for; none stands for any."""
    if word is None:
        return ()
    return _STORED.get(word) or tuple(state for state in State if state.value == word)


def stored_record(
    errand: Errand, viewer: str, *, deferred_until: int | None, outcome: CallOutcome | None
) -> CallRecord:
    """Return what ``viewer`` is shown of the call (RL-HTTP-035)."""
    row = errand.row
    state: str = errand.state.record
    reason: str | None = row.reason
    finished = row.finished_at
    if row.state is State.REVOKED and viewer == row.caller != row.callee:
        if is_hidden(row):
            state = "queued" if row.started_at is None else "started"
            reason = finished = None
        elif row.error == "offline":
            state, reason, finished = "delivery_failed", "delivery_failed", row.execute_by
        elif row.error == "canceled":
            state, reason = "canceled", "canceled"
    end = None
    if outcome is not None:
        end = CallEnd(terminal=outcome.terminal, terminal_reason=row.reason, envelope=outcome.envelope)
    return CallRecord(
        call_id=row.call_id,
        from_=row.caller,
        to=row.callee,
        mode="durable",
        state=state,
        terminal_reason=reason,
        message_id=row.message_id,
        correlation_id=row.correlation_id,
        submitted_at=row.submitted_at,
        expires_at=row.execute_by,
        started_at=row.started_at,
        finished_at=finished,
        attempts=row.attempts,
        deferred_until=deferred_until,
        cancel_requested=row.cancel_requested,
        outcome=end,
    )
