"""Durable calls as the running relay knows them: the stored row, and what lives in memory beside it.

Leases, attached connections and losses are forgotten with the relay (RL-DURABLE-005): they are only ever a
reason to try again, never to believe that something happened.
"""

from typing import TYPE_CHECKING, TypeAlias, final

from msgspec import Struct

from ringline.protocol.frames import CallState
from ringline.protocol.lifecycle import Event, State
from ringline.relay.call_store import CallRow, CallStore

if TYPE_CHECKING:
    from ringline.relay.presence import Instance

__all__ = ["Boot", "Errand", "Errands", "Lease"]

Boot: TypeAlias = tuple[str, str, str]
"""One process of a listener: handle, instance, boot."""


@final
class Lease(Struct, eq=False, kw_only=True):
    """A hand-out of a call to one connection. It is gone with that connection, or with a new one."""

    id: str
    instance: "Instance"
    connection: int
    boot: str
    accepted: bool = False
    asked: bool = False
    """The listener asked to start and was not answered yet."""


@final
class Errand(Struct, eq=False, kw_only=True):
    """One durable call. ``row`` is the last version that was written, be it committed or not."""

    row: CallRow
    lease: Lease | None = None
    queued: bool = False
    """It waits in the queue of its callee."""
    attached: tuple[int, ...] = ()
    """Connections of the caller that are told what happens to it."""
    status: CallState | None = None
    """The last status that they were told."""
    losses: tuple[Boot, ...] = ()
    """Counted attempts that are taken back when that process connects again."""
    uncounted: int = 0
    """Hand-outs that came to nothing without being counted."""
    rests_until: int = 0
    """Not handed out before, in ms of the clock that never goes back."""
    lost_by_caller: bool = False
    """Whose authority is gone, when it is gone."""
    stop: Event | None = None
    """Set while the relay itself has asked for a stop: what a confirmation then means."""
    id: str = ""
    """The call id, which is that of ``row``."""

    def __post_init__(self) -> None:
        self.id = self.row.call_id

    @property
    def state(self) -> State:
        """Where the call stands; `State.LEASED` and `State.ACCEPTED` are not stored."""
        if self.lease is None or self.row.state is not State.QUEUED:
            return self.row.state
        return State.ACCEPTED if self.lease.accepted else State.LEASED

    @property
    def idle(self) -> bool:
        """True if nothing is known of it that is not in its row."""
        return not (
            self.lease is not None
            or self.queued
            or self.attached
            or self.losses
            or self.uncounted
            or self.row.state is State.STARTED
        )


@final
class Errands:
    """The durable calls of which something is known beside their rows, and the way to all others."""

    __slots__ = ("_bound", "_by_id", "_lost", "_store")

    def __init__(self, store: CallStore) -> None:
        self._store = store
        self._by_id: dict[str, Errand] = {}
        self._bound: dict[tuple[str, str], dict[str, Errand]] = {}
        self._lost: dict[Boot, dict[str, Errand]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def clear(self) -> None:
        """Forget everything."""
        self._by_id.clear()
        self._bound.clear()
        self._lost.clear()

    def held(self, call_id: str) -> Errand | None:
        """Return the call if something is known of it beside its row."""
        return self._by_id.get(call_id)

    def find(self, call_id: str) -> Errand | None:
        """Return the call, None when it is not stored."""
        errand = self._by_id.get(call_id)
        if errand is None:
            row = self._store.load(call_id)
            errand = None if row is None else Errand(row=row)
        return errand

    def of(self, row: CallRow) -> Errand:
        """Return the call with this row."""
        return self._by_id.get(row.call_id) or Errand(row=row)

    def keep(self, errand: Errand) -> None:
        """Something is known of the call now: find it by memory from here on."""
        self._by_id[errand.id] = errand

    def tidy(self, errand: Errand) -> None:
        """Forget the call when nothing is known of it beside its row."""
        if errand.idle:
            self._by_id.pop(errand.id, None)

    # --- started calls belong to an instance

    def bind(self, errand: Errand) -> None:
        """Its instance alone may end the call now."""
        assert errand.row.instance is not None
        self.keep(errand)
        self._bound.setdefault((errand.row.callee, errand.row.instance), {})[errand.id] = errand

    def unbind(self, errand: Errand) -> None:
        """The call has ended."""
        if errand.row.instance is None:
            return
        key = (errand.row.callee, errand.row.instance)
        bound = self._bound.get(key)
        if bound is not None and bound.pop(errand.id, None) is not None and not bound:
            del self._bound[key]

    def bound(self, handle: str, instance: str) -> list[Errand]:
        """Return the unfinished calls that this instance has begun, the first begun first."""
        return list(self._bound.get((handle, instance), {}).values())

    def instances(self) -> list[tuple[str, str]]:
        """Return the handles and instances that have unfinished calls."""
        return list(self._bound)

    # --- losses that may be taken back

    def lose(self, errand: Errand, boot: Boot) -> None:
        """A counted attempt of this process."""
        self.keep(errand)
        errand.losses = (*errand.losses, boot)
        self._lost.setdefault(boot, {})[errand.id] = errand

    def found(self, boot: Boot) -> list[Errand]:
        """The process is back: return the calls that it lost, one attempt of each is to be taken back."""
        lost = list(self._lost.pop(boot, {}).values())
        for errand in lost:
            errand.losses = tuple(loss for loss in errand.losses if loss != boot)
        return lost

    def forgive(self, errand: Errand) -> None:
        """None of its losses matters any more."""
        for boot in errand.losses:
            lost = self._lost.get(boot)
            if lost is not None:
                lost.pop(errand.id, None)
                if not lost:
                    del self._lost[boot]
        errand.losses = ()
