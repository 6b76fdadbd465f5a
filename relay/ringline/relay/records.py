"""The records of calls of both modes, as one list (RL-HTTP-035, RL-HTTP-039)."""

import heapq
import itertools
from typing import Final, Literal, final

from ringline.protocol.instant import Instant
from ringline.protocol.shapes import CallList, CallRecord
from ringline.relay.calls import Book, Call, Party
from ringline.relay.durable import DurableCalls
from ringline.relay.mailbox import READ, Acknowledged
from ringline.relay.sync import SyncCalls

__all__ = ["Records"]

_NOTHING: Final = "0"
"""The cursor of sync calls that have been read to their end; no number of theirs is smaller."""


@final
class Records:
    """What the two sides of calls may read and acknowledge. ``durable`` is None without a store."""

    def __init__(self, book: Book, calls: SyncCalls, durable: DurableCalls | None) -> None:
        self._book = book
        self._calls = calls
        self._durable = durable

    def get(self, identity: str, call_id: str, now: Instant) -> CallRecord | None:
        """Return a call's record to either of its parties, None to all others.

        Only its caller sees the outcome; each such reading counts as a sending of it
        (RL-HTTP-038, RL-ADMIT-039).

        Raises `ringline.relay.store.StoreError` when the store cannot be read.
        """
        call = self._current(call_id, now)
        if call is None:
            if self._durable is None:
                return None
            count = self._durable.fault is None
            return self._durable.mailbox.record(identity, call_id, now, count=count)
        if identity not in (call.caller, call.callee):
            return None
        shown = identity == call.caller and self._calls.may_send_again(call)
        return call.record(with_outcome=shown)

    def replay(self, callee: str, call_id: str, now: Instant) -> Literal["replayed", "conflict", "missing"]:
        """See `ringline.relay.mailbox.Mailbox.replay`; only durable calls are ever parked."""
        call = self._book.find(call_id)
        if self._durable is not None and call is None:
            return self._durable.mailbox.replay(callee, call_id, now)
        return "missing" if call is None or call.callee != callee else "conflict"

    def page(
        self, identity: str, party: Party, state: str | None, cursor: str | None, limit: int, now: Instant
    ) -> CallList:
        """Return up to ``limit`` records of a party's calls, newest first, outcomes never among them.

        ``cursor`` is the ``next`` of the page before. A page may be short, or empty, and still have a next
        one. Raises `StoreError`.
        """
        sync, _, stored = (cursor or "").partition(".")
        found, further = self._book.page(party, identity, state, int(sync) if sync else None, limit, now.mono)
        if self._durable is None:
            return CallList(calls=[record for _, record in found], next=_text(further))
        kept, beyond = self._durable.mailbox.page(party, identity, state, stored, limit)
        merged = heapq.merge(
            ((record, True, str(number)) for number, record in found),
            ((record, False, record.call_id) for record in kept),
            key=lambda entry: -entry[0].submitted_at,
        )
        shown = list(itertools.islice(merged, limit))
        # Where each of the two goes on: behind what is shown of it, or where it was read to.
        of_sync = [place for _, is_sync, place in shown if is_sync]
        of_stored = [place for _, is_sync, place in shown if not is_sync]
        if len(of_sync) < len(found):
            sync = of_sync[-1] if of_sync else sync
        else:
            sync = _text(further) or _NOTHING
        if len(of_stored) < len(kept):
            stored = of_stored[-1] if of_stored else stored
        else:
            stored = beyond or READ
        ended = (sync, stored) == (_NOTHING, READ)
        return CallList(calls=[record for record, _, _ in shown], next=None if ended else f"{sync}.{stored}")

    def acknowledge(self, caller: str, call_id: str, now: Instant) -> Acknowledged:
        """Forget the outcome of an ended call of ``caller``; its record stays. Raises `StoreError`."""
        call = self._current(call_id, now)
        if call is None and self._durable is not None:
            return self._durable.mailbox.acknowledge(caller, call_id, now)
        if call is None or call.caller != caller:
            return "missing"
        if not call.ended:
            return "running"
        self._book.drop_outcome(call)
        return "acknowledged"

    def _current(self, call_id: str, now: Instant) -> Call | None:
        """Look a call up between two events, when records that are over may still be there."""
        self._book.purge(now.mono)
        return self._book.find(call_id)


def _text(cursor: int | None) -> str | None:
    return None if cursor is None else str(cursor)
