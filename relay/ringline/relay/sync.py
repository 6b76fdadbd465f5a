"""The life of sync calls: hand-out, reports, loss and return of either side, and the end.

What may follow what stands in the lifecycle table; this file says who is told, and what bounds it.
"""

from collections.abc import Callable
from typing import Final, final

from msgspec import UNSET

from ringline.protocol.closes import GOING_AWAY
from ringline.protocol.frames import (
    CallAccepted,
    CallCancelled,
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallRejected,
    CallRequest,
    CallStarted,
    CallStatus,
    CancelCall,
    IncomingCall,
    ListenerToRelay,
)
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import (
    ENDS,
    FINAL,
    Event,
    IllegalTransition,
    Mode,
    State,
    Transition,
    advance,
)
from ringline.protocol.trace import normalise
from ringline.relay.admission import Admitted, Refused
from ringline.relay.calls import Book, Call
from ringline.relay.cancellation import Cancellation
from ringline.relay.effects import Retire
from ringline.relay.presence import Instance, Presence
from ringline.relay.session import Session
from ringline.relay.sessions import Sessions
from ringline.relay.settings import Settings
from ringline.relay.timers import BoundPassed, GraceOver, HoldOver, Timers

__all__ = ["SyncCalls"]

# Bound once: looking a member of an enum up in its class is slow.
_SYNC: Final = Mode.SYNC
_ACCEPT: Final = Event.ACCEPT
_START: Final = Event.START
_RINGING: Final = State.RINGING
_STARTED: Final = State.STARTED
_ENDED: Final = {state: f"ended_{state.value}" for state in FINAL}

_PROTOCOL_ERROR: Final = CallError(origin="relay", code="protocol_error")
_GONE: Final = Refused("timeout")
_SENT_OFTEN: Final = Refused("rate_limited")


@final
class SyncCalls:
    """All sync calls of a relay. Every method says by effects what is to be sent."""

    def __init__(
        self,
        settings: Settings,
        sessions: Sessions,
        presence: Presence,
        book: Book,
        cancellation: Cancellation,
        timers: Timers,
        counters: dict[str, int],
        ids: Callable[[], str],
    ) -> None:
        self._ring_bound = settings.ring_bound_ms
        self._call_bound = settings.call_bound_ms
        self._grace = settings.grace_ms
        self._hold = settings.hold_ms
        self._resends = settings.outcome_resends
        self._sessions = sessions
        self._presence = presence
        self._book = book
        self._cancellation = cancellation
        self._timers = timers
        self._counters = counters
        self._ids = ids
        self.is_stored: Callable[[str, str], bool] | None = None
        """Tells of a call id and a handle whether it is a durable call to it."""
        self.farewell: str | None = None
        """Set while the relay stops: why a connection that has become idle is closed."""

    # --- the caller's side

    def admit(self, session: Session, admitted: Admitted, now: Instant) -> None:
        """Hand a request to the instance that has a place for it, and say that it rings."""
        request, instance = admitted.request, admitted.instance
        traceparent: str | None = None
        if request.traceparent is not UNSET:
            # RL-TRACE-003: what breaks the rule is dropped, and the call goes on as if there had been none.
            traceparent = normalise(request.traceparent, request.correlation_id)
            if traceparent is None:
                self._counters["traces_dropped"] += 1
        call = Call(
            id=self._ids(),
            caller=session.handle,
            callee=session.target,
            correlation_id=request.correlation_id,
            message_id=admitted.message_id,
            digest=admitted.digest,
            submitted_at=now.wall,
            handed_mono=now.mono,
            envelope=request.envelope,
            traceparent=UNSET if traceparent is None else traceparent,
            instance=instance,
        )
        self._book.add(call)
        self._presence.take(call, instance)
        self._timers.set(BoundPassed(call.id), now.mono + min(self._ring_bound, self._call_bound))
        self._counters["admitted"] += 1
        self._offer(call)
        self._attach(session, call)

    def repeat(self, session: Session, request: CallRequest, call: Call) -> None:
        """Answer a request that is a known call already (RL-SYNC-029, RL-SYNC-030)."""
        self._counters["repeated"] += 1
        if not call.ended:
            # RL-SYNC-031: a connection that is attached hears no status twice, and the end when it comes.
            if call.id not in session.calls:
                self._timers.cancel(HoldOver(call.id))
                self._attach(session, call)
            return
        if call.error is None and call.outcome is None:
            # The call ran, but how it ended can no longer be told: this request admitted nothing.
            self._sessions.send(session.connection, _GONE.answer(request))
            return
        if call.outcome is not None and not self.may_send_again(call):
            self._sessions.send(session.connection, _SENT_OFTEN.answer(request))
            return
        if session.connection not in call.attached:
            call.attached.append(session.connection)
            self._tell_status(session.connection, call)
        self._tell_end(session.connection, call)

    def may_send_again(self, call: Call) -> bool:
        """True if the outcome of ``call`` may be sent once more; that sending is counted."""
        # RL-ADMIT-038: one outcome is sent again at most so often, as it is large and asking is free.
        if call.outcome is None or (self._resends and call.resends >= self._resends):
            return False
        call.resends += 1
        return True

    def _attach(self, session: Session, call: Call) -> None:
        # RL-FRAME-028: the first frame about an admitted sync call on a connection is a call_status.
        call.attached.append(session.connection)
        session.calls[call.id] = call
        self._tell_status(session.connection, call)

    def _tell_status(self, connection: int, call: Call) -> None:
        self._sessions.send(
            connection, CallStatus(state=call.status, call_id=call.id, correlation_id=call.correlation_id)
        )

    def _tell_end(self, connection: int, call: Call) -> None:
        if call.outcome is not None:
            self._sessions.send(connection, call.outcome)
        elif call.error is not None:
            self._sessions.send(
                connection,
                CallError(
                    origin="relay", code=call.error, call_id=call.id, correlation_id=call.correlation_id
                ),
            )

    # --- the listener's side

    def _offer(self, call: Call) -> None:
        """Send a call to the connection that holds it, the cancel request right behind (RL-SYNC-022)."""
        instance, envelope = call.instance, call.envelope
        assert instance is not None
        assert envelope is not None
        assert instance.connection is not None
        self._sessions.send(
            instance.connection,
            IncomingCall(
                call_id=call.id,
                from_=call.caller,
                envelope=envelope,
                correlation_id=call.correlation_id,
                message_id=UNSET if call.message_id is None else call.message_id,
                traceparent=call.traceparent,
            ),
        )
        if call.cancel_requested:
            self._sessions.send(instance.connection, CancelCall(call_id=call.id))

    def offer_again(self, instance: Instance) -> None:
        """The instance is back, or on another connection: give it every unfinished call once more."""
        self._timers.cancel(GraceOver(instance.handle, instance.id))
        for call in instance.calls.values():
            self._offer(call)

    def hear(self, session: Session, frame: ListenerToRelay, now: Instant) -> None:
        """Act on a frame of a listener."""
        call = self._book.find(frame.call_id)
        if frame.lease_id is not UNSET:
            self._refuse_lease(session, frame, frame.lease_id, call)
        elif call is None or call.instance is not session.instance:  # an ended one is in nobody's hands
            self._answer_late(session, frame)
        elif isinstance(frame, CallAccepted):
            self._report(call, _ACCEPT, now)
        elif isinstance(frame, CallStarted):
            self._report(call, _START, now)
        elif isinstance(frame, CallOutcome):
            self._conclude(session, call, frame, now)
        elif isinstance(frame, CallRejected):
            self._end(call, advance(_SYNC, call.state, Event.REJECT), now)
        elif isinstance(frame, CallCancelled):
            if self._cancellation.confirmed(call):
                self._end(call, advance(_SYNC, call.state, Event.CANCELLED), now)
        else:
            self._cancellation.refused(call, frame.reason)

    def _refuse_lease(
        self, session: Session, frame: ListenerToRelay, lease_id: str, call: Call | None
    ) -> None:
        # RL-FRAME-046: a frame about one of the listener's sync calls has no lease_id. RL-DURABLE-021: a
        # lease in a frame about any other call is gone.
        if call is not None and call.callee == session.handle:
            self._sessions.send(session.connection, _PROTOCOL_ERROR)
        elif isinstance(frame, CallCancelled | CallNotCancelled):
            self._counters["cancels_late"] += 1
        else:
            self._counters["leases_stale"] += 1
            self._sessions.send(
                session.connection,
                CallRejected(call_id=frame.call_id, code="protocol_error", lease_id=lease_id),
            )

    def _answer_late(self, session: Session, frame: ListenerToRelay) -> None:
        # RL-SYNC-010: a call that has ended, is unknown or in other hands is answered with cancel_call, but
        # for the answers to one, or the two sides would go on for ever.
        if self.is_stored is not None and self.is_stored(frame.call_id, session.handle):
            # RL-FRAME-046: so is a frame about a durable call to the listener's handle that has no lease_id.
            self._sessions.send(session.connection, _PROTOCOL_ERROR)
        elif isinstance(frame, CallCancelled | CallNotCancelled):
            self._counters["cancels_late"] += 1
        else:
            self._counters["frames_late"] += 1
            self._sessions.send(session.connection, CancelCall(call_id=frame.call_id))

    def _report(self, call: Call, event: Event, now: Instant) -> None:
        try:
            step = advance(_SYNC, call.state, event)
        except IllegalTransition:
            return  # RL-FRAME-053: repeats tell the caller nothing new
        if call.state is _RINGING and call.instance is not None:
            self._presence.bind(call, call.instance, now.mono)
        call.state = step.to
        if step.to is _STARTED:
            call.started_at = now.wall
        if step.status is not None:
            call.status = step.status
            told = CallStatus(state=step.status, call_id=call.id, correlation_id=call.correlation_id)
            for connection in call.attached:
                self._sessions.send(connection, told)

    def _conclude(self, session: Session, call: Call, outcome: CallOutcome, now: Instant) -> None:
        reason = outcome.terminal if outcome.terminal_reason is UNSET else outcome.terminal_reason
        try:
            step = advance(_SYNC, call.state, ENDS[outcome.terminal, reason])
        except (KeyError, IllegalTransition):
            # RL-FRAME-047, RL-FRAME-049: an end it may not claim, or completed before it started.
            self._sessions.send(session.connection, _PROTOCOL_ERROR)
        else:
            self._end(call, step, now, outcome)

    # --- loss of a side

    def detach(self, session: Session, now: Instant) -> None:
        """A connection is gone. One that was replaced before holds nothing, and changes nothing."""
        instance = session.instance
        if instance is not None:
            self._presence.leave(instance)
            if instance.calls:
                self._timers.set(GraceOver(instance.handle, instance.id), now.mono + self._grace)
        calls = session.calls
        session.calls = {}
        for call in calls.values():
            call.attached.remove(session.connection)
            if not call.attached:
                self._abandon(call, now)

    def _abandon(self, call: Call, now: Instant) -> None:
        # RL-SYNC-027: a call whose request had a message_id is kept for its caller. RL-SYNC-028: any other is
        # stopped.
        if call.message_id is None:
            self._cancellation.stop(call)
        else:
            self._timers.set(HoldOver(call.id), now.mono + self._hold)

    def hold_over(self, call_id: str) -> None:
        """Nobody came back for the call: ask the listener to stop."""
        call = self._book.find(call_id)
        assert call is not None
        self._counters["calls_abandoned"] += 1
        self._cancellation.stop(call)

    def grace_over(self, handle: str, instance_id: str, now: Instant) -> None:
        """The instance did not come back: its calls end without it."""
        instance = self._presence.find(handle, instance_id)
        assert instance is not None
        for call in tuple(instance.calls.values()):
            self._give_up(call, Event.INSTANCE_LOST, now)

    def end_identity(self, handle: str, now: Instant) -> None:
        """An identity was removed (RL-HTTP-057): nobody comes back for its calls, or answers those to it."""
        for call in self._book.unfinished_calls():
            if call.callee == handle:
                self._give_up(call, Event.INSTANCE_LOST, now)
            elif call.caller == handle:
                self._cancellation.stop(call)

    def bound_passed(self, call_id: str, now: Instant) -> None:
        """The ring bound or the call bound is over, unless the call was accepted in the meantime."""
        call = self._book.find(call_id)
        assert call is not None
        end = call.handed_mono + self._call_bound
        if now.mono >= end:
            self._give_up(call, Event.CALL_BOUND, now)
        elif call.state is _RINGING:
            self._give_up(call, Event.RING_BOUND, now)
        else:
            self._timers.set(BoundPassed(call_id), end)

    def give_up_all(self, now: Instant) -> None:
        """The relay stops, so the call bound of every call is now."""
        for call in self._book.unfinished_calls():
            self._give_up(call, Event.CALL_BOUND, now)

    # --- the end

    def _give_up(self, call: Call, event: Event, now: Instant) -> None:
        """End a call on the relay's own account, and have its listener stop."""
        step = advance(_SYNC, call.state, event)
        instance = call.instance
        if instance is not None and instance.connection is not None and not call.cancel_requested:
            self._sessions.send(instance.connection, CancelCall(call_id=call.id))
        self._end(call, step, now)

    def _end(self, call: Call, step: Transition, now: Instant, outcome: CallOutcome | None = None) -> None:
        instance = call.instance
        assert instance is not None
        call.state = step.to
        call.reason = step.reason
        call.error = step.error
        call.outcome = outcome
        call.finished_at = now.wall
        call.envelope = None
        call.instance = None
        self._counters[_ENDED[step.to]] += 1
        self._timers.cancel(BoundPassed(call.id))
        if not call.attached:
            self._timers.cancel(HoldOver(call.id))
        self._presence.release(call, instance)
        if instance.connection is None and not instance.calls:
            self._timers.cancel(GraceOver(instance.handle, instance.id))
        # RL-SYNC-009: one terminal frame for every attached connection.
        for connection in call.attached:
            self._tell_end(connection, call)
            session = self._sessions.get(connection)
            if session is not None:
                del session.calls[call.id]
        self._cancellation.settle(call)
        self._book.finish(call, now.mono)
        self._sessions.effects.append(Retire(call.id))
        if self.farewell is not None:
            self._part_if_idle((*call.attached, instance.connection), now)

    # --- parting

    def part(self, session: Session, code: int, reason: str, now: Instant) -> None:
        """Close a connection; for its calls it is gone."""
        self._sessions.close(session, code, reason)
        self.detach(session, now)

    def _part_if_idle(self, connections: tuple[int | None, ...], now: Instant) -> None:
        assert self.farewell is not None
        for connection in connections:
            session = None if connection is None else self._sessions.get(connection)
            if session is not None and session.idle:
                self.part(session, GOING_AWAY, self.farewell, now)
