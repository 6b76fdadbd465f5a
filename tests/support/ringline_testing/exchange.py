"""A relay's core with a clock of its own, and short words for what goes in and comes out of it.

Frames travel as bytes into the hub, as they do in the relay; what comes out is compared as effects.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from ringline.protocol import codec
from ringline.protocol.frames import (
    CallAccepted,
    CallCancelled,
    CallError,
    CallerToRelay,
    CallNotCancelled,
    CallOutcome,
    CallRejected,
    CallRequest,
    CallStarted,
    CallState,
    CallStatus,
    CancelCall,
    DeliveryMode,
    Envelope,
    IncomingCall,
    ListenerToRelay,
    NotCancelledReason,
    RelayCode,
    Terminal,
    TerminalReason,
)
from ringline.protocol.instant import Instant
from ringline.relay.call_store import CallStore
from ringline.relay.effects import Close, Effect, Send
from ringline.relay.hub import Hub
from ringline.relay.settings import Settings

__all__ = [
    "CARD",
    "LEASE",
    "OLD_CARD",
    "START",
    "Exchange",
    "Register",
    "accepted",
    "call_error",
    "cancel",
    "cancelled",
    "envelope",
    "incoming",
    "not_cancelled",
    "number",
    "outcome",
    "rejected",
    "request",
    "sent_to",
    "started",
    "status",
]

START = Instant(wall=1_790_000_000_000, mono=5_000)
CARD = "A" * 43
OLD_CARD = "B" * 42 + "A"
LEASE = "0f0e0d0c-0b0a-4908-8706-050403020100"


def number(value: int) -> str:
    """Return ``value`` as a message or correlation id."""
    return f"{value:032x}"


def envelope(
    *, sid: str = CARD, suite: int = 2, iat: int = START.wall + 1, life: int = 600_000, ct: str = "c2VhbGVk"
) -> Envelope:
    """Return a sealed text that nobody has sealed: the relay does not open it."""
    return Envelope(v=1, suite=suite, kid="K" * 42 + "A", sid=sid, iat=iat, exp=iat + life, ct=ct)


def request(
    correlation: int = 1,
    message: int | None = 1,
    *,
    sealed: Envelope | None = None,
    mode: DeliveryMode | None = None,
    traceparent: str | None = None,
) -> CallRequest:
    """Return a call request; ids are given as small numbers."""
    return CallRequest(
        envelope=envelope() if sealed is None else sealed,
        correlation_id=number(correlation),
        message_id=UNSET if message is None else number(message),
        delivery_mode=UNSET if mode is None else mode,
        traceparent=UNSET if traceparent is None else traceparent,
    )


def accepted(call_id: str, lease: str | None = None) -> CallAccepted:
    """Return the listener's word that it has the call."""
    return CallAccepted(call_id=call_id, lease_id=UNSET if lease is None else lease)


def started(call_id: str, lease: str | None = None) -> CallStarted:
    """Return the listener's word that it has begun."""
    return CallStarted(call_id=call_id, lease_id=UNSET if lease is None else lease)


def outcome(
    call_id: str,
    terminal: Terminal = "completed",
    reason: TerminalReason | None = None,
    *,
    ct: str = "YW5zd2Vy",
    lease: str | None = None,
) -> CallOutcome:
    """Return a sealed end."""
    return CallOutcome(
        call_id=call_id,
        terminal=terminal,
        terminal_reason=UNSET if reason is None else reason,
        envelope=envelope(ct=ct),
        lease_id=UNSET if lease is None else lease,
    )


def rejected(call_id: str, lease: str | None = None) -> CallRejected:
    """Return a refusal of a request that does not open, or with a lease the relay's word for a stale one."""
    return CallRejected(call_id=call_id, code="protocol_error", lease_id=UNSET if lease is None else lease)


def cancelled(call_id: str, lease: str | None = None) -> CallCancelled:
    """Return the listener's confirmation of a cancel."""
    return CallCancelled(call_id=call_id, phase="running", lease_id=UNSET if lease is None else lease)


def not_cancelled(call_id: str, reason: NotCancelledReason = "too_late") -> CallNotCancelled:
    """Return a refusal of a cancel, in either direction."""
    return CallNotCancelled(call_id=call_id, reason=reason)


def cancel(call_id: str) -> CancelCall:
    """Return a cancel request, in either direction."""
    return CancelCall(call_id=call_id)


def incoming(
    call_id: str, of: CallRequest, *, caller: str = "alice", traceparent: str | None = None
) -> IncomingCall:
    """Return what a listener is sent of a sync request."""
    return IncomingCall(
        call_id=call_id,
        from_=caller,
        envelope=of.envelope,
        correlation_id=of.correlation_id,
        message_id=of.message_id,
        traceparent=UNSET if traceparent is None else traceparent,
    )


def status(call_id: str, of: CallRequest, state: CallState) -> CallStatus:
    """Return what a caller is told on the way."""
    return CallStatus(state=state, call_id=call_id, correlation_id=of.correlation_id)


def call_error(
    code: RelayCode, of: CallRequest | None = None, *, call_id: str | None = None, retry: int | None = None
) -> CallError:
    """Return the relay's refusal of a frame; with a call id, the end of that call."""
    return CallError(
        origin="relay",
        code=code,
        call_id=UNSET if call_id is None else call_id,
        correlation_id=UNSET if of is None else of.correlation_id,
        retry_after_ms=UNSET if retry is None else retry,
    )


@dataclass
class Register:
    """Identities as a hub asks for them: every card but some, every handle to everyone but some."""

    invalid: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    unreachable: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    durable: set[str] = field(default_factory=set[str])
    revoked: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    gone: set[str] = field(default_factory=set[str])
    blocked: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    unlisted: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def sender_valid(self, handle: str, card_id: str, now: Instant) -> bool:
        """See `ringline.relay.authority.Authority`."""
        return (handle, card_id) not in self.invalid

    def may_reach(self, caller: str, callee: str) -> bool:
        """See `ringline.relay.authority.Authority`."""
        return (caller, callee) not in self.unreachable

    def takes_durable(self, callee: str) -> bool:
        """See `ringline.relay.authority.Authority`."""
        return callee in self.durable

    def is_enrolled(self, handle: str) -> bool:
        """See `ringline.relay.authority.Authority`."""
        return handle not in self.gone

    def is_revoked(self, handle: str, card_id: str) -> bool:
        """See `ringline.relay.authority.Authority`."""
        return (handle, card_id) in self.revoked

    def blocks(self, callee: str, caller: str) -> bool:
        """See `ringline.relay.authority.Authority`."""
        return (callee, caller) in self.blocked

    def lists(self, callee: str, caller: str) -> bool:
        """See `ringline.relay.authority.Authority`."""
        return (callee, caller) not in self.unlisted


class Exchange:
    """A hub whose calls are named call-1, call-2, …, whose connections count from 1."""

    def __init__(
        self,
        settings: dict[str, int] | None = None,
        register: Register | None = None,
        store: CallStore | None = None,
    ) -> None:
        self.register = register or Register()
        self.settings = Settings().with_values({k: str(v) for k, v in (settings or {}).items()})
        self._ids = (f"call-{n}" for n in itertools.count(1))
        self._connections = itertools.count(1)
        self.now = START.later(1)
        self.store = store
        self._leases = (f"00000000-0000-4000-8000-{n:012x}" for n in itertools.count(1))
        self.hub = self._make(START)

    def _make(self, started_at: Instant) -> Hub:
        return Hub(
            self.settings,
            self.register,
            self._ids.__next__,
            started_at,
            store=self.store,
            lease_ids=self._leases.__next__,
        )

    def turn(self, effects: list[Effect]) -> list[Effect]:
        """End the turn of the loop in which these effects came; return them with what follows."""
        while self.hub.unsaved:
            effects = effects + self.hub.commit(self.now)
        return effects

    def caller(self, handle: str = "alice", callee: str = "bob", card: str = CARD) -> int:
        """Connect a caller; return the number of its connection."""
        connection = next(self._connections)
        assert self.hub.connect_caller(connection, handle, callee, card, self.now) == []
        return connection

    def listener(
        self,
        handle: str = "bob",
        instance: str = "one",
        *,
        capacity: int = 4,
        card: str = CARD,
        boot: str = "b",
    ) -> int:
        """Connect a listener that replaces nothing and is offered nothing."""
        connection, effects = self.join(handle, instance, capacity=capacity, card=card, boot=boot)
        assert effects == []
        return connection

    def join(
        self,
        handle: str = "bob",
        instance: str = "one",
        *,
        capacity: int = 4,
        card: str = CARD,
        boot: str = "b",
        durable: bool = True,
    ) -> tuple[int, list[Effect]]:
        """Connect a listener; return the number of its connection, and what follows."""
        connection = next(self._connections)
        effects = self.hub.connect_listener(
            connection, handle, card, instance, boot, capacity, durable, self.now
        )
        return connection, self.turn(effects)

    def send(self, connection: int, frame: CallerToRelay | ListenerToRelay) -> list[Effect]:
        """Send a frame to the hub."""
        return self.turn(self.hub.receive(connection, codec.encode(frame), self.now))

    def text(self, connection: int, text: str) -> list[Effect]:
        """Send text that may be no frame."""
        return self.hub.receive(connection, text.encode(), self.now)

    def lose(self, connection: int, *, clean: bool = False) -> list[Effect]:
        """Lose a connection; ``clean``: its peer closed it."""
        return self.turn(self.hub.disconnect(connection, self.now, clean=clean))

    def wait(self, ms: int) -> list[Effect]:
        """Let time pass, with a tick whenever the hub wants one."""
        end = self.now.mono + ms
        effects: list[Effect] = []
        while (due := self.hub.deadline()) is not None and due <= end:
            self.now = self.now.later(max(0, due - self.now.mono))
            effects += self.turn(self.hub.tick(self.now))
        self.now = self.now.later(end - self.now.mono)
        return effects

    def begin(
        self, caller: int, of: CallRequest, *, until: CallState = "ringing", listener: int | None = None
    ) -> str:
        """Have a call admitted and, by its listener, brought to a state; return its id."""
        effects = self.send(caller, of)
        call_id, holder = next(
            (effect.frame.call_id, effect.connection)
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.frame, IncomingCall)
        )
        assert listener is None or listener == holder
        if until != "ringing":
            self.send(holder, accepted(call_id))
        if until == "working":
            self.send(holder, started(call_id))
        return call_id

    def finish(self, caller: int, of: CallRequest) -> str:
        """Have a call admitted and completed; return its id."""
        effects = self.send(caller, of)
        call_id, holder = next(
            (effect.frame.call_id, effect.connection)
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.frame, IncomingCall)
        )
        self.send(holder, started(call_id))
        self.send(holder, outcome(call_id))
        return call_id

    def state(self, call_id: str, identity: str = "alice") -> str:
        """Return the state of a call's record."""
        record = self.hub.record(identity, call_id, self.now)
        assert record is not None
        return record.state


def sent_to(connection: int, effects: Sequence[Effect]) -> list[object]:
    """Return the frames and closes among ``effects`` that concern one connection."""
    return [
        effect.frame if isinstance(effect, Send) else effect
        for effect in effects
        if isinstance(effect, Send | Close) and effect.connection == connection
    ]
