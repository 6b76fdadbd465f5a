"""How durable calls change for good, and who is told: starts, cancel flags, ends.

What may follow what stands in the lifecycle table. Every change is written first; its word waits for the
commit behind it.
"""

from typing import Final, final

import msgspec
from msgspec.structs import replace

from ringline.protocol.frames import (
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallState,
    CallStatus,
    CancelCall,
    Envelope,
    NotCancelledReason,
    RelayCode,
)
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import FINAL, Event, Mode, State, Transition, advance
from ringline.relay.askers import Askers
from ringline.relay.call_store import CallRow
from ringline.relay.effects import CancelAnswer, Decided, Retire
from ringline.relay.errands import Errand, Errands
from ringline.relay.ledger import Ledger, Step
from ringline.relay.presence import Presence
from ringline.relay.queues import Queue
from ringline.relay.sessions import Sessions
from ringline.relay.settings import Settings
from ringline.relay.stored_records import BY_REASON
from ringline.relay.timers import LeaseLapses, RestOver, StopOver, StoreDue, Timers

__all__ = ["Endings"]

# Made once: the value of an enum's member takes a call.
_DURABLE: Final = Mode.DURABLE
_ENDED: Final = {state: f"stored_{state.value}" for state in FINAL}
_RANK: Final[dict[CallState | None, int]] = {None: 0, "ringing": 0, "answered": 1, "working": 2}
_LOOK_MS: Final = 60_000
"""Stored times are of the wall clock: whoever sleeps longer could miss a step of it."""

_json: Final = msgspec.json.Encoder()
_envelopes: Final = msgspec.json.Decoder(Envelope)


@final
class Endings:
    """Writes what happens to durable calls. ``queues`` has those of callees that are listening."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        errands: Errands,
        queues: dict[str, Queue],
        presence: Presence,
        sessions: Sessions,
        timers: Timers,
        askers: Askers,
        counters: dict[str, int],
    ) -> None:
        self._stop_wait = settings.stop_wait_ms
        self._keep = settings.stored_record_life_ms
        self._ledger = ledger
        self._errands = errands
        self._queues = queues
        self._presence = presence
        self._sessions = sessions
        self._timers = timers
        self._askers = askers
        self._counters = counters
        self._look_at: int | None = None

    # --- the caller

    def attach(self, errand: Errand, connection: int) -> None:
        """Tell this connection what happens to the call from now on."""
        session = self._sessions.get(connection)
        if session is not None and connection not in errand.attached:
            errand.attached = (*errand.attached, connection)
            session.errands[errand.id] = errand
            self._errands.keep(errand)

    def tell_status(self, errand: Errand, status: CallState) -> None:
        """Tell the caller how far the call is, unless it was further already."""
        if _RANK[status] > _RANK[errand.status]:
            errand.status = status
            for connection in errand.attached:
                self.tell_status_to(connection, errand)

    def tell_status_to(self, connection: int, errand: Errand) -> None:
        """Tell one connection of the caller how far the call is, if it has left the queue."""
        if errand.status is not None:
            row = errand.row
            told = CallStatus(state=errand.status, call_id=row.call_id, correlation_id=row.correlation_id)
            self._ledger.send(connection, told)

    def tell_end_to(self, connection: int, row: CallRow, outcome: CallOutcome | None) -> None:
        """Tell one connection how the call ended."""
        if outcome is not None:
            self._ledger.send(connection, outcome)
        elif row.error is not None:
            self._ledger.send(connection, _error(row, row.error))

    def outcome(self, row: CallRow) -> CallOutcome | None:
        """Return the stored outcome as a caller is sent it, None when there is none (any more)."""
        stored = self._ledger.store.outcome(row.call_id)
        if stored is None or row.terminal is None or row.reason is None:
            return None
        return CallOutcome(
            call_id=row.call_id,
            terminal=row.terminal,
            terminal_reason=row.reason,
            envelope=_envelopes.decode(stored),
        )

    # --- changes that are no end

    def write(self, errand: Errand, step: Step, now: Instant, **changes: object) -> None:
        """Store changes of the row."""
        before = errand.row
        errand.row = self._ledger.swap(step, before, replace(before, **changes))
        if errand.row.due_at != before.due_at:
            self.watch(errand.row.due_at, now)

    def watch(self, due: int, now: Instant) -> None:
        """Look at the store at ``due`` (Unix ms) or earlier."""
        at = now.mono + min(max(0, due - now.wall), _LOOK_MS)
        if self._look_at is None or at < self._look_at:
            self._look_at = at
            self._timers.set(StoreDue(), at)

    def looked(self) -> None:
        """The alarm of `watch` was raised."""
        self._look_at = None

    def park(self, errand: Errand, attempts: int, now: Instant) -> None:
        """Give a call up until its callee's owner wants it tried again."""
        step = advance(_DURABLE, errand.state, Event.PARK, cancel_requested=errand.row.cancel_requested)
        self.loosen(errand)
        if step.to is not State.PARKED:
            self.end(errand, step, now, attempts=attempts)
            return
        self._counters["stored_parked"] += 1
        self.write(errand, "attempt", now, state=step.to, attempts=attempts)
        self._leave_queue(errand)

    def stop(self, errand: Errand, event: Event, now: Instant) -> None:
        """Ask for a stop on the relay's own account: what has begun ends by the answer, or without."""
        if errand.stop is Event.REVOKED_STOPPED or errand.stop is event:
            return
        first = errand.stop is None
        errand.stop = event
        self._errands.keep(errand)
        if first:
            self._timers.set(StopOver(errand.id), now.mono + self._stop_wait)
        if first and not errand.row.cancel_requested:
            self.send_cancel(errand)

    def send_cancel(self, errand: Errand) -> None:
        """Tell whoever has the call in hand to stop."""
        lease = errand.lease
        if lease is not None:
            self._ledger.send(lease.connection, CancelCall(call_id=errand.id, lease_id=lease.id))

    def loosen(self, errand: Errand) -> None:
        """Take a call out of the hands that it is in: the lease is gone."""
        lease = errand.lease
        if lease is None:
            return
        errand.lease = None
        if not lease.accepted:
            self._timers.cancel(LeaseLapses(errand.id))
        self._presence.unhand(errand, lease.instance)

    # --- ends

    def revoke(self, errand: Errand, by_caller: bool, now: Instant) -> None:
        """One side has lost the authority for the call: ``by_caller`` its own card or handle."""
        state, flagged = errand.state, errand.row.cancel_requested
        errand.lost_by_caller = by_caller
        if state is State.STARTED:
            self.stop(errand, Event.REVOKED_STOPPED, now)
            return
        self._counters["stored_revoked"] += 1
        if errand.lease is not None:
            if flagged:
                # RL-CANCEL-029: a call whose cancellation is requested ends as canceled when it leaves the
                # listener's hands without having started.
                self.end(errand, advance(_DURABLE, state, Event.RELEASE, cancel_requested=True), now)
                return
            self.send_cancel(errand)
        self.end(errand, advance(_DURABLE, state, Event.AUTHORITY_LOST), now)

    def end(
        self,
        errand: Errand,
        step: Transition,
        now: Instant,
        *,
        outcome: CallOutcome | None = None,
        attempts: int | None = None,
    ) -> None:
        """End a call as the lifecycle table says, and tell everybody who waits for it."""
        before = errand.row
        error = step.error
        if step.to is State.REVOKED:
            error = "unauthorized" if errand.lost_by_caller else "offline"
        # RL-DURABLE-062: what the callee's side revoked is shown to the caller as queued until execute_by.
        hidden = step.to is State.REVOKED and error == "offline"
        sealed = None if outcome is None else _json.encode(outcome.envelope)
        after = replace(
            before,
            state=step.to,
            reason=step.reason,
            error=error,
            finished_at=now.wall,
            terminal=None if outcome is None else outcome.terminal,
            outcome_bytes=0 if outcome is None else outcome.envelope.size,
            attempts=before.attempts if attempts is None else attempts,
            due_at=before.execute_by + (0 if hidden else self._keep),
        )
        errand.row = self._ledger.swap("end" if outcome is None else "outcome", before, after, sealed)
        self.watch(errand.row.due_at, now)
        self._counters[_ENDED[step.to]] += 1
        self.loosen(errand)
        self._errands.unbind(errand)
        self._errands.forgive(errand)
        if errand.stop is not None:
            self._timers.cancel(StopOver(errand.id))
            errand.stop = None
        errand.uncounted = 0
        self._leave_queue(errand)
        if not hidden:
            self.announce(errand, outcome)

    def announce(self, errand: Errand, outcome: CallOutcome | None) -> None:
        """Tell the caller's side how the call ended."""
        told = None
        if outcome is not None:
            row = errand.row
            assert row.reason is not None
            # RL-FRAME-036: a caller is sent no lease_id.
            told = CallOutcome(
                call_id=row.call_id,
                terminal=outcome.terminal,
                terminal_reason=row.reason,
                envelope=outcome.envelope,
            )
        for connection in errand.attached:
            self.tell_end_to(connection, errand.row, told)
        self._settle(errand)
        for connection in errand.attached:
            session = self._sessions.get(connection)
            if session is not None:
                session.errands.pop(errand.id, None)
        errand.attached = ()
        self._errands.tidy(errand)
        self._ledger.say(Retire(errand.id))

    def _leave_queue(self, errand: Errand) -> None:
        row = errand.row
        queue = self._queues.get(row.callee)
        if queue is not None:
            self._presence.stirred.add(row.callee)
        if queue is None or queue.drop(errand):
            self._timers.cancel(RestOver(row.callee, row.caller, row.correlation_id))
        self._errands.tidy(errand)

    # --- askers for a cancellation

    def refused(self, errand: Errand, reason: NotCancelledReason) -> None:
        """Tell the askers why a cancellation did not happen."""
        asked = self._askers.withdraw(errand.id)
        for connection in asked.connections:
            self._ledger.send(connection, CallNotCancelled(call_id=errand.id, reason=reason))
        for request in asked.requests:
            self._ledger.say(Decided(request, BY_REASON[reason]))

    def _settle(self, errand: Errand) -> None:
        row = errand.row
        canceled = row.error == "canceled"
        asked = self._askers.withdraw(row.call_id)
        for connection in asked.connections:
            if connection in errand.attached:
                continue
            if canceled:
                self._ledger.send(connection, _error(row, "canceled"))
            else:
                self._ledger.send(
                    connection, CallNotCancelled(call_id=row.call_id, reason="already_terminal")
                )
        for request in asked.requests:
            answer = CancelAnswer.CANCELED if canceled else CancelAnswer.ALREADY_TERMINAL
            self._ledger.say(Decided(request, answer))


def _error(row: CallRow, code: RelayCode) -> CallError:
    return CallError(origin="relay", code=code, call_id=row.call_id, correlation_id=row.correlation_id)
