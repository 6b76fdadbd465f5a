"""What the writes of one turn add to counters, until it is committed, and the counters themselves.

Fifty calls between the same two in one turn change two counters a hundred times: summed up here, that is
two statements. And every admission asks for three counters and for the latest starts: nobody else writes to
them, so what was read once is kept up to date here, and read again only when a turn was taken back.
"""

from collections.abc import Iterable
from typing import Final, final

from ringline.relay.call_store import CallRow, Held

__all__ = ["CallTurn", "KnownCounters", "added"]

_NOTHING: Final = Held()
_MOST: Final = 20_000


@final
class CallTurn:
    """Differences that are not in the tables yet."""

    def __init__(self) -> None:
        self.mailboxes: dict[tuple[str, bool], Held] = {}
        """By callee, and whether the caller was on its list."""
        self.pairs: dict[tuple[str, str], Held] = {}
        """By caller and callee."""
        self.met: dict[tuple[str, str], int] = {}
        """When the latest call of caller and callee was admitted."""
        self.started_at: int | None = None
        """When the latest start was charged."""

    def count(self, row: CallRow, before: Held, after: Held) -> None:
        """Add what the call of ``row`` takes now, ``after``, instead of ``before``."""
        if before == after:
            return
        (calls, requests, outcomes), (less_calls, less_requests, less_outcomes) = after, before
        change = (calls - less_calls, requests - less_requests, outcomes - less_outcomes)
        mailbox, pair = (row.callee, row.listed), (row.caller, row.callee)
        self.mailboxes[mailbox] = added(self.mailboxes.get(mailbox, _NOTHING), change)
        self.pairs[pair] = added(self.pairs.get(pair, _NOTHING), change)

    def meet(self, row: CallRow) -> None:
        """Note an admission."""
        pair = (row.caller, row.callee)
        self.met[pair] = max(row.submitted_at, self.met.get(pair, 0))

    def start(self, at: int) -> None:
        """Note a charged start."""
        self.started_at = at if self.started_at is None else max(at, self.started_at)

    def clear(self) -> None:
        """Forget everything: it was written, or rolled back."""
        self.mailboxes.clear()
        self.pairs.clear()
        self.met.clear()
        self.started_at = None


@final
class KnownCounters:
    """Counters as the tables have them with what is written, committed or not: for a while, and so many."""

    def __init__(self) -> None:
        self.mailboxes: dict[tuple[str, bool], Held] = {}
        """By callee, and whether the caller was on its list."""
        self.pairs: dict[tuple[str, str], Held] = {}
        """By caller and callee."""
        self.starts: dict[tuple[str, str], list[int]] = {}
        """When calls of caller and callee were started, oldest first."""

    def written(self, turn: CallTurn) -> None:
        """The differences of ``turn`` are in the tables now."""
        for box, change in turn.mailboxes.items():
            known = self.mailboxes.get(box)
            if known is not None:
                self.mailboxes[box] = added(known, change)
        for pair, change in turn.pairs.items():
            known = self.pairs.get(pair)
            if known is not None:
                self.pairs[pair] = added(known, change)
        if max(len(self.mailboxes), len(self.pairs), len(self.starts)) > _MOST:
            self.clear()

    def clear(self) -> None:
        """Forget everything: a turn was taken back, or something else wrote to the tables."""
        self.mailboxes.clear()
        self.pairs.clear()
        self.starts.clear()


def added(one: Held, other: Iterable[int]) -> Held:
    """Return the sum."""
    calls, requests, outcomes = other
    return Held(one.calls + calls, one.request_bytes + requests, one.outcome_bytes + outcomes)
