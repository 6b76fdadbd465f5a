"""Many calls at once between the real cores: callers, a relay on a SQLite file, listeners with journals.

Time is simulated and runs as fast as the cores do. A chance draws the load: sync and durable calls,
cancellations, calls that nobody takes in time, broken connections, killed listeners and relays, log-ins that
are replaced. Sealing is left out, as nothing of it is kept: a ciphertext is the plain JSON.
"""

import hashlib
import itertools
import json
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Final, final

from ringline.caller import effects as asked
from ringline.caller.pending import Outgoing
from ringline.caller.session import CallerSession
from ringline.listener import effects as wanted
from ringline.protocol import codec
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import TransportError
from ringline.protocol.frames import CallOutcome, Frame
from ringline.protocol.lifecycle import FINAL
from ringline.relay.auth import TokenMemory
from ringline.relay.effects import Close, Effect, Send
from ringline.relay.sqlite_calls import SqliteCalls
from ringline_testing.exchange import Register, envelope, number, request
from ringline_testing.mail import Mail
from ringline_testing.parties import CallingParty, ListeningParty, Wire

__all__ = ["CALLERS", "LISTENERS", "Town"]

CALLERS: Final = ("alice", "carol")
LISTENERS: Final = ("bob", "dave")
MINUTE: Final = 60_000

_LOST: Final = TransportError("the connection was lost")
_FINAL: Final = {state.value for state in FINAL}
_STEP_MS: Final = 200
# What is remembered for a while is remembered for a minute, so that an hour shows what is never forgotten.
_SETTINGS: Final = {
    "CALLS_PER_HOUR": 100_000,
    "CALLS_PER_PAIR_PER_HOUR": 100_000,
    "BUDGET_WINDOW_MS": MINUTE,
    "TURN_WINDOW_MS": MINUTE,
    "AFFINITY_MS": MINUTE,
    "PARTY_LIFE_MS": MINUTE,
    "RECORD_LIFE_MS": MINUTE,
    "STORED_RECORD_LIFE_MS": MINUTE,
    "STARTS": 1_000_000,
    "STARTS_WINDOW_MS": MINUTE,
    "REBIND_MS": MINUTE,
    "STORED_CALLS": 0,
    "STORED_CALLS_PER_PAIR": 0,
}


@final
class Town:
    """All of them. `live` lets time pass, with new calls or without."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = SqliteCalls(str(folder / "relay.db"), now=lambda: self.mail.now.wall)
        self.mail = Mail(_SETTINGS, Register(durable=set(LISTENERS)), self.store)
        self.seen: Counter[str] = Counter()
        """What has happened, by a word."""
        self.deadly = True
        """Whether processes are killed now and then; what one never forgets adds up only while it lives."""
        self.listeners = {handle: ListeningParty(handle, folder) for handle in LISTENERS}
        self.callers = [CallingParty(one, other) for one in CALLERS for other in LISTENERS]
        self._wires: dict[int, Wire] = {}
        self._cards: Counter[str] = Counter()
        self._tokens = TokenMemory()
        self._collect_at = 0
        self._jtis = itertools.count(1)
        self._messages = itertools.count(1)
        self._requests = itertools.count(1)

    def close(self) -> None:
        """Let go of the files."""
        for listener in self.listeners.values():
            listener.shelf.close()
        self.store.close()

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return self.seen["sync calls"] + self.seen["durable calls"]

    def databases(self) -> dict[Path, sqlite3.Connection]:
        """Return the files, with the connections that write to them."""
        assert self.store._file.connection is not None
        found = {Path(self.store.path): self.store._file.connection}
        for listener in self.listeners.values():
            found[listener.shelf.path] = listener.shelf.journal()._file.connection
        return found

    def new_callers(self) -> None:
        """Let the processes of the callers end, which wait for nothing, and start the next."""
        for caller in self.callers:
            if caller.wire is not None:
                self._lose(caller.wire)
            caller.session = CallerSession()

    @property
    def mono(self) -> int:
        """The time, in ms."""
        return self.mail.now.mono

    @property
    def pending(self) -> int:
        """How many calls their callers still wait for."""
        return sum(len(caller.open) + len(caller.receipts) for caller in self.callers)

    # --- time

    def live(self, ms: int, *, calls_per_s: float) -> None:
        """Let this much time pass; ``calls_per_s`` new calls are made, and things go wrong meanwhile."""
        end = self.mono + ms
        while self.mono < end:
            if calls_per_s:
                self._load(calls_per_s * _STEP_MS / 1_000)
            self._dial()
            self._exchange()
            # Without load nothing comes between two timers.
            self._wait(_STEP_MS if calls_per_s or self.pending else MINUTE // 2)

    def _wait(self, ms: int) -> None:
        self._relay(self.mail.wait(ms))
        now = self.mail.now
        for caller in self.callers:
            due = caller.session.deadline()
            if due is not None and due <= now.mono:
                self._called(caller, caller.session.tick(now))
        for listener in self.listeners.values():
            for entry_id, (ends, stopped) in list(listener.jobs.items()):
                if ends <= now.mono:
                    del listener.jobs[entry_id]
                    result = wanted.Broken() if stopped else wanted.Produced("done " * 50)
                    done = listener.session.ended(entry_id, result, stopped=stopped, now=now)
                    self._listened(listener, done)
            if listener.session.deadline() <= now.mono:
                self._listened(listener, listener.session.tick(now))
        self._exchange()
        if self.mono >= self._collect_at:
            self._collect_at = self.mono + 2_000
            self._collect()

    # --- what a chance does

    def _load(self, expected: float) -> None:
        chance = self.chance
        for _ in range(int(expected) + (chance.random() < expected % 1)):
            self._call(chance.choice(self.callers))
        whole = [wire for wire in self._wires.values() if wire.owner.wire is wire]
        if whole and chance.random() < 0.02:
            self.seen["connections lost"] += 1
            self._lose(chance.choice(whole))
        if chance.random() < 0.04:
            self._cancel(chance.choice(self.callers))
        if self.deadly and chance.random() < 0.01:
            self._kill(chance.choice(list(self.listeners.values())))
        if self.deadly and chance.random() < 0.005:
            self._restart()
        if chance.random() < 0.01:
            self._rotate(chance.choice([*CALLERS, *LISTENERS]))

    def _call(self, caller: CallingParty) -> None:
        message, chance = next(self._messages), self.chance
        durable = chance.random() < 0.5
        life = chance.choice((2_000, 30_000, 90_000)) if durable else 60_000
        out = self._sealed(caller, message, life, durable=durable)
        self.seen["durable calls" if durable else "sync calls"] += 1
        caller.open[out.message_id] = out
        self._called(caller, caller.session.start(out, self.mail.now))

    def _sealed(self, caller: CallingParty, message: int, life: int, *, durable: bool) -> Outgoing:
        body = json.dumps({"message": f"{message} " * 40}).encode()
        sealed = envelope(
            sid=self._card(caller.handle), iat=self.mail.now.wall, life=life, ct=b64encode(body)
        )
        # A conversation now and then; most calls have one of their own.
        conversation = message - message % 10 if message % 3 == 0 else message
        frame = request(conversation, message, sealed=sealed, mode="durable" if durable else "sync")
        return Outgoing(
            message_id=number(message),
            correlation_id=frame.correlation_id,
            payload=codec.encode(frame),
            deadline=self.mono + self.chance.choice((3_000, 40_000)),
            durable_exp=sealed.exp if durable else None,
        )

    def _cancel(self, caller: CallingParty) -> None:
        if caller.receipts:
            self.seen["cancellations"] += 1
            call_id = self.chance.choice(list(caller.receipts.values()))
            asked_again = self.mail.hub.cancel(caller.handle, call_id, next(self._requests), self.mail.now)
            self._relay(self.mail.turn(asked_again))
        elif caller.open:
            self.seen["cancellations"] += 1
            message_id = self.chance.choice(list(caller.open))
            self._called(caller, caller.session.cancel(message_id, self.mail.now))

    def _kill(self, listener: ListeningParty) -> None:
        self.seen["listeners killed"] += 1
        if listener.wire is not None:
            self._lose(listener.wire)
        listener.jobs.clear()
        listener.shelf.crash()
        listener.boot += 1
        listener.start()
        # Long enough now and then for calls to expire.
        listener.dial_at = self.mono + self.chance.choice((500, 5_000, 60_000))

    def _restart(self) -> None:
        self.seen["relays killed"] += 1
        wires, self._wires = self._wires, {}
        self.mail.restart()
        for wire in wires.values():
            self._gone(wire)

    def _rotate(self, handle: str) -> None:
        """Replace the card of a handle; the log-ins under the one before end."""
        self.seen["log-ins replaced"] += 1
        before = self._card(handle)
        self._cards[handle] += 1
        self._relay(self.mail.turn(self.mail.hub.close_card(handle, before, self.mail.now)))

    def _card(self, handle: str) -> str:
        digest = hashlib.sha256(f"{handle}/{self._cards[handle]}".encode()).digest()
        return b64encode(digest)

    # --- connections

    def _dial(self) -> None:
        hub, now = self.mail.hub, self.mail.now
        for listener in self.listeners.values():
            if listener.wire is None and listener.dial_at <= now.mono:
                wire = self._wire(listener, listener.handle)
                listener.session.connected()
                instance, boot = listener.shelf.journal().instance, str(listener.boot)
                card = wire.card
                joined = hub.connect_listener(
                    wire.number, listener.handle, card, instance, boot, 8, True, now
                )
                self._relay(self.mail.turn(joined))
        for caller in self.callers:
            if caller.wire is None and caller.dial_at <= now.mono and not caller.session.idle:
                wire = self._wire(caller, caller.handle)
                self._relay(hub.connect_caller(wire.number, caller.handle, caller.callee, wire.card, now))
                self._called(caller, caller.session.opened(now))
            elif caller.wire is not None and caller.session.idle and self.chance.random() < 0.02:
                self._lose(caller.wire)

    def _wire(self, owner: CallingParty | ListeningParty, handle: str) -> Wire:
        now = self.mail.now
        # Every connection logs in with a token of its own.
        assert self._tokens.use(handle, f"jti-{next(self._jtis)}", now.wall // 1_000, now)
        wire = Wire(next(self.mail._connections), owner, self._card(handle))
        self._wires[wire.number] = owner.wire = wire
        return wire

    def _lose(self, wire: Wire) -> None:
        """Break a connection, with what is on its way; both ends see it."""
        del self._wires[wire.number]
        self._gone(wire)
        self._relay(self.mail.lose(wire.number))

    def _gone(self, wire: Wire) -> None:
        owner, now = wire.owner, self.mail.now
        if owner.wire is not wire:
            return
        owner.wire = None
        owner.dial_at = now.mono + self.chance.choice((0, 0, 500, 3_000))
        if isinstance(owner, CallingParty):
            self._called(owner, owner.session.lost(_LOST, now))
        else:
            owner.session.disconnected()

    def _exchange(self) -> None:
        """Let every frame arrive that is on its way, and those that follow."""
        busy = True
        while busy:
            busy = False
            for wire in list(self._wires.values()):
                while wire.up and wire.number in self._wires:
                    busy = True
                    received = self.mail.hub.receive(wire.number, wire.up.popleft(), self.mail.now)
                    self._relay(self.mail.turn(received))
                while wire.down and wire.owner.wire is wire:
                    busy = True
                    self._arrive(wire, codec.encode(wire.down.popleft()))

    def _arrive(self, wire: Wire, payload: bytes) -> None:
        owner, now = wire.owner, self.mail.now
        if isinstance(owner, CallingParty):
            read = codec.decode(payload, "relay_to_caller")
            self._called(owner, owner.session.receive(read, now))
        else:
            heard = codec.decode(payload, "relay_to_listener")
            self._listened(owner, owner.session.received(heard, now))

    # --- what the cores want done

    def _relay(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(connection, frame) if connection in self._wires:
                    self._wires[connection].down.append(frame)
                case Close(connection) if connection in self._wires:
                    wire = self._wires.pop(connection)
                    self._gone(wire)
                case _:
                    pass

    def _called(self, caller: CallingParty, effects: list[asked.Effect]) -> None:
        session, now = caller.session, self.mail.now
        for effect in effects:
            match effect:
                case asked.Send(payload) if caller.wire is not None:
                    caller.wire.up.append(payload)
                case asked.Cancel(frame) if caller.wire is not None:
                    caller.wire.up.append(codec.encode(frame))
                case asked.Lookup(message_id, call_id):
                    known = self.mail.hub.record(caller.handle, call_id, now) is not None
                    self._called(caller, session.looked_up(message_id, known, now))
                case asked.Open(message_id, frame):
                    json.loads(b64decode(frame.envelope.ct))
                    self._over(caller, message_id, "answered")
                    self._called(caller, session.opened_outcome(message_id))
                case asked.Reseal(message_id):
                    again = self._sealed(caller, int(message_id, 16), MINUTE, durable=False)
                    self._called(caller, session.resealed(message_id, again.payload))
                case asked.Queued(message_id, frame):
                    self._over(caller, message_id, "stored")
                    caller.receipts[message_id] = frame.call_id
                case asked.End(message_id, end):
                    self._over(caller, message_id, type(end).__name__)
                case _:
                    pass

    def _over(self, caller: CallingParty, message_id: str, how: str) -> None:
        if caller.open.pop(message_id, None) is not None:
            self.seen[how] += 1

    def _collect(self) -> None:
        """Fetch the ends of durable calls; most are acknowledged, and some callers never do."""
        hub, now = self.mail.hub, self.mail.now
        for caller in self.callers:
            for message_id, call_id in list(caller.receipts.items()):
                record = hub.record(caller.handle, call_id, now)
                if record is not None and record.state not in _FINAL:
                    continue
                del caller.receipts[message_id]
                self.seen["forgotten" if record is None else record.state] += 1
                if record is not None and self.chance.random() < 0.8:
                    hub.acknowledge(caller.handle, call_id, now)
        self._relay(self.mail.turn([]))

    def _listened(self, listener: ListeningParty, effects: list[wanted.Effect]) -> None:
        for effect in effects:
            match effect:
                case wanted.Send(frame):
                    self._say(listener, frame)
                case wanted.Tell(offer, end, lease_id):
                    assert end.json is not None
                    outcome = CallOutcome(
                        call_id=offer.call_id,
                        terminal=end.terminal,
                        terminal_reason=end.reason,
                        envelope=envelope(ct=b64encode(end.json)),
                        **({} if lease_id is None else {"lease_id": lease_id}),
                    )
                    self._say(listener, outcome)
                case wanted.Open(frame):
                    self._listened(listener, self._opened(listener, frame.call_id, frame.envelope.ct))
                case wanted.Run(job):
                    # Some of it runs until it is stopped.
                    ms = self.chance.choice((0, 100, 1_000, 4_000, 3_600_000))
                    listener.jobs[job.entry_id] = (self.mono + ms, False)
                case wanted.Stop(entry_id):
                    listener.jobs[entry_id] = (self.mono + 200, True)
                case wanted.Note():
                    pass

    def _opened(self, listener: ListeningParty, call_id: str, ct: str) -> list[wanted.Effect]:
        body = b64decode(ct)
        opened = wanted.Opened(
            from_ipk=b"a" * 32,
            own_ipk=b"o" * 32,
            digest=hashlib.sha256(body).digest(),
            suite=2,
            reply_public=b"r" * 1216,
            json=body,
        )
        return listener.session.opened(call_id, opened, self.mail.now)

    def _say(self, listener: ListeningParty, frame: Frame) -> None:
        if listener.wire is not None:
            listener.wire.up.append(codec.encode(frame))
