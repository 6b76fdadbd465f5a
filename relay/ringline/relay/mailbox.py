"""What parties of durable calls ask for: cancel, acknowledge, replay, look."""

from typing import Final, Literal, final

from ringline.protocol.frames import CallNotCancelled
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import Event, Mode, State, advance
from ringline.protocol.shapes import CallRecord
from ringline.relay.askers import Askers
from ringline.relay.effects import CancelAnswer, Decided
from ringline.relay.endings import Endings
from ringline.relay.errands import Errand, Errands
from ringline.relay.hands import Hands
from ringline.relay.ledger import Ledger
from ringline.relay.quotas import Quotas
from ringline.relay.settings import Settings
from ringline.relay.stored_records import is_hidden, shown_ended, states_of, stored_record

__all__ = ["READ", "Acknowledged", "Mailbox"]

READ: Final = "~"
"""The cursor of a list of durable calls that has been read to its end."""

Acknowledged = Literal["acknowledged", "running", "missing"]

_DURABLE: Final = Mode.DURABLE


@final
class Mailbox:
    """Requests about stored calls. Another's call is answered as one that never was."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        errands: Errands,
        endings: Endings,
        hands: Hands,
        quotas: Quotas,
        askers: Askers,
        counters: dict[str, int],
    ) -> None:
        self._resends = settings.outcome_resends
        self._keep = settings.stored_record_life_ms
        self._ledger = ledger
        self._errands = errands
        self._endings = endings
        self._hands = hands
        self._quotas = quotas
        self._askers = askers
        self._counters = counters

    # --- cancellation

    def cancel(self, caller: str, call_id: str, connection: int, now: Instant) -> None:
        """A caller sent ``cancel_call``; its connection need not be attached to the call."""
        errand = self._errands.find(call_id)
        if errand is None or errand.row.caller != caller:
            self._ledger.send(connection, CallNotCancelled(call_id=call_id, reason="unknown"))
        elif shown_ended(errand.row, caller):
            self._ledger.send(connection, CallNotCancelled(call_id=call_id, reason="already_terminal"))
        else:
            self._askers.add_connection(call_id, connection)
            self._cancel(errand, now)

    def cancel_by_http(self, caller: str, call_id: str, request: int, now: Instant) -> None:
        """A caller sent ``POST /v1/calls/{id}/cancel``, to be answered by `Decided`."""
        errand = self._errands.find(call_id)
        if errand is None or errand.row.caller != caller:
            self._ledger.say(Decided(request, CancelAnswer.MISSING))
        elif shown_ended(errand.row, caller):
            self._ledger.say(Decided(request, CancelAnswer.ALREADY_TERMINAL))
        else:
            self._askers.add_request(call_id, request, now.mono)
            self._cancel(errand, now)

    def _cancel(self, errand: Errand, now: Instant) -> None:
        row, state = errand.row, errand.state
        if is_hidden(row):
            # To its caller it was queued, and what is queued is canceled at once.
            due = row.execute_by + self._keep
            self._endings.write(errand, "cancel", now, error="canceled", finished_at=now.wall, due_at=due)
            self._endings.announce(errand, None)
        elif state in (State.QUEUED, State.PARKED):
            self._counters["cancels_requested"] += 1
            self._endings.end(errand, advance(_DURABLE, state, Event.CANCEL), now)
        elif not row.cancel_requested:
            self._counters["cancels_requested"] += 1
            self._endings.write(errand, "cancel", now, cancel_requested=True)
            if errand.stop is None:
                self._endings.send_cancel(errand)

    # --- the outcome

    def may_send_again(self, errand: Errand, now: Instant) -> bool:
        """True if the stored outcome may be sent once more; that sending is counted (RL-ADMIT-038)."""
        row = errand.row
        if row.terminal is None or row.acknowledged or (self._resends and row.outcome_sends >= self._resends):
            return False
        self._endings.write(errand, "outcome", now, outcome_sends=row.outcome_sends + 1)
        return True

    def acknowledge(self, caller: str, call_id: str, now: Instant) -> Acknowledged:
        """Delete the outcome of an ended call of ``caller``; its record stays."""
        errand = self._errands.find(call_id)
        if errand is None or errand.row.caller != caller:
            return "missing"
        if not shown_ended(errand.row, caller):
            return "running"
        if errand.row.terminal is not None and not errand.row.acknowledged:
            self._endings.write(errand, "ack", now, acknowledged=True)
        return "acknowledged"

    # --- the callee's owner

    def replay(self, callee: str, call_id: str, now: Instant) -> Literal["replayed", "conflict", "missing"]:
        """Let a parked call be tried again, as if it had never been."""
        errand = self._errands.find(call_id)
        if errand is None or errand.row.callee != callee:
            return "missing"
        if errand.state is not State.PARKED:
            return "conflict"
        self._counters["stored_replayed"] += 1
        self._errands.forgive(errand)
        errand.uncounted = errand.rests_until = 0
        step = advance(_DURABLE, State.PARKED, Event.REPLAY)
        self._endings.write(errand, "replay", now, state=step.to, attempts=0)
        self._hands.requeue(errand, now)
        return "replayed"

    # --- records

    def record(self, identity: str, call_id: str, now: Instant, *, count: bool) -> CallRecord | None:
        """Return a call's record to either of its parties; its caller sees the outcome.

        ``count``: note that it was sent once more.
        """
        errand = self._errands.find(call_id)
        if errand is None or identity not in (errand.row.caller, errand.row.callee):
            return None
        outcome = None
        if identity == errand.row.caller and (not count or self.may_send_again(errand, now)):
            outcome = self._endings.outcome(errand.row)
        deferred = None
        if errand.state is State.QUEUED:
            deferred = self._quotas.deferred_until(errand.row, now.wall)
        return stored_record(errand, identity, deferred_until=deferred, outcome=outcome)

    def page(
        self,
        party: Literal["caller", "callee"],
        handle: str,
        word: str | None,
        cursor: str,
        limit: int,
    ) -> tuple[list[CallRecord], str | None]:
        """Return a party's records, newest first, from behind ``cursor``, and the next cursor.

        A cursor is the id of the last call that was looked at, so that it tells nobody how many calls
        others make; empty begins with the newest, `READ` has nothing behind it.
        """
        before: int | None = None
        if cursor:
            last = None if cursor == READ else self._ledger.store.load(cursor)
            if last is None or handle != (last.caller if party == "caller" else last.callee):
                return [], None
            before = last.seq
        rows, following = self._ledger.store.page(party, handle, states_of(word), before, limit)
        records = [
            stored_record(self._errands.of(row), handle, deferred_until=None, outcome=None) for row in rows
        ]
        shown = [record for record in records if word is None or record.state == word]
        return shown, None if following is None else rows[-1].call_id
