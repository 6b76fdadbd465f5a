"""The durable half of a relay under callers, listeners, lost frames, restarts and clocks that jump.

Each listener keeps a journal as the protocol asks of it, so that the machine can count what really began. It
knows nothing of the relay but what frames and records say. ``RINGLINE_EXAMPLES=2000`` makes a long run of it.
"""

import itertools
import os
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringline.protocol.frames import (
    CallCancelled,
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallQueued,
    CallRejected,
    CallStarted,
    CancelCall,
    IncomingCall,
    ListenerToRelay,
)
from ringline.protocol.lifecycle import FINAL, State
from ringline.relay.effects import Close, Effect, Send
from ringline_testing.exchange import accepted, cancel, outcome, rejected, started
from ringline_testing.mail import HOUR, FailingCalls, Mail, durable, sealed

CALLERS = ("alice", "carol")
MINUTE = 60_000
LIFE = HOUR


@dataclass
class Entry:
    """A call in a listener's journal: taken, begun, finished or cancelled."""

    lease: str
    state: str = "taken"
    stopping: bool = False


@dataclass
class Listener:
    """One instance with its journal. Its process and its connection come and go."""

    instance: str
    boot: int = 0
    connection: int | None = None
    journal: dict[str, Entry] = field(default_factory=dict[str, Entry])
    inbox: list[Any] = field(default_factory=list[Any])


class LeaseMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        """Start a relay with two instances of bob's agent."""
        self.m = Mail(
            {
                "STARTS": 0,
                "STORED_CALLS_PER_PAIR": 0,
                "REBIND_MS": 10 * MINUTE,
                "STORE_RETRY_MS": 1_000,
                "STORED_RECORD_LIFE_MS": MINUTE,
            }
        )
        self.callers: dict[str, int] = {}
        self.listeners = {name: Listener(name) for name in ("one", "two")}
        self.numbers = itertools.count(1)
        self.sent: dict[str, tuple[str, Any]] = {}
        self.begun: dict[str, list[str]] = {}
        self.confirmed: set[str] = set()
        self.finished: set[str] = set()
        self.refused: set[str] = set()
        self.forgot: set[str] = set()
        self.ends: dict[str, set[str]] = {}
        for caller in CALLERS:
            self.callers[caller] = self.m.caller(caller)
        for name in self.listeners:
            self.connect(name, 2)
        for conversation in (1, 2, 3):
            self.submit("alice", conversation)

    # --- what comes out

    def perform(self, effects: list[Effect]) -> None:
        """Deliver what the relay said: to callers at once, to listeners into their inboxes."""
        for effect in effects:
            note(f"    {effect}")
            if isinstance(effect, Close):
                for listener in self.listeners.values():
                    if listener.connection == effect.connection:
                        self.drop(listener)
                continue
            if not isinstance(effect, Send):
                continue
            for listener in self.listeners.values():
                if listener.connection == effect.connection:
                    listener.inbox.append(effect.frame)
            if effect.connection in self.callers.values():
                self.hear(effect.frame)

    def hear(self, frame: object) -> None:
        """A caller reads a frame. An end is an end, and the same one to everybody."""
        if isinstance(frame, CallQueued):
            # Nothing told is unsaid: what has a receipt is stored.
            assert self.m.store is not None
            assert self.m.store.load(frame.call_id) is not None
        elif isinstance(frame, CallOutcome):
            self.ends.setdefault(frame.call_id, set()).add(frame.terminal)
        elif isinstance(frame, CallError) and isinstance(frame.call_id, str):
            self.ends.setdefault(frame.call_id, set()).add(frame.code)

    def drop(self, listener: Listener) -> None:
        """The listener's connection is gone: waiting work is dropped, begun work goes on."""
        listener.connection = None
        listener.inbox.clear()

    def tell(self, listener: Listener, frame: ListenerToRelay) -> None:
        """A listener sends a frame."""
        if listener.connection is not None:
            note(f"  {listener.instance}: {frame}")
            self.perform(self.m.send(listener.connection, frame))

    # --- callers

    @rule(caller=st.sampled_from(CALLERS), conversation=st.integers(1, 3))
    def submit(self, caller: str, conversation: int) -> None:
        """A new durable call."""
        number = next(self.numbers)
        frame = durable(conversation, number, sealed=sealed(life=LIFE, ct=f"Y{number:05d}"))
        effects = self.m.send(self.callers[caller], frame)
        self.perform(effects)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.frame, CallQueued):
                self.sent[effect.frame.call_id] = (caller, frame)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """The same sealed bytes once more: never a second call."""
        call = data.draw(st.sampled_from(sorted(self.sent)))
        caller, frame = self.sent[call]
        effects = self.m.send(self.callers[caller], frame)
        self.perform(effects)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.frame, CallQueued):
                assert effect.frame.call_id == call

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A caller asks for a cancellation."""
        call = data.draw(st.sampled_from(sorted(self.sent)))
        self.perform(self.m.send(self.callers[self.sent[call][0]], cancel(call)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """Bob tries a parked call again."""
        call = data.draw(st.sampled_from(sorted(self.sent)))
        self.m.hub.replay("bob", call, self.m.now)
        self.perform(self.m.hub.commit(self.m.now))

    # --- listeners

    @rule(name=st.sampled_from(["one", "two"]), capacity=st.integers(1, 3))
    def connect(self, name: str, capacity: int) -> None:
        """A listener connects, in the place of what connection it had."""
        listener = self.listeners[name]
        old = listener.connection
        listener.inbox.clear()
        listener.connection = None
        connection, effects = self.m.join("bob", name, capacity=capacity, boot=str(listener.boot))
        listener.connection = connection
        assert old != connection
        self.perform(effects)

    def lose(self, name: str, *, clean: bool) -> None:
        """A connection ends; frames on the way are lost with it."""
        listener = self.listeners[name]
        if listener.connection is not None:
            connection = listener.connection
            self.drop(listener)
            self.perform(self.m.lose(connection, clean=clean))

    def crash(self, name: str) -> None:
        """A listener's process dies: begun work with it, the journal stays."""
        self.lose(name, clean=False)
        listener = self.listeners[name]
        listener.boot += 1
        for entry in listener.journal.values():
            if entry.state == "begun":
                entry.state = "dead"

    @rule(
        name=st.sampled_from(["one", "two"]),
        count=st.integers(1, 6),
        takes=st.sampled_from([True, True, False]),
    )
    def read(self, name: str, count: int, takes: bool) -> None:
        """A listener reads some of what has arrived and answers from its journal."""
        listener = self.listeners[name]
        for _ in range(count):
            if not listener.inbox or listener.connection is None:
                return
            frame = listener.inbox.pop(0)
            note(f"  {name} reads {frame}")
            if isinstance(frame, IncomingCall):
                self.offered(listener, frame, takes)
            elif isinstance(frame, CallStarted):
                self.granted(listener, frame)
            elif isinstance(frame, CancelCall):
                self.stop(listener, frame)
            elif isinstance(frame, CallRejected):
                self.stale(listener, frame)

    def offered(self, listener: Listener, frame: IncomingCall, takes: bool) -> None:
        assert isinstance(frame.lease_id, str)
        call, held = frame.call_id, frame.lease_id
        entry = listener.journal.get(call)
        if entry is None or entry.state == "taken":
            if not takes:
                return  # slow: the lease may lapse
            listener.journal[call] = Entry(held)
            self.tell(listener, accepted(call, held))
            self.tell(listener, started(call, held))
            return
        entry.lease = held
        if entry.state == "begun":
            self.tell(listener, started(call, held))
        elif entry.state == "dead":
            self.tell(listener, outcome(call, "failed", "indeterminate_execution", lease=held))
        elif entry.state == "finished":
            self.tell(listener, outcome(call, lease=held))
        else:
            self.confirmed.add(call)
            self.tell(listener, CallCancelled(call_id=call, phase="running", lease_id=held))

    def granted(self, listener: Listener, frame: CallStarted) -> None:
        entry = listener.journal.get(frame.call_id)
        if entry is not None and entry.state == "taken" and entry.lease == frame.lease_id:
            entry.state = "begun"
            self.begun.setdefault(frame.call_id, []).append(listener.instance)

    def stop(self, listener: Listener, frame: CancelCall) -> None:
        entry = listener.journal.get(frame.call_id)
        if entry is None or entry.lease != frame.lease_id:
            return
        if entry.state in ("taken", "begun"):
            begun = entry.state == "begun"
            entry.state = "cancelled"
            self.confirmed.add(frame.call_id)
            assert isinstance(frame.lease_id, str)
            phase: Any = "running" if begun else "pending"
            self.tell(listener, CallCancelled(call_id=frame.call_id, phase=phase, lease_id=frame.lease_id))

    def stale(self, listener: Listener, frame: CallRejected) -> None:
        entry = listener.journal.get(frame.call_id)
        if entry is not None and entry.lease == frame.lease_id:
            if entry.state == "taken":
                del listener.journal[frame.call_id]
            elif entry.state == "begun":
                entry.state = "cancelled"  # stopped, and not answered
                self.confirmed.add(frame.call_id)

    @precondition(lambda self: any(work(listener) for listener in self.listeners.values()))
    @rule(data=st.data(), word=st.sampled_from(["finish", "finish", "refuse a cancel", "reject"]))
    def work(self, data: st.DataObject, word: str) -> None:
        """Begun work comes to its end, or a cancel too late; or a taken call cannot be opened."""
        listener, call, entry = data.draw(
            st.sampled_from([item for listener in self.listeners.values() for item in work(listener)])
        )
        if word == "finish" and entry.state == "begun":
            entry.state = "finished"
            self.finished.add(call)
            self.tell(listener, outcome(call, lease=entry.lease))
        elif word == "refuse a cancel" and entry.state == "begun":
            self.tell(listener, CallNotCancelled(call_id=call, reason="too_late", lease_id=entry.lease))
        elif word == "reject" and entry.state == "taken":
            entry.state = "cancelled"
            self.refused.add(call)
            self.tell(listener, rejected(call, entry.lease))

    @precondition(lambda self: any(work(listener) for listener in self.listeners.values()))
    @rule(data=st.data())
    def ask_late(self, data: st.DataObject) -> None:
        """A frame was on its way for long: its lease may be gone by now."""
        listener, call, entry = data.draw(
            st.sampled_from([item for listener in self.listeners.values() for item in work(listener)])
        )
        if entry.state == "taken":
            self.tell(listener, started(call, entry.lease))

    # --- the relay and its clocks

    @rule(ms=st.sampled_from([1, 900, 5_000, 29_999, 30_000, 5 * MINUTE, 10 * MINUTE]))
    def wait(self, ms: int) -> None:
        """Time passes."""
        self.perform(self.m.wait(ms))

    def jump(self, ms: int) -> None:
        """The wall clock alone is set."""
        self.m.later(ms)

    def restart(self) -> None:
        """The relay is killed, with all connections, and another takes its place."""
        for listener in self.listeners.values():
            self.drop(listener)
        self.broken(False)
        self.m.restart()
        for caller in CALLERS:
            self.callers[caller] = self.m.caller(caller)

    def broken(self, failing: bool) -> None:
        """The disk takes nothing more, or does again."""
        assert isinstance(self.m.store, FailingCalls)
        self.m.store.failing = failing

    @rule(
        fault=st.sampled_from(["lose", "close", "crash", "restart", "back", "ahead", "full", "free"]),
        name=st.sampled_from(["one", "two"]),
    )
    def suffer(self, fault: str, name: str) -> None:
        """Something goes wrong, or is well again."""
        match fault:
            case "lose" | "close":
                self.lose(name, clean=fault == "close")
            case "crash":
                self.crash(name)
            case "restart":
                self.restart()
            case "back" | "ahead":
                self.jump(HOUR // 4 if fault == "ahead" else -HOUR // 4)
            case _:
                self.broken(fault == "full")

    @rule()
    def settle(self) -> None:
        """Everybody reads what there is, and whoever is away comes back."""
        for name, listener in self.listeners.items():
            if listener.connection is None:
                self.connect(name, 2)
            self.read(name, 9, True)

    # --- what must hold

    @invariant()
    def one_start_over_all_instances_and_crashes(self) -> None:
        """No handler begins a second time."""
        for call, instances in self.begun.items():
            assert len(instances) <= 1, (call, instances)

    @invariant()
    def one_end_and_the_same_word_to_all(self) -> None:
        """Whatever was told as an end is told to all, and is what is stored."""
        assert self.m.store is not None
        for call, words in self.ends.items():
            assert len(words) == 1, (call, words)
            row = self.m.store.load(call)
            if row is not None:
                assert row.state in FINAL
                assert words == {row.terminal or row.error}

    @invariant()
    def ends_say_what_is_so(self) -> None:
        """Canceled: never begun, or seen to stop. Expired, parked: never begun, or seen to stop."""
        assert self.m.store is not None
        for call in self.sent:
            row = self.m.store.load(call)
            if row is None:
                continue
            if row.state is State.PARKED:
                assert call not in self.begun
            if row.state in (State.CANCELED, State.EXPIRED):
                assert call not in self.begun or call in self.confirmed, call
            if row.state in (State.COMPLETED, State.FAILED):
                assert call in self.finished
            if call in self.begun:
                # Granted means stored before.
                assert row.started_at is not None

    @invariant()
    def no_more_is_in_hand_than_leases_say(self) -> None:
        """Every lease belongs to an open connection, and a call has one at most."""
        seen: set[str] = set()
        for instance in self.m.hub._presence.connected():
            for call, errand in instance.leases.items():
                assert call not in seen
                seen.add(call)
                assert errand.lease is not None
                assert errand.lease.connection == instance.connection

    def teardown(self) -> None:
        """When faults cease, every call ends, nothing stays, and no finished result is lost."""
        if not hasattr(self, "m"):
            return
        self.broken(False)
        for name in self.listeners:
            self.connect(name, 3)
        for _ in range(400):
            if all(not listener.inbox for listener in self.listeners.values()):
                break
            for name in self.listeners:
                self.read(name, 9, True)
        self.perform(self.m.wait(1_500))
        for _ in range(400):
            for listener in self.listeners.values():
                for _, call, entry in work(listener):
                    if entry.state == "begun" and listener.connection is not None:
                        entry.state = "finished"
                        self.finished.add(call)
                        self.tell(listener, outcome(call, lease=entry.lease))
            for name in self.listeners:
                self.read(name, 9, True)
            if all(not listener.inbox for listener in self.listeners.values()):
                break
        assert self.m.store is not None
        self.perform(self.m.wait(2 * LIFE + HOUR))
        for call in self.sent:
            row = self.m.store.load(call)
            assert row is None or row.state in FINAL, (call, row)
        assert sum(len(i.leases) for i in self.m.hub._presence.connected()) == 0
        self.perform(self.m.wait(HOUR))
        assert self.m.store.next_due() is None
        assert len(self.m.calls._errands) == 0


def work(listener: Listener) -> list[tuple[Listener, str, Entry]]:
    """Return what a listener has in hand."""
    return [
        (listener, call, entry)
        for call, entry in listener.journal.items()
        if entry.state in ("taken", "begun")
    ]


EXAMPLES = int(os.environ.get("RINGLINE_EXAMPLES", "25"))

TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    derandomize="RINGLINE_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
