"""Which listener instances serve a handle, what they have in hand, and which one takes the next call.

An instance outlives its connections: a call that was handed to it is never given to another (RL-SYNC-019).
"""

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from ringline.relay.calls import Call
from ringline.relay.recent import Recent

if TYPE_CHECKING:
    from ringline.relay.errands import Errand

__all__ = ["Instance", "NoPlace", "Presence"]

NoPlace: TypeAlias = Literal["offline", "busy"]

_PERCENT: Final = 100
_SLACK: Final = 16


@final
class Instance:
    """One listener with its journal. ``connection`` is the one that now holds its calls, None while lost."""

    __slots__ = ("boot", "calls", "capacity", "connection", "durable", "handle", "id", "leases", "turn")

    def __init__(self, handle: str, instance: str) -> None:
        self.handle = handle
        self.id = instance
        self.boot = ""
        self.durable = False
        self.capacity = 0
        self.connection: int | None = None
        self.calls: dict[str, Call] = {}
        """Its unfinished sync calls, in the order of their hand-out."""
        self.leases: dict[str, Errand] = {}
        """The durable calls that its connection has in hand; gone with the connection."""
        self.turn = 0
        """Which entry of its handle's queue is the valid one."""

    @property
    def full(self) -> bool:
        """True if it has no free place; calls of both modes take one each (RL-SYNC-041)."""
        return len(self.calls) + len(self.leases) >= self.capacity

    @property
    def load(self) -> float:
        """The share of its places that is taken."""
        return (len(self.calls) + len(self.leases)) / self.capacity


@final
class _Desk:
    """The instances of one handle."""

    __slots__ = ("_lone", "_queue", "_turn", "connected", "instances", "places", "taken_by")

    def __init__(self) -> None:
        self.instances: dict[str, Instance] = {}
        self.connected = 0
        self.places = 0
        """The capacity of the connected instances together."""
        self.taken_by: dict[str, int] = {}
        """Unfinished calls by caller."""
        # By share of places in use; among equals, whoever has waited longest. Only the entry whose turn
        # is its instance's own counts. A lone instance needs no queue.
        self._queue: list[tuple[float, int, Instance]] = []
        self._turn = 0
        self._lone: Instance | None = None

    def changed(self) -> None:
        """An instance has connected or is lost."""
        present = [instance for instance in self.instances.values() if instance.connection is not None]
        self.connected = len(present)
        self.places = sum(instance.capacity for instance in present)
        self._lone = present[0] if len(present) == 1 else None
        self._queue.clear()
        for instance in present:
            self.requeue(instance)

    def requeue(self, instance: Instance) -> None:
        """The instance's load has changed."""
        if self.connected < 2 or instance.connection is None:
            return
        self._turn += 1
        instance.turn = self._turn
        heapq.heappush(self._queue, (instance.load, self._turn, instance))
        if len(self._queue) > 2 * self.connected + _SLACK:
            self._queue = [entry for entry in self._queue if entry[1] == entry[2].turn]
            heapq.heapify(self._queue)

    def least_busy(self) -> Instance | None:
        if self._lone is not None:
            return self._lone
        while self._queue:
            _, turn, instance = self._queue[0]
            if turn == instance.turn:
                return instance
            heapq.heappop(self._queue)
        return None


@final
class Presence:
    """All listener instances. A caller holds at most ``share`` percent of a handle's places, but one; 0: all.

    A conversation that an instance took stays with it for ``affinity`` ms (RL-SYNC-039).
    """

    __slots__ = ("_desks", "_share", "_taken", "hungry", "stirred")

    def __init__(self, *, share: int, affinity: int) -> None:
        self._desks: dict[str, _Desk] = {}
        self._share = share
        # The id, not the instance: one that comes back after it was forgotten is the same to its contexts.
        self._taken: Recent[tuple[str, str, str], str] = Recent(life=affinity)
        self.hungry: set[str] = set()
        """Handles with durable calls that wait for a place."""
        self.stirred: set[str] = set()
        """Handles of which durable calls may be handed out now."""

    def find(self, handle: str, instance: str) -> Instance | None:
        """Return the instance, connected or lost, None when it holds nothing and is not connected."""
        desk = self._desks.get(handle)
        return None if desk is None else desk.instances.get(instance)

    def join(
        self, handle: str, instance_id: str, connection: int, boot: str, capacity: int, *, durable: bool
    ) -> Instance:
        """Let ``connection`` hold the instance's calls from now on, whichever held them before."""
        desk = self._desks.get(handle)
        if desk is None:
            desk = self._desks[handle] = _Desk()
        instance = desk.instances.get(instance_id)
        if instance is None:
            instance = desk.instances[instance_id] = Instance(handle, instance_id)
        instance.connection = connection
        instance.boot = boot
        instance.capacity = capacity
        instance.durable = durable
        desk.changed()
        return instance

    def leave(self, instance: Instance) -> None:
        """The connection that held the instance's calls is gone. One without calls is forgotten."""
        desk = self._desks[instance.handle]
        instance.connection = None
        desk.changed()
        self._tidy(desk, instance)

    def place(self, caller: str, callee: str, correlation_id: str, now: int) -> Instance | NoPlace:
        """Return the instance that is to take the caller's next call, or why there is none.

        RL-ADMIT-019, RL-ADMIT-020, RL-ADMIT-032; RL-SYNC-039 for a conversation that an instance already
        took.
        """
        desk = self._desks.get(callee)
        if desk is None or not desk.connected:
            return "offline"
        taken_by = self._taken.get((caller, callee, correlation_id), now)
        instance = None if taken_by is None else desk.instances.get(taken_by)
        if instance is None or instance.connection is None:
            instance = desk.least_busy()
        if instance is None or instance.full:
            return "busy"
        if self._share and desk.taken_by.get(caller, 0) >= max(1, desk.places * self._share // _PERCENT):
            return "busy"
        return instance

    def take(self, call: Call, instance: Instance) -> None:
        """Put a call into an instance's hands."""
        desk = self._desks[instance.handle]
        instance.calls[call.id] = call
        desk.taken_by[call.caller] = desk.taken_by.get(call.caller, 0) + 1
        desk.requeue(instance)

    def bind(self, call: Call, instance: Instance, now: int) -> None:
        """The instance took the call, so its conversation lives there from now on."""
        self._taken.put((call.caller, call.callee, call.correlation_id), instance.id, now)

    def bind_conversation(
        self, caller: str, callee: str, correlation_id: str, instance: Instance, now: int
    ) -> None:
        """The instance took a durable call of this conversation."""
        self._taken.put((caller, callee, correlation_id), instance.id, now)

    def release(self, call: Call, instance: Instance) -> None:
        """Take an ended call out of its instance's hands. One that is lost and empty is forgotten."""
        desk = self._desks[instance.handle]
        del instance.calls[call.id]
        left = desk.taken_by[call.caller] - 1
        if left:
            desk.taken_by[call.caller] = left
        else:
            del desk.taken_by[call.caller]
        desk.requeue(instance)
        if self.hungry and instance.handle in self.hungry:
            self._feed(instance.handle)
        self._tidy(desk, instance)

    # --- durable calls

    def connected(self) -> Iterator[Instance]:
        """Yield every instance that has a connection."""
        for desk in tuple(self._desks.values()):
            yield from [i for i in desk.instances.values() if i.connection is not None]

    def durable_instances(self, callee: str) -> list[Instance]:
        """Return the connected instances that take durable calls."""
        desk = self._desks.get(callee)
        if desk is None:
            return []
        return [i for i in desk.instances.values() if i.durable and i.connection is not None]

    def takes_durable(self, callee: str) -> bool:
        """True if an instance that takes durable calls has a free place."""
        desk = self._desks.get(callee)
        if desk is None:
            return False
        for instance in desk.instances.values():
            if instance.durable and instance.connection is not None and not instance.full:
                return True
        return False

    def hand(
        self, caller: str, callee: str, correlation_id: str, now: int, *, suspect: bool
    ) -> Instance | None:
        """Return the instance that is to take a durable call now, None when it has to wait.

        A ``suspect`` has come to nothing before: a connection has one of them in hand at most, so that
        a call that ends its listener takes no other such call with it.
        """
        desk = self._desks.get(callee)
        if desk is None:
            return None
        taken_by = self._taken.get((caller, callee, correlation_id), now)
        home = None if taken_by is None else desk.instances.get(taken_by)
        if home is not None and home.durable and home.connection is not None:
            return None if home.full or (suspect and _has_suspect(home)) else home
        chosen: Instance | None = None
        for instance in desk.instances.values():
            if not instance.durable or instance.connection is None or instance.full:
                continue
            if suspect and _has_suspect(instance):
                continue
            if chosen is None or instance.load < chosen.load:
                chosen = instance
        return chosen

    def put(self, errand: "Errand", instance: Instance) -> None:
        """Put a durable call into an instance's hands."""
        instance.leases[errand.id] = errand
        self._desks[instance.handle].requeue(instance)

    def unhand(self, errand: "Errand", instance: Instance) -> None:
        """Take a durable call out of an instance's hands."""
        del instance.leases[errand.id]
        desk = self._desks.get(instance.handle)
        if desk is not None:
            desk.requeue(instance)
        if instance.handle in self.hungry:
            self._feed(instance.handle)

    def clear(self, instance: Instance) -> None:
        """Take every durable call out of an instance's hands: nothing is known of them any more."""
        instance.leases.clear()
        self._desks[instance.handle].requeue(instance)

    def _feed(self, handle: str) -> None:
        self.hungry.discard(handle)
        self.stirred.add(handle)

    def _tidy(self, desk: _Desk, instance: Instance) -> None:
        if instance.connection is None and not instance.calls:
            del desk.instances[instance.id]
            if not desk.instances:
                del self._desks[instance.handle]

    def purge(self, now: int) -> None:
        """Forget the conversations that are over."""
        self._taken.purge(now)


def _has_suspect(instance: Instance) -> bool:
    return any(errand.row.attempts and errand.row.started_at is None for errand in instance.leases.values())
