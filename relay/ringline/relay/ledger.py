"""Write before word: the one way by which durable calls are written and by which anybody hears of them.

What is said while something is not committed yet waits for the commit, in order, and is never said when the
commit fails (RL-DURABLE-002). What is said when everything is safe leaves at once.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, final

from msgspec import UNSET, UnsetType

from ringline.protocol.frames import (
    CallError,
    CallOutcome,
    CallRequest,
    IncomingCall,
    RelayToCaller,
    RelayToListener,
)
from ringline.relay.call_store import CallRow, CallStore
from ringline.relay.effects import Decided, Retire, Send
from ringline.relay.session import Session
from ringline.relay.sessions import Sessions

__all__ = ["Ledger", "Step", "Undone"]

Step: TypeAlias = Literal[
    "admission", "start", "cancel", "attempt", "replay", "outcome", "end", "ack", "purge"
]
"""What a write is for: an admission, the grant of a start, a cancel request or its end, a counted attempt or
one taken back, a replay, the end by an outcome, any other end, the caller's acknowledgement, the deletion of
the record. Each has its fault points (`ringline.protocol.faults`)."""


_Word: TypeAlias = Send | Decided | Retire


@final
class Undone:
    """Who must learn that what they sent in this turn was not stored."""

    __slots__ = ("connections", "ends", "refused", "requests", "untold")

    def __init__(self) -> None:
        self.refused: list[tuple[int, CallRequest]] = []
        """Call requests, which admitted nothing."""
        self.connections: list[int] = []
        """Connections that said anything else."""
        self.requests: list[int] = []
        """HTTP cancel requests."""
        self.ends: list[tuple[int, str]] = []
        """Connections that wait for the end of a call which has not ended after all."""
        self.untold: set[str | UnsetType] = set()
        """Leases of which their listeners have not heard."""


@final
class Ledger:
    """The store of a relay together with the words that wait for its next commit."""

    __slots__ = (
        "_reach",
        "_sessions",
        "_steps",
        "_unanswered",
        "_waiting",
        "store",
        "undone",
        "unsaved",
        "written",
    )

    def __init__(
        self, store: CallStore, sessions: Sessions, reach: Callable[[str], None] | None = None
    ) -> None:
        self.store: Final = store
        self.unsaved = False
        """True if something was written since the last commit."""
        self.written = 0
        """How many times."""
        self.undone = Undone()
        self._sessions = sessions
        self._reach = reach
        self._steps: dict[Step, None] = {}
        self._waiting: list[_Word] = []
        self._unanswered: list[tuple[Session, str]] = []

    # --- writing

    def insert(self, row: CallRow, request: bytes) -> CallRow:
        """See `CallStore.insert`."""
        self.unsaved = True
        self.written += 1
        self._steps["admission"] = None
        return self.store.insert(row, request)

    def swap(self, step: Step, before: CallRow, after: CallRow, outcome: bytes | None = None) -> CallRow:
        """See `CallStore.swap`."""
        self.unsaved = True
        self.written += 1
        self._steps[step] = None
        return self.store.swap(before, after, outcome)

    def note_start(self, caller: str, callee: str, at: int) -> None:
        """See `CallStore.note_start`."""
        self.unsaved = True
        self.written += 1
        self._steps["start"] = None
        self.store.note_start(caller, callee, at)

    def forget(self, row: CallRow) -> None:
        """See `CallStore.forget`."""
        self.unsaved = True
        self.written += 1
        self._steps["purge"] = None
        self.store.forget(row)

    def refuse_if_undone(self, session: Session, request: CallRequest) -> None:
        """The answer to ``request`` waits for the commit; should that fail, it is refused."""
        self.undone.refused.append((session.connection, request))
        # RL-FRAME-026: meanwhile no other request of its correlation id is taken.
        self._unanswered.append((session, session.expect(request)))

    # --- saying

    def send(self, connection: int, frame: RelayToCaller | RelayToListener) -> None:
        """Send a frame: at once, or behind the next commit."""
        if self.unsaved:
            self._waiting.append(Send(connection, frame))
        else:
            self._sessions.send(connection, frame)

    def say(self, effect: Decided | Retire) -> None:
        """Let an effect happen: at once, or behind the next commit."""
        if self.unsaved:
            self._waiting.append(effect)
        else:
            self._sessions.effects.append(effect)

    # --- the end of a turn

    def commit(self) -> None:
        """Make the turn durable, then say what waited for that.

        Raises `ringline.relay.store.StoreError`; then `rollback` is due.
        """
        if self._reach is not None:
            for step in self._steps:
                self._reach(f"{step}.before")
        self.store.commit()
        if self._reach is not None:
            for step in self._steps:
                self._reach(f"{step}.after")
        self._sessions.say(self._settle())

    def rollback(self) -> Undone:
        """Take the turn back; nothing of it is said. Return who must know."""
        undone = self.undone
        for word in self._settle():
            if not isinstance(word, Send):
                continue
            frame = word.frame
            if isinstance(frame, IncomingCall):
                undone.untold.add(frame.lease_id)
            elif isinstance(frame, CallOutcome | CallError) and frame.call_id is not UNSET:
                undone.ends.append((word.connection, frame.call_id))
        self.store.rollback()
        return undone

    def _settle(self) -> list[_Word]:
        waiting = self._waiting
        self._waiting = []
        for session, correlation_id in self._unanswered:
            session.answered(correlation_id)
        self._unanswered = []
        self._steps = {}
        self.undone = Undone()
        self.unsaved = False
        self.written = 0
        return waiting
