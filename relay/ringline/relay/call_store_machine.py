"""A proof by running for any call store: a Hypothesis machine that drives it beside the model.

Use, in a test of the store (Hypothesis is needed only there)::

    TestMyStore = call_store_machine(MySubject).TestCase

After every step both must give the same answers. Turns are committed, rolled back, broken off in the middle
of a statement, and lost with the process.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from msgspec.structs import replace

from ringline.protocol.errors import RinglineError
from ringline.protocol.lifecycle import FINAL, State
from ringline.protocol.limits import DAY_MS
from ringline.relay.call_store import MEETING_MS, CallRow, CallStore, Page
from ringline.relay.memory_calls import MemoryCalls
from ringline.relay.store import StoreError

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

__all__ = ["Subject", "call_store_machine"]

_T = TypeVar("_T")

_HANDLES = ("alice", "bob", "cyd")
_STATES = (State.QUEUED, State.STARTED, State.PARKED, *sorted(FINAL))
_LATEST = 2 * MEETING_MS


class Subject(Protocol):
    """A store under proof, and the ways in which it is ill-treated."""

    @property
    def store(self) -> CallStore:
        """The store, empty at first. `crash` may put another in its place."""
        ...

    def crash(self) -> None:
        """Lose the process as ``kill -9`` does, and open what is on the disk with a new store."""
        ...

    def fail_after(self, steps: int | None) -> None:
        """Let a statement of the store fail once it has done ``steps`` more of its work; None: never."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def _row(number: int, caller: str, callee: str, message: int, at: int, *, listed: bool) -> CallRow:
    return CallRow(
        call_id=f"call-{number}",
        seq=0,
        caller=caller,
        callee=callee,
        caller_card=f"card of {caller}",
        listed=listed,
        message_id=f"{message:032x}",
        correlation_id=f"{message + 7:032x}",
        digest=bytes([number % 256]) * 32,
        traceparent="00-trace" if number % 2 else None,
        submitted_at=at,
        execute_by=at + 1_000,
        request_bytes=10 + number % 7,
        due_at=at + 1_000,
    )


def _changed(row: CallRow, what: str, at: int) -> tuple[CallRow, bytes | None]:
    """A next row as the rules of durable calls could make it, and the outcome that comes with it."""
    if what == "due":
        return replace(row, due_at=at), None
    if row.ended:
        if what in ("acknowledge", "cancel"):
            return replace(row, acknowledged=row.terminal is not None), None
        return replace(row, outcome_sends=row.outcome_sends + 1), None
    match what:
        case "start":
            return replace(row, state=State.STARTED, started_at=at, instance="instance"), None
        case "park":
            return replace(row, state=State.PARKED, attempts=row.attempts + 1), None
        case "queue":
            return replace(row, state=State.QUEUED, attempts=0), None
        case "cancel":
            return replace(row, cancel_requested=not row.cancel_requested), None
        case "answer":
            ended = replace(row, state=State.COMPLETED, reason="completed", terminal="completed")
            return replace(ended, finished_at=at, outcome_bytes=1 + at % 9), b"outcome %d" % at
        case _:
            ended = replace(row, state=State.EXPIRED, reason="expired", error="timeout")
            return replace(ended, finished_at=at), None


def _answer(do: Callable[[CallStore], _T], store: CallStore) -> _T | RinglineError:
    try:
        return do(store)
    except RinglineError as error:
        return error


def _calls(store: CallStore, rows: Sequence[CallRow]) -> list[object]:
    """Everything that can be read of single calls; of one that never was, too."""
    found: list[object] = []
    for call_id in [*(row.call_id for row in rows), "missing"]:
        trail = sorted(event for event, _ in store.trail(call_id))
        found.append((store.load(call_id), store.request(call_id), store.outcome(call_id), trail))
    return found + [store.find(row.caller, row.callee, row.message_id) for row in rows]


def _lists(store: CallStore) -> dict[str, object]:
    found: dict[str, object] = {
        "flagged": (store.flagged(0, 2), store.flagged(3, 9)),
        "started": store.started(),
        "next due": store.next_due(),
        "due": [store.due(now, 3) for now in (0, _LATEST // 2, _LATEST + 1_000)],
    }
    for handle in _HANDLES:
        found[f"queue of {handle}"] = (store.queued(handle, 0, 2), store.queued(handle, 3, 9))
    return found


def _sums(store: CallStore, since: int, met: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for one in _HANDLES:
        found[f"to {one}"] = (store.held_by(one), store.held_by(one, unlisted=True))
        for two in _HANDLES:
            found[f"{one} to {two}"] = (
                store.held_by_pair(one, two),
                store.starts(one, two, since),
                store.shared(one, two, met),
            )
    return found


def _pages(
    store: CallStore, party: Literal["caller", "callee"], handle: str, states: Sequence[State], limit: int
) -> list[Page]:
    pages = [store.page(party, handle, states, None, limit)]
    while pages[-1][1] is not None:
        pages.append(store.page(party, handle, states, pages[-1][1], limit))
    return pages


_CHANGES = ("start", "park", "queue", "cancel", "answer", "expire", "acknowledge", "resend", "due")


def call_store_machine(make: Callable[[], Subject]) -> "type[RuleBasedStateMachine]":
    """Return a machine that makes a fresh subject for each of its runs. Needs Hypothesis."""
    from hypothesis import note
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

    handles = st.sampled_from(_HANDLES)
    times = st.integers(min_value=0, max_value=_LATEST)
    picks = st.integers(min_value=0, max_value=20)

    class CallStoreMachine(RuleBasedStateMachine):
        """One store and the model of it."""

        def __init__(self) -> None:
            super().__init__()
            self.subject = make()
            self.model = MemoryCalls()
            self.rows: dict[str, CallRow] = {}
            """As last seen by whoever wrote them, in this turn or before."""
            self.stable: dict[str, CallRow] = {}
            """The same as of the last commit."""
            self.past: list[CallRow] = []
            self.number = 0
            self.armed = False
            self.latest = 0
            self.started_latest = 0

        def teardown(self) -> None:
            self.subject.close()

        # --- both sides

        def both(self, do: Callable[[CallStore], _T]) -> _T | None:
            """Do it to the store and to the model; they agree in what they answer and refuse."""
            answer = _answer(do, self.subject.store)
            if isinstance(answer, StoreError):
                assert self.armed, f"the store failed by itself: {answer}"
                self.broken()
                return None
            expected = _answer(do, self.model)
            if isinstance(expected, RinglineError):
                assert type(answer) is type(expected)
                return None
            assert answer == expected
            return expected

        def broken(self) -> None:
            """A statement has failed: the turn is over and leaves nothing."""
            note("  a statement failed")
            self.disarm()
            self.subject.store.rollback()
            self.undone()

        def undone(self) -> None:
            self.model.rollback()
            self.rows = dict(self.stable)

        def disarm(self) -> None:
            self.armed = False
            self.subject.fail_after(None)

        def pick(self, number: int) -> CallRow | None:
            rows = list(self.rows.values())
            return rows[number % len(rows)] if rows else None

        # --- writes

        @rule(caller=handles, callee=handles, message=st.integers(1, 3), at=times, listed=st.booleans())
        def insert(self, caller: str, callee: str, message: int, at: int, listed: bool) -> None:
            self.number += 1
            row = _row(self.number, caller, callee, message, at, listed=listed)
            stored = self.both(lambda store: store.insert(row, b"request of " + row.call_id.encode()))
            if stored is not None:
                self.latest = max(self.latest, at)
                self.rows[row.call_id] = stored

        @rule(pick=picks, what=st.sampled_from(_CHANGES), at=times)
        def swap(self, pick: int, what: str, at: int) -> None:
            before = self.pick(pick)
            if before is None:
                return
            after, outcome = _changed(before, what, at)
            stored = self.both(lambda store: store.swap(before, after, outcome))
            if stored is not None:
                self.past.append(before)
                self.rows[stored.call_id] = stored

        @rule(pick=picks)
        def swap_or_forget_what_has_changed_since(self, pick: int) -> None:
            if not self.past:
                return
            row = self.past[pick % len(self.past)]
            if self.rows.get(row.call_id) == row:
                return
            if pick % 2:
                self.both(lambda store: store.swap(row, replace(row, state=State.EXPIRED)))
            else:
                self.both(lambda store: store.forget(row))

        @rule(pick=picks)
        def forget(self, pick: int) -> None:
            row = self.pick(pick)
            if row is not None:
                known = self.rows.pop(row.call_id)
                self.past.append(known)
                self.both(lambda store: store.forget(row))

        @rule(caller=handles, callee=handles, at=times)
        def note_start(self, caller: str, callee: str, at: int) -> None:
            self.started_latest = max(self.started_latest, at)
            self.both(lambda store: store.note_start(caller, callee, at))

        # --- the ends of a turn

        @rule()
        def commit(self) -> None:
            rows = dict(self.rows)
            self.both(lambda store: store.commit())
            if self.rows == rows:
                self.stable = rows
            self.disarm()

        @rule()
        def roll_back(self) -> None:
            self.disarm()
            self.subject.store.rollback()
            self.undone()

        @rule()
        def crash(self) -> None:
            self.disarm()
            self.subject.crash()
            self.undone()
            assert self.subject.store.repair() == []

        @rule(steps=st.integers(min_value=1, max_value=400))
        def break_a_statement(self, steps: int) -> None:
            self.armed = True
            self.subject.fail_after(steps)

        @rule()
        def look_after(self) -> None:
            self.commit()
            self.disarm()
            self.subject.store.shrink()
            self.subject.store.check()
            assert self.subject.store.repair() == []

        # --- reads

        @invariant()
        def every_answer_is_the_models(self) -> None:
            if self.armed:
                return
            rows = list(self.rows.values())
            times = (max(0, self.started_latest - DAY_MS), max(0, self.latest - MEETING_MS))
            self.both(lambda store: _calls(store, rows))
            self.both(_lists)
            self.both(lambda store: _sums(store, *times))

        @rule(handle=handles, states=st.lists(st.sampled_from(_STATES), max_size=3), limit=st.integers(1, 4))
        def read_page_by_page(self, handle: str, states: list[State], limit: int) -> None:
            self.both(lambda store: _pages(store, "caller", handle, states, limit))
            self.both(lambda store: _pages(store, "callee", handle, states, limit))

    return CallStoreMachine
