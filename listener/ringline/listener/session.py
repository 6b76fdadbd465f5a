"""The listener's side of the protocol, without any input or output.

Every frame of the relay, every result of opening or working and every timer comes in as a method; what is
to be done comes out as a list of effects, to be performed in order. The journal is asked directly: its
methods return when what they did is on disk, so no effect can overtake a commit ("write before word").
What the journal knows is answered from the journal.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace as replace_members

from ringline.listener.effects import (
    Effect,
    Held,
    Judge,
    Note,
    Open,
    Opened,
    Result,
    Unchecked,
)
from ringline.listener.entries import (
    End,
    Entry,
    JournalError,
    Offer,
    Records,
    Verdict,
)
from ringline.listener.floor import PATIENCE_MS, Floor
from ringline.listener.intake import Intake
from ringline.listener.line import Line
from ringline.listener.outcomes import NO_JOURNAL, failed
from ringline.listener.recall import DEATHS, TAIL_MS, Recall
from ringline.listener.work import Cause, Stage
from ringline.protocol.bodies import Checkpoint, Request, decode_request
from ringline.protocol.errors import BodyError, MessageTooLarge
from ringline.protocol.frames import (
    CallError,
    CallRejected,
    CallStarted,
    CancelCall,
    IncomingCall,
    RelayToListener,
)
from ringline.protocol.instant import Instant
from ringline.protocol.limits import (
    DURABLE_LIFE_MS,
    WORK_BOUND_MS,
)
from ringline.protocol.transcript import digest

__all__ = ["Session"]

_PURGE_MS: Final = 30_000
_OPENINGS: Final = 1_000  # more than any capacity: a relay that goes beyond is broken


@dataclass(slots=True)
class _Opening:
    """A call that is being opened."""

    frame: IncomingCall
    cancelled: bool = False
    unkept: bool = False
    """Whether the journal could not note it: then it is opened for the answer alone, and nothing is run."""


@final
class Session:
    """One listener: all its calls, over all its connections. Every method returns effects."""

    def __init__(
        self,
        records: Records,
        judge: Judge,
        *,
        capacity: int,
        mint: Callable[[], str],
        bound_ms: int = WORK_BOUND_MS,
        patience_ms: int = PATIENCE_MS,
        not_before: int | None = None,
        kt: Callable[[], Checkpoint | UnsetType] = lambda: UNSET,
    ) -> None:
        """Begin without a connection.

        ``capacity`` is how many messages are worked on at once, each for at most ``bound_ms`` and, when it
        is to stop, ``patience_ms`` more; ``mint`` makes context ids. ``not_before`` (Unix ms) is for a
        listener whose journal did not survive: what was sealed up to then may have run before, and is
        refused (RL-IDEM-028). ``kt`` is this side's view of the key log, which goes into every outcome.
        """
        self._records = records
        self._not_before = not_before
        self._line = Line()
        self._floor = Floor(
            records, self._line, capacity=capacity, bound_ms=bound_ms, patience_ms=patience_ms, kt=kt
        )
        self._intake = Intake(records, self._line, self._floor, judge, mint)
        self._recall = Recall(records, self._line, self._floor, self._intake)
        self._openings: dict[str, _Opening] = {}
        self._held: dict[str, IncomingCall] = {}
        self._purge_at = 0

    # --- the connection

    def connected(self) -> None:
        """Note a new connection."""
        self._line.reset()

    def disconnected(self) -> None:
        """Note the loss of the connection: waiting work is dropped, begun work goes on.

        Source: RL-DURABLE-033, RL-DURABLE-037.
        """
        self._line.reset()
        for work in self._floor.desk:
            if not work.begun and work.unsettled is None:
                self._floor.put_back(work)

    def received(self, frame: RelayToListener, now: Instant) -> list[Effect]:
        """Take a frame of the relay."""
        match frame:
            case IncomingCall():
                return self._incoming(frame, now)
            case CancelCall():
                return self._cancel(frame, now)
            case CallStarted():
                return self._granted(frame, now)
            case CallRejected():
                return self._lease_refused(frame, now)
            case CallError():
                return [Note(f"the relay refused a frame of this listener: {frame.code}")]

    # --- a call comes in

    def _incoming(self, frame: IncomingCall, now: Instant) -> list[Effect]:
        call_id = frame.call_id
        opening = self._openings.get(call_id)
        if opening is not None:
            # Offered again while it is opened, on a new connection.
            self._line.offer(call_id, frame.lease_id)
            opening.frame = replace_members(
                opening.frame, lease_id=frame.lease_id, execute_by=frame.execute_by
            )
            return []
        if call_id in self._held:
            # RL-DURABLE-070: it waits on, under the new lease: accepted, and not asked to start.
            self._held[call_id] = frame
            self._line.offer(call_id, frame.lease_id)
            return self._line.accepted(call_id)
        try:
            # RL-IDEM-017: a call_id that the journal knows is answered from it, without opening it again.
            entry = self._records.find(call_id)
            if entry is not None:
                return self._recall.again(entry, frame, now)
        except JournalError as error:
            return [Note(str(error), call_id)]
        if self._recall.draining and frame.delivery_mode == "durable":
            return []  # RL-DURABLE-049: it goes back uncounted when the connection closes
        self._line.offer(call_id, frame.lease_id)
        keep_until = min(frame.envelope.exp, now.wall + DURABLE_LIFE_MS) + TAIL_MS
        try:
            deaths = self._records.opening(call_id, keep_until)
        except JournalError as error:
            if frame.delivery_mode == "durable":
                self._line.withdraw(call_id)
                return [Note(str(error), call_id)]  # it lapses and comes again
            # A sync one has no time for that. Only under a seal its caller can be told why.
            self._openings[call_id] = _Opening(frame, unkept=True)
            return [Note(str(error), call_id), Open(frame)]
        # RL-IDEM-027: a call over which three processes have died is not opened any more.
        if deaths >= DEATHS or len(self._openings) >= _OPENINGS:
            self._floor.close(call_id)
            return [Note("a call was refused unopened", call_id), *self._line.rejected(call_id)]
        self._openings[call_id] = _Opening(frame)
        return [Open(frame)]

    @property
    def held(self) -> tuple[str, ...]:
        """The ids of the calls that wait for their owner's word."""
        return tuple(self._held)

    def reopen(self, call_id: str, now: Instant) -> list[Effect]:
        """Take up a call that waited: it is opened as if it had come just now."""
        frame = self._held.pop(call_id, None)
        # One that is not on this connection comes again by itself.
        return [] if frame is None or call_id not in self._line else self._incoming(frame, now)

    def opened(self, call_id: str, opened: Opened | Unchecked | Held | None, now: Instant) -> list[Effect]:
        """Take the result of `Open`; None when the call was refused unread (RL-ENVELOPE-033)."""
        opening = self._openings.pop(call_id)
        if call_id not in self._line:
            # The connection or the lease is gone. Nothing was taken; the next offer starts afresh.
            self._floor.close(call_id)
            return []
        if isinstance(opened, Held):
            # Nothing of it is taken, so a process that ends while it waits has not died over it.
            self._floor.close(call_id)
            if opening.cancelled:
                return self._line.cancelled(call_id, "pending")
            self._held[call_id] = opening.frame
            return self._line.accepted(call_id)
        if opened is None or isinstance(opened, Unchecked):
            self._floor.close(call_id)
            if opened is not None and opening.frame.delivery_mode == "durable":
                # It lapses and comes again; a refusal would end it for good.
                self._line.withdraw(call_id)
                return []
            return self._line.rejected(call_id)
        offer = opened.offer(opening.frame, now)
        if opening.unkept:
            # RL-IDEM-029: what the journal could not count before it was opened is not taken either.
            return self._refuse(offer, failed("busy", NO_JOURNAL))
        try:
            request = decode_request(opened.json)
        # RL-ENVELOPE-036: sealed JSON that breaks its rules is answered agent_error, a message over its limit
        # message_too_large.
        except MessageTooLarge as error:
            return self._refuse(offer, failed("message_too_large", str(error)))
        except BodyError as error:
            return self._refuse(offer, failed("agent_error", str(error)))
        # RL-IDEM-028: without a journal on durable storage, what was sealed before the start is refused with
        # busy.
        if self._not_before is not None and offer.iat <= self._not_before:
            detail = "this listener keeps no journal and has just started; try again in two minutes"
            return self._refuse(offer, failed("busy", detail))
        if self._recall.draining:
            return self._refuse(offer, failed("busy", "this listener is stopping"))
        return self._take(opening, opened, offer, request, now)

    def _take(
        self, opening: _Opening, opened: Opened, offer: Offer, request: Request, now: Instant
    ) -> list[Effect]:
        """Take the message, or find out that it is known."""
        call_id = offer.call_id
        # RL-IDEM-015: messages are told apart by the caller's identity key and the message_id, or the request
        # digest.
        try:
            taking = self._records.take(
                key=offer.message_id or offer.digest.hex(),
                payload_digest=digest(opened.json),
                request=opened.json,
                offer=offer,
            )
        except JournalError as error:
            return [Note(str(error), call_id), *self._refuse(offer, failed("busy", NO_JOURNAL))]
        # RL-IDEM-020: a known message with another payload.
        if taking.verdict is Verdict.CONFLICT:
            return self._refuse(offer, failed("duplicate_conflict"))
        # RL-IDEM-022: a caller who would hold more than a quarter of the journal is answered busy.
        if taking.entry is None:
            detail = "this listener's journal has no more room for your messages; try again later"
            return self._refuse(offer, failed("busy", detail))
        # RL-SYNC-017: call_accepted is sent when the journal has it.
        effects = self._line.accepted(call_id)
        if taking.verdict is Verdict.FRESH:
            effects += self._intake.take_up(taking.entry, request, now)
        else:
            try:
                effects += self._join(taking.entry, offer, now, hold=opening.cancelled)
            except JournalError as error:
                effects.append(Note(str(error), call_id))
        if opening.cancelled and not self._line.was_told(call_id):
            # RL-CANCEL-015: a cancel_call right behind the call removes it before it begins.
            effects += self._cancel(CancelCall(call_id=call_id, lease_id=opening.frame.lease_id), now)
        return effects + self._floor.schedule(now)

    def _refuse(self, offer: Offer, end: End) -> list[Effect]:
        """Refuse a call under a seal without taking it: from ``accepted`` (RL-ENVELOPE-035)."""
        self._floor.close(offer.call_id)
        return self._line.accepted(offer.call_id) + self._line.tell(offer, self._floor.viewed(end))

    def _join(self, entry: Entry, offer: Offer, now: Instant, *, hold: bool) -> list[Effect]:
        """Give a further call of a known message its part in the work or its outcome (RL-IDEM-019).

        With ``hold`` it is about to be cancelled, and begins nothing.
        """
        work = self._floor.desk.entry(entry.id)
        if work is None:
            return self._recall.from_row(entry, offer, now)
        self._floor.desk.join(work, offer)
        if work.stage is Stage.WAITING or (hold and not work.begun):
            return []
        if work.stage is Stage.ASKING and offer.mode == "sync" and work.unsettled is None:
            return self._floor.begin(work, None, now)
        # A durable call asks for its start as usual; the grant starts nothing.
        return self._line.started(offer.call_id)

    # --- leases

    def _granted(self, frame: CallStarted, now: Instant) -> list[Effect]:
        """Take the relay's grant: it counts under the current lease, and once.

        Source: RL-DURABLE-030, RL-DURABLE-032.
        """
        call_id = frame.call_id
        if not self._line.holds(call_id, frame.lease_id):
            return []
        work = self._floor.desk.call(call_id)
        try:
            if work is None:
                return self._recall.granted_late(call_id)
            if work.stage is Stage.ASKING and work.unsettled is None:
                # RL-DURABLE-034: nothing begins once execute_by has passed by the own clock.
                return self._floor.begin(work, call_id, now) if now.mono < work.latest else []
            if work.begun and not work.offers[call_id].granted:
                self._records.granted(call_id)
                work.offers[call_id] = replace(work.offers[call_id], granted=True)
        except JournalError as error:
            return [Note(str(error), call_id)]
        return []

    def _lease_refused(self, frame: CallRejected, now: Instant) -> list[Effect]:
        """Take the refusal of a lease; one that is not held is ignored (RL-DURABLE-023), none is answered."""
        call_id = frame.call_id
        if not self._line.holds(call_id, frame.lease_id):
            return []
        self._line.withdraw(call_id)
        self._held.pop(call_id, None)
        work = self._floor.desk.call(call_id)
        if work is None or any(one in self._line for one in work.offers):
            return []
        # RL-DURABLE-024: work that has begun is stopped, and other work dropped.
        if work.begun:
            return self._floor.stop(work, Cause.REFUSED, now)
        if work.unsettled is None:
            self._floor.put_back(work)
        return self._floor.schedule(now)

    # --- cancelling

    def _cancel(self, frame: CancelCall, now: Instant) -> list[Effect]:
        opening = self._openings.get(frame.call_id)
        if opening is not None:
            opening.cancelled = True
            return []
        if self._held.pop(frame.call_id, None) is not None:
            return self._line.cancelled(frame.call_id, "pending")
        work = self._floor.desk.call(frame.call_id)
        if work is not None:
            return self._floor.cancel(work, frame.call_id, now) + self._floor.schedule(now)
        try:
            return self._recall.cancel(frame, now)
        except JournalError as error:
            return [Note(str(error), frame.call_id)]

    # --- work and time

    def ended(self, entry_id: int, result: Result, *, stopped: bool, now: Instant) -> list[Effect]:
        """Take the end of what `Run` started, once it was seen.

        ``stopped`` is True when it was asked to stop before it ended by itself: then what it came to is
        not trusted to be whole.
        """
        return self._floor.ended(entry_id, result, stopped=stopped, now=now) + self._floor.schedule(now)

    def deadline(self) -> int:
        """Return the mono ms at which to call `tick` next."""
        due = self._floor.deadline()
        return self._purge_at if due is None else min(due, self._purge_at)

    def tick(self, now: Instant) -> list[Effect]:
        """Do what is due."""
        effects = self._floor.tick(now)
        for call_id, frame in tuple(self._held.items()):
            if frame.execute_by is not UNSET and now.wall >= frame.execute_by:
                del self._held[call_id]
                self._line.withdraw(call_id)  # the relay lets it expire
        if now.mono >= self._purge_at:
            self._purge_at = now.mono + _PURGE_MS
            try:
                self._records.purge(now.wall, active=self._floor.desk.entries())
            except JournalError as error:
                effects.append(Note(str(error)))
        return effects + self._floor.schedule(now)

    # --- the end

    @property
    def idle(self) -> bool:
        """Whether every call has been answered; what could not be stopped may still run."""
        return not self._openings and all(
            work.stage is Stage.ABANDONED and work.unsettled is None for work in self._floor.desk
        )

    def drain(self) -> None:
        """Take no more work; what was accepted is finished."""
        self._recall.draining = True

    def stop(self, now: Instant) -> list[Effect]:
        """Stop now: nothing more begins, and what runs is stopped and reported as indeterminate."""
        self._recall.draining = True
        effects: list[Effect] = []
        for work in self._floor.desk:
            if work.begun:
                effects += self._floor.stop(work, Cause.SHUTDOWN, now, at_once=True)
            elif all(offer.mode == "durable" for offer in work.offers.values()):
                self._floor.put_back(work)
            elif work.unsettled is None:
                effects += self._floor.end(work, failed("busy", "this listener is stopping"), now)
        return effects
