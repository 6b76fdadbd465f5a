"""Sync calls: what the relay knows of each, and the book that finds them."""

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from msgspec import Struct, UnsetType

from ringline.protocol.frames import CallOutcome, CallState, Envelope, RelayCode, TerminalReason
from ringline.protocol.lifecycle import State
from ringline.protocol.shapes import CallEnd, CallRecord
from ringline.relay.timers import RecordsOver, Timers

if TYPE_CHECKING:
    from ringline.relay.presence import Instance

__all__ = ["Book", "Call", "Entries", "Party"]

Party: TypeAlias = Literal["caller", "callee"]

Entries: TypeAlias = tuple[list[tuple[int, CallRecord]], int | None]
"""Records with the numbers that a cursor may name, newest first, and the cursor of the next page or None."""

# What an outcome costs in memory beside its ciphertext.
_OUTCOME_OVERHEAD_BYTES: Final = 1_024
# A page looks at this many records at most, so that a rare state costs no more than a common one.
_LOOKS: Final = 1_000


@final
class Call(Struct, eq=False, kw_only=True):
    """One sync call, from admission until its record is forgotten. Times are Unix ms, but for ``*_mono``."""

    id: str
    caller: str
    callee: str
    correlation_id: str
    message_id: str | None
    digest: bytes
    """What makes a repeat the same request (RL-IDEM-003); empty without ``message_id``."""
    submitted_at: int
    handed_mono: int
    envelope: Envelope | None
    """The request, until the end."""
    traceparent: str | UnsetType
    instance: "Instance | None"
    """Whose hands it is in, until the end."""
    attached: list[int] = []
    """The connections that were told of it; until the end, those of them that are open."""
    state: State = State.RINGING
    status: CallState = "ringing"
    """The last status that its caller was told."""
    cancel_requested: bool = False
    started_at: int | None = None
    finished_at: int | None = None
    ended_mono: int = 0
    reason: TerminalReason | None = None
    error: RelayCode | None = None
    outcome: CallOutcome | None = None
    resends: int = 0
    """How often its outcome was sent again."""
    forgotten: bool = False

    @property
    def ended(self) -> bool:
        """True if the call has ended and only its record is left."""
        return self.finished_at is not None

    def record(self, *, with_outcome: bool) -> CallRecord:
        """Return what is shown of it (RL-HTTP-035)."""
        outcome = self.outcome if with_outcome else None
        return CallRecord(
            call_id=self.id,
            from_=self.caller,
            to=self.callee,
            mode="sync",
            state=self.state.record,
            terminal_reason=self.reason,
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            submitted_at=self.submitted_at,
            expires_at=None,
            started_at=self.started_at,
            finished_at=self.finished_at,
            attempts=0,
            deferred_until=None,
            cancel_requested=self.cancel_requested,
            outcome=None if outcome is None else _end(outcome, self.reason),
        )


def _end(outcome: CallOutcome, reason: TerminalReason | None) -> CallEnd:
    return CallEnd(terminal=outcome.terminal, terminal_reason=reason, envelope=outcome.envelope)


@final
class _Roll:
    """The calls of one identity in one role, oldest first, each with a number of its own.

    The numbers are the roll's, so that a cursor tells nobody how many calls others make.
    """

    __slots__ = ("_entries", "_forgotten", "_next")

    def __init__(self) -> None:
        self._entries: list[tuple[int, Call]] = []
        self._next = 1
        self._forgotten = 0

    def add(self, call: Call) -> None:
        self._entries.append((self._next, call))
        self._next += 1

    def forget_one(self) -> bool:
        """One more of the calls is forgotten; return True when none is left."""
        self._forgotten += 1
        if self._forgotten * 2 > len(self._entries):
            self._entries = [entry for entry in self._entries if not entry[1].forgotten]
            self._forgotten = 0
        return not self._entries

    def page(self, state: str | None, cursor: int | None, limit: int) -> Entries:
        entries = self._entries
        at = len(entries) if cursor is None else bisect_left(entries, cursor, key=lambda entry: entry[0])
        calls: list[tuple[int, CallRecord]] = []
        last = max(0, at - _LOOKS)
        while at > last and len(calls) < limit:
            at -= 1
            call = entries[at][1]
            if not call.forgotten and (state is None or call.state.record == state):
                calls.append((entries[at][0], call.record(with_outcome=False)))
        return calls, entries[at][0] if at else None


@final
class Book:
    """Every unfinished call, and the records of those that ended lately.

    A record lives ``life`` ms from the end of its call; at most ``records`` are kept, with outcomes of
    ``outcome_bytes`` in all; the oldest go first. Everything but a page of a list is O(1) or O(log n).
    """

    __slots__ = (
        "_by_id",
        "_by_key",
        "_ended",
        "_life",
        "_most",
        "_most_bytes",
        "_outcomes",
        "_rolls",
        "_timers",
        "outcome_bytes",
    )

    def __init__(self, timers: Timers, *, life: int, records: int, outcome_bytes: int) -> None:
        self._timers = timers
        self._life = life
        self._most = records
        self._most_bytes = outcome_bytes
        self._by_id: dict[str, Call] = {}
        self._by_key: dict[tuple[str, str, str], Call] = {}
        self._rolls: dict[tuple[Party, str], _Roll] = {}
        # Both in the order of the ends, so what goes first is at the left.
        self._ended: deque[Call] = deque()
        self._outcomes: deque[Call] = deque()
        self.outcome_bytes = 0
        """Memory held by outcomes of ended calls, roughly."""

    @property
    def records(self) -> int:
        """How many ended calls are remembered."""
        return len(self._ended)

    @property
    def unfinished(self) -> int:
        """How many calls have not ended."""
        return len(self._by_id) - len(self._ended)

    def unfinished_calls(self) -> list[Call]:
        """Return the calls that have not ended, oldest first. This one looks at every record."""
        return [call for call in self._by_id.values() if not call.ended]

    def snapshot(self) -> dict[str, int]:
        """Return present numbers."""
        return {
            "now_calls": self.unfinished,
            "now_records": self.records,
            "now_outcome_bytes": self.outcome_bytes,
        }

    def add(self, call: Call) -> None:
        """Enter an admitted call."""
        self._by_id[call.id] = call
        if call.message_id is not None:
            self._by_key[call.caller, call.callee, call.message_id] = call
        for key in _rolls_of(call):
            roll = self._rolls.get(key)
            if roll is None:
                roll = self._rolls[key] = _Roll()
            roll.add(call)

    def find(self, call_id: str) -> Call | None:
        """Return the call, ended or not, None when there is none or its record is over."""
        return self._by_id.get(call_id)

    def known(self, caller: str, callee: str, message_id: str) -> Call | None:
        """Return the call that this message of the caller became (RL-IDEM-001)."""
        return self._by_key.get((caller, callee, message_id))

    def page(
        self, party: Party, handle: str, state: str | None, cursor: int | None, limit: int, now: int
    ) -> Entries:
        """Return up to ``limit`` records of a party's calls, newest first, from before ``cursor``."""
        self.purge(now)
        roll = self._rolls.get((party, handle))
        return ([], None) if roll is None else roll.page(state, cursor, limit)

    def finish(self, call: Call, now: int) -> None:
        """File a call that has just ended; the oldest records and outcomes make room."""
        call.ended_mono = now
        if not self._ended:
            self._timers.set(RecordsOver(), now + self._life)
        self._ended.append(call)
        if call.outcome is not None:
            self._outcomes.append(call)
            self.outcome_bytes += _size(call.outcome)
            while self.outcome_bytes > self._most_bytes:
                self.drop_outcome(self._outcomes.popleft())
        if len(self._ended) > self._most:
            self._forget(self._ended.popleft())

    def drop_outcome(self, call: Call) -> None:
        """Forget the outcome of an ended call; its record stays."""
        if call.outcome is not None:
            self.outcome_bytes -= _size(call.outcome)
            call.outcome = None

    def purge(self, now: int) -> None:
        """Forget the records that are over."""
        while self._ended and now - self._ended[0].ended_mono >= self._life:
            self._forget(self._ended.popleft())
        if self._ended:
            self._timers.set(RecordsOver(), self._ended[0].ended_mono + self._life)

    def _forget(self, call: Call) -> None:
        self.drop_outcome(call)
        while self._outcomes and self._outcomes[0].outcome is None:
            self._outcomes.popleft()
        del self._by_id[call.id]
        if call.message_id is not None:
            del self._by_key[call.caller, call.callee, call.message_id]
        call.forgotten = True
        for key in _rolls_of(call):
            if self._rolls[key].forget_one():
                del self._rolls[key]


def _rolls_of(call: Call) -> tuple[tuple[Party, str], tuple[Party, str]]:
    return ("caller", call.caller), ("callee", call.callee)


def _size(outcome: CallOutcome) -> int:
    return len(outcome.envelope.ct) + _OUTCOME_OVERHEAD_BYTES
