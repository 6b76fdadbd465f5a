"""A listener against a relay that does anything, over crashes and lost connections.

Whatever happens in whatever order: a message runs once, "canceled" is never said of work that may run, one
outcome is told and always the same, and nothing is told to a connection that did not ask.
"""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringline.listener.effects import Broken, Produced
from ringline_testing.journals import NOW, Shelf
from ringline_testing.talk import Talk, Task, lease

# Call, its message, what it says, how it is delivered. Some are the same message again, some clash.
CALLS: dict[str, tuple[int, str, str]] = {
    "sync-1a": (1, "one", "sync"),
    "sync-1b": (1, "one", "sync"),
    "sync-1x": (1, "other", "sync"),
    "durable-2a": (2, "two", "durable"),
    "durable-2b": (2, "two", "durable"),
    "sync-2c": (2, "two", "sync"),
    "durable-3": (3, "three", "durable"),
    "sync-4": (4, "four", "sync"),
}
CAPACITY = 2
NEVER_OPENED_AFTER = NOW + 720_000  # exp and skew: a later opening is refused before it gets here
EXAMPLES = int(os.environ.get("RINGLINE_LISTENER_EXAMPLES", "60"))

calls = st.sampled_from(sorted(CALLS))


class ListenerMachine(RuleBasedStateMachine):
    """One listener with its journal, spoken to at random."""

    def __init__(self) -> None:
        super().__init__()
        shared = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self.talk = Talk(
            Shelf(self.folder / "journal.db"),
            capacity=CAPACITY,
            judge=lambda request, handle, call_id: Task(stoppable=request.message != "four"),
        )
        self.leases = iter(range(1, 100_000))
        self.live: dict[str, str | None] = {}
        self.granted: set[str] = set()
        self.opening: set[str] = set()
        self.running: dict[str, int] = {}  # call it was run for -> message
        self.stopping: set[str] = set()
        self.ran: list[int] = []
        self.stopped: set[int] = set()  # messages whose work was seen to stop
        self.replies: dict[int, bytes] = {}
        self.cancelled: set[str] = set()
        self.replied: set[str] = set()

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.talk.shelf.close()
            shutil.rmtree(self.folder)

    # --- what the relay does

    @rule(call_id=calls)
    def offer(self, call_id: str) -> None:
        message, _, mode = CALLS[call_id]
        new = lease(next(self.leases)) if mode == "durable" else None
        self.live[call_id] = new
        self.granted.discard(call_id)
        self.heard(self.talk.offer(call_id, message=message, lease=new))

    @rule(call_id=calls)
    def cancel(self, call_id: str) -> None:
        self.heard(self.talk.cancel(call_id, lease=self.live.get(call_id)), asked=call_id)

    @rule(call_id=calls, current=st.booleans())
    def grant(self, call_id: str, current: bool) -> None:
        held = self.live.get(call_id)
        if held is None or not current:
            held = lease(0)
        else:
            self.granted.add(call_id)
        self.heard(self.talk.grant(call_id, lease=held))

    @rule(call_id=calls, current=st.booleans())
    def refuse_lease(self, call_id: str, current: bool) -> None:
        held = self.live.get(call_id)
        if held is not None and current:
            del self.live[call_id]
            self.heard(self.talk.refuse_lease(call_id, lease=held))
        else:
            self.heard(self.talk.refuse_lease(call_id, lease=lease(0)))

    @rule()
    def reconnect(self) -> None:
        self.live.clear()
        self.granted.clear()
        self.talk.reconnect()

    # --- what happens here

    @precondition(lambda self: self.opening)
    @rule(data=st.data(), opens=st.booleans() | st.just(True))
    def open(self, data: st.DataObject, opens: bool) -> None:
        call_id = data.draw(st.sampled_from(sorted(self.opening)))
        self.opening.discard(call_id)
        if opens and self.talk.now.wall < NEVER_OPENED_AFTER:
            key = sorted(CALLS).index(call_id)
            self.heard(self.talk.opened(call_id, CALLS[call_id][1], key=key))
        else:
            self.heard(self.talk.refused(call_id))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), well=st.booleans())
    def end(self, data: st.DataObject, well: bool) -> None:
        call_id = data.draw(st.sampled_from(sorted(self.running)))
        stopped = call_id in self.stopping and data.draw(st.booleans())
        self.ends(call_id, well=well, stopped=stopped)

    def ends(self, call_id: str, *, well: bool, stopped: bool) -> None:
        message = self.running.pop(call_id)
        self.stopping.discard(call_id)
        if stopped:
            self.stopped.add(message)
        result = Produced(f"done {message}") if well else Broken()
        self.heard(self.talk.done(call_id, result, stopped=stopped))

    @rule(ms=st.sampled_from([1_000, 8_000, 60_000, 300_000]))
    def later(self, ms: int) -> None:
        self.heard(self.talk.later(ms))

    @rule(orderly=st.booleans())
    def dies(self, orderly: bool) -> None:
        self.live.clear()
        self.granted.clear()
        self.opening.clear()
        self.running.clear()
        self.stopping.clear()
        if orderly:
            self.talk.restart()
        else:
            self.talk.crash()

    # --- what must hold

    def heard(self, lines: list[str], asked: str | None = None) -> None:
        """Check each thing that was said or done."""
        for line in lines:
            what, call_id, *rest = line.split(" ")
            message = CALLS[call_id][0]
            if what == "open":
                self.opening.add(call_id)
            elif what == "run":
                assert message not in self.ran, "a message ran twice"
                mode = CALLS[call_id][2]
                others = [
                    one for one, (number, _, how) in CALLS.items() if number == message and how == "sync"
                ]
                assert mode == "sync" or call_id in self.granted or any(one in self.live for one in others)
                self.ran.append(message)
                self.running[call_id] = message
            elif what == "stop":
                self.stopping.add(call_id)
            elif what == "cancelled":
                assert call_id in self.live or call_id == asked
                assert message in self.stopped or message not in self.ran, "it may still run"
                assert call_id not in self.replied, "it was answered before"
                self.cancelled.add(call_id)
            elif what == "not_cancelled":
                assert call_id in self.live or call_id == asked
            else:
                assert call_id in self.live, f"{what} to a connection that did not ask"
                if self.live[call_id] is not None:
                    assert f"under {int(str(self.live[call_id])[-12:], 16)}" in line
            if what == "outcome" and rest[0] == "reply":
                assert call_id not in self.cancelled, "it was cancelled before"
                assert self.replies.setdefault(message, self.talk.json[call_id]) == self.talk.json[call_id]
                self.replied.add(call_id)

    @invariant()
    def no_more_runs_than_there_are_places(self) -> None:
        assert len(self.running) <= CAPACITY

    def settle(self) -> None:
        """In the end everything ends, and the listener has nothing left in its hands."""
        for call_id in sorted(self.opening):
            self.heard(self.talk.refused(call_id))
        self.opening.clear()
        for _ in range(4):
            self.heard(self.talk.later(400_000))
            while self.running:
                self.ends(min(self.running), well=True, stopped=False)
        # What waits for a grant that never comes waits until its time is over, an hour after its offer.
        self.heard(self.talk.later(4_000_000))
        assert self.talk.session.idle


ListenerMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestListener = ListenerMachine.TestCase
