"""What the writes of one turn add to counters and trails, until it is committed.

Fifty calls between the same two in one turn change two counters a hundred times: summed up here, that is
two statements.
"""

from collections.abc import Iterable
from typing import Final, final

from ringline.relay.call_store import CallEvent, CallRow, Held, events

__all__ = ["CallTurn", "added"]

_EVENTS_PER_WRITE: Final = 4
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
        self.trail: list[tuple[int, int, CallEvent, int]] = []
        """``seq`` of the call, number within its trail, event, Unix ms."""

    def count(self, row: CallRow, before: Held, after: Held) -> None:
        """Add what the call of ``row`` takes now, ``after``, instead of ``before``."""
        if before == after:
            return
        change = Held(*(new - old for new, old in zip(after, before, strict=True)))
        mailbox, pair = (row.callee, row.listed), (row.caller, row.callee)
        self.mailboxes[mailbox] = added(self.mailboxes.get(mailbox, _NOTHING), change)
        self.pairs[pair] = added(self.pairs.get(pair, _NOTHING), change)

    def meet(self, row: CallRow) -> None:
        """Note an admission."""
        pair = (row.caller, row.callee)
        self.met[pair] = max(row.submitted_at, self.met.get(pair, 0))

    def note(self, before: CallRow | None, after: CallRow, at: int) -> None:
        """Add to the trail what a write did. Numbers grow with the version: nothing has to be read."""
        first = after.version * _EVENTS_PER_WRITE
        for number, event in enumerate(events(before, after), first):
            self.trail.append((after.seq, number, event, at))

    def clear(self) -> None:
        """Forget everything: it was written, or rolled back."""
        self.mailboxes.clear()
        self.pairs.clear()
        self.met.clear()
        self.trail.clear()


def added(one: Held, other: Iterable[int]) -> Held:
    """Return the sum."""
    return Held(*(have + more for have, more in zip(one, other, strict=True)))
