"""Durable calls: admission, one transaction for each turn of the loop, and what a failing store means.

This file ties together the parts of the durable half: `hands` hands calls out, `reports` hears listeners,
`endings` writes what happens, `mailbox` answers the parties, `ledger` keeps words behind their commits.
"""

from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, assert_never, final

import msgspec
from msgspec import UNSET

from ringline.protocol.frames import CallQueued, CallRequest, CancelCall, ListenerToRelay
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import Event, Mode, State, advance
from ringline.protocol.limits import CARD_GRACE_MS
from ringline.protocol.trace import normalise
from ringline.relay.admission import Refused
from ringline.relay.askers import Askers
from ringline.relay.authority import Authority
from ringline.relay.call_store import CallRow, CallStore
from ringline.relay.effects import CancelAnswer, Decided
from ringline.relay.endings import Endings
from ringline.relay.errands import Errand, Errands
from ringline.relay.hands import Hands
from ringline.relay.ledger import Ledger
from ringline.relay.mailbox import Mailbox
from ringline.relay.presence import Instance, Presence
from ringline.relay.queues import Queue
from ringline.relay.quotas import Quotas
from ringline.relay.recent import Recent
from ringline.relay.reports import Reports
from ringline.relay.session import Session
from ringline.relay.sessions import Sessions
from ringline.relay.settings import Settings
from ringline.relay.store import StoreError
from ringline.relay.stored_records import is_hidden, shown_ended
from ringline.relay.timers import (
    DurableAlarm,
    LeaseLapses,
    RebindOver,
    RestOver,
    StopOver,
    StoreDue,
    StoreRetry,
    Timers,
)

__all__ = ["DurableCalls"]

_P = ParamSpec("_P")
_DURABLE: Final = Mode.DURABLE
_PAGE: Final = 500
_SWEEP: Final = 100
_PAIRS: Final = 100_000

_json: Final = msgspec.json.Encoder()


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
        self._authority = authority
        self._sessions = sessions
        self._presence = presence
        self._timers = timers
        self._counters = counters
        self._ids = ids
        self._pairs: Recent[tuple[str, str], bool] = Recent(life=CARD_GRACE_MS, most=_PAIRS)
        self._attached: dict[int, list[str]] = {}
        self._store = store
        self._ledger = Ledger(store, sessions, reach)
        self._errands = Errands(store)
        self._queues: dict[str, Queue] = {}
        self._quotas = Quotas(settings, store)
        self._askers = Askers(timers, wait=settings.cancel_wait_ms)
        self._endings = Endings(
            settings,
            self._ledger,
            self._errands,
            self._queues,
            presence,
            sessions,
            timers,
            self._askers,
            counters,
        )
        self.hands: Final = Hands(
            settings,
            authority,
            self._ledger,
            self._errands,
            self._queues,
            presence,
            timers,
            self._endings,
            self._quotas,
            counters,
            lease_ids,
        )
        self._reports = Reports(
            self._ledger,
            self._errands,
            presence,
            timers,
            self._endings,
            self.hands,
            self._quotas,
            counters,
        )
        self.mailbox: Final = Mailbox(
            settings,
            self._ledger,
            self._errands,
            self._endings,
            self.hands,
            self._quotas,
            self._askers,
            counters,
        )

    # --- turns

    @property
    def unsaved(self) -> bool:
        """True if something waits for `commit`."""
        return self._ledger.unsaved

    def commit(self, now: Instant) -> None:
        """Make the turn durable and say what waited for that; or say that it was not stored."""
        if self._ledger.unsaved:
            try:
                self._ledger.commit()
            except StoreError as error:
                self.fail(error, now)

    def open(self, now: Instant) -> None:
        """Take up what is stored, after the start or when the store works again. Raises `StoreError`."""
        for row in self._store.started():
            self._errands.bind(Errand(row=row))
        for handle, instance in self._errands.instances():
            self.hands.await_return(handle, instance, now)
        for callee in self._store.callees():
            self._end_flagged(callee, now)
        due = self._store.next_due()
        if due is not None:
            self._endings.watch(due, now)
        self._ledger.commit()

    def _end_flagged(self, callee: str, now: Instant) -> None:
        # protocol §7: their leases went with the last relay, and a release with the flag ends a call.
        rows = self._store.queued(callee, 0, _PAGE)
        while rows:
            for row in rows:
                if row.cancel_requested:
                    self._endings.end(Errand(row=row), advance(_DURABLE, row.state, Event.CANCEL), now)
            rows = self._store.queued(callee, rows[-1].seq, _PAGE)

    # --- a store that fails

    def fail(self, error: StoreError, now: Instant) -> None:
        """Take the turn back, and everything in memory with it: as after a restart, nothing is believed.

        Who has durable calls in hand is closed, so that what it has to say is offered again to a relay
        that can store it (protocol §6).
        """
        undone = self._ledger.rollback()
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
        self._queues.clear()
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
        """Return the durable call that this message became (protocol §8).

        Most pairs have none, and do not pay for the look.
        """
        if self.fault is not None:
            return None
        pair = (caller, callee)
        try:
            met = self._pairs.get(pair, now.mono)
            if met is None:
                met = self._store.shared(caller, callee, max(0, now.wall - CARD_GRACE_MS))
                self._pairs.put(pair, met, now.mono)
            return self._store.find(caller, callee, message_id) if met else None
        except StoreError as error:
            self.fail(error, now)
            return None

    def judge(self, caller: str, callee: str, request: CallRequest, now: Instant) -> Refused | None:
        """Return why a request that may reach its callee is not stored, or None (protocol §4 step 5)."""
        if not self._authority.takes_durable(callee):
            return Refused("offline")
        if self.fault is None:
            try:
                listed = self._authority.lists(callee, caller)
                size = ciphertext_bytes(request)
                if not self._quotas.full(caller, callee, listed=listed, size=size):
                    return None
            except StoreError as error:
                self.fail(error, now)
        failing = self.fault is not None
        return Refused("busy", self._settings.store_retry_ms if failing else self._settings.mailbox_retry_ms)

    @_guarded
    def admit(self, session: Session, request: CallRequest, digest: bytes, now: Instant) -> None:
        """Store an admitted request; its ``call_queued`` waits for the commit."""
        assert request.message_id is not UNSET
        traceparent: str | None = None
        if request.traceparent is not UNSET:
            traceparent = normalise(request.traceparent, request.correlation_id)
            if traceparent is None:
                self._counters["traces_dropped"] += 1
        execute_by = min(now.wall + self._settings.durable_life_ms, request.envelope.exp)
        self._ledger.undone.refused.append((session.connection, request))
        row = self._ledger.insert(
            CallRow(
                call_id=self._ids(),
                seq=0,
                caller=session.handle,
                callee=session.target,
                caller_card=request.envelope.sid,
                listed=self._authority.lists(session.target, session.handle),
                message_id=request.message_id,
                correlation_id=request.correlation_id,
                digest=digest,
                traceparent=traceparent,
                submitted_at=now.wall,
                execute_by=execute_by,
                request_bytes=ciphertext_bytes(request),
                due_at=execute_by,
            ),
            _json.encode(request.envelope),
        )
        self._pairs.put((row.caller, row.callee), True, now.mono)
        self._counters["stored_admitted"] += 1
        self._endings.watch(execute_by, now)
        errand = Errand(row=row)
        self._endings.attach(errand, session.connection)
        self._queued(session.connection, row)
        self.hands.requeue(errand, now)

    @_guarded
    def repeat(self, session: Session, request: CallRequest, row: CallRow, now: Instant) -> None:
        """Answer a request that is a known call already with what is true of it now (protocol §8)."""
        self._counters["repeated"] += 1
        errand = self._errands.find(row.call_id)
        assert errand is not None
        row = errand.row
        ended = shown_ended(row, session.handle) or (row.ended and not is_hidden(row))
        if not ended:
            self._queued(session.connection, row)
            self._endings.tell_status_to(session.connection, errand)
            self._endings.attach(errand, session.connection)
            return
        outcome = None
        if row.terminal is not None and not row.acknowledged:
            if not self.mailbox.may_send_again(errand, now):
                self._ledger.send(session.connection, Refused("rate_limited").answer(request))
                return
            outcome = self._endings.outcome(row)
        self._queued(session.connection, row)
        self._endings.tell_end_to(session.connection, row, outcome)

    def _queued(self, connection: int, row: CallRow) -> None:
        self._ledger.send(
            connection,
            CallQueued(
                call_id=row.call_id,
                message_id=row.message_id,
                correlation_id=row.correlation_id,
                submitted_at=row.submitted_at,
                expires_at=row.execute_by,
            ),
        )

    # --- connections

    @_guarded
    def arrive(self, instance: Instance, now: Instant) -> None:
        """A listener's connection holds the instance now."""
        self.hands.arrive(instance, now)

    def detach(self, session: Session, now: Instant, *, lost: bool) -> None:
        """A connection is going; ``lost``: neither side had closed it. To be told before the presence is."""
        for errand in session.errands.values():
            errand.attached = [other for other in errand.attached if other != session.connection]
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
        """True if this is a durable call to ``handle``: its frames need a lease (protocol §3)."""
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
        self._ledger.undone.connections.append(session.connection)
        self._reports.hear(session, frame, now)
        if not self._ledger.unsaved:
            self._ledger.undone.connections.pop()

    def cancel(self, session: Session, frame: CancelCall, now: Instant) -> None:
        """A caller sent ``cancel_call`` for what is no sync call."""
        if self.fault is not None:
            # Silence would mean that the request stands, and it cannot be stored.
            self.to_close.append(session.connection)
        else:
            self._cancel(session, frame, now)

    @_guarded
    def _cancel(self, session: Session, frame: CancelCall, now: Instant) -> None:
        self._ledger.undone.connections.append(session.connection)
        self.mailbox.cancel(session.handle, frame.call_id, session.connection, now)
        if not self._ledger.unsaved:
            self._ledger.undone.connections.pop()

    def cancel_by_http(self, caller: str, call_id: str, request: int, now: Instant) -> None:
        """A caller sent ``POST /v1/calls/{id}/cancel`` for what is no sync call."""
        if self.fault is not None:
            self._sessions.effects.append(Decided(request, CancelAnswer.UNAVAILABLE))
        else:
            self._cancel_by_http(caller, call_id, request, now)

    @_guarded
    def _cancel_by_http(self, caller: str, call_id: str, request: int, now: Instant) -> None:
        self._ledger.undone.requests.append(request)
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
        unfinished = (State.QUEUED, State.PARKED, State.STARTED)
        for party in ("caller", "callee"):
            cursor: int | None = None
            while True:
                rows, cursor = self._store.page(party, handle, unfinished, cursor, _PAGE)
                for row in rows:
                    lost = self.hands.lost_by(row)
                    if lost is not None:
                        self._endings.revoke(self._errands.of(row), lost == "caller", now)
                if cursor is None:
                    break

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
            case RebindOver():
                self.hands.not_returned(alarm.handle, alarm.instance, now)
            case RestOver():
                self.hands.rested(alarm.callee, alarm.caller, alarm.correlation_id)
            case StopOver():
                self._not_stopped(alarm.call_id, now)
            case StoreDue():
                self._sweep(now)
            case StoreRetry():
                pass
            case _:
                assert_never(alarm)

    def _not_stopped(self, call_id: str, now: Instant) -> None:
        errand = self._errands.held(call_id)
        if errand is not None and errand.stop is not None and errand.row.state is State.STARTED:
            self._endings.end(errand, advance(_DURABLE, errand.state, Event.STOP_BOUND), now)

    def _sweep(self, now: Instant) -> None:
        """Let happen to stored calls what is due by the wall clock."""
        self._endings.looked()
        rows = self._store.due(now.wall, _SWEEP)
        for row in rows:
            self._time_over(self._errands.of(row), now)
        due = self._store.next_due()
        if due is not None:
            self._endings.watch(due, now)

    def _time_over(self, errand: Errand, now: Instant) -> None:
        row = errand.row
        if is_hidden(row):
            due = row.execute_by + self._settings.stored_record_life_ms
            self._endings.write(errand, "end", now, due_at=due)
            self._endings.announce(errand, None)
        elif row.ended:
            self._ledger.forget(row)
            self._counters["stored_forgotten"] += 1
        elif row.state is State.STARTED:
            # Should the relay stop meanwhile, the next one begins again.
            wait = self._settings.stop_wait_ms
            self._endings.write(errand, "cancel", now, due_at=now.wall + 2 * wait + 1)
            self._endings.stop(errand, Event.STOPPED, now)
        else:
            self._endings.send_cancel(errand)
            self._endings.end(errand, advance(_DURABLE, errand.state, Event.EXECUTE_BY), now)

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


def ciphertext_bytes(request: CallRequest) -> int:
    """Return the size of a request's ciphertext: what quotas count."""
    return len(request.envelope.ct) * 3 // 4
