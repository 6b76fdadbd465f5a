"""Hand-outs of durable calls: to whom, under which lease, and what becomes of those that come to nothing.

Before a start is granted no handler has begun, and only on that ground is a call taken back, handed out
again or given up (RL-DURABLE-026, RL-DURABLE-027). After it the call is its instance's, and only offered to
it again (RL-DURABLE-035, RL-DURABLE-038).
"""

from collections.abc import Callable
from typing import Final, Literal, final

import msgspec
from msgspec import UNSET

from ringline.protocol.frames import Envelope, IncomingCall
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import Event, Mode, State, advance
from ringline.relay.authority import Authority
from ringline.relay.call_store import CallRow
from ringline.relay.endings import Endings
from ringline.relay.errands import Boot, Errand, Errands, Lease
from ringline.relay.ledger import Ledger
from ringline.relay.presence import Instance, Presence
from ringline.relay.queues import Queue
from ringline.relay.quotas import Quotas
from ringline.relay.settings import Settings
from ringline.relay.timers import LeaseLapses, QueueTurns, RebindOver, RestOver, Timers

__all__ = ["Hands"]

_DURABLE: Final = Mode.DURABLE
_PAGE: Final = 200  # queued calls that are read, or let go, in one turn
_LOOK_MS: Final = 60_000

_envelopes: Final = msgspec.json.Decoder(Envelope)


@final
class Hands:
    """Which durable calls are in whose hands. ``lease_ids`` mints UUIDs."""

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        ledger: Ledger,
        errands: Errands,
        queues: dict[str, Queue],
        presence: Presence,
        timers: Timers,
        endings: Endings,
        quotas: Quotas,
        counters: dict[str, int],
        lease_ids: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._authority = authority
        self._ledger = ledger
        self._errands = errands
        self._queues = queues
        self._presence = presence
        self._timers = timers
        self._endings = endings
        self._quotas = quotas
        self._counters = counters
        self._lease_ids = lease_ids
        self._closing: dict[str, Queue] = {}
        """Queues of callees for whom nobody listens any more, as far as they were not let go yet."""
        self.fresh: dict[str, Envelope] = {}
        """The sealed requests that were admitted in this turn: most are handed out in it."""
        self.stopping = False
        """Set while the relay stops: nothing is handed out any more."""

    # --- listeners come and go

    def arrive(self, instance: Instance, now: Instant) -> None:
        """A connection holds the instance now: offer what it has begun again, then hand out."""
        handle = instance.handle
        for errand in self._errands.found((handle, instance.id, instance.boot)):
            self._take_back(errand, now)
        if not instance.durable:
            return
        # RL-DURABLE-038: what it has begun is offered first, whatever its capacity and without a check of
        # authority.
        self._timers.cancel(RebindOver(handle, instance.id))
        for errand in self._errands.bound(handle, instance.id):
            self._give(errand, instance, now)
        if handle not in self._queues:
            self._open_queue(handle, now)
        self._presence.stirred.add(handle)

    def leave(self, instance: Instance, now: Instant, *, lost: bool) -> None:
        """The connection that held the instance is gone; ``lost``: neither side had closed it."""
        for errand in tuple(instance.leases.values()):
            if errand.row.state is State.STARTED:
                self._endings.loosen(errand)
            else:
                self._release(errand, now, counted=lost, loss=True)
        self.await_return(instance.handle, instance.id, now)
        others = self._presence.durable_instances(instance.handle)
        if not [other for other in others if other is not instance]:
            self._close_queue(instance.handle, now)

    def await_return(self, handle: str, instance: str, now: Instant) -> None:
        """Bound the time that an instance gets to come back for what it has begun."""
        if self._errands.bound(handle, instance):
            self._timers.set(RebindOver(handle, instance), now.mono + self._settings.rebind_ms)

    def not_returned(self, handle: str, instance: str, now: Instant) -> None:
        """The instance did not come back: what it has begun ends without it."""
        for errand in self._errands.bound(handle, instance):
            if errand.lease is None:
                self._endings.end(errand, advance(_DURABLE, errand.state, Event.INSTANCE_LOST), now)

    # --- queues

    def _open_queue(self, handle: str, now: Instant) -> None:
        while handle in self._closing:
            # Somebody listens again before all of the last queue was let go.
            self._let_go(handle, now)
        queue = self._queues[handle] = Queue()
        for owner, instance in self._errands.instances():
            if owner == handle:
                for errand in self._errands.bound(handle, instance):
                    queue.take(errand)
        self._fill(handle, now)

    def turn_page(self, handle: str, now: Instant) -> None:
        """Read the next page of a callee's queued calls, or let one go when nobody listens any more.

        However many there are, nobody waits for more than a page. What is admitted while they are read is in
        a later one, so that no call of a conversation overtakes another.
        """
        if handle in self._closing:
            self._let_go(handle, now)
        else:
            self._fill(handle, now)

    def _fill(self, handle: str, now: Instant) -> None:
        queue = self._queues.get(handle)
        if queue is None or queue.read_to is None:
            return
        rows = self._ledger.store.queued(handle, queue.read_to, _PAGE)
        queue.read_to = rows[-1].seq if len(rows) == _PAGE else None
        for row in rows:
            errand = self._errands.of(row)
            self._errands.keep(errand)
            self.requeue(errand, now)
        if queue.read_to is not None:
            self._timers.set(QueueTurns(handle), now.mono + 1)

    def _close_queue(self, handle: str, now: Instant) -> None:
        queue = self._queues.pop(handle, None)
        if queue is not None:
            self._closing[handle] = queue
            self._let_go(handle, now)
        self._presence.hungry.discard(handle)

    def _let_go(self, handle: str, now: Instant) -> None:
        gone = self._closing[handle].drain(_PAGE)
        for errand in gone:
            self._errands.tidy(errand)
        if len(gone) < _PAGE:
            del self._closing[handle]
            self._timers.cancel(QueueTurns(handle))
        else:
            self._timers.set(QueueTurns(handle), now.mono + 1)

    def clear(self) -> None:
        """Forget all queues: what is in them is looked for in the store again."""
        self._queues.clear()
        self._closing.clear()

    def requeue(self, errand: Errand, now: Instant) -> None:
        """Let a call wait for a listener, if any is there; a rest that it is due is kept."""
        row = errand.row
        queue = self._queues.get(row.callee)
        if queue is None or (queue.read_to is not None and row.seq > queue.read_to):
            self._errands.tidy(errand)
            return
        self._errands.keep(errand)
        queue.add(errand)
        if errand.rests_until > now.mono:
            self._rest(queue, errand, errand.rests_until)
        self._presence.stirred.add(row.callee)

    def _rest(self, queue: Queue, errand: Errand, until: int) -> None:
        row = errand.row
        queue.sleep(errand)
        self._timers.set(RestOver(row.callee, row.caller, row.correlation_id), until)

    def rested(self, callee: str, caller: str, correlation_id: str) -> None:
        """A conversation has waited long enough."""
        queue = self._queues.get(callee)
        if queue is not None:
            queue.wake(caller, correlation_id)
            self._presence.stirred.add(callee)

    # --- hand-outs

    def serve(self, callee: str, now: Instant) -> None:
        """Hand out what there are places for."""
        queue = self._queues.get(callee)
        if queue is None or not queue.count or self.stopping:
            return
        heads = queue.heads()
        try:
            # Whose turn it is keeps it when there is no place, so that is looked at first.
            while self._presence.takes_durable(callee):
                errand = next(heads, None)
                if errand is None:
                    return
                self._offer(queue, errand, now)
        finally:
            heads.close()
        self._presence.hungry.add(callee)

    def _offer(self, queue: Queue, errand: Errand, now: Instant) -> None:
        row = errand.row
        if errand.rests_until > now.mono:
            self._rest(queue, errand, errand.rests_until)
            return
        # RL-DURABLE-008: authority is looked at again at each hand-out. RL-DURABLE-009: and the time.
        lost = self.lost_by(row)
        if lost is not None:
            self._endings.revoke(errand, lost == "caller", now)
            return
        if row.execute_by - now.wall <= self._settings.min_remaining_ms:
            self._endings.end(errand, advance(_DURABLE, errand.state, Event.EXECUTE_BY), now)
            return
        until = self._quotas.deferred_until(row, now.wall)
        if until is not None:
            self._rest(queue, errand, now.mono + min(until - now.wall, _LOOK_MS))
            return
        suspect = row.attempts > 0
        instance = self._presence.hand(row.caller, row.callee, row.correlation_id, now.mono, suspect=suspect)
        if instance is None:
            self._presence.hungry.add(row.callee)
            return
        queue.take(errand)
        self._give(errand, instance, now)

    def _give(self, errand: Errand, instance: Instance, now: Instant) -> None:
        """Send a call to a connection under a new lease, a cancel request right behind (RL-CANCEL-009)."""
        assert instance.connection is not None
        row = errand.row
        envelope = self.fresh.pop(row.call_id, None)
        if envelope is None:
            request = self._ledger.store.request(row.call_id)
            assert request is not None, "an unfinished call keeps its request"
            envelope = _envelopes.decode(request)
        lease = Lease(
            id=self._lease_ids(), instance=instance, connection=instance.connection, boot=instance.boot
        )
        self._errands.keep(errand)
        errand.lease = lease
        self._presence.put(errand, instance)
        if row.state is State.QUEUED:
            self._timers.set(LeaseLapses(row.call_id), now.mono + self._settings.lease_ms)
        self._counters["stored_handed_out"] += 1
        self._ledger.send(
            instance.connection,
            IncomingCall(
                call_id=row.call_id,
                from_=row.caller,
                envelope=envelope,
                correlation_id=row.correlation_id,
                message_id=row.message_id,
                delivery_mode="durable",
                lease_id=lease.id,
                execute_by=row.execute_by,
                traceparent=UNSET if row.traceparent is None else row.traceparent,
            ),
        )
        if row.cancel_requested or errand.stop is not None:
            self._endings.send_cancel(errand)

    def lost_by(self, row: CallRow) -> Literal["caller", "callee"] | None:
        """Return on whose side the authority for a stored call is gone, None while it stands."""
        authority = self._authority
        if not authority.is_enrolled(row.caller) or authority.is_revoked(row.caller, row.caller_card):
            return "caller"
        # Not `may_reach`: a list that no longer names the caller takes nothing back that was admitted.
        if (
            not authority.is_enrolled(row.callee)
            or authority.blocks(row.callee, row.caller)
            or not authority.takes_durable(row.callee)
        ):
            return "callee"
        return None

    # --- what comes to nothing

    def lapse(self, call_id: str, now: Instant) -> None:
        """Nobody accepted the call in time."""
        errand = self._errands.held(call_id)
        if errand is not None and errand.state is State.LEASED:
            self._counters["stored_lapsed"] += 1
            self._release(errand, now, counted=True, loss=False)

    def put_off(self, errand: Errand, now: Instant) -> None:
        """Take a call back that may not start yet; nobody is to blame for it."""
        self._endings.loosen(errand)
        self.requeue(errand, now)

    def take_all_back(self) -> None:
        """The relay stops: what was not begun waits for the next one, as if never handed out."""
        self.stopping = True
        for instance in self._presence.connected():
            for errand in tuple(instance.leases.values()):
                if errand.row.state is not State.STARTED:
                    self._endings.loosen(errand)

    def _release(self, errand: Errand, now: Instant, *, counted: bool, loss: bool) -> None:
        row, lease = errand.row, errand.lease
        assert lease is not None
        attempts = row.attempts + counted
        if row.cancel_requested:
            step = advance(_DURABLE, errand.state, Event.RELEASE, cancel_requested=True)
            self._endings.end(errand, step, now, attempts=attempts)
        elif counted:
            boot: Boot = (row.callee, lease.instance.id, lease.boot)
            if loss:
                # RL-DURABLE-050: taken back when the same boot of the same instance connects again.
                self._errands.lose(errand, boot)
            if attempts >= self._settings.attempts:
                self._endings.park(errand, attempts, now)
            else:
                self._endings.loosen(errand)
                self._endings.write(errand, "attempt", now, attempts=attempts)
                self.requeue(errand, now)
        else:
            self._blameless(errand, now)

    def _blameless(self, errand: Errand, now: Instant) -> None:
        """A hand-out came to nothing and is not counted: rest, longer each time, and not for ever."""
        errand.uncounted += 1
        if errand.uncounted >= self._settings.uncounted_attempts:
            self._endings.park(errand, errand.row.attempts, now)
            errand.uncounted = 0
            return
        rest = self._settings.back_off_ms << (errand.uncounted - 1)
        errand.rests_until = now.mono + min(rest, self._settings.back_off_most_ms)
        self._endings.loosen(errand)
        self.requeue(errand, now)

    def _take_back(self, errand: Errand, now: Instant) -> None:
        """The process to which the call was lost lives: its attempt does not count."""
        row = errand.row
        if row.ended or not row.attempts:
            return
        self._counters["stored_taken_back"] += 1
        state = row.state
        if state is State.PARKED:
            state = advance(_DURABLE, state, Event.TAKE_BACK).to
        self._endings.write(errand, "attempt", now, attempts=row.attempts - 1, state=state)
        if state is State.QUEUED and errand.lease is None:
            self._blameless(errand, now)
