"""Durable calls: admission, one transaction for each turn of the loop, and what a failing store means.

This file ties together the parts of the durable half: `hands` hands calls out, `reports` hears listeners,
`endings` writes what happens, `mailbox` answers the parties, `ledger` keeps words behind their commits.
"""

from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, assert_never, final

from ringline.protocol.frames import CallRequest, CancelCall, ListenerToRelay
from ringline.protocol.instant import Instant
from ringline.protocol.limits import CARD_GRACE_MS
from ringline.relay.admission import Refused
from ringline.relay.authority import Authority
from ringline.relay.call_store import CallRow, CallStore
from ringline.relay.effects import CancelAnswer, Decided
from ringline.relay.errands import Errand
from ringline.relay.parts import Parts
from ringline.relay.presence import Instance, Presence
from ringline.relay.session import Session
from ringline.relay.sessions import Sessions
from ringline.relay.settings import Settings
from ringline.relay.store import StoreError
from ringline.relay.stored_records import shown_ended
from ringline.relay.timers import (
    DurableAlarm,
    LeaseLapses,
    QueueTurns,
    RebindOver,
    RestOver,
    StopOver,
    StoreDue,
    StoreRetry,
    Timers,
)

__all__ = ["DurableCalls"]

_P = ParamSpec("_P")


def _guarded(
    method: Callable[Concatenate["DurableCalls", _P], None],
) -> Callable[Concatenate["DurableCalls", _P], None]:
    """Skip ``method`` while the store does not work, and deal with its failing; its last argument is now."""

    def guarded(self: "DurableCalls", /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.fault is not None:
            return
        try:
            method(self, *args, **kwargs)
        except StoreError as error:
            now = args[-1]
            assert isinstance(now, Instant)
            self.fail(error, now)

    return guarded


@final
class DurableCalls:
    """All durable calls of a relay. What follows from each event is said at once, or behind `commit`."""

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        store: CallStore,
        sessions: Sessions,
        presence: Presence,
        timers: Timers,
        counters: dict[str, int],
        ids: Callable[[], str],
        lease_ids: Callable[[], str],
        reach: Callable[[str], None] | None = None,
    ) -> None:
        self.fault: str | None = None
        """Why the store does not work; None while it does."""
        self.to_close: list[int] = []
        """Connections that must be closed, because what they are about could not be stored."""
        self._settings = settings
        self._sessions = sessions
        self._presence = presence
        self._timers = timers
        self._counters = counters
        self._attached: dict[int, list[str]] = {}
        parts = Parts(settings, authority, store, sessions, presence, timers, counters, ids, lease_ids, reach)
        self._store: Final = store
        self.ledger: Final = parts.ledger
        self._errands: Final = parts.errands
        self._askers: Final = parts.askers
        self._endings: Final = parts.endings
        self.hands: Final = parts.hands
        self.mailbox: Final = parts.mailbox
        self._reports: Final = parts.reports
        self._expiry: Final = parts.expiry
        self._intake: Final = parts.intake

    # --- turns

    @property
    def unsaved(self) -> bool:
        """True if something waits for `commit`."""
        return self.ledger.unsaved

    def commit(self, now: Instant) -> None:
        """Make the turn durable and say what waited for that; or say that it was not stored."""
        if self.ledger.unsaved:
            # All of the turn at once: many calls, one look at who is there.
            self.serve(now)
        self.hands.fresh.clear()
        if self.ledger.unsaved:
            try:
                self.ledger.commit()
            except StoreError as error:
                self.fail(error, now)
            else:
                self._counters["store_commits"] += 1

    def open(self, now: Instant) -> None:
        """Take up what is stored, after the start or when the store works again. Raises `StoreError`."""
        for row in self._store.started():
            self._errands.bind(Errand(row=row))
        for handle, instance in self._errands.instances():
            self.hands.await_return(handle, instance, now)
        self._expiry.end_flagged(now)
        due = self._store.next_due()
        if due is not None:
            self._endings.watch(due, now)
        self.ledger.commit()

    # --- a store that fails

    def fail(self, error: StoreError, now: Instant) -> None:
        """Take the turn back, and everything in memory with it: as after a restart, nothing is believed.

        Who has durable calls in hand is closed, so that what it has to say is offered again to a relay
        that can store it (RL-TRANSPORT-045).
        """
        undone = self.ledger.rollback()
        self.fault = str(error)
        self._counters["store_failures"] += 1
        closed = dict.fromkeys(undone.connections)
        for instance in self._presence.connected():
            leases = [errand.lease for errand in instance.leases.values()]
            told = [lease for lease in leases if lease is not None and lease.id not in undone.untold]
            if told and instance.connection is not None:
                closed[instance.connection] = None
            self._presence.clear(instance)
        self.to_close += closed
        for session in self._sessions:
            if session.errands:
                self._attached[session.connection] = list(session.errands)
                session.errands = {}
        for connection, call_id in undone.ends:
            self._attached.setdefault(connection, []).append(call_id)
        self._errands.clear()
        self.hands.clear()
        self._presence.hungry.clear()
        self._presence.stirred.clear()
        self._endings.looked()
        wait = self._settings.store_retry_ms
        for connection, request in undone.refused:
            self._sessions.send(connection, Refused("busy", wait).answer(request))
        for number in undone.requests:
            self._askers.drop(number)
            self._sessions.effects.append(Decided(number, CancelAnswer.UNAVAILABLE))
        self._timers.set(StoreRetry(), now.mono + wait)

    def retry(self, now: Instant) -> None:
        """See whether the store works again, and go on where it stands."""
        if self.fault is None:
            return
        try:
            self._store.check()
            self.open(now)
            self.fault = None
            for connection, calls in self._attached.items():
                for call_id in calls:
                    self._attach_again(connection, call_id)
            self._attached = {}
            for instance in self._presence.connected():
                self.hands.arrive(instance, now)
        except StoreError as error:
            self.fail(error, now)

    def _attach_again(self, connection: int, call_id: str) -> None:
        session = self._sessions.get(connection)
        errand = self._errands.find(call_id)
        if session is None or errand is None:
            return
        if shown_ended(errand.row, session.handle):
            self._endings.tell_end_to(connection, errand.row, self._endings.outcome(errand.row))
        else:
            self._endings.attach(errand, connection)

    # --- admission

    def known(self, caller: str, callee: str, message_id: str, now: Instant) -> CallRow | None:
        """See `Intake.known`; None while the store fails."""
        if self.fault is None:
            try:
                return self._intake.known(caller, callee, message_id, now)
            except StoreError as error:
                self.fail(error, now)
        return None

    def judge(self, caller: str, callee: str, request: CallRequest, now: Instant) -> Refused | None:
        """See `Intake.judge`; `busy` while the store fails."""
        if self.fault is None:
            try:
                return self._intake.judge(caller, callee, request)
            except StoreError as error:
                self.fail(error, now)
        return Refused("busy", self._settings.store_retry_ms)

    @_guarded
    def admit(self, session: Session, request: CallRequest, digest: bytes, now: Instant) -> None:
        """See `Intake.admit`."""
        self._intake.admit(session, request, digest, now)

    @_guarded
    def repeat(self, session: Session, request: CallRequest, row: CallRow, now: Instant) -> None:
        """See `Intake.repeat`."""
        self._intake.repeat(session, request, row, now)

    # --- connections

    @_guarded
    def arrive(self, instance: Instance, now: Instant) -> None:
        """A listener's connection holds the instance now."""
        self.hands.arrive(instance, now)

    def detach(self, session: Session, now: Instant, *, lost: bool) -> None:
        """A connection is going; ``lost``: neither side had closed it. To be told before the presence is."""
        for errand in session.errands.values():
            errand.attached = tuple(other for other in errand.attached if other != session.connection)
            self._errands.tidy(errand)
        session.errands = {}
        self._attached.pop(session.connection, None)
        if session.instance is not None:
            self._leave(session.instance, lost, now)

    @_guarded
    def _leave(self, instance: Instance, lost: bool, now: Instant) -> None:
        self.hands.leave(instance, now, lost=lost)

    @_guarded
    def serve(self, now: Instant) -> None:
        """Hand out what became possible in this event."""
        stirred = self._presence.stirred
        while stirred:
            self.hands.serve(stirred.pop(), now)

    def drain(self) -> None:
        """The relay stops."""
        self.hands.take_all_back()

    # --- frames

    def owns(self, call_id: str, handle: str) -> bool:
        """True if this is a durable call to ``handle``: its frames need a lease (RL-FRAME-046)."""
        if self.fault is not None:
            return False
        try:
            errand = self._errands.find(call_id)
        except StoreError:
            return False
        return errand is not None and errand.row.callee == handle

    @_guarded
    def hear(self, session: Session, frame: ListenerToRelay, now: Instant) -> None:
        """Act on a frame of a listener that has a lease."""
        self.ledger.undone.connections.append(session.connection)
        self._reports.hear(session, frame, now)
        if not self.ledger.unsaved:
            self.ledger.undone.connections.pop()

    def cancel(self, session: Session, frame: CancelCall, now: Instant) -> None:
        """A caller sent ``cancel_call`` for what is no sync call."""
        if self.fault is not None:
            # Silence would mean that the request stands, and it cannot be stored.
            self.to_close.append(session.connection)
        else:
            self._cancel(session, frame, now)

    @_guarded
    def _cancel(self, session: Session, frame: CancelCall, now: Instant) -> None:
        self.ledger.undone.connections.append(session.connection)
        self.mailbox.cancel(session.handle, frame.call_id, session.connection, now)
        if not self.ledger.unsaved:
            self.ledger.undone.connections.pop()

    def cancel_by_http(self, caller: str, call_id: str, request: int, now: Instant) -> None:
        """A caller sent ``POST /v1/calls/{id}/cancel`` for what is no sync call."""
        if self.fault is not None:
            self._sessions.effects.append(Decided(request, CancelAnswer.UNAVAILABLE))
        else:
            self._cancel_by_http(caller, call_id, request, now)

    @_guarded
    def _cancel_by_http(self, caller: str, call_id: str, request: int, now: Instant) -> None:
        self.ledger.undone.requests.append(request)
        self.mailbox.cancel_by_http(caller, call_id, request, now)

    def waited(self, request: int) -> bool:
        """An HTTP cancel has waited long enough; False when it is about no durable call."""
        if self._askers.waited(request) is None:
            return False
        self._sessions.effects.append(Decided(request, CancelAnswer.REQUESTED))
        return True

    # --- authority

    @_guarded
    def recheck(self, handle: str, now: Instant) -> None:
        """The authority of ``handle``, or what it allows, has changed: end the calls that this ends."""
        self._expiry.recheck(handle, now)

    # --- time

    def happen(self, alarm: DurableAlarm, now: Instant) -> None:
        """Let happen what is due."""
        if isinstance(alarm, StoreRetry):
            self.retry(now)
        else:
            self._happen(alarm, now)

    @_guarded
    def _happen(self, alarm: DurableAlarm, now: Instant) -> None:
        match alarm:
            case LeaseLapses():
                self.hands.lapse(alarm.call_id, now)
            case QueueTurns():
                self.hands.turn_page(alarm.callee, now)
            case RebindOver():
                self.hands.not_returned(alarm.handle, alarm.instance, now)
            case RestOver():
                self.hands.rested(alarm.callee, alarm.caller, alarm.correlation_id)
            case StopOver():
                self._expiry.not_stopped(alarm.call_id, now)
            case StoreDue():
                self._expiry.sweep(now)
            case StoreRetry():
                pass
            case _:
                assert_never(alarm)

    # --- memory of others

    def met(self, one: str, other: str, now: Instant) -> bool:
        """True if a durable call between the two was admitted within the last 96 h."""
        try:
            return self._store.shared(one, other, max(0, now.wall - CARD_GRACE_MS))
        except StoreError:
            return False

    def snapshot(self) -> dict[str, int]:
        """Return present numbers."""
        return {
            "now_stored_in_memory": len(self._errands),
            "now_leases": sum(len(instance.leases) for instance in self._presence.connected()),
            "now_store_failing": int(self.fault is not None),
        }
