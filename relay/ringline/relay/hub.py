"""The relay's core: all connections, and the calls between them. Sans-IO: events in, effects out.

Whatever arrives (a connection, a message, a request to cancel, other credentials) first lets happen what was
due before, so that a bound holds to the millisecond of the edge's clock, whether or not `tick` came in time.
`commit` only ends a turn, and questions about records look at what is there. Connections and HTTP requests
are named by numbers of the edge's choice, which are never used twice.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Literal, final

from msgspec import UNSET

from ringline.protocol.closes import GOING_AWAY, REVOKED, retry_reason
from ringline.protocol.frames import CallRequest, CancelCall
from ringline.protocol.instant import Instant
from ringline.protocol.shapes import CallList, CallRecord
from ringline.relay.acquaintances import Acquaintances
from ringline.relay.admission import Admission
from ringline.relay.alarms import Alarms
from ringline.relay.authority import Authority
from ringline.relay.budget import HourlyBudget, TurnBudget
from ringline.relay.call_store import CallStore
from ringline.relay.calls import Book, Party
from ringline.relay.cancellation import Cancellation
from ringline.relay.departures import Departures
from ringline.relay.durable import DurableCalls
from ringline.relay.effects import Effect
from ringline.relay.mailbox import Acknowledged
from ringline.relay.presence import Presence
from ringline.relay.reception import Reception
from ringline.relay.records import Records
from ringline.relay.session import Refusal, Role, Session
from ringline.relay.sessions import Sessions
from ringline.relay.settings import Settings
from ringline.relay.sync import SyncCalls
from ringline.relay.timers import Timers

__all__ = ["Hub"]


@final
class Hub:
    """Routes sealed calls between callers and listeners of one relay.

    ``ids`` mints call ids: 128 random bits each, 1-64 of ``[A-Za-z0-9_-]``. ``started`` is when the relay
    started: what was sealed before may have been handed out by its predecessor (RL-ADMIT-008). Without a
    ``store`` there are no durable calls; ``lease_ids`` mints their UUIDs, and ``reach`` is told of each point
    of `ringline.protocol.faults`.

    Raises `ringline.relay.store.StoreError`.
    """

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        ids: Callable[[], str],
        started: Instant,
        *,
        store: CallStore | None = None,
        lease_ids: Callable[[], str] | None = None,
        reach: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._counters: dict[str, int] = defaultdict(int)
        self.timers: Final = Timers()
        """What is to happen later; `Timers.next` tells when to call `tick`, at the latest."""
        self._sessions = Sessions(self.timers)
        self._presence = Presence(share=settings.caller_places_percent, affinity=settings.affinity_ms)
        self._book = Book(
            self.timers,
            life=settings.record_life_ms,
            records=settings.records,
            outcome_bytes=settings.record_outcome_bytes,
        )
        self._hourly = HourlyBudget(
            settings.calls_per_hour, settings.calls_per_pair_per_hour, settings.budget_window_ms
        )
        self._turns = TurnBudget(settings.turns, settings.turn_window_ms)
        self._acquaintances = Acquaintances(life=settings.party_life_ms, most=settings.parties)
        self._cancellation = Cancellation(
            self._sessions, self.timers, self._counters, wait=settings.cancel_wait_ms
        )
        self._calls = SyncCalls(
            settings,
            self._sessions,
            self._presence,
            self._book,
            self._cancellation,
            self.timers,
            self._counters,
            ids,
        )
        self._admission = Admission(
            authority, self._book, self._presence, self._hourly, self._turns, started=started.wall
        )
        self.durable: DurableCalls | None = None
        """The durable calls of a relay that has a store for them."""
        if store is not None:
            assert lease_ids is not None
            self.durable = DurableCalls(
                settings,
                authority,
                store,
                self._sessions,
                self._presence,
                self.timers,
                self._counters,
                ids,
                lease_ids,
                reach,
            )
            self._admission.stock = self.durable
            self._calls.is_stored = self.durable.owns
            self.durable.open(started)
            self._sessions.take()  # there is nobody yet to whom anything could be said
        self._records = Records(self._book, self._calls, self.durable)
        self._departures = Departures(
            settings, self._sessions, self._calls, self.durable, self._admission, self.timers
        )
        self._reception = Reception(
            self._sessions,
            self._admission,
            self._acquaintances,
            self._hourly,
            self._calls,
            self.durable,
            self._departures,
            self._counters,
            release_ms=settings.unknown_handle_release_ms,
        )
        self._alarms = Alarms(
            self._sessions, self._book, self._calls, self._cancellation, self.durable, self._departures
        )

    def _effects(self, now: Instant) -> list[Effect]:
        """End an event: hand out what it made possible, close what it broke, and return what follows."""
        durable = self.durable
        if durable is not None:
            durable.serve(now)
            if durable.to_close:
                self._departures.close_broken(now)
            if self._departures.draining and not durable.unsaved:
                self._departures.send_idle_away(now)
        return self._sessions.take()

    @property
    def unsaved(self) -> bool:
        """True if effects wait for `commit`."""
        return self.durable is not None and self.durable.ledger.unsaved

    def commit(self, now: Instant) -> list[Effect]:
        """Make durable what was written since the last time: the edge does so once per turn of its loop.

        What follows from it is among the effects; when it fails, that is what follows (RL-DURABLE-002).
        """
        if self.durable is not None:
            self.durable.commit(now)
        return self._effects(now)

    # --- connections

    def connect_caller(
        self, connection: int, caller: str, callee: str, card_id: str, now: Instant
    ) -> list[Effect]:
        """Take in a caller's connection; its card (base64url id) is that of its log-in.

        Whether ``callee`` exists is not looked at (RL-TRANSPORT-007).
        """
        self._let_happen(now)
        session = Session(
            self._settings,
            connection=connection,
            role=Role.CALLER,
            handle=caller,
            card_id=card_id,
            target=callee,
        )
        self._sessions.add(session)
        if self._departures.draining:
            self._departures.send_away(session, now)
        return self._effects(now)

    def connect_listener(
        self,
        connection: int,
        handle: str,
        card_id: str,
        instance: str,
        boot: str,
        capacity: int,
        durable: bool,
        now: Instant,
    ) -> list[Effect]:
        """Take in a listener's connection.

        ``instance`` and ``boot`` are the UUIDs of its query, ``capacity`` is 1-1000 calls at once,
        ``durable`` whether it has a journal. A connection that the instance has already is replaced, and
        its unfinished calls are offered again on this one (RL-TRANSPORT-021, RL-SYNC-021).
        """
        self._let_happen(now)
        session = Session(
            self._settings,
            connection=connection,
            role=Role.LISTENER,
            handle=handle,
            card_id=card_id,
            target=handle,
        )
        self._sessions.add(session)
        if self._departures.draining:
            self._departures.send_away(session, now)
            return self._effects(now)
        known = self._presence.find(handle, instance)
        if known is not None and known.connection is not None:
            before = self._sessions.get(known.connection)
            assert before is not None
            self._departures.replace(before, now)
            self._counters["connections_replaced"] += 1
        session.instance = self._presence.join(handle, instance, connection, boot, capacity, durable=durable)
        self._calls.offer_again(session.instance)
        if self.durable is not None:
            self.durable.arrive(session.instance, now)
        return self._effects(now)

    def disconnect(self, connection: int, now: Instant, *, clean: bool = False) -> list[Effect]:
        """A connection is gone, by whoever's doing; ``clean``: the peer has closed it.

        Its number may be one that the hub closed itself.
        """
        self._let_happen(now)
        session = self._sessions.get(connection)
        self._sessions.forget(connection)
        if session is not None:
            if self.durable is not None:
                self.durable.detach(session, now, lost=not clean)
            self._calls.detach(session, now)
        return self._effects(now)

    # --- messages

    def receive(self, connection: int, payload: bytes, now: Instant) -> list[Effect]:
        """Read one text message. What breaks a rule is answered, and never raised (RL-FRAME-012)."""
        if now.mono >= self.timers.next:  # every frame comes by here
            self._let_happen(now)
        session = self._sessions.get(connection)
        if session is not None:
            frame = session.read(payload, now.mono)
            if isinstance(frame, Refusal):
                self._reception.refuse(session, frame, now)
            elif isinstance(frame, CallRequest):
                self._reception.request(session, frame, now)
            elif isinstance(frame, CancelCall):
                call = self._book.find(frame.call_id)
                if call is None and self.durable is not None:
                    self.durable.cancel(session, frame, now)
                else:
                    self._cancellation.ask(call, frame.call_id, session.handle, session.connection)
            elif frame.lease_id is UNSET or self.durable is None or self._book.find(frame.call_id):
                self._calls.hear(session, frame, now)
            else:
                self.durable.hear(session, frame, now)
        durable = self.durable
        # What is to be handed out waits for the end of the turn, as its words would.
        if durable is not None and (
            durable.to_close or (self._presence.stirred and not durable.ledger.unsaved)
        ):
            return self._effects(now)
        return self._sessions.take()

    def binary(self, connection: int, now: Instant) -> list[Effect]:
        """Refuse a binary message, whatever is in it."""
        self._let_happen(now)
        session = self._sessions.get(connection)
        if session is not None:
            self._reception.refuse(session, session.binary(now.mono), now)
        return self._effects(now)

    # --- HTTP

    def cancel(self, caller: str, call_id: str, request: int, now: Instant) -> list[Effect]:
        """Ask for cancellation on behalf of ``caller``; a `Decided` with ``request`` is the answer.

        It comes at once, or within the wait of RL-CANCEL-011.
        """
        self._let_happen(now)
        call = self._book.find(call_id)
        if call is None and self.durable is not None:
            self.durable.cancel_by_http(caller, call_id, request, now)
        else:
            self._cancellation.ask_by_http(call, caller, request, now.mono)
        return self._effects(now)

    def record(self, identity: str, call_id: str, now: Instant) -> CallRecord | None:
        """See `Records.get`."""
        return self._records.get(identity, call_id, now)

    def records(
        self, identity: str, role: Party, state: str | None, cursor: str | None, limit: int, now: Instant
    ) -> CallList:
        """See `Records.page`; ``state`` is a word of call records (RL-HTTP-039)."""
        return self._records.page(identity, role, state, cursor, limit, now)

    def acknowledge(self, caller: str, call_id: str, now: Instant) -> Acknowledged:
        """See `Records.acknowledge`."""
        return self._records.acknowledge(caller, call_id, now)

    def replay(self, callee: str, call_id: str, now: Instant) -> Literal["replayed", "conflict", "missing"]:
        """See `Records.replay`."""
        return self._records.replay(callee, call_id, now)

    def parties(self, a: str, b: str, now: Instant) -> bool:
        """True if a call between the two was admitted within the last 96 h, in either direction."""
        if self._acquaintances.have_met(a, b, now.mono):
            return True
        return self.durable is not None and self.durable.met(a, b, now)

    # --- credentials

    def revoke(self, handle: str, card_id: str, now: Instant) -> list[Effect]:
        """End all connections that logged in under a revoked card, and what it sealed (RL-TRANSPORT-044)."""
        self._let_happen(now)
        self._departures.end_log_ins(handle, card_id, REVOKED, "revoked", now)
        return self.recheck(handle, now)

    def remove(self, handle: str, now: Instant) -> list[Effect]:
        """End all connections of a removed identity, and the calls from and to it (RL-HTTP-057)."""
        self._let_happen(now)
        self._departures.end_identity(handle, now)
        return self.recheck(handle, now)

    def recheck(self, handle: str, now: Instant) -> list[Effect]:
        """End the durable calls for which ``handle`` has no authority, or grants none, any more."""
        self._let_happen(now)
        if self.durable is not None:
            self.durable.recheck(handle, now)
        return self._effects(now)

    def close_card(self, handle: str, card_id: str, now: Instant) -> list[Effect]:
        """Send away all connections that logged in under a card that no longer logs in (RL-TRANSPORT-043).

        It expired, or was replaced 48 h ago; they may come back at once under its successor.
        """
        self._let_happen(now)
        self._departures.end_log_ins(handle, card_id, GOING_AWAY, retry_reason(0), now)
        return self._effects(now)

    # --- stopping

    def drain(self, now: Instant) -> list[Effect]:
        """Stop: no new calls, and no new connections. Idle connections are closed at once.

        The others follow as their calls end, at the latest when the drain bound is over; what still runs
        then ends as at the call bound. A call that is asked for meanwhile is `busy`, with the time to
        come back.
        """
        self._let_happen(now)
        self._departures.drain(now)
        return self._effects(now)

    def drained(self) -> bool:
        """True if the hub is stopping and every connection was told to close."""
        return self._departures.draining and not len(self._sessions)

    # --- time

    def deadline(self) -> int | None:
        """Return when to call `tick` at the latest, in ms of the clock that never goes back.

        There may turn out to be nothing to do then.
        """
        due = self.timers.next
        return None if due == math.inf else int(due)

    def tick(self, now: Instant) -> list[Effect]:
        """Let happen what is due."""
        self._let_happen(now)
        self._hourly.purge(now.mono)
        self._turns.purge(now.mono)
        self._presence.purge(now.mono)
        self._acquaintances.purge(now.mono)
        return self._effects(now)

    def _let_happen(self, now: Instant) -> None:
        for alarm in self.timers.expired(now.mono):
            self._alarms.ring(alarm, now)

    # --- telemetry

    def snapshot(self) -> dict[str, int]:
        """Return counters since the start, and present numbers; nothing in it names anybody."""
        stored = {} if self.durable is None else self.durable.snapshot()
        return dict(self._counters) | stored | self._sessions.snapshot() | self._book.snapshot()
