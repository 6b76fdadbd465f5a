"""A listener's session with its journal on disk, spoken to frame by frame, and what it answers as words.

The seal is left out: what `Open` would find is handed in as JSON. All else is the real thing.
"""

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, final

import msgspec
from msgspec import UNSET

from ringline.listener.effects import (
    Broken,
    Effect,
    Held,
    Job,
    Judge,
    Note,
    Open,
    Opened,
    Produced,
    Result,
    Run,
    Send,
    Stop,
    Tell,
    Unchecked,
)
from ringline.listener.session import Session
from ringline.protocol.bodies import Outcome, decode_outcome
from ringline.protocol.encoding import b64encode
from ringline.protocol.frames import (
    CallCancelled,
    CallNotCancelled,
    CallRejected,
    CallStarted,
    CancelCall,
    Envelope,
    IncomingCall,
)
from ringline.protocol.instant import Instant
from ringline_testing.journals import ALICE, NOW, Shelf

__all__ = ["CORRELATION", "Talk", "Task", "incoming", "lease", "message_id"]

CORRELATION: Final = "c" * 32
_KEY: Final = b64encode(b"k" * 32)


def message_id(number: int) -> str:
    """Return a message id."""
    return f"{number:032x}"


def incoming(
    call_id: str = "call-1",
    *,
    message: int | None = 1,
    caller: str = "alice",
    lease: str | None = None,
    execute_by: int | None = None,
    iat: int = NOW,
    exp: int = NOW + 600_000,
) -> IncomingCall:
    """Return an offer of a call; durable when ``lease`` is given."""
    return IncomingCall(
        call_id=call_id,
        from_=caller,
        envelope=Envelope(v=1, suite=2, kid=_KEY, sid=_KEY, iat=iat, exp=exp, ct="AA"),
        correlation_id=CORRELATION,
        message_id=UNSET if message is None else message_id(message),
        delivery_mode=UNSET if lease is None else "durable",
        lease_id=UNSET if lease is None else lease,
        execute_by=UNSET if lease is None else (execute_by or NOW + 3_600_000),
    )


def lease(number: int) -> str:
    """Return a lease id."""
    return f"00000000-0000-4000-8000-{number:012x}"


@final
@dataclass(frozen=True)
class Task:
    """A plan like those of the catalogue."""

    task: str | None = "default"
    converses: bool = True
    stoppable: bool = True


@final
@dataclass
class Talk:
    """One process of a listener: its journal, its session, its clock."""

    shelf: Shelf
    capacity: int = 2
    judge: Judge = lambda request, handle, call_id: Task()
    bound_ms: int = 300_000
    not_before: int | None = None
    now: Instant = field(default_factory=lambda: Instant(NOW, 1_000_000))
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    """Every job that was run, by the call id it was run for."""
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """The last outcome that was told to each call."""
    json: dict[str, bytes] = field(default_factory=dict[str, bytes])
    notes: list[str] = field(default_factory=list[str])
    contexts: Callable[[], str] = field(
        default_factory=lambda: (f"ctx_{n:022d}" for n in itertools.count(1)).__next__
    )

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.session = Session(
            self.shelf.journal(),
            self.judge,
            capacity=self.capacity,
            mint=self.contexts,
            bound_ms=self.bound_ms,
            not_before=self.not_before,
        )
        self.session.connected()

    def crash(self) -> None:
        """Let the process die, and start the next with a new connection."""
        self.shelf.crash()
        self._start()

    def restart(self) -> None:
        """Let the process end in an orderly way, and start the next."""
        self.shelf.reopen()
        self._start()

    def reconnect(self) -> None:
        """Lose the connection and make a new one."""
        self.session.disconnected()
        self.session.connected()

    def later(self, ms: int) -> list[str]:
        """Let time pass, and the timer fire as often as it is due."""
        self.now = self.now.later(ms)
        words: list[str] = []
        while self.now.mono >= self.session.deadline():
            words += self.words(self.session.tick(self.now))
        return words

    def offer(self, call_id: str = "call-1", **members: Any) -> list[str]:
        """Offer a call; what it leads to before it is opened."""
        return self.words(self.session.received(incoming(call_id, **members), self.now))

    def opened(
        self, call_id: str = "call-1", text: str = "hi", *, ipk: bytes = ALICE, key: int = 0, **members: Any
    ) -> list[str]:
        """Report that the call was opened and says this; ``key`` tells one sealing from another."""
        return self.sealed(call_id, json.dumps({"message": text, **members}).encode(), ipk=ipk, key=key)

    def sealed(self, call_id: str, body: bytes, *, ipk: bytes = ALICE, key: int = 0) -> list[str]:
        """Report that the call was opened and this was in it."""
        opened = Opened(
            from_ipk=ipk,
            own_ipk=b"o" * 32,
            digest=hashlib.sha256(body + bytes([key])).digest(),
            suite=2,
            reply_public=call_id.encode().ljust(1216, b"r"),
            json=body,
        )
        return self.words(self.session.opened(call_id, opened, self.now))

    def refused(self, call_id: str = "call-1") -> list[str]:
        """Report that the call could not be opened."""
        return self.words(self.session.opened(call_id, None, self.now))

    def unchecked(self, call_id: str = "call-1") -> list[str]:
        """Report that the call could not be checked at this moment."""
        return self.words(self.session.opened(call_id, Unchecked(), self.now))

    def hold(self, call_id: str = "call-1") -> list[str]:
        """Report that the call waits for its owner's word."""
        return self.words(self.session.opened(call_id, Held(), self.now))

    def reopen(self, call_id: str = "call-1") -> list[str]:
        """Have the owner decide on a call that waited."""
        return self.words(self.session.reopen(call_id, self.now))

    def call(
        self, call_id: str = "call-1", text: str = "hi", *, say: dict[str, Any] | None = None, **frame: Any
    ) -> list[str]:
        """Offer a call and open it at once; ``say`` are further members of its request."""
        words = self.offer(call_id, **frame)
        if words != [f"open {call_id}"]:
            return words
        return self.opened(call_id, text, **(say or {}))

    def cancel(self, call_id: str = "call-1", *, lease: str | None = None) -> list[str]:
        """Have the relay ask for a cancellation."""
        frame = CancelCall(call_id=call_id, lease_id=UNSET if lease is None else lease)
        return self.words(self.session.received(frame, self.now))

    def grant(self, call_id: str = "call-1", *, lease: str | None = None) -> list[str]:
        """Have the relay grant a start."""
        frame = CallStarted(call_id=call_id, lease_id=UNSET if lease is None else lease)
        return self.words(self.session.received(frame, self.now))

    def refuse_lease(self, call_id: str = "call-1", *, lease: str | None = None) -> list[str]:
        """Have the relay refuse a lease."""
        frame = CallRejected(
            call_id=call_id, code="protocol_error", lease_id=UNSET if lease is None else lease
        )
        return self.words(self.session.received(frame, self.now))

    def done(
        self, call_id: str = "call-1", result: Result | None = None, *, stopped: bool = False
    ) -> list[str]:
        """Report that the work that was run for a call has ended."""
        entry_id = self.jobs[call_id].entry_id
        came_to = Produced("done") if result is None else result
        return self.words(self.session.ended(entry_id, came_to, stopped=stopped, now=self.now))

    def broke(self, call_id: str = "call-1", *, stopped: bool = False) -> list[str]:
        """Report that the work has failed, or was seen to stop."""
        return self.done(call_id, Broken(), stopped=stopped)

    def stop(self) -> list[str]:
        """Stop the listener now."""
        return self.words(self.session.stop(self.now))

    def words(self, effects: list[Effect]) -> list[str]:
        """Return what was done, one line each, and remember jobs, outcomes and notes."""
        lines: list[str] = []
        for effect in effects:
            match effect:
                case Send(frame):
                    kind = str(msgspec.to_builtins(frame)["type"]).removeprefix("call_")
                    lines.append(" ".join([kind, frame.call_id, *_extra(frame), *_lease(frame.lease_id)]))
                case Tell(offer, end, lease_id):
                    assert end.json is not None
                    outcome = decode_outcome(end.json, end.terminal)
                    self.outcomes[offer.call_id], self.json[offer.call_id] = outcome, end.json
                    word = "reply" if outcome.failure is UNSET else outcome.failure.code
                    reason = ["?"] if outcome.reason == "indeterminate_execution" else []
                    lines.append(" ".join(["outcome", offer.call_id, word, *reason, *_lease(lease_id)]))
                case Open(frame):
                    lines.append(f"open {frame.call_id}")
                case Run(job):
                    self.jobs[job.offer.call_id] = job
                    lines.append(f"run {job.offer.call_id}")
                case Stop(entry_id, at_once):
                    names = {job.entry_id: call_id for call_id, job in self.jobs.items()}
                    lines.append(f"stop {names[entry_id]}{' now' if at_once else ''}")
                case Note(text):
                    self.notes.append(text)
        return lines


def _extra(frame: object) -> list[str]:
    if isinstance(frame, CallCancelled):
        return [frame.phase]
    if isinstance(frame, CallNotCancelled):
        return [frame.reason]
    return []


def _lease(lease_id: object) -> list[str]:
    return [] if lease_id in (None, UNSET) else [f"under {int(str(lease_id)[-12:], 16)}"]
