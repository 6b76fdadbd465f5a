"""A relay's core under callers and listeners that come, go, repeat themselves and say anything in any order.

The machine keeps its own books of what left the hub and when, and knows none of the hub's. After every step
the promises of ADMIT, SYNC and CANCEL must hold. ``RINGLINE_EXAMPLES=5000`` makes a long run of it.
"""

import itertools
import os
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringline.protocol import codec
from ringline.protocol.frames import (
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallRejected,
    CallRequest,
    CallStatus,
    CancelCall,
    DeliveryMode,
    Frame,
    IncomingCall,
    ListenerToRelay,
)
from ringline.protocol.instant import Instant
from ringline.relay.effects import CancelAnswer, Close, Decided, Effect, Retire, Send
from ringline.relay.hub import Hub
from ringline.relay.settings import Settings
from ringline_testing.exchange import (
    CARD,
    LEASE,
    OLD_CARD,
    START,
    Register,
    accepted,
    cancel,
    cancelled,
    envelope,
    not_cancelled,
    number,
    outcome,
    rejected,
    request,
    started,
)

BOUNDS = {
    "CALLS_PER_HOUR": 12,
    "CALLS_PER_PAIR_PER_HOUR": 10,
    "BUDGET_WINDOW_MS": 200,
    "TURNS": 5,
    "TURN_WINDOW_MS": 300,
    "AFFINITY_MS": 150,
    "RING_BOUND_MS": 120,
    "CALL_BOUND_MS": 300,
    "GRACE_MS": 30,
    "HOLD_MS": 40,
    "RECORD_LIFE_MS": 250,
    "RECORDS": 6,
    "RECORD_OUTCOME_BYTES": 4_000,
    "OUTCOME_RESENDS": 2,
    "CANCEL_WAIT_MS": 25,
    "UNKNOWN_HANDLE_RELEASE_MS": 10,
    "UNDECODABLE_FRAMES": 3,
    "UNDECODABLE_WINDOW_MS": 60,
    "FRAMES_PER_SECOND": 0,
    "DRAIN_BOUND_MS": 80,
}
RANK = {"ringing": 1, "answered": 2, "working": 3}
CALLERS = ("alice", "cyd", "bob")


@dataclass
class Line:
    """A connection as the edge sees it."""

    role: str
    handle: str
    target: str
    card: str
    instance: str = ""
    rank: dict[str, int] = field(default_factory=dict[str, int])
    ends: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    owed: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](int))
    asked: set[str] = field(default_factory=set[str])
    attached: set[str] = field(default_factory=set[str])
    waits: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class Told:
    """A call as the machine has seen it from outside."""

    caller: str
    callee: str
    correlation: str
    message: str | None
    instance: str
    at: int
    ask: CallRequest | None = None
    answered: bool = False
    began: bool = False
    ended: bool = False
    asked: bool = False
    confirmed: bool = False
    claimed: bool = False


class HubMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        """Start a hub."""
        self.settings = Settings().with_values({name: str(value) for name, value in BOUNDS.items()})
        self.register = Register()
        self.now = START.later(1)
        self.connections = itertools.count(1)
        self.requests = itertools.count(1)
        names = itertools.count(1)
        self.hub = Hub(self.settings, self.register, lambda: f"call-{next(names)}", START)
        self.lines: dict[int, Line] = {}
        self.closed: set[int] = set()  # told to close; the edge reports it later, or never
        self.calls: dict[str, Told] = {}
        self.by_key: dict[tuple[str, str, str], str] = {}
        self.waiting: dict[int, int] = {}
        self.capacity: dict[tuple[str, str], int] = {}
        self.holder: dict[tuple[str, str], int] = {}
        self.lost_at: dict[tuple[str, str], int] = {}
        self.unattended: dict[str, int] = {}
        self.admissions: list[tuple[int, str, str, str]] = []
        self.draining = False
        self.fresh = 100
        # Most of what is of interest happens between these.
        for caller in ("alice", "alice", "cyd"):
            self.connect_caller(caller, "bob", False)
        self.connect_listener("bob", "one", 4, False)

    # --- what comes out

    def perform(self, effects: list[Effect], *, asking: tuple[int, CallRequest] | None = None) -> None:
        for effect in effects:
            note(f"    {effect}")
            match effect:
                case Send():
                    self.deliver(effect.connection, effect.frame)
                case Close():
                    line = self.lines.pop(effect.connection)  # KeyError: closed, or never known
                    self.gone(effect.connection, line)
                    self.closed.add(effect.connection)
                case Decided():
                    due = self.waiting.pop(effect.request)  # KeyError: answered twice
                    if effect.answer is CancelAnswer.REQUESTED:
                        assert self.now.mono >= due
                case Retire():
                    call = self.calls[effect.call_id]
                    assert not call.ended, "a call ended twice"
                    call.ended = True
        if asking is not None:
            self.expect_an_answer(*asking, effects)

    def deliver(self, connection: int, frame: Frame) -> None:
        assert connection in self.lines, "sent to a connection that is not there"
        line = self.lines[connection]
        direction = "relay_to_caller" if line.role == "caller" else "relay_to_listener"
        assert codec.decode(codec.encode(frame), direction) == frame  # type: ignore[call-overload]
        if line.role == "caller":
            self.tell_caller(line, frame)
        else:
            self.tell_listener(line, frame)

    def tell_caller(self, line: Line, frame: Frame) -> None:
        correlation = getattr(frame, "correlation_id", None)
        if isinstance(correlation, str):
            line.waits.pop(correlation, None)
        if isinstance(frame, CallStatus):
            call = self.calls[frame.call_id]
            assert (call.caller, call.callee) == (line.handle, line.target)
            assert call.correlation == frame.correlation_id
            assert RANK[frame.state] > line.rank.get(frame.call_id, 0), "a status fell back or was repeated"
            assert line.ends[frame.call_id] == 0, "a status after the end"
            line.rank[frame.call_id] = RANK[frame.state]
        elif isinstance(frame, CallOutcome) or (isinstance(frame, CallError) and frame.call_id):
            call_id = frame.call_id
            assert isinstance(call_id, str)
            call = self.calls[call_id]
            assert call.caller == line.handle
            line.waits.pop(call.correlation, None)
            asker = isinstance(frame, CallError) and frame.code == "canceled" and call_id in line.asked
            assert call_id in line.rank or asker, "an end before any status"
            line.ends[call_id] += 1
            assert line.ends[call_id] <= line.owed[call_id] + asker, "more than one end"
            if isinstance(frame, CallOutcome):
                assert call.claimed
                assert frame.terminal == "failed" or call.began, "completed before started"
                assert not frame.lease_id
            elif frame.code == "canceled":
                assert call.confirmed, "canceled without a confirmation"
        elif isinstance(frame, CallNotCancelled):
            assert frame.call_id in line.asked, "told of a cancel that it did not ask for"

    def tell_listener(self, line: Line, frame: Frame) -> None:
        if isinstance(frame, IncomingCall):
            call = self.calls.get(frame.call_id)
            key = (line.handle, line.instance)
            assert not frame.lease_id
            if call is None:
                self.admitted(frame, line)
            else:
                assert not call.ended, "offered after its end"
                assert (call.callee, call.instance) == key, "given to another instance"
        elif isinstance(frame, CancelCall):
            assert not frame.lease_id
            if frame.call_id in self.calls:
                self.calls[frame.call_id].asked = True
        elif isinstance(frame, CallRejected):
            assert frame.lease_id == LEASE

    def admitted(self, frame: IncomingCall, line: Line) -> None:
        message = frame.message_id if isinstance(frame.message_id, str) else None
        now, caller, callee = self.now.mono, frame.from_, line.handle
        # Places (RL-ADMIT-020, RL-ADMIT-032): of the instance, and of the caller at the handle.
        mine = [c for c in self.calls.values() if not c.ended and c.callee == callee]
        capacity = self.capacity[callee, line.instance]
        assert sum(c.instance == line.instance for c in mine) < capacity, "more calls than places"
        places = sum(self.capacity[key] for key in self.holder if key[0] == callee)
        assert sum(c.caller == caller for c in mine) < max(1, places // 2), "more than a caller's share"
        # Affinity (RL-SYNC-039) is looked at in its own tests. Budgets (RL-ADMIT-013):
        recent = [a for a in self.admissions if a[0] > now - BOUNDS["BUDGET_WINDOW_MS"] and a[1] == caller]
        assert len(recent) < BOUNDS["CALLS_PER_HOUR"], "hourly budget overspent"
        pair = [a for a in recent if a[2] == callee]
        assert len(pair) < BOUNDS["CALLS_PER_PAIR_PER_HOUR"], "hourly budget of a pair overspent"
        assert (caller, callee) not in self.register.unreachable
        assert not self.draining, "admitted while stopping"
        if message is not None:
            before = self.calls.get(self.by_key.get((caller, callee, message), ""))
            assert before is None or before.ended, "one message, two calls"
            self.by_key[caller, callee, message] = frame.call_id
        self.admissions.append((now, caller, callee, frame.correlation_id))
        turns = [a for a in self.admissions if a[1:] == (caller, callee, frame.correlation_id)]
        for n, turn in enumerate(turns):
            # No window of half an hour that begins with its first turn holds more than its number; every
            # window the hub may have used is among these, so only all of them together would be wrong.
            window = [a for a in turns[n:] if a[0] < turn[0] + BOUNDS["TURN_WINDOW_MS"]]
            if len(window) <= BOUNDS["TURNS"]:
                break
        else:
            raise AssertionError("turns overspent")
        self.calls[frame.call_id] = Told(caller, callee, frame.correlation_id, message, line.instance, now)

    def expect_an_answer(self, connection: int, ask: CallRequest, effects: list[Effect]) -> None:
        line = self.lines.get(connection)
        if line is None:
            return
        answered = any(
            isinstance(e, Send)
            and e.connection == connection
            and getattr(e.frame, "correlation_id", None) == ask.correlation_id
            for e in effects
        ) or any(
            isinstance(e, Send) and e.connection == connection and isinstance(e.frame, CallOutcome)
            for e in effects
        )
        if answered:
            return
        known = None
        if isinstance(ask.message_id, str):
            known = self.by_key.get((line.handle, line.target, ask.message_id))
        if known is not None and known in line.attached and not self.calls[known].ended:
            return  # attached: it hears the end when it comes
        line.waits[ask.correlation_id] = self.now.mono + BOUNDS["UNKNOWN_HANDLE_RELEASE_MS"]

    def gone(self, connection: int, line: Line) -> None:
        """A connection is lost, or was told to close: for its calls that is the same."""
        key = (line.handle, line.instance)
        if line.role == "listener" and self.holder.get(key) == connection:
            del self.holder[key]
            self.lost_at[key] = self.now.mono

    # --- connections

    def free_line(self, data: st.DataObject, role: str) -> int | None:
        numbers = sorted(number for number, line in self.lines.items() if line.role == role)
        return data.draw(st.sampled_from(numbers)) if numbers else None

    @rule(
        caller=st.sampled_from(CALLERS),
        callee=st.sampled_from(("bob", "bob", "bob", "dan")),
        old=st.sampled_from((False, False, False, True)),
    )
    def connect_caller(self, caller: str, callee: str, old: bool) -> None:
        """A caller connects."""
        if sum(line.role == "caller" for line in self.lines.values()) >= 6:
            return
        connection = next(self.connections)
        card = OLD_CARD if old else CARD
        self.lines[connection] = Line("caller", caller, callee, card)
        self.perform(self.hub.connect_caller(connection, caller, callee, card, self.now))

    @rule(
        handle=st.sampled_from(("bob", "bob", "bob", "dan")),
        instance=st.sampled_from(("one", "two")),
        capacity=st.sampled_from((1, 2, 4, 8)),
        old=st.sampled_from((False, False, False, True)),
    )
    def connect_listener(self, handle: str, instance: str, capacity: int, old: bool) -> None:
        """A listener connects, for the first time, again after a loss, or beside itself."""
        connection = next(self.connections)
        card = OLD_CARD if old else CARD
        key = (handle, instance)
        before = self.holder.get(key)
        self.lines[connection] = Line("listener", handle, handle, card, instance)
        effects = self.hub.connect_listener(connection, handle, card, instance, "b", capacity, True, self.now)
        if not self.draining:
            self.holder[key] = connection
            self.capacity[key] = capacity
            self.lost_at.pop(key, None)
            offered = [
                e.frame.call_id for e in effects if isinstance(e, Send) and isinstance(e.frame, IncomingCall)
            ]
            due = [
                call_id
                for call_id, call in self.calls.items()
                if not call.ended and (call.callee, call.instance) == key
            ]
            self.perform(effects)
            assert offered == [call_id for call_id in due if call_id in offered]
            assert all(call_id in offered or self.calls[call_id].ended for call_id in due), (
                "not offered again"
            )
            if before is not None and before in self.closed:
                assert Close(before, 4000, "replaced") in effects
        else:
            self.perform(effects)

    @rule(data=st.data(), role=st.sampled_from(("caller", "listener")))
    def lose(self, data: st.DataObject, role: str) -> None:
        """A connection is lost."""
        connection = self.free_line(data, role)
        if connection is not None:
            line = self.lines.pop(connection)
            self.gone(connection, line)
            self.perform(self.hub.disconnect(connection, self.now))

    @precondition(lambda self: self.closed)
    @rule(data=st.data(), what=st.sampled_from(("close", "text", "binary", "request")))
    def echo(self, data: st.DataObject, what: str) -> None:
        """Something arrives late from a connection that the hub has closed."""
        connection = data.draw(st.sampled_from(sorted(self.closed)))
        if what == "close":
            self.closed.discard(connection)
            effects = self.hub.disconnect(connection, self.now)
        elif what == "binary":
            effects = self.hub.binary(connection, self.now)
        else:
            effects = self.hub.receive(connection, codec.encode(request()), self.now)
        self.perform(effects)

    # --- callers

    @rule(
        data=st.data(),
        correlation=st.integers(1, 3),
        message=st.sampled_from((None, 1, 2, 3, 4, 5, 6)),
        variant=st.sampled_from((0, 0, 0, 0, 1)),
        durable=st.sampled_from((False, False, False, False, True)),
    )
    def ask(
        self, data: st.DataObject, correlation: int, message: int | None, variant: int, durable: bool
    ) -> None:
        """A request, new or repeated, proper or not."""
        self.request(self.free_line(data, "caller"), correlation, message, variant, durable)

    @rule(data=st.data(), message=st.integers(1, 9))
    def ask_properly(self, data: st.DataObject, message: int) -> None:
        """A request of a caller that behaves."""
        self.request(self.free_line(data, "caller"), 0, message, 0, False)

    @rule(data=st.data())
    def ask_anew(self, data: st.DataObject) -> None:
        """A request that is nobody's repeat."""
        self.fresh += 1
        self.request(self.free_line(data, "caller"), 0, self.fresh, 0, False)

    @precondition(lambda self: self.by_key)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        """A repeat, on whichever connection the caller has now."""
        caller, callee, message = data.draw(st.sampled_from(sorted(self.by_key)[-8:]))
        key = ("caller", caller, callee)
        lines = [c for c, line in self.lines.items() if (line.role, line.handle, line.target) == key]
        if lines:
            self.request(data.draw(st.sampled_from(lines)), 0, int(message, 16), 0, False)

    def request(
        self, connection: int | None, correlation: int, message: int | None, variant: int, durable: bool
    ) -> None:
        if connection is None:
            return
        line = self.lines[connection]
        # A message usually belongs to one conversation.
        if message is not None and variant == 0:
            correlation = message % 3 + 1
        sealed = envelope(ct=f"variant{variant}", life=500_000)
        mode: DeliveryMode | None = "durable" if durable and message is not None else None
        frame = request(correlation, message, sealed=sealed, mode=mode)
        self.catch_up()
        if connection not in self.lines:
            return
        before = self.of_message(line, message)
        if before is not None and self.calls[before].ended:
            line.owed[before] += self.calls[before].ask == frame
        known, repeats = len(self.calls), self.hub.snapshot().get("repeated", 0)
        effects = self.hub.receive(connection, codec.encode(frame), self.now)
        self.perform(effects, asking=(connection, frame))
        call_id = f"call-{len(self.calls)}" if len(self.calls) > known else before
        if call_id is None or self.calls[call_id].ended:
            return
        # A repeat is refused, too, while another message of its correlation id waits for an answer.
        if call_id == before and self.hub.snapshot().get("repeated", 0) == repeats:
            return
        call = self.calls[call_id]
        if call.ask is None:
            call.ask = frame
        # Attached from the moment it was read, which its first status may be held back behind.
        if call.ask == frame and call_id not in line.attached:
            line.attached.add(call_id)
            line.owed[call_id] += 1

    def of_message(self, line: Line, message: int | None) -> str | None:
        if message is None:
            return None
        return self.by_key.get((line.handle, line.target, number(message)))

    @precondition(lambda self: any(not call.ended for call in self.calls.values()))
    @rule(data=st.data())
    def change_of_mind(self, data: st.DataObject) -> None:
        """A caller cancels a call that runs, on any of its connections."""
        running = sorted(name for name, call in self.calls.items() if not call.ended)
        call_id = data.draw(st.sampled_from(running))
        for connection, line in self.lines.items():
            if line.role == "caller" and line.handle == self.calls[call_id].caller:
                line.asked.add(call_id)
                self.perform(self.hub.receive(connection, codec.encode(cancel(call_id)), self.now))
                return

    @precondition(lambda self: any(call.asked and not call.ended for call in self.calls.values()))
    @rule(data=st.data(), word=st.sampled_from(("cancelled", "not_cancelled", "completed")))
    def answer_a_cancel(self, data: st.DataObject, word: str) -> None:
        """A listener that was asked to stop answers."""
        asked = [c for c in self.calls.values() if c.asked and not c.ended]
        holders = {self.holder.get((c.callee, c.instance)) for c in asked}
        connections = sorted(connection for connection in holders if connection is not None)
        if connections:
            self.say(data, data.draw(st.sampled_from(connections)), word, stray=False)

    @rule(data=st.data(), http=st.booleans(), made_up=st.sampled_from((False, False, False, True)))
    def ask_to_cancel(self, data: st.DataObject, http: bool, made_up: bool) -> None:
        """A cancel request, by anybody for any call."""
        names = sorted(self.calls)[-6:]
        call_id = "no-such-call" if made_up or not names else data.draw(st.sampled_from(names))
        call = self.calls.get(call_id)
        if http:
            caller = data.draw(st.sampled_from(CALLERS))
            number_ = next(self.requests)
            self.waiting[number_] = self.now.mono + BOUNDS["CANCEL_WAIT_MS"]
            effects = self.hub.cancel(caller, call_id, number_, self.now)
            if call is None or call.caller != caller:
                assert effects[-1] == Decided(number_, CancelAnswer.MISSING)
            self.perform(effects)
            return
        connection = self.free_line(data, "caller")
        if connection is not None:
            self.lines[connection].asked.add(call_id)
            self.perform(self.hub.receive(connection, codec.encode(cancel(call_id)), self.now))

    # --- listeners

    @rule(
        data=st.data(),
        word=st.sampled_from(
            ("accepted", "started", "started", "completed", "failed", "lost", "illegal", "rejected")
            + ("cancelled", "cancelled", "not_cancelled", "leased")
        ),
        stray=st.sampled_from((False, False, False, False, True)),
    )
    def report(self, data: st.DataObject, word: str, stray: bool) -> None:
        """A listener says something of a call: usually one in its hands, sometimes any."""
        self.say(data, self.free_line(data, "listener"), word, stray=stray)

    @precondition(lambda self: any(not call.ended for call in self.calls.values()))
    @rule(
        data=st.data(),
        word=st.sampled_from(("accepted", "started", "started", "completed", "completed", "failed")),
    )
    def work(self, data: st.DataObject, word: str) -> None:
        """A listener that has a call says something of it."""
        holders = {self.holder.get((c.callee, c.instance)) for c in self.calls.values() if not c.ended}
        connections = sorted(connection for connection in holders if connection is not None)
        if connections:
            self.say(data, data.draw(st.sampled_from(connections)), word, stray=False)

    def say(self, data: st.DataObject, connection: int | None, word: str, *, stray: bool) -> None:
        if connection is None:
            return
        line = self.lines[connection]
        key = (line.handle, line.instance)
        own = [name for name, call in self.calls.items() if (call.callee, call.instance) == key]
        running = [name for name in own if not self.calls[name].ended]
        names = (sorted(self.calls)[-6:] if stray else running or own[-2:]) or ["no-such-call"]
        call_id = data.draw(st.sampled_from(names))
        frames: dict[str, ListenerToRelay] = {
            "accepted": accepted(call_id),
            "started": started(call_id),
            "completed": outcome(call_id),
            "failed": outcome(call_id, "failed"),
            "lost": outcome(call_id, "failed", "indeterminate_execution"),
            "illegal": outcome(call_id, "completed", "canceled"),
            "rejected": rejected(call_id),
            "cancelled": cancelled(call_id),
            "not_cancelled": not_cancelled(call_id),
            "leased": started(call_id, LEASE),
        }
        call = self.calls.get(call_id)
        self.catch_up()
        # What is due may just have cost it the call, or its connection.
        hands = call is not None and not call.ended and call_id in own and connection in self.lines
        if hands and call is not None:
            call.answered |= word in ("accepted", "started")
            call.began |= word == "started"
            call.claimed |= word in ("completed", "failed", "lost")
            call.confirmed |= word == "cancelled" and call.asked
        effects = self.hub.receive(connection, codec.encode(frames[word]), self.now)
        self.perform(effects)
        if not hands and connection in self.lines:
            self.check_stray(connection, call_id, word, effects)

    def check_stray(self, connection: int, call_id: str, word: str, effects: list[Effect]) -> None:
        if word in ("cancelled", "not_cancelled"):
            assert effects == []
        elif word == "leased":
            assert len(effects) == 1
        else:
            assert effects == [Send(connection, cancel(call_id))]

    @rule(data=st.data(), role=st.sampled_from(("caller", "listener")), binary=st.booleans())
    def babble(self, data: st.DataObject, role: str, binary: bool) -> None:
        """Something that is no frame."""
        connection = self.free_line(data, role)
        if connection is not None:
            if binary:
                effects = self.hub.binary(connection, self.now)
            else:
                effects = self.hub.receive(connection, b'{"type":"hello"}', self.now)
            self.perform(effects)

    # --- the world

    @rule(caller=st.sampled_from(CALLERS), callee=st.sampled_from(("bob", "dan", "dan")))
    def change_policy(self, caller: str, callee: str) -> None:
        """A callee lets a caller in, or no longer."""
        self.register.unreachable ^= {(caller, callee)}

    @rule(
        handle=st.sampled_from(CALLERS), card=st.sampled_from((CARD, OLD_CARD, OLD_CARD)), gone=st.booleans()
    )
    def end_log_ins(self, handle: str, card: str, gone: bool) -> None:
        """A card is revoked, or no longer logs in."""
        end = self.hub.revoke if gone else self.hub.close_card
        effects = end(handle, card, self.now)
        self.perform(effects)
        held = [c for c, line in self.lines.items() if (line.handle, line.card) == (handle, card)]
        assert all(self.lines[c].waits for c in held), "still open"

    @rule(ms=st.sampled_from((0, 1, 2, 5, 9, 10, 11, 20, 25, 29, 30, 40, 120, 300)))
    def wait(self, ms: int) -> None:
        """Time passes, and the edge ticks when it is asked to."""
        end = self.now.mono + ms
        while (due := self.hub.deadline()) is not None and due <= end:
            self.now = self.now.later(max(0, due - self.now.mono))
            self.perform(self.hub.tick(self.now))
        self.now = self.now.later(end - self.now.mono)

    @rule(ms=st.sampled_from((1, 2, 3, 10, 30, 40)))
    def oversleep(self, ms: int) -> None:
        """Time passes without a tick: what is due happens before whatever comes next."""
        self.now = self.now.later(ms)
        self.catch_up()

    @rule(step=st.integers(-1_000, 1_000))
    def step_the_wall_clock(self, step: int) -> None:
        """The wall clock is set; nothing that is measured in durations may care."""
        self.now = Instant(max(START.wall + 1, self.now.wall + step), self.now.mono)

    def catch_up(self) -> None:
        self.perform(self.hub.tick(self.now))

    @precondition(lambda self: not self.draining)
    @rule(sure=st.integers(0, 19))
    def stop(self, sure: int) -> None:
        """The relay stops, now and then."""
        if sure == 0:
            self.draining = True
            self.drain_until = self.now.mono + BOUNDS["DRAIN_BOUND_MS"]
            self.perform(self.hub.drain(self.now))

    # --- what always holds

    @invariant()
    def every_call_ends_in_time(self) -> None:
        """Nothing is open beyond its bounds, once what is due has happened."""
        self.catch_up()
        now = self.now.mono
        for call_id, call in self.calls.items():
            if call.ended:
                continue
            assert now < call.at + BOUNDS["CALL_BOUND_MS"], "beyond the call bound"
            assert call.answered or now < call.at + BOUNDS["RING_BOUND_MS"], "beyond the ring bound"
            lost = self.lost_at.get((call.callee, call.instance))
            assert lost is None or now < lost + BOUNDS["GRACE_MS"], "beyond the grace"
            if any(call_id in line.attached for line in self.lines.values()):
                self.unattended.pop(call_id, None)
            else:
                since = self.unattended.setdefault(call_id, now)
                if now >= since + BOUNDS["HOLD_MS"] and (call.callee, call.instance) in self.holder:
                    assert call.asked, "abandoned, and its listener was not told"
        if self.draining and now >= self.drain_until:
            assert self.hub.drained()
            assert not self.lines

    @invariant()
    def every_attached_connection_has_heard_the_end(self) -> None:
        """Exactly one terminal frame for each connection that was attached when its call ended."""
        for line in self.lines.values():
            if line.waits:
                continue  # held back behind an answer that is not due
            for call_id in line.attached:
                if self.calls[call_id].ended:
                    assert line.ends[call_id] >= 1, "an end was not told"

    @invariant()
    def every_request_is_answered(self) -> None:
        """At once, or on the timer of unknown handles."""
        for line in self.lines.values():
            assert all(self.now.mono < due for due in line.waits.values()), "a request was not answered"

    @invariant()
    def every_http_cancel_is_answered(self) -> None:
        """Within the wait."""
        assert all(self.now.mono < due for due in self.waiting.values())

    @invariant()
    def the_hubs_own_books_agree(self) -> None:
        """Its present numbers are those that the machine has counted."""
        seen = self.hub.snapshot()
        unfinished = [call_id for call_id, call in self.calls.items() if not call.ended]
        assert seen["now_calls"] == len(unfinished)
        assert seen["now_records"] <= BOUNDS["RECORDS"]
        assert seen["now_outcome_bytes"] <= BOUNDS["RECORD_OUTCOME_BYTES"]
        for call_id in unfinished:
            call = self.calls[call_id]
            record = self.hub.record(call.caller, call_id, self.now)
            assert record is not None
            assert record.state in ("ringing", "accepted", "started")
            assert (record.state != "ringing") == call.answered
        desks: dict[str, Any] = self.hub._presence._desks
        for handle, desk in desks.items():
            assert desk.places == sum(self.capacity[key] for key in self.holder if key[0] == handle)
            held = sum(self.calls[call_id].callee == handle for call_id in unfinished)
            assert sum(desk.taken_by.values()) == held
        assert set(desks) >= {handle for handle, _ in self.holder}

    def teardown(self) -> None:
        """When faults cease, everything ends and nothing is left."""
        if not hasattr(self, "hub"):
            return
        for connection in sorted(self.lines):
            line = self.lines.pop(connection)
            self.gone(connection, line)
            self.perform(self.hub.disconnect(connection, self.now))
        self.wait(1_000)
        assert all(call.ended for call in self.calls.values())
        assert self.waiting == {}
        hub = self.hub
        assert hub.snapshot()["now_records"] == 0
        assert (len(hub._sessions), len(hub.timers) - self.draining) in ((0, 0), (0, -1))
        assert (hub._book._by_id, hub._book._by_key, hub._book._rolls) == ({}, {}, {})
        assert hub._presence._desks == {}
        askers = hub._cancellation._askers
        assert (askers._asked, askers._call_of) == ({}, {})


EXAMPLES = int(os.environ.get("RINGLINE_EXAMPLES", "25"))

TestHub = HubMachine.TestCase
TestHub.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50 if EXAMPLES <= 100 else 80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestHub = pytest.mark.slow(TestHub)
