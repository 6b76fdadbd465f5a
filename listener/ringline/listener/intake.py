"""From a message that was taken to work at the desk: policy, and its place in a conversation."""

from collections.abc import Callable
from typing import final

from msgspec import UNSET

from ringline.listener.effects import Effect, Judge, Note, Plan, Refusal
from ringline.listener.entries import ContextClaim, End, Entry, JournalError, Offer, Records
from ringline.listener.floor import Floor
from ringline.listener.line import Line
from ringline.listener.outcomes import NO_JOURNAL, failed
from ringline.listener.work import Work
from ringline.protocol.bodies import Request
from ringline.protocol.instant import Instant
from ringline.protocol.limits import WORK_BOUND_MAX_MS

__all__ = ["Intake"]


@final
class Intake:
    """Takes messages up that are in the journal. Every method returns effects, to be performed in order."""

    def __init__(
        self, records: Records, line: Line, floor: Floor, judge: Judge, mint: Callable[[], str]
    ) -> None:
        """``judge`` is the policy, ``mint`` makes context ids."""
        self._records = records
        self._line = line
        self._floor = floor
        self._judge = judge
        self._mint = mint

    def take_up(self, entry: Entry, request: Request, now: Instant) -> list[Effect]:
        """Apply policy to a message that was taken, and let it wait for a place (RL-ENVELOPE-035)."""
        first = next(iter(entry.offers.values()))
        verdict = self._judge(request, first.handle, first.call_id)
        if isinstance(verdict, Refusal):
            end = failed(verdict.code, verdict.detail, offered=verdict.offered)
            return self.finish(entry, end, now)
        latest = min(_latest(offer, now) for offer in entry.offers.values())
        work = Work(
            entry_id=entry.id,
            from_ipk=entry.from_ipk,
            request=request,
            plan=verdict,
            offers=dict(entry.offers),
            latest=latest,
            deadline=latest,
        )
        try:
            fits = self._converse(work, verdict, now)
        except JournalError as error:
            return [Note(str(error), first.call_id), *self.finish(entry, failed("busy", NO_JOURNAL), now)]
        if not fits:
            # RL-CONVERSE-005: whatever does not follow is context_unknown, the same for every cause, and
            # starts nothing.
            return self.finish(entry, failed("context_unknown"), now)
        self._floor.desk.add(work)
        return []

    def _converse(self, work: Work, plan: Plan, now: Instant) -> bool:
        """Claim the turn that the request names, or prepare a new context; False when it does not fit."""
        request = work.request
        turn = None if request.turn is UNSET else request.turn
        prev = None if request.prev is UNSET else request.prev
        if request.context_id is UNSET:
            if turn not in (None, 1) or prev is not None:
                return False
            if plan.converses:
                work.context_id, work.turn = self._mint(), 1
            return True
        if not plan.converses:
            return False
        claim = ContextClaim(
            context_id=request.context_id, ipk=work.from_ipk, task=plan.task or "", turn=turn, prev=prev
        )
        if not self._records.claim(work.entry_id, claim, now.wall):
            return False
        work.context_id, work.turn = request.context_id, turn
        return True

    def finish(self, entry: Entry, end: End, now: Instant) -> list[Effect]:
        """Commit and tell an outcome without any work; when it cannot be committed, it is not told."""
        end = self._floor.viewed(end)
        try:
            self._records.finish(entry.id, end, turn=None, now=now.wall)
        except JournalError as error:
            return [Note(str(error), next(iter(entry.offers)))]
        return [effect for offer in entry.offers.values() for effect in self._line.tell(offer, end)]


def _latest(offer: Offer, now: Instant) -> int:
    """When, in mono ms, the work of this call must have ended, however long it had to wait."""
    if offer.execute_by is not None:
        return now.mono + max(0, offer.execute_by - now.wall)
    # RL-SYNC-015: a sealed outcome within 350 s of the incoming_call, before the relay's own bound.
    left = offer.offered_at + WORK_BOUND_MAX_MS - now.wall
    return now.mono + max(0, min(left, WORK_BOUND_MAX_MS))
