"""What the writes of one turn add to counters, until it is committed.

Fifty calls between the same two in one turn change two counters a hundred times: summed up here, that is
two statements.
"""

from collections.abc import Iterable
from typing import Final, final

from ringline.relay.call_store import CallRow, Held

__all__ = ["CallTurn", "added"]

_NOTHING: Final = Held()


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


def added(one: Held, other: Iterable[int]) -> Held:
    """Return the sum."""
    calls, requests, outcomes = other
    return Held(one.calls + calls, one.request_bytes + requests, one.outcome_bytes + outcomes)
