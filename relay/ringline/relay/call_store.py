"""Durable calls as they are stored: the row, what it holds, and the interface of every store.

The rules of durable calls are elsewhere, in pure functions; a store compares a version, writes, and gives
back. What is stored is only what must outlive the relay: admission, start, a cancel request, counted
attempts, the end (RL-DURABLE-006). Leases live in the running relay.

Writes happen inside one open transaction. The edge commits it once per turn of its loop, and only then is
anybody told (write before word); `CallStore.rollback` takes all of the turn back.
"""

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias, final

from msgspec import Struct

from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import RelayCode, Terminal, TerminalReason
from ringline.protocol.lifecycle import FINAL, State
from ringline.protocol.limits import CARD_GRACE_MS

__all__ = [
    "MEETING_MS",
    "CallEvent",
    "CallRow",
    "CallStore",
    "DuplicateCall",
    "Held",
    "Page",
    "StaleCall",
    "Trail",
    "asks_cancel",
    "held",
    "keeps_outcome",
    "keeps_request",
    "trail_of",
]


MEETING_MS: Final = CARD_GRACE_MS
"""How long a store can tell at least that two handles had a call."""

CallEvent: TypeAlias = Literal["admitted", "started", "cancel_requested", "ended"]
"""What the trail of a call notes (RL-DURABLE-006)."""

Trail: TypeAlias = list[tuple[CallEvent, int]]
"""What happened to a call and when, in Unix ms, oldest first."""


class DuplicateCall(RinglineError):
    """The key (caller, callee, message_id) has a call already. Nothing was written (RL-IDEM-001)."""


class StaleCall(RinglineError):
    """The call changed since it was read. Nothing was written."""


@final
class CallRow(Struct, frozen=True, kw_only=True):
    """One durable call without its ciphertexts. Times are Unix ms, sizes are bytes of ciphertext.

    ``seq`` is the order of admission. ``listed`` says whether the callee's policy named the caller when it
    was admitted. ``version`` goes up by one with every write.
    """

    call_id: str
    seq: int
    caller: str
    callee: str
    caller_card: str
    listed: bool
    message_id: str
    correlation_id: str
    digest: bytes
    traceparent: str | None
    submitted_at: int
    execute_by: int
    request_bytes: int
    version: int = 0
    state: State = State.QUEUED
    """`State.QUEUED`, `State.STARTED`, `State.PARKED`, or final."""
    attempts: int = 0
    cancel_requested: bool = False
    instance: str | None = None
    """Whose execution it is, from the start on."""
    started_at: int | None = None
    finished_at: int | None = None
    reason: TerminalReason | None = None
    error: RelayCode | None = None
    """What the caller is told at the end, when it is no outcome."""
    terminal: Terminal | None = None
    """Set when it ended by an outcome."""
    outcome_bytes: int = 0
    outcome_sends: int = 0
    """How often the stored outcome was sent again."""
    acknowledged: bool = False
    due_at: int
    """When `CallStore.due` is to show it next."""

    @property
    def ended(self) -> bool:
        """True if nothing can happen to it any more but being forgotten."""
        return self.state in FINAL


class Held(Struct, frozen=True, gc=False):
    """What calls take of the quotas: how many are outstanding, and the bytes stored for them."""

    calls: int = 0
    request_bytes: int = 0
    outcome_bytes: int = 0


Page: TypeAlias = tuple[list[CallRow], int | None]
"""Rows, newest first, and the cursor of the next page or None."""


def keeps_request(row: CallRow) -> bool:
    """True while the request's ciphertext is stored: it goes at the final state (RL-DURABLE-065)."""
    return row.state not in FINAL


def keeps_outcome(row: CallRow) -> bool:
    """True while the outcome is stored: until the caller's acknowledgement, or the row is forgotten
    (RL-DURABLE-066).
    """
    return row.terminal is not None and not row.acknowledged


def held(row: CallRow) -> Held:
    """Return what ``row`` takes of its callee's quotas and of the pair's.

    Every store adds the difference of two rows to its counters in the transaction that writes the second,
    so that a quota is released exactly once.
    """
    kept = row.outcome_bytes if keeps_outcome(row) else 0
    return Held(1, row.request_bytes, kept) if keeps_request(row) else Held(0, 0, kept)


def asks_cancel(before: CallRow, after: CallRow) -> bool:
    """True if a write from ``before`` to ``after`` sets the cancel flag.

    Every store notes when, in the transaction of the write: the rest of a trail is in the row itself.
    """
    return after.cancel_requested and not before.cancel_requested


def trail_of(row: CallRow, cancels: Sequence[int]) -> Trail:
    """Return the trail of a call that was asked to cancel at ``cancels``."""
    found: Trail = [("admitted", row.submitted_at)]
    if row.started_at is not None:
        found.append(("started", row.started_at))
    found.extend(("cancel_requested", at) for at in cancels)
    found.sort(key=lambda entry: entry[1])
    if row.finished_at is not None:
        found.append(("ended", row.finished_at))
    return found


class CallStore(Protocol):
    """Durable calls of one relay. Methods block; no two of them run at the same moment.

    The first write opens a transaction; reads see what was written in it. Every method raises
    `ringline.relay.store.StoreError` when the database fails. After that every further method does so too
    until `rollback`, which takes all of the turn back; what was committed before stands.
    """

    # --- transactions

    def commit(self) -> None:
        """Make what was written since the last commit outlive a power cut. Without writes, do nothing.

        When it raises `StoreError`, the turn is already rolled back and must be told as not done. It may
        still be found after a crash of the machine, when the disk had taken it and then refused to say so:
        whoever sends again is answered from the record (RL-IDEM-001).
        """
        ...

    def rollback(self) -> None:
        """Take back what was written since the last commit. Never raises; without writes, do nothing."""
        ...

    # --- one call

    def insert(self, row: CallRow, request: bytes) -> CallRow:
        """Store an admitted call and its sealed request; return it with its ``seq``.

        ``row.seq`` is ignored: the store numbers calls in the order of their insertion.

        Raises `DuplicateCall`.
        """
        ...

    def load(self, call_id: str) -> CallRow | None:
        """Return the call, or None."""
        ...

    def find(self, caller: str, callee: str, message_id: str) -> CallRow | None:
        """Return the call that this message became, or None."""
        ...

    def request(self, call_id: str) -> bytes | None:
        """Return the sealed request as it was inserted, None when it is not kept any more."""
        ...

    def outcome(self, call_id: str) -> bytes | None:
        """Return the sealed outcome as it was given to `swap`, None when there is none."""
        ...

    def swap(self, before: CallRow, after: CallRow, outcome: bytes | None = None) -> CallRow:
        """Replace ``before`` by ``after``; return it with its new version.

        Requests and outcomes that ``after`` does not keep are deleted; ``outcome`` is stored beside it.

        Raises `StaleCall` when the stored version is not ``before.version``.
        """
        ...

    def forget(self, row: CallRow) -> None:
        """Delete the call and all that is stored with it. Raises `StaleCall`."""
        ...

    # --- many calls

    def queued(self, callee: str, after: int, limit: int) -> list[CallRow]:
        """Return up to ``limit`` queued calls of ``callee`` with ``seq`` above ``after``, in that order."""
        ...

    def flagged(self, after: int, limit: int) -> list[CallRow]:
        """Return up to ``limit`` queued calls with a cancel request and ``seq`` above ``after``, by ``seq``.

        For the start of a relay: it may look at every queued call, and returns few.
        """
        ...

    def started(self) -> list[CallRow]:
        """Return all calls that are started and have not ended."""
        ...

    def due(self, now: int, limit: int) -> list[CallRow]:
        """Return up to ``limit`` calls whose ``due_at`` has come, the earliest first."""
        ...

    def next_due(self) -> int | None:
        """Return the earliest ``due_at`` of all calls, or None."""
        ...

    def page(
        self,
        party: Literal["caller", "callee"],
        handle: str,
        states: Sequence[State],
        cursor: int | None,
        limit: int,
    ) -> Page:
        """Return a party's calls, newest first, in one of ``states`` (none: any), from before ``cursor``."""
        ...

    def shared(self, one: str, other: str, since: int) -> bool:
        """True if a call of one to the other was admitted at ``since`` or later, still stored or not.

        Meetings are remembered for `MEETING_MS` before the latest admission at least; ask for no earlier.
        """
        ...

    # --- quotas and budgets

    def held_by(self, callee: str, *, unlisted: bool = False) -> Held:
        """Return what calls to ``callee`` take; with ``unlisted`` those of callers not on its list."""
        ...

    def held_by_pair(self, caller: str, callee: str) -> Held:
        """Return what the calls from ``caller`` to ``callee`` take."""
        ...

    def note_start(self, caller: str, callee: str, at: int) -> None:
        """Charge one start to the pair's daily budget. Those of more than a day before are forgotten."""
        ...

    def starts(self, caller: str, callee: str, since: int) -> list[int]:
        """Return the times of the pair's starts from ``since`` on, oldest first."""
        ...

    # --- the whole

    def trail(self, call_id: str) -> Trail:
        """Return what happened to the call; empty when it is not stored. The trail goes with its call."""
        ...

    def repair(self) -> list[str]:
        """Prove the invariants at the start of the relay, mend the counters, say what was found.

        Empty when all is well. Commits what it mends.
        """
        ...

    def check(self) -> None:
        """Pass a store that can write now: after a failure, the way to learn that it is over.

        Raises `ringline.relay.store.StoreError` otherwise. Does nothing within an open transaction.
        """
        ...

    def shrink(self) -> None:
        """Give back disk space of deleted calls, and remove their bytes from the files.

        A store may do so by itself as well. Bounded work; never called within an open transaction.
        """
        ...

    def close(self) -> None:
        """Let go of the store; what is not committed is gone. A second call does nothing."""
        ...
