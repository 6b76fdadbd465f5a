"""The life of a call: states, events, and one literal table.

This file knows neither clocks nor connections. A missing key *is* the answer "that may not happen
here"; `advance` turns it into `IllegalTransition`. The state table and the diagram of ``spec/`` are
rendered from `TRANSITIONS`.

Sync and durable calls share the states from acceptance on. What differs is what a start means: a
listener reports the start of a sync call, and asks for that of a durable one, so that before
`State.STARTED` a durable call is known not to have begun.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ringline.protocol.frames import CallState, RelayCode, TerminalReason

__all__ = [
    "ENDS",
    "FINAL",
    "TRANSITIONS",
    "WITH_CANCEL_FLAG",
    "Event",
    "IllegalTransition",
    "Mode",
    "State",
    "Transition",
    "advance",
]


class Mode(StrEnum):
    """How a call is delivered."""

    SYNC = "sync"
    DURABLE = "durable"


class State(StrEnum):
    """Where a call stands. The values are those of call records, but for `PARKED`."""

    RINGING = "ringing"  # sync: handed to an instance, not accepted
    QUEUED = "queued"  # durable: stored, with nobody
    LEASED = "leased"  # durable: handed out under a lease, not accepted
    ACCEPTED = "accepted"  # in the listener's journal; sync: may start; durable: has not begun
    STARTED = "started"  # sync: begun, says the listener; durable: granted, may have begun
    PARKED = "parked"  # durable: three counted attempts; its record says delivery_failed without an end
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"
    DELIVERY_FAILED = "delivery_failed"
    REVOKED = "revoked"
    INDETERMINATE = "indeterminate_execution"

    @property
    def record(self) -> str:
        """The word of the call record; that of a parked call is RL-DURABLE-052."""
        return "delivery_failed" if self is State.PARKED else self.value


FINAL: Final = frozenset(
    {
        State.COMPLETED,
        State.FAILED,
        State.CANCELED,
        State.EXPIRED,
        State.DELIVERY_FAILED,
        State.REVOKED,
        State.INDETERMINATE,
    }
)


class Event(StrEnum):
    """What may happen to a call."""

    LEASE = "lease"  # handed out under a lease
    ACCEPT = "accept"  # call_accepted
    START = "start"  # sync: call_started; durable: the grant
    RELEASE = "release"  # lease lapsed or its connection was lost before the start
    PARK = "park"  # the third counted attempt
    TAKE_BACK = "take_back"  # an attempt that was counted turns out not to be one
    REPLAY = "replay"  # the callee's owner tries again
    COMPLETE = "complete"  # call_outcome completed
    FAIL = "fail"  # call_outcome failed
    FAIL_INDETERMINATE = "fail_indeterminate"  # call_outcome failed/indeterminate_execution
    REJECT = "reject"  # call_rejected
    CANCEL = "cancel"  # asked while with nobody
    CANCELLED = "cancelled"  # call_cancelled after a request of the caller
    STOPPED = "stopped"  # call_cancelled after the relay's own request at execute_by
    REVOKED_STOPPED = "revoked_stopped"  # call_cancelled after the relay's request for lost authority
    RING_BOUND = "ring_bound"  # no acceptance in time
    CALL_BOUND = "call_bound"  # no end in time
    INSTANCE_LOST = "instance_lost"  # its instance did not come back in time
    EXECUTE_BY = "execute_by"  # the time is over before the start
    STOP_BOUND = "stop_bound"  # no answer to the relay's own cancel_call in time
    AUTHORITY_LOST = "authority_lost"  # before the start


ENDS: Final[dict[tuple[str, str], Event]] = {
    ("completed", "completed"): Event.COMPLETE,
    ("failed", "failed"): Event.FAIL,
    ("failed", "indeterminate_execution"): Event.FAIL_INDETERMINATE,
}
"""What a listener may claim in a ``call_outcome``, by ``terminal`` and ``terminal_reason``; an absent reason
equals the terminal (RL-FRAME-047, RL-FRAME-048)."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state, and what the caller is told.

    ``status`` is a ``call_status`` state, ``error`` the code of the ``call_error`` that ends the call,
    ``reason`` the terminal reason of the record. An outcome is told by the outcome itself.
    """

    to: State
    status: CallState | None = None
    error: RelayCode | None = None
    reason: TerminalReason | None = None


_S, _D = Mode.SYNC, Mode.DURABLE
_completed: Final = Transition(State.COMPLETED, reason="completed")
_failed: Final = Transition(State.FAILED, reason="failed")
_lost: Final = Transition(State.INDETERMINATE, reason="indeterminate_execution")
_lost_timeout: Final = Transition(State.INDETERMINATE, error="timeout", reason="indeterminate_execution")
_rejected: Final = Transition(State.DELIVERY_FAILED, error="protocol_error", reason="delivery_failed")
_canceled: Final = Transition(State.CANCELED, error="canceled", reason="canceled")
_expired: Final = Transition(State.EXPIRED, error="timeout", reason="expired")
_revoked: Final = Transition(State.REVOKED, reason="revoked")
_accepted: Final = Transition(State.ACCEPTED, status="answered")
_started: Final = Transition(State.STARTED, status="working")

TRANSITIONS: Final[dict[tuple[Mode, State, Event], Transition]] = {
    # --- sync; admission puts the call into RINGING (RL-SYNC-001)
    # RL-SYNC-002: `answered` at the listener's first call_accepted.
    (_S, State.RINGING, Event.ACCEPT): _accepted,
    # RL-FRAME-052: a call_started without an earlier call_accepted is taken for both. RL-SYNC-003: `working`.
    (_S, State.RINGING, Event.START): _started,
    (_S, State.ACCEPTED, Event.START): _started,
    # RL-FRAME-049: completed is refused for a call that has not started.
    (_S, State.STARTED, Event.COMPLETE): _completed,
    # RL-FRAME-050: failed is accepted for a call in the listener's hands, and call_rejected too, whether or
    # not it was accepted or started.
    (_S, State.RINGING, Event.FAIL): _failed,
    (_S, State.ACCEPTED, Event.FAIL): _failed,
    (_S, State.STARTED, Event.FAIL): _failed,
    (_S, State.RINGING, Event.FAIL_INDETERMINATE): _lost,
    (_S, State.ACCEPTED, Event.FAIL_INDETERMINATE): _lost,
    (_S, State.STARTED, Event.FAIL_INDETERMINATE): _lost,
    # RL-SYNC-008: at call_rejected it ends as delivery_failed, and the caller is told protocol_error.
    (_S, State.RINGING, Event.REJECT): _rejected,
    (_S, State.ACCEPTED, Event.REJECT): _rejected,
    (_S, State.STARTED, Event.REJECT): _rejected,
    # RL-CANCEL-023: a call whose cancellation is requested ends as canceled at the listener's call_cancelled.
    (_S, State.RINGING, Event.CANCELLED): _canceled,
    (_S, State.ACCEPTED, Event.CANCELLED): _canceled,
    (_S, State.STARTED, Event.CANCELLED): _canceled,
    # RL-SYNC-014: without an outcome, expired if no acceptance was read, indeterminate_execution if one was.
    (_S, State.RINGING, Event.RING_BOUND): _expired,
    (_S, State.RINGING, Event.CALL_BOUND): _expired,
    (_S, State.RINGING, Event.INSTANCE_LOST): _expired,
    (_S, State.ACCEPTED, Event.CALL_BOUND): _lost_timeout,
    (_S, State.ACCEPTED, Event.INSTANCE_LOST): _lost_timeout,
    (_S, State.STARTED, Event.CALL_BOUND): _lost_timeout,
    (_S, State.STARTED, Event.INSTANCE_LOST): _lost_timeout,
    # --- durable; admission puts the call into QUEUED (RL-FRAME-029)
    # RL-DURABLE-007: it is handed out under a lease with a fresh lease_id.
    (_D, State.QUEUED, Event.LEASE): Transition(State.LEASED),
    # RL-DURABLE-018: the caller is told answered and working as for a sync call, and never ringing.
    (_D, State.LEASED, Event.ACCEPT): _accepted,
    (_D, State.LEASED, Event.START): _started,
    (_D, State.ACCEPTED, Event.START): _started,
    # RL-DURABLE-010: taken back when no call_accepted comes in time. RL-DURABLE-011: an accepted call stays
    # with its connection, while that lives.
    (_D, State.LEASED, Event.RELEASE): Transition(State.QUEUED),
    (_D, State.ACCEPTED, Event.RELEASE): Transition(State.QUEUED),
    # RL-DURABLE-051: parked at the third counted attempt, and un-parked if the attempt is taken back.
    (_D, State.QUEUED, Event.PARK): Transition(State.PARKED),
    (_D, State.LEASED, Event.PARK): Transition(State.PARKED),
    (_D, State.ACCEPTED, Event.PARK): Transition(State.PARKED),
    # RL-HTTP-043: a replay of its callee puts a parked call back into the queue.
    (_D, State.PARKED, Event.REPLAY): Transition(State.QUEUED),
    (_D, State.PARKED, Event.TAKE_BACK): Transition(State.QUEUED),
    # RL-FRAME-049, RL-FRAME-050, RL-SYNC-008, as for a sync call.
    (_D, State.STARTED, Event.COMPLETE): _completed,
    (_D, State.LEASED, Event.FAIL): _failed,
    (_D, State.ACCEPTED, Event.FAIL): _failed,
    (_D, State.STARTED, Event.FAIL): _failed,
    (_D, State.LEASED, Event.FAIL_INDETERMINATE): _lost,
    (_D, State.ACCEPTED, Event.FAIL_INDETERMINATE): _lost,
    (_D, State.STARTED, Event.FAIL_INDETERMINATE): _lost,
    (_D, State.LEASED, Event.REJECT): _rejected,
    (_D, State.ACCEPTED, Event.REJECT): _rejected,
    (_D, State.STARTED, Event.REJECT): _rejected,
    # RL-CANCEL-004: with nobody, queued or parked, it ends as canceled at once when its caller cancels it.
    (_D, State.QUEUED, Event.CANCEL): _canceled,
    (_D, State.PARKED, Event.CANCEL): _canceled,
    # RL-CANCEL-023, as for a sync call.
    (_D, State.LEASED, Event.CANCELLED): _canceled,
    (_D, State.ACCEPTED, Event.CANCELLED): _canceled,
    (_D, State.STARTED, Event.CANCELLED): _canceled,
    # RL-DURABLE-056: not started when execute_by passes, it ends as expired, and the caller is told timeout.
    (_D, State.QUEUED, Event.EXECUTE_BY): _expired,
    (_D, State.LEASED, Event.EXECUTE_BY): _expired,
    (_D, State.ACCEPTED, Event.EXECUTE_BY): _expired,
    # RL-DURABLE-057: a parked call ends as delivery_failed when execute_by passes, and the caller is told
    # offline.
    (_D, State.PARKED, Event.EXECUTE_BY): Transition(
        State.DELIVERY_FAILED, error="offline", reason="delivery_failed"
    ),
    # RL-DURABLE-059: stopped after execute_by, it ends as expired at call_cancelled, and as
    # indeterminate_execution if nothing comes. RL-DURABLE-061: stopped for lost authority, call_cancelled
    # gives revoked.
    (_D, State.STARTED, Event.STOPPED): _expired,
    (_D, State.STARTED, Event.REVOKED_STOPPED): _revoked,
    (_D, State.STARTED, Event.STOP_BOUND): _lost_timeout,
    # RL-DURABLE-045: started, it ends as indeterminate_execution when its instance has not come back in time.
    (_D, State.STARTED, Event.INSTANCE_LOST): _lost_timeout,
    # RL-DURABLE-060: not started, it ends as revoked when its caller or callee loses the authority for it.
    (_D, State.QUEUED, Event.AUTHORITY_LOST): _revoked,
    (_D, State.PARKED, Event.AUTHORITY_LOST): _revoked,
    (_D, State.LEASED, Event.AUTHORITY_LOST): _revoked,
    (_D, State.ACCEPTED, Event.AUTHORITY_LOST): _revoked,
}

# RL-CANCEL-030: a call whose cancellation is requested is neither handed out nor granted. RL-CANCEL-029: it
# ends as canceled when it leaves a listener's hands without having started. RL-DURABLE-059: what is stopped
# at execute_by ends as canceled if the caller had asked for it.
WITH_CANCEL_FLAG: Final[dict[tuple[Mode, State, Event], Transition | None]] = {
    (_D, State.QUEUED, Event.LEASE): None,
    (_D, State.LEASED, Event.START): None,
    (_D, State.ACCEPTED, Event.START): None,
    (_D, State.LEASED, Event.RELEASE): _canceled,
    (_D, State.ACCEPTED, Event.RELEASE): _canceled,
    (_D, State.LEASED, Event.PARK): _canceled,
    (_D, State.ACCEPTED, Event.PARK): _canceled,
    (_D, State.STARTED, Event.STOPPED): _canceled,
}


class IllegalTransition(Exception):
    """The table has no such step. Whoever asked decides what the peer is told."""

    def __init__(self, mode: Mode, state: State, event: Event) -> None:
        super().__init__(f"a {mode} call that is {state} cannot take {event}")
        self.mode = mode
        self.state = state
        self.event = event


def advance(mode: Mode, state: State, event: Event, *, cancel_requested: bool = False) -> Transition:
    """Return the step that ``event`` makes from ``state``.

    Raises:
        IllegalTransition: there is none; the call stays as it is.
    """
    key = (mode, state, event)
    step = TRANSITIONS.get(key)
    if cancel_requested and key in WITH_CANCEL_FLAG:
        step = WITH_CANCEL_FLAG[key]
    if step is None:
        raise IllegalTransition(mode, state, event)
    return step
