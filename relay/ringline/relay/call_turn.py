"""What the writes of one turn add to the tables, until they are flushed to them, and the counters themselves.

Fifty calls between the same two in one turn change two counters a hundred times: summed up here, that is
two statements. And every admission asks for three counters and for the latest starts: nobody else writes to
them, so what was read once is kept up to date here, and read again only when a turn was taken back.

Ciphertexts are gathered too. A statement that is run for many rows at once costs a fraction of as many
statements, and what the table of calls does not know of cannot break a rule of it.
"""

from bisect import insort
from typing import Final, TypeAlias, final

from ringline.relay.call_store import CallRow, Held

__all__ = ["CallTurn", "KnownCounters", "Sealed", "Sums"]

_MOST: Final = 20_000

Sums: TypeAlias = list[int]
"""The members of a `Held`, or differences of them."""


@final
class Sealed:
    """The ciphertexts of one table that a turn adds and deletes, by call id: ``seq`` and the bytes."""

    __slots__ = ("added", "deleted")

    def __init__(self) -> None:
        self.added: dict[str, tuple[int, bytes]] = {}
        self.deleted: dict[str, int] = {}
        """What may be in the table and goes, before anything is added."""

    def add(self, row: CallRow, sealed: bytes) -> None:
        """Store ``sealed`` with a call that has nothing in the table yet."""
        self.added[row.call_id] = (row.seq, sealed)

    def delete(self, row: CallRow) -> None:
        """Delete what is stored with the call."""
        self.added.pop(row.call_id, None)
        self.deleted[row.call_id] = row.seq

    def clear(self) -> None:
        """Forget everything: it was written, or rolled back."""
        self.added.clear()
        self.deleted.clear()


@final
class KnownCounters:
    """Counters as they will be when what is written is committed: for a while, and so many."""

    __slots__ = ("mailboxes", "pairs", "starts")

    def __init__(self) -> None:
        self.mailboxes: dict[tuple[str, bool], Sums] = {}
        """By callee, and whether the caller was on its list."""
        self.pairs: dict[tuple[str, str], Sums] = {}
        """By caller and callee."""
        self.starts: dict[tuple[str, str], list[int]] = {}
        """When calls of caller and callee were started, oldest first."""

    def trim(self) -> None:
        """Forget everything when it has become too much. Only for when nothing waits to be written."""
        if max(len(self.mailboxes), len(self.pairs), len(self.starts)) > _MOST:
            self.clear()

    def clear(self) -> None:
        """Forget everything: a turn was taken back, or something else wrote to the tables."""
        self.mailboxes.clear()
        self.pairs.clear()
        self.starts.clear()


@final
class CallTurn:
    """Differences that are not in the tables yet. What ``known`` has is kept up to date with them."""

    __slots__ = ("known", "mailboxes", "met", "outcomes", "pairs", "requests", "started_at", "starts")

    def __init__(self) -> None:
        self.known: Final = KnownCounters()
        self.mailboxes: dict[tuple[str, bool], Sums] = {}
        """By callee, and whether the caller was on its list."""
        self.pairs: dict[tuple[str, str], Sums] = {}
        """By caller and callee."""
        self.met: dict[tuple[str, str], int] = {}
        """When the latest call of caller and callee was admitted."""
        self.starts: dict[tuple[str, str, int], int] = {}
        """How many starts of caller and callee were charged, by their time."""
        self.started_at: int | None = None
        """When the latest start was charged."""
        self.requests: Final = Sealed()
        self.outcomes: Final = Sealed()

    def count(self, row: CallRow, before: Held, after: Held) -> None:
        """Add what the call of ``row`` takes now, ``after``, instead of ``before``."""
        calls = after.calls - before.calls
        requests = after.request_bytes - before.request_bytes
        outcomes = after.outcome_bytes - before.outcome_bytes
        if not (calls or requests or outcomes):
            return
        mailbox, pair = (row.callee, row.listed), (row.caller, row.callee)
        found = self.mailboxes.get(mailbox)
        if found is None:
            found = self.mailboxes[mailbox] = [0, 0, 0]
        others = self.pairs.get(pair)
        if others is None:
            others = self.pairs[pair] = [0, 0, 0]
        for sums in (found, others, self.known.mailboxes.get(mailbox), self.known.pairs.get(pair)):
            if sums is not None:
                sums[0] += calls
                sums[1] += requests
                sums[2] += outcomes

    def meet(self, row: CallRow) -> None:
        """Note an admission."""
        pair = (row.caller, row.callee)
        self.met[pair] = max(row.submitted_at, self.met.get(pair, 0))

    def start(self, caller: str, callee: str, at: int) -> None:
        """Note a charged start."""
        key = (caller, callee, at)
        self.starts[key] = self.starts.get(key, 0) + 1
        if self.started_at is None or at > self.started_at:
            self.started_at = at
        known = self.known.starts.get((caller, callee))
        if known is not None:
            insort(known, at)

    def started(self, caller: str, callee: str) -> list[int]:
        """Return when starts of this pair were charged that are not in the table yet, in any order."""
        return [
            at
            for (one, other, at), count in self.starts.items()
            if (one, other) == (caller, callee)
            for _ in range(count)
        ]

    def clear(self) -> None:
        """Forget the differences: they were written, or rolled back."""
        self.mailboxes.clear()
        self.pairs.clear()
        self.met.clear()
        self.starts.clear()
        self.started_at = None
        self.requests.clear()
        self.outcomes.clear()
