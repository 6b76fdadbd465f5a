"""Beginning, stopping and ending work, and the bounds it is held to; without any input or output.

The order is always: commit, then say, then do. What the journal cannot take is neither said nor done, and
is tried again, because the one thing a listener must not do is to promise what a crash would take back.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, final

from msgspec import UnsetType

from ringline.listener.effects import Effect, Job, Note, Produced, Result, Run, Stop
from ringline.listener.entries import ContextClaim, ContextTurn, End, JournalError, Offer, Records
from ringline.listener.line import Line
from ringline.listener.outcomes import NO_JOURNAL, answered, failed, lost, viewed
from ringline.listener.work import Cause, Desk, Settlement, Stage, Work
from ringline.protocol.bodies import Checkpoint, FailureCode, link
from ringline.protocol.frames import Phase
from ringline.protocol.instant import Instant

__all__ = ["PATIENCE_MS", "Floor", "cancelled_for_another"]

PATIENCE_MS: Final = 8_000
"""How long work is given to stop by default: within the ten seconds that its caller waits (RL-CANCEL-011)."""

_RETRY_MS: Final = 1_000


def cancelled_for_another() -> End:
    """Return the end of a call whose work was cancelled by another call of the same message (RL-IDEM-026)."""
    return failed("agent_error", "the work was cancelled by another call with the same message_id")


@final
class Floor:
    """Where work is done. Every method returns effects, to be performed in order."""

    def __init__(
        self,
        records: Records,
        line: Line,
        *,
        capacity: int,
        bound_ms: int,
        patience_ms: int,
        kt: Callable[[], Checkpoint | UnsetType],
    ) -> None:
        """Work on at most ``capacity`` messages at once, on each for at most ``bound_ms``.

        What is asked to stop is given ``patience_ms`` before somebody is told that it does not. ``kt`` is
        this side's view of the key log at the time.
        """
        self.desk = Desk(capacity)
        self._records = records
        self._line = line
        self._bound = bound_ms
        self._patience = patience_ms
        self._kt = kt

    def viewed(self, end: End) -> End:
        """Return an end as it is committed and told: with this side's view of the key log."""
        return viewed(end, self._kt())

    # --- beginning

    def schedule(self, now: Instant) -> list[Effect]:
        """Give free places to waiting work, the oldest first."""
        effects: list[Effect] = []
        for work in self.desk:
            if not self.desk.has_place:
                break
            # RL-DURABLE-034: work that has not begun is dropped when execute_by passes by the own clock,
            # whatever the timer has come to.
            if work.stage is Stage.WAITING and work.unsettled is None and now.mono < work.latest:
                effects += self._start(work, now)
        return effects

    def _start(self, work: Work, now: Instant) -> list[Effect]:
        if any(offer.mode == "sync" for offer in work.offers.values()):
            return self.begin(work, None, now)
        # RL-DURABLE-026: call_started is sent when it is ready to begin, and nothing begins before the
        # answer.
        work.stage = Stage.ASKING
        return [effect for call_id in work.offers for effect in self._line.started(call_id)]

    def begin(self, work: Work, granted: str | None, now: Instant) -> list[Effect]:
        """Commit that the handler is about to take its first step, say so, and run it.

        ``granted`` is the durable call whose grant allows it.
        """
        mint = None
        if work.context_id is not None and work.turn == 1:
            mint = ContextClaim(
                context_id=work.context_id, ipk=work.from_ipk, task=work.plan.task or "", turn=None, prev=None
            )
        # RL-DURABLE-031: that it has begun is in the journal before the handler's first step. RL-IDEM-029:
        # without, no work begins.
        try:
            minted = self._records.begin(work.entry_id, granted=granted, mint=mint, now=now.wall)
        except JournalError as error:
            end = failed("busy", NO_JOURNAL)
            return [Note(str(error), next(iter(work.offers))), *self.end(work, end, now)]
        if mint is not None and not minted:
            work.context_id = work.turn = None
        # Durable calls that share the work have asked already if it was waiting for a grant.
        asked = work.stage is Stage.ASKING
        work.stage = Stage.RUNNING
        work.deadline = min(now.mono + self._bound, work.latest)
        first = next(iter(work.offers.values()))
        if granted is not None:
            first = work.offers[granted] = replace(work.offers[granted], granted=True)
        effects: list[Effect] = []
        for offer in work.offers.values():
            # RL-SYNC-018: of a sync call, call_started is sent only when the work begins.
            if offer.mode == "sync" or not asked:
                effects += self._line.started(offer.call_id)
        job = Job(
            entry_id=work.entry_id,
            plan=work.plan,
            request=work.request,
            from_ipk=work.from_ipk,
            offer=first,
            context_id=work.context_id,
            turn=work.turn,
        )
        return [*effects, Run(job)]

    def put_back(self, work: Work) -> None:
        """Drop work that has not begun: its row stays taken, and it is taken up with the next offer."""
        self.desk.drop(work)
        for call_id in work.offers:
            self.close(call_id)

    def close(self, call_id: str) -> None:
        """Tell the journal that this process has not died over the call."""
        with suppress(JournalError):  # at worst it counts as one death of three
            self._records.closed(call_id)

    # --- stopping

    def cancel(self, work: Work, call_id: str, now: Instant) -> list[Effect]:
        """Take the cancellation of one call of the work (RL-CANCEL-034)."""
        if work.unsettled is not None:
            return []  # it has ended; that is told when it is on disk
        # RL-CANCEL-015: work that has not begun is removed for good, and call_cancelled says `pending`.
        if not work.begun:
            return self._end_cancelled(work, {call_id: "pending"}, now)
        work.asked.add(call_id)
        if work.patience is None:
            work.patience = now.mono + self._patience
        return self._stop(work)

    def stop(self, work: Work, cause: Cause, now: Instant, *, at_once: bool = False) -> list[Effect]:
        """Stop running work for a reason of our own."""
        if work.unsettled is not None or work.stage is not Stage.RUNNING:
            return []
        work.cause = cause
        work.patience = now.mono + self._patience
        return self._stop(work, at_once=at_once)

    def _stop(self, work: Work, *, at_once: bool = False) -> list[Effect]:
        told, work.stopping = work.stopping, True
        return [] if told and not at_once else [Stop(work.entry_id, at_once)]

    # --- ending

    def ended(self, entry_id: int, result: Result, *, stopped: bool, now: Instant) -> list[Effect]:
        """Take the end of what ran; see `Session.ended`."""
        work = self.desk.running(entry_id)
        if work is None:
            return []
        work.over = True
        if work.unsettled is not None:
            return []
        if work.stage is Stage.ABANDONED:
            self.desk.drop(work)
            return []
        # RL-CANCEL-016: `running` is said only when it was seen that nothing of it runs any more.
        if stopped and work.asked:
            return self._end_cancelled(work, dict.fromkeys(work.asked, "running"), now)
        # RL-SYNC-016: work that took too long is stopped, and reported as the sealed failure timeout.
        if stopped and work.cause is Cause.BOUND:
            return self.end(work, failed("timeout", "the work took too long and was stopped"), now)
        if stopped and work.cause is not None:
            return self.end(work, lost("the listener stopped the work before it was done"), now)
        if not isinstance(result, Produced):
            return self.end(work, failed(result.code, result.detail), now)
        # Before it is linked to: the bytes that a next turn names are those that were sealed.
        end = self.viewed(answered(result, task=work.plan.task, context_id=work.context_id, turn=work.turn))
        turn = None
        if end.json is not None and end.terminal == "completed" and work.context_id and work.turn:
            turn = ContextTurn(work.context_id, work.turn, link(end.json))
        return self.end(work, end, now, turn)

    def end(self, work: Work, end: End, now: Instant, turn: ContextTurn | None = None) -> list[Effect]:
        """Commit the outcome, tell it to every call of the work, and free its place."""
        end = self.viewed(end)

        def commit() -> None:
            self._records.finish(work.entry_id, end, turn=turn, now=now.wall)

        def tell(offer: Offer) -> list[Effect]:
            # RL-DURABLE-043: a call that joined asks for its start before completed is sent for it.
            if end.terminal == "completed" and offer.mode == "durable" and not offer.granted:
                return []
            return self._line.tell(offer, end)

        return self._settle(work, Settlement(commit, tell), now)

    def _end_cancelled(self, work: Work, phases: Mapping[str, Phase], now: Instant) -> list[Effect]:
        """Commit the cancellation, confirm it to who asked, and fail the calls that had joined."""

        def commit() -> None:
            self._records.cancel(work.entry_id, phases, now=now.wall)

        def tell(offer: Offer) -> list[Effect]:
            if offer.call_id in phases:
                return self._line.cancelled(offer.call_id, phases[offer.call_id])
            return self._line.tell(offer, self.viewed(cancelled_for_another()))

        return self._settle(work, Settlement(commit, tell), now)

    def _settle(self, work: Work, settlement: Settlement, now: Instant) -> list[Effect]:
        """Write, then say (RL-IDEM-024, RL-CANCEL-020). What is not written is tried again by `tick`."""
        try:
            settlement.commit()
        except JournalError as error:
            first = work.unsettled is None
            work.unsettled, work.retry = settlement, now.mono + _RETRY_MS
            note = Note(f"{error}; the end of a call waits for it", next(iter(work.offers)))
            return [note] if first else []
        work.unsettled = None
        if work.stage is not Stage.ABANDONED or work.over:
            self.desk.drop(work)
        return [effect for offer in work.offers.values() for effect in settlement.tell(offer)]

    # --- time

    def deadline(self) -> int | None:
        """Return the mono ms at which `tick` has something to do."""
        times = (work.next_time() for work in self.desk)
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: Instant) -> list[Effect]:
        """Hold all work to its bounds."""
        effects: list[Effect] = []
        for work in self.desk:
            due = work.next_time()
            if due is None or now.mono < due:
                continue
            if work.unsettled is not None:
                effects += self._settle(work, work.unsettled, now)
            elif not work.begun:
                effects += self._too_late_to_begin(work, now)
            elif work.patience is not None and now.mono >= work.patience:
                effects += self._impatient(work, now)
            else:
                effects += self.stop(work, Cause.BOUND, now)
        return effects

    def _too_late_to_begin(self, work: Work, now: Instant) -> list[Effect]:
        if all(offer.mode == "durable" for offer in work.offers.values()):
            self.put_back(work)  # the relay lets it expire
            return []
        return self.end(work, failed("busy", "no place became free in time; nothing was run"), now)

    def _impatient(self, work: Work, now: Instant) -> list[Effect]:
        """Say that what was asked to stop has not stopped; never that it has."""
        work.patience = None
        if work.cause is not None:
            code: FailureCode = "timeout" if work.cause is Cause.BOUND else "agent_error"
            work.stage = Stage.ABANDONED
            return self.end(work, lost("the work could not be stopped; it may still run", code), now)
        if not work.plan.stoppable:
            return []  # a plain function ends when it looks at its flag; the answer is given then
        # RL-CANCEL-019: begun work that cannot be stopped is answered `too_late`, and its outcome when it is
        # there.
        effects = [
            effect
            for call_id in sorted(work.asked)
            for effect in self._line.not_cancelled(call_id, "too_late")
        ]
        # RL-CANCEL-025: a later cancellation is a new request.
        work.asked.clear()
        work.stopping = False
        return effects
