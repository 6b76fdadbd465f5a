"""The calls of one connection to one callee, by the names that frames give them, and how each is over."""

from collections.abc import Iterator
from typing import Final, final

from ringline.caller.effects import (
    CancelAnswer,
    Decided,
    Effect,
    End,
    Ended,
    Learned,
    LostRelay,
    Refused,
    Withdrawn,
)
from ringline.caller.pending import Pending, Strays

__all__ = ["Roll"]

_ENDS_KEPT: Final = 1_024


@final
class Roll:
    """Every call under way. The methods that return effects return those to perform, in order."""

    def __init__(self) -> None:
        """Begin without calls."""
        self.strays = Strays()
        self.connected = False
        """Whether a connection stands."""
        self._calls: dict[str, Pending] = {}
        self._by_id: dict[str, Pending] = {}
        self._ends: dict[str, None] = {}

    def __iter__(self) -> Iterator[Pending]:
        """Iterate over a copy: calls end meanwhile."""
        return iter(tuple(self._calls.values()))

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._calls

    def add(self, call: Pending) -> None:
        """Take a call. Its ``message_id`` must be that of no other call here."""
        if call.out.message_id in self._calls:
            raise ValueError("this message_id is under way already")
        self._calls[call.out.message_id] = call
        if call.call_id is not None:
            self._by_id[call.call_id] = call

    def get(self, message_id: str) -> Pending | None:
        """Return the call with this message id."""
        return self._calls.get(message_id)

    def find(self, call_id: str) -> Pending | None:
        """Return the call to which the relay gave this id."""
        return self._by_id.get(call_id)

    def ended(self, call_id: str) -> bool:
        """Whether a call with this id was here and is over, as far as that is remembered."""
        return call_id in self._ends

    def learn(self, call: Pending, call_id: str) -> list[Effect]:
        """Note the id that the relay gave a call."""
        call.call_id = call_id
        self._by_id[call_id] = call
        return [Learned(call.out.message_id, call_id)]

    def unanswered(self, correlation_id: str) -> Pending | None:
        """Return the call of a conversation whose first answer on this connection is due."""
        for call in self._calls.values():
            if call.waits and call.out.correlation_id == correlation_id:
                return call
        return None

    def stray(self, call_id: str, *, known: bool) -> list[Effect]:
        """Count a frame that fits no call; ``known``: a call of ours has part of its names."""
        if call_id in self._ends:
            self.strays.late += 1
        elif known:
            self.strays.mismatched += 1
        else:
            self.strays.unknown += 1
        return []

    def end(self, call: Pending, end: Ended | None) -> list[Effect]:
        """End a call; None means that its outcome was opened. An outcome being opened is waited for."""
        if end is not None and call.opening:
            # RL-SYNC-035: an outcome that is here is not replaced by anything that comes later.
            call.held = call.held or end
            return []
        self.remove(call)
        if call.given_up_at is not None:
            return []
        effects: list[Effect] = []
        if call.cancel_by is not None or isinstance(end, Withdrawn):
            effects.append(Decided(call.out.message_id, _cancel_answer(end)))
        if end is not None:
            effects.append(End(call.out.message_id, end))
        return effects

    def remove(self, call: Pending) -> None:
        """Forget a call, and remember that it was here."""
        self._calls.pop(call.out.message_id, None)
        if call.call_id is not None:
            self._by_id.pop(call.call_id, None)
            self._ends[call.call_id] = None
            if len(self._ends) > _ENDS_KEPT:
                del self._ends[next(iter(self._ends))]


def _cancel_answer(end: Ended | None) -> CancelAnswer:
    if isinstance(end, Withdrawn) or (isinstance(end, Refused) and end.code == "canceled"):
        return "canceled"
    if isinstance(end, LostRelay):
        return "requested"
    return "already_terminal"
