"""Answers from the journal alone: no work of this process stands behind them, or none that still counts.

A call comes again after a loss, after a crash, or as a second call of a message that is known. What is true
of it then is in its row (RL-IDEM-017, RL-SYNC-025, RL-DURABLE-040).
"""

from dataclasses import replace
from typing import Final, final

from msgspec import UNSET

from ringline.listener.effects import Effect, Tell
from ringline.listener.entries import Entry, EntryState, Offer, Records
from ringline.listener.floor import Floor, cancelled_for_another
from ringline.listener.intake import Intake
from ringline.listener.line import Line, answer_cancelled, answer_not_cancelled
from ringline.listener.outcomes import failed, lost
from ringline.listener.work import Stage
from ringline.protocol.bodies import decode_request
from ringline.protocol.frames import CancelCall, IncomingCall, Phase
from ringline.protocol.instant import Instant
from ringline.protocol.limits import ENVELOPE_SKEW_MS

__all__ = ["DEATHS", "TAIL_MS", "Recall"]

DEATHS: Final = 3
"""Processes that may die over a call before it is refused (RL-IDEM-027)."""

TAIL_MS: Final = 2 * ENVELOPE_SKEW_MS
"""How long a call is remembered beyond its ``exp`` (RL-IDEM-021)."""


@final
class Recall:
    """Every method returns effects, to be performed in order, and raises `JournalError`."""

    def __init__(self, records: Records, line: Line, floor: Floor, intake: Intake) -> None:
        """Ask these."""
        self._records = records
        self._line = line
        self._floor = floor
        self._intake = intake
        self.draining = False
        """Whether no more work is taken."""

    def again(self, entry: Entry, frame: IncomingCall, now: Instant) -> list[Effect]:
        """Answer a call that is offered again."""
        call_id = frame.call_id
        self._line.offer(call_id, frame.lease_id)
        offer = entry.offers[call_id]
        message_id = "" if frame.message_id is UNSET else frame.message_id
        # RL-IDEM-018: a known call_id with another `from` or message_id is answered call_rejected.
        if (offer.handle, offer.message_id) != (frame.from_, message_id):
            return self._line.rejected(call_id)
        if offer.mode == "durable":
            lease = None if frame.lease_id is UNSET else frame.lease_id
            execute_by = None if frame.execute_by is UNSET else frame.execute_by
            self._records.offered(call_id, lease, execute_by)
            offer = replace(offer, lease_id=lease, execute_by=execute_by)
        work = self._floor.desk.entry(entry.id)
        if work is None:
            return self.from_row(entry, offer, now) + self._floor.schedule(now)
        self._floor.desk.join(work, offer)
        accepted = self._line.accepted(call_id)
        return accepted if work.stage is Stage.WAITING else accepted + self._line.started(call_id)

    def from_row(self, entry: Entry, offer: Offer, now: Instant) -> list[Effect]:
        """Answer for one call of an entry."""
        call_id = offer.call_id
        entry = replace(entry, offers={**entry.offers, call_id: offer})
        match entry.state:
            case EntryState.TAKEN:
                return self._take_up_again(entry, offer, now)
            case EntryState.BEGUN:
                # RL-DURABLE-041: begun work whose process is gone failed as indeterminate_execution, and is
                # never run again.
                detail = "the listener died while the work ran; it may have been done"
                return self._intake.finish(entry, lost(detail), now)
            case EntryState.FINISHED:
                return self._tell_finished(entry, offer)
            case EntryState.CANCELLED if offer.cancelled is not None:
                return self._line.cancelled(call_id, offer.cancelled)
            case EntryState.CANCELLED:
                return self._line.tell(offer, cancelled_for_another())

    def _take_up_again(self, entry: Entry, offer: Offer, now: Instant) -> list[Effect]:
        """Take up what was taken and has not begun, by a process that died or before a loss."""
        call_id = offer.call_id
        if self.draining and offer.mode == "durable":
            return []
        deaths = self._records.opening(call_id, entry.exp + TAIL_MS)
        effects = self._line.accepted(call_id)
        # RL-IDEM-027: after three deaths the call, which was opened before, fails as agent_error.
        if deaths >= DEATHS:
            detail = f"the listener has died over this call {deaths} times"
            return effects + self._intake.finish(entry, failed("agent_error", detail), now)
        if self.draining:
            return effects + self._intake.finish(entry, failed("busy", "this listener is stopping"), now)
        assert entry.request is not None
        present = {one: known for one, known in entry.offers.items() if one in self._line}
        # It was checked when it was taken.
        request = decode_request(entry.request)
        return effects + self._intake.take_up(replace(entry, offers=present), request, now)

    def _tell_finished(self, entry: Entry, offer: Offer) -> list[Effect]:
        assert entry.end is not None
        if entry.end.terminal != "completed":
            return self._line.tell(offer, entry.end)
        # RL-DURABLE-043: a call that joined finished work asks for its start before completed is sent for it.
        if offer.mode == "durable" and not offer.granted:
            return self._line.started(offer.call_id)
        # RL-FRAME-049: completed only after the start, and what was said of that may be lost with a
        # connection.
        known = offer.mode == "durable" or entry.end.json is None
        again = [] if known else self._line.started(offer.call_id)
        return again + self._line.tell(offer, entry.end)

    def granted_late(self, call_id: str) -> list[Effect]:
        """A call that joined a finished message may now be told the outcome."""
        entry = self._records.find(call_id)
        if entry is None or entry.state is not EntryState.FINISHED or entry.offers[call_id].granted:
            return []
        self._records.granted(call_id)
        return self._tell_finished(entry, replace(entry.offers[call_id], granted=True))

    def cancel(self, frame: CancelCall, now: Instant) -> list[Effect]:
        """Answer a cancellation of a call that no work of this process belongs to."""
        call_id = frame.call_id
        entry = self._records.find(call_id)
        # RL-CANCEL-018: a call that is not known is answered `unknown`.
        if entry is None:
            return answer_not_cancelled(frame, "unknown")
        offer = entry.offers[call_id]
        work = self._floor.desk.entry(entry.id)
        if work is not None:
            # RL-CANCEL-034: the cancellation of any call that has joined a message is that of the message's
            # work.
            self._line.offer(call_id, frame.lease_id)
            self._floor.desk.join(work, offer)
            return self._floor.cancel(work, call_id, now) + self._floor.schedule(now)
        match entry.state:
            # RL-CANCEL-015: work that has not begun is removed for good.
            case EntryState.TAKEN:
                self._records.cancel(entry.id, {call_id: "pending"}, now=now.wall)
                return answer_cancelled(frame, "pending")
            # RL-CANCEL-022: it is not reported as cancelled because the process that ran it is presumed dead.
            case EntryState.BEGUN:
                return self.from_row(entry, offer, now)
            # RL-CANCEL-021: what the journal has as cancelled is answered so whenever it is cancelled again.
            case EntryState.CANCELLED if offer.cancelled is not None:
                return answer_cancelled(frame, offer.cancelled)
            case EntryState.CANCELLED if not self._line.was_told(call_id):
                phase = _phase(entry)
                self._records.confirm(call_id, phase)
                return answer_cancelled(frame, phase)
            # RL-CANCEL-017: finished work is answered with the outcome if the relay may not have it, else
            # with `already_terminal`.
            case EntryState.FINISHED if not self._line.was_told(call_id):
                told = self._tell_finished(entry, offer)
                if any(isinstance(effect, Tell) for effect in told):
                    return told  # the outcome wins
                return answer_not_cancelled(frame, "already_terminal") + told
            case _:
                return answer_not_cancelled(frame, "already_terminal")


def _phase(entry: Entry) -> Phase:
    """In which phase the work of a cancelled entry was."""
    for offer in entry.offers.values():
        if offer.cancelled is not None:
            return offer.cancelled
    return "running"
