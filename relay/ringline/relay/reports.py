"""What listeners say about durable calls, and what it means under which lease (RL-DURABLE-019)."""

from typing import Final, final

from msgspec import UNSET

from ringline.protocol.frames import (
    CallAccepted,
    CallCancelled,
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallRejected,
    CallStarted,
    ListenerToRelay,
)
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import ENDS, Event, IllegalTransition, Mode, State, advance
from ringline.relay.endings import Endings
from ringline.relay.errands import Errand, Errands, Lease
from ringline.relay.hands import Hands
from ringline.relay.ledger import Ledger
from ringline.relay.presence import Presence
from ringline.relay.quotas import Quotas
from ringline.relay.session import Session
from ringline.relay.timers import LeaseLapses, Timers

__all__ = ["Reports"]

_DURABLE: Final = Mode.DURABLE
_PROTOCOL_ERROR: Final = CallError(origin="relay", code="protocol_error")


@final
class Reports:
    """Acts on the frames of listeners that carry a lease."""

    def __init__(
        self,
        ledger: Ledger,
        errands: Errands,
        presence: Presence,
        timers: Timers,
        endings: Endings,
        hands: Hands,
        quotas: Quotas,
        counters: dict[str, int],
    ) -> None:
        self._ledger = ledger
        self._errands = errands
        self._presence = presence
        self._timers = timers
        self._endings = endings
        self._hands = hands
        self._quotas = quotas
        self._counters = counters

    def hear(self, session: Session, frame: ListenerToRelay, now: Instant) -> None:
        """Act on a frame, if its lease is the one that this connection has of the call."""
        errand = self._errands.held(frame.call_id)
        lease = None if errand is None else errand.lease
        if errand is None or lease is None or not _holds(lease, session, frame):
            self.refuse(session, frame)
        elif isinstance(frame, CallAccepted):
            self._accept(errand, lease, now)
        elif isinstance(frame, CallStarted):
            self._ask(errand, lease, now)
        elif isinstance(frame, CallOutcome):
            self._conclude(session, errand, frame, now)
        elif isinstance(frame, CallRejected):
            self._endings.end(errand, advance(_DURABLE, errand.state, Event.REJECT), now)
        elif isinstance(frame, CallCancelled):
            self._cancelled(errand, now)
        else:
            self._not_cancelled(errand, lease, frame, now)

    def refuse(self, session: Session, frame: ListenerToRelay) -> None:
        """Say that the lease of this frame is gone; late answers to a cancel are only counted."""
        if isinstance(frame, CallCancelled | CallNotCancelled):
            self._counters["cancels_late"] += 1
            return
        self._counters["leases_stale"] += 1
        self._ledger.send(
            session.connection,
            CallRejected(call_id=frame.call_id, code="protocol_error", lease_id=frame.lease_id),
        )

    # --- on the way

    def _accept(self, errand: Errand, lease: Lease, now: Instant) -> None:
        if lease.accepted:
            return
        lease.accepted = True
        # RL-DURABLE-011: an accepted call stays with its connection until execute_by, while that lives.
        self._timers.cancel(LeaseLapses(errand.id))
        row = errand.row
        self._presence.bind_conversation(row.caller, row.callee, row.correlation_id, lease.instance, now.mono)
        self._endings.tell_status(errand, "answered")

    def _ask(self, errand: Errand, lease: Lease, now: Instant) -> None:
        """The listener is about to begin: grant it, if it may."""
        self._accept(errand, lease, now)
        row = errand.row
        lease.asked = True
        # RL-DURABLE-028: no start is granted once execute_by has passed. RL-CANCEL-033: nor is one answered
        # while a cancellation is requested; it has its cancel_call.
        if row.cancel_requested or errand.stop is not None or row.execute_by <= now.wall:
            return
        if row.state is State.QUEUED:
            if self._quotas.deferred_until(row, now.wall) is not None:
                # Handed out with others that started first: this lease is gone, and the call waits.
                self._ledger.send(lease.connection, _stale(errand, lease))
                self._hands.put_off(errand, now)
                return
            step = advance(_DURABLE, errand.state, Event.START)
            self._ledger.note_start(row.caller, row.callee, now.wall)
            self._endings.write(
                errand, "start", now, state=step.to, instance=lease.instance.id, started_at=now.wall
            )
            self._errands.bind(errand)
            self._errands.forgive(errand)
            if row.attempts:
                self._presence.stirred.add(row.callee)  # a suspect less in these hands
            self._counters["stored_started"] += 1
        lease.asked = False
        self._ledger.send(lease.connection, CallStarted(call_id=errand.id, lease_id=lease.id))
        self._endings.tell_status(errand, "working")

    # --- ends

    def _conclude(self, session: Session, errand: Errand, frame: CallOutcome, now: Instant) -> None:
        reason = frame.terminal if frame.terminal_reason is UNSET else frame.terminal_reason
        try:
            step = advance(_DURABLE, errand.state, ENDS[frame.terminal, reason])
        except (KeyError, IllegalTransition):
            self._ledger.send(session.connection, _PROTOCOL_ERROR)
        else:
            self._endings.end(errand, step, now, outcome=frame)

    def _cancelled(self, errand: Errand, now: Instant) -> None:
        flagged, stop, state = errand.row.cancel_requested, errand.stop, errand.state
        if stop is not None:
            self._endings.end(errand, advance(_DURABLE, state, stop, cancel_requested=flagged), now)
        elif flagged:
            self._endings.end(errand, advance(_DURABLE, state, Event.CANCELLED), now)
        else:
            self._counters["cancels_unasked"] += 1

    def _not_cancelled(self, errand: Errand, lease: Lease, frame: CallNotCancelled, now: Instant) -> None:
        if not errand.row.cancel_requested:
            self._counters["cancels_unasked"] += 1
            return
        self._counters["cancels_refused"] += 1
        self._endings.write(errand, "cancel", now, cancel_requested=False)
        self._endings.refused(errand, frame.reason)
        if lease.asked:
            self._ask(errand, lease, now)


def _holds(lease: Lease, session: Session, frame: ListenerToRelay) -> bool:
    return lease.id == frame.lease_id and lease.connection == session.connection


def _stale(errand: Errand, lease: Lease) -> CallRejected:
    return CallRejected(call_id=errand.id, code="protocol_error", lease_id=lease.id)
