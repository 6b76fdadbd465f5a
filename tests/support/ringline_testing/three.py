"""The cores of caller, relay and listener, each the real one, and connections that lose what is on its way.

Nothing happens by itself: a chance draws what happens next, from what can happen. A connection keeps the
order of its frames and loses those on the way when it breaks; each end learns of that in its own time, and
frames of an old connection may arrive after the next one stands. Sealing is left out: a ciphertext is the
plain JSON.
"""

import hashlib
import itertools
import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, final

from ringline.caller import effects as asked
from ringline.caller.pending import Outgoing
from ringline.caller.session import CallerSession
from ringline.listener import effects as wanted
from ringline.listener.entries import Entry
from ringline.listener.session import Session
from ringline.protocol import codec
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import TransportError
from ringline.protocol.frames import CallError, CallOutcome, Frame, IncomingCall
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import FINAL
from ringline.relay.effects import Close, Decided, Effect, Retire, Send
from ringline_testing.exchange import CARD, envelope, number, request
from ringline_testing.journals import Shelf
from ringline_testing.mail import HOUR, Mail
from ringline_testing.talk import Task

__all__ = ["Three", "Wire"]

_CORRELATION: Final = number(1)
_REQUEST: Final = json.dumps({"message": "hi"}).encode()
_LOST: Final = TransportError("the connection was lost")


def _judge(*asked: object) -> Task:
    """Work on everything."""
    return Task()


@final
@dataclass(eq=False)
class Wire:
    """One connection of a caller or listener; ``up`` leads to the relay."""

    number: int
    role: Literal["caller", "listener"]
    up: deque[bytes] = field(default_factory=deque[bytes])
    down: deque[Frame] = field(default_factory=deque[Frame])
    broken: bool = False
    client_knows: bool = False
    relay_knows: bool = False

    def cut(self) -> None:
        """Lose what is on its way to the client; what is on its way to the relay may still arrive."""
        self.broken = True
        self.down.clear()


@final
class Three:
    """One call of alice to bob, in all three of them. ``durable`` or sync."""

    def __init__(self, chance: random.Random, shelf: Shelf, message: int, *, durable: bool) -> None:
        """``message`` numbers the call: no two of one journal may have the same."""
        self.chance = chance
        self.shelf = shelf
        self.message_id = number(message)
        self.durable = durable
        self.mail = Mail({"BACK_OFF_MS": 10})
        # The journal may know of other relays' calls.
        self.mail._ids = (f"call-{message}-{n}" for n in itertools.count(1))
        self.mail.restart()
        self.wires: list[Wire] = []
        self.deeds: list[tuple[str, object]] = []
        """What happened, to be read when the three do not agree."""
        self.caller = CallerSession()
        self.caller_wire: Wire | None = None
        self.listener_wire: Wire | None = None
        self.jobs: dict[int, bool] = {}
        """What runs in the listener, by entry; True when it was asked to stop."""
        self.runs = 0
        self.seen_to_stop = False
        self.openings: deque[str] = deque()
        self.outcomes: deque[CallOutcome] = deque()
        self.lookups: deque[str] = deque()
        self.call_id: str | None = None
        self.ends: list[asked.Ended | str] = []
        """What the caller came to: an end, or the text of an outcome that it opened."""
        self.answers: list[str] = []
        """What the caller was told of its requests to cancel."""
        self.words: set[str] = set()
        """The ends that connections of the caller were told."""
        self.retired = 0
        self._contexts = (f"ctx_{message:011d}{n:011d}" for n in itertools.count(1))
        self.listener = self._listener()
        self._requests = itertools.count(1)
        self._boot = 0
        self.connect("caller")
        self.connect("listener")
        self._send_request()

    @property
    def now(self) -> Instant:
        """The time, of all three."""
        return self.mail.now

    def _listener(self) -> Session:
        return Session(
            self.shelf.journal(),
            _judge,
            capacity=2,
            mint=self._contexts.__next__,
        )

    def story(self) -> str:
        """Return what happened, a line each."""
        return "\n".join(f"{who} {what}"[:200] for who, what in self.deeds)

    def entry(self) -> Entry | None:
        """Return what the journal has of the call."""
        return None if self.call_id is None else self.shelf.journal().find(self.call_id)

    # --- connections

    def connect(self, role: Literal["caller", "listener"]) -> None:
        """Make a new connection, and have its client know."""
        connection = next(self.mail._connections)
        wire = Wire(connection, role)
        self.wires.append(wire)
        if role == "caller":
            self.caller_wire = wire
            self._hub(self.mail.hub.connect_caller(connection, "alice", "bob", CARD, self.now))
            self._caller(self.caller.opened(self.now))
        else:
            self.listener_wire = wire
            self.listener.connected()
            boot, hub = str(self._boot), self.mail.hub
            self._hub(hub.connect_listener(connection, "bob", CARD, "one", boot, 2, True, self.now))

    def client_learns(self, wire: Wire) -> None:
        """The client sees that its connection is gone."""
        wire.client_knows = True
        if wire is self.caller_wire:
            self.caller_wire = None
            self._caller(self.caller.lost(_LOST, self.now))
        elif wire is self.listener_wire:
            self.listener_wire = None
            self.listener.disconnected()

    def relay_learns(self, wire: Wire) -> None:
        """The relay sees that a connection is gone."""
        wire.relay_knows = True
        wire.up.clear()
        self._hub(self.mail.hub.disconnect(wire.number, self.now))

    def restart_relay(self) -> None:
        """Kill the relay, and with it every connection and whatever it has not committed."""
        for wire in self.wires:
            wire.cut()
            wire.up.clear()
            wire.relay_knows = True
        self.mail.restart()

    def kill_listener(self) -> None:
        """Kill the listener's process; its journal stays, and what it ran is gone."""
        wire = self.listener_wire
        if wire is not None:
            wire.cut()
            wire.client_knows = True
            self.listener_wire = None
        self.shelf.crash()
        self._boot += 1
        self.listener = self._listener()
        self.jobs.clear()
        self.openings.clear()

    # --- the caller

    def _send_request(self) -> None:
        life = HOUR if self.durable else 60_000
        sealed = envelope(iat=self.now.wall, life=life, ct=b64encode(_REQUEST))
        frame = request(
            1, int(self.message_id, 16), sealed=sealed, mode="durable" if self.durable else "sync"
        )
        out = Outgoing(
            message_id=self.message_id,
            correlation_id=_CORRELATION,
            payload=codec.encode(frame),
            deadline=self.now.mono + HOUR,
            durable_exp=sealed.exp if self.durable else None,
        )
        self._caller(self.caller.start(out, self.now))

    def cancel(self) -> None:
        """Ask for the cancellation: on the connection, or of a durable call over HTTP."""
        if not self.durable:
            if self.caller.knows(self.message_id):
                self._caller(self.caller.cancel(self.message_id, self.now))
        elif self.call_id is not None:
            hub = self.mail.hub
            self._hub(hub.cancel("alice", self.call_id, next(self._requests), self.now))

    def _caller(self, effects: list[asked.Effect]) -> None:
        for effect in effects:
            self.deeds.append(("caller", effect))
            match effect:
                case asked.Send(payload) if self.caller_wire is not None:
                    self.caller_wire.up.append(payload)
                case asked.Cancel(frame) if self.caller_wire is not None:
                    self.caller_wire.up.append(codec.encode(frame))
                case asked.Learned(_, call_id):
                    assert self.call_id in (None, call_id), "one message, two calls"
                    self.call_id = call_id
                case asked.Lookup(_, call_id):
                    self.lookups.append(call_id)
                case asked.Open(_, frame):
                    self.outcomes.append(frame)
                case asked.Decided(_, answer):
                    self.answers.append(answer)
                case asked.End(_, end):
                    self.ends.append(end)
                case _:
                    assert not isinstance(effect, asked.Reseal), (
                        "a relay's restart is met by a sent call only"
                    )

    def open_outcome(self) -> None:
        """Open an outcome that arrived, and keep it."""
        frame = self.outcomes.popleft()
        text = b64decode(frame.envelope.ct).decode()
        # RL-ENVELOPE-039: the first one is kept, and any other must be the same.
        assert text in self.ends or self.caller.knows(self.message_id)
        if text not in self.ends:
            self.ends.append(text)
        self._caller(self.caller.opened_outcome(self.message_id))

    def look_up(self) -> None:
        """Ask the relay over HTTP whether it knows the call."""
        call_id = self.lookups.popleft()
        known = self.mail.hub.record("alice", call_id, self.now) is not None
        self._caller(self.caller.looked_up(self.message_id, known, self.now))

    # --- the relay

    def commit(self) -> None:
        """End the relay's turn."""
        self._hub(self.mail.hub.commit(self.now))

    def _hub(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.deeds.append(("relay", effect))
            match effect:
                case Send(connection, frame):
                    wire = next(wire for wire in self.wires if wire.number == connection)
                    if not wire.broken:
                        wire.down.append(frame)
                case Close(connection):
                    wire = next(wire for wire in self.wires if wire.number == connection)
                    wire.cut()
                    wire.up.clear()
                    wire.relay_knows = True
                case Decided(_, answer):
                    self.answers.append(answer.value)
                case Retire():
                    self.retired += 1

    # --- the listener

    def _listen(self, effects: list[wanted.Effect]) -> None:
        for effect in effects:
            self.deeds.append(("listener", effect))
            match effect:
                case wanted.Send(frame):
                    self._say(frame)
                case wanted.Tell(offer, end, lease_id):
                    assert end.json is not None
                    self._say(
                        CallOutcome(
                            call_id=offer.call_id,
                            terminal=end.terminal,
                            terminal_reason=end.reason,
                            envelope=envelope(ct=b64encode(end.json)),
                            **({} if lease_id is None else {"lease_id": lease_id}),
                        )
                    )
                case wanted.Open(frame):
                    self.openings.append(frame.call_id)
                case wanted.Run(job):
                    self.runs += 1
                    self.jobs[job.entry_id] = False
                case wanted.Stop(entry_id):
                    self.jobs[entry_id] = True
                case wanted.Note():
                    pass

    def _say(self, frame: Frame) -> None:
        if self.listener_wire is not None:
            self.listener_wire.up.append(codec.encode(frame))

    def open_request(self) -> None:
        """Open a call that was offered."""
        call_id = self.openings.popleft()
        opened = wanted.Opened(
            from_ipk=b"a" * 32,
            own_ipk=b"b" * 32,
            digest=hashlib.sha256(_REQUEST).digest(),
            suite=2,
            reply_public=b"r" * 1216,
            json=_REQUEST,
        )
        self._listen(self.listener.opened(call_id, opened, self.now))

    def end_work(self) -> None:
        """What runs ends: by itself, or seen to stop if it was asked to."""
        entry_id, stopping = self.jobs.popitem()
        stopped = stopping and self.chance.random() < 0.7
        self.seen_to_stop = self.seen_to_stop or stopped
        result = wanted.Broken() if stopped or self.chance.random() < 0.2 else wanted.Produced("done")
        self._listen(self.listener.ended(entry_id, result, stopped=stopped, now=self.now))

    # --- frames and time

    def arrive_up(self, wire: Wire) -> None:
        """The relay reads one frame."""
        self._hub(self.mail.hub.receive(wire.number, wire.up.popleft(), self.now))

    def arrive_down(self, wire: Wire) -> None:
        """A client reads one frame."""
        frame = wire.down.popleft()
        if wire is self.caller_wire:
            read = codec.decode(codec.encode(frame), "relay_to_caller")
            self._told(read)
            self._caller(self.caller.receive(read, self.now))
        elif wire is self.listener_wire:
            heard = codec.decode(codec.encode(frame), "relay_to_listener")
            if isinstance(heard, IncomingCall):
                self.call_id = self.call_id or heard.call_id
            self._listen(self.listener.received(heard, self.now))

    def _told(self, frame: Frame) -> None:
        if isinstance(frame, CallOutcome):
            self.words.add(frame.terminal)
        elif isinstance(frame, CallError) and isinstance(frame.call_id, str):
            self.words.add(frame.code)

    def pass_time(self, ms: int) -> None:
        """Let time pass for all three, each with its timers."""
        end = self.now.mono + ms
        while True:
            dues: list[tuple[int | None, Callable[[], None]]] = [
                (self.mail.hub.deadline(), lambda: self._hub(self.mail.hub.tick(self.now))),
                (self.caller.deadline(), lambda: self._caller(self.caller.tick(self.now))),
                (self.listener.deadline(), lambda: self._listen(self.listener.tick(self.now))),
            ]
            known = [(due, tick) for due, tick in dues if due is not None and due <= end]
            if not known:
                break
            due, tick = min(known, key=lambda each: each[0])
            self.mail.now = self.now.later(max(0, due - self.now.mono))
            tick()
            if self.mail.hub.unsaved:
                self.commit()
        self.mail.now = self.now.later(end - self.now.mono)

    def can_happen(self) -> list[tuple[str, Callable[[], None]]]:
        """Return what may happen by itself now: frames that arrive, work that ends, losses that show."""
        found: list[tuple[str, Callable[[], None]]] = []
        for wire in self.wires:
            if wire.up and not wire.relay_knows:
                found.append((f"up {wire.number}", partial(self.arrive_up, wire)))
            if wire.down and not wire.client_knows:
                found.append((f"down {wire.number}", partial(self.arrive_down, wire)))
            if wire.broken and not wire.client_knows:
                found.append((f"client sees {wire.number} gone", partial(self.client_learns, wire)))
            if wire.broken and not wire.relay_knows:
                found.append((f"relay sees {wire.number} gone", partial(self.relay_learns, wire)))
        if self.mail.hub.unsaved:
            found.append(("commit", self.commit))
        if self.openings:
            found.append(("open request", self.open_request))
        if self.outcomes:
            found.append(("open outcome", self.open_outcome))
        if self.lookups:
            found.append(("look up", self.look_up))
        if self.jobs:
            found.append(("work ends", self.end_work))
        if self.caller_wire is None:
            found.append(("caller connects", partial(self.connect, "caller")))
        if self.listener_wire is None:
            found.append(("listener connects", partial(self.connect, "listener")))
        return found

    def happen(self, name: str, deed: Callable[[], None]) -> None:
        """Let something happen."""
        self.deeds.append(("-", name))
        deed()

    def settle(self) -> None:
        """Let everything happen that can, and time pass where nothing can, until the call is over for all."""
        for _ in range(400):
            able = self.can_happen()
            if able:
                self.happen(*self.chance.choice(able))
            elif self.over():
                return
            else:
                self.happen("time passes", lambda: self.pass_time(1_000))
        raise AssertionError("it never ends")

    def over(self) -> bool:
        """True when the relay's record has an end and the caller waits for nothing."""
        return self.caller.idle and (self.state() in {None, *(state.value for state in FINAL)})

    def state(self) -> str | None:
        """Return the state of the relay's record, None without one; ``parked`` for one without an end."""
        # In a list, because looking at a record counts as sending its outcome.
        found = self.mail.hub.records("alice", "caller", None, None, 100, self.now).calls
        for record in found:
            if record.call_id == self.call_id:
                parked = record.state == "delivery_failed" and record.finished_at is None
                return "parked" if parked else record.state
        return None

    def fetched(self) -> Any:
        """Return the outcome of the record, as the caller fetches it over HTTP."""
        assert self.call_id is not None
        record = self.mail.hub.record("alice", self.call_id, self.now)
        return None if record is None else record.outcome
