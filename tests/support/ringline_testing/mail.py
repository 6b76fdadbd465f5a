"""A relay's core with a store for durable calls, spoken to frame by frame, one turn of the loop per frame."""

from collections.abc import Sequence
from typing import Any

from ringline.protocol.frames import CallQueued, CallRequest, CallStarted, CancelCall, Envelope, IncomingCall
from ringline.protocol.instant import Instant
from ringline.protocol.shapes import CallRecord
from ringline.relay.call_store import CallRow, CallStore
from ringline.relay.durable import DurableCalls
from ringline.relay.effects import Effect, Send
from ringline.relay.memory_calls import MemoryCalls
from ringline.relay.store import StoreError
from ringline_testing.exchange import (
    Exchange,
    Register,
    accepted,
    envelope,
    outcome,
    request,
    sent_to,
    started,
)

__all__ = ["HOUR", "FailingCalls", "Mail", "durable", "granted", "lease", "offers", "sealed", "stop"]

HOUR = 3_600_000
_LIFE = 48 * HOUR


def lease(number: int) -> str:
    """Return the id of the lease that a hub mints as its ``number``-th."""
    return f"00000000-0000-4000-8000-{number:012x}"


def sealed(**members: Any) -> Envelope:
    """Return a sealed text that lives for two days."""
    given: dict[str, Any] = {"life": _LIFE}
    return envelope(**(given | members))


def durable(correlation: int = 1, message: int = 1, **members: Any) -> CallRequest:
    """Return a durable call request."""
    given: dict[str, Any] = {"mode": "durable", "sealed": sealed(ct=f"Y{message:05d}")}
    return request(correlation, message, **(given | members))


def granted(call_id: str, lease_id: str) -> CallStarted:
    """Return the relay's word that the listener may begin."""
    return started(call_id, lease_id)


def stop(call_id: str, lease_id: str) -> CancelCall:
    """Return the relay's word that the listener is to stop."""
    return CancelCall(call_id=call_id, lease_id=lease_id)


def offers(effects: Sequence[Effect], connection: int | None = None) -> list[IncomingCall]:
    """Return the calls that were handed out, to one connection or to all."""
    return [
        effect.frame
        for effect in effects
        if isinstance(effect, Send)
        and isinstance(effect.frame, IncomingCall)
        and connection in (None, effect.connection)
    ]


class FailingCalls(MemoryCalls):  # type: ignore[misc] # pyright: ignore[reportGeneralTypeIssues]
    """The model, on a disk that fails while ``failing`` is set."""

    failing = False

    def commit(self) -> None:
        """See `CallStore.commit`."""
        if self.failing and self._undo:
            self.rollback()
            raise StoreError("disk full")
        super().commit()

    def check(self) -> None:
        """See `CallStore.check`."""
        if self.failing:
            raise StoreError("disk full")


class Mail(Exchange):
    """An exchange in which bob takes durable calls; alice may call him as often as she likes."""

    def __init__(
        self,
        settings: dict[str, int] | None = None,
        register: Register | None = None,
        store: CallStore | None = None,
    ) -> None:
        off = {"CALLS_PER_HOUR": 0, "CALLS_PER_PAIR_PER_HOUR": 0, "TURNS": 0}
        super().__init__(
            off | (settings or {}), register or Register(durable={"bob"}), store or FailingCalls()
        )

    @property
    def calls(self) -> DurableCalls:
        """The durable half of the hub."""
        assert self.hub.durable is not None
        return self.hub.durable

    def listener_again(self, handle: str = "bob") -> int:
        """Connect a listener that may be offered something."""
        return self.join(handle)[0]

    def restart(self) -> None:
        """Lose the relay and all connections, and start the next on the same store."""
        assert self.store is not None
        self.store.rollback()
        self.hub = self._make(self.now)

    def submit(self, caller: int, *numbers: int, **members: Any) -> str:
        """Have a durable call admitted; return its id."""
        return self.handed(caller, *numbers, **members)[0]

    def handed(self, caller: int, *numbers: int, **members: Any) -> tuple[str, list[IncomingCall]]:
        """Have a durable call admitted; return its id and what was handed out in the same turn."""
        effects = self.send(caller, durable(*numbers, **members))
        first = sent_to(caller, effects)[0]
        assert isinstance(first, CallQueued), first
        return first.call_id, offers(effects)

    def grant(self, call_id: str, listener: int) -> str:
        """Bring a handed out call to its start; return its lease."""
        held = self.leased(call_id)
        self.send(listener, accepted(call_id, held))
        effects = self.send(listener, started(call_id, held))
        assert granted(call_id, held) in sent_to(listener, effects)
        return held

    def complete(self, call_id: str, listener: int) -> None:
        """Bring a handed out call to its end."""
        held = self.grant(call_id, listener)
        self.send(listener, outcome(call_id, lease=held))

    def leased(self, call_id: str) -> str:
        """Return the id of the call's present lease."""
        errand = self.calls._errands.held(call_id)
        assert errand is not None
        assert errand.lease is not None
        return errand.lease.id

    def row(self, call_id: str) -> CallRow:
        """Return what is stored of a call."""
        assert self.store is not None
        row = self.store.load(call_id)
        assert row is not None
        return row

    def record(self, call_id: str, viewer: str = "alice") -> CallRecord:
        """Return a call's record."""
        record = self.hub.record(viewer, call_id, self.now)
        self.turn([])
        assert record is not None
        return record

    def states(self, *calls: str) -> list[str]:
        """Return the states of calls as their callee sees them."""
        return self.states_for("bob", *calls)

    def states_for(self, callee: str, *calls: str) -> list[str]:
        """Return the states of calls as that callee sees them."""
        return [self.record(call_id, callee).state for call_id in calls]

    def later(self, ms: int) -> None:
        """Let the wall clock alone be ahead by so many ms."""
        self.now = Instant(self.now.wall + ms, self.now.mono)
