"""What a caller does with each frame, each loss and each moment: pure, for one connection's worth of calls.

A `CallerSession` knows the calls to one callee. It is told what happens and answers with effects, which
the edge performs in order. It neither seals nor opens: an outcome is handed out as `Open`, and the edge
says what came of it. Whatever else a relay sends is its unauthenticated word (envelope §3.8).
"""

from typing import Final, final

from msgspec import UNSET

from ringline.caller.effects import (
    Cancel,
    CancelAnswer,
    Decided,
    Effect,
    End,
    Ended,
    Learned,
    Lookup,
    LostRelay,
    Open,
    OutOfTime,
    Progress,
    Queued,
    Refused,
    Reseal,
    Send,
    Tell,
    Unopened,
    Withdrawn,
)
from ringline.caller.pending import Outgoing, Pending, Strays
from ringline.protocol.errors import ProtocolError, RinglineError
from ringline.protocol.frames import (
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallQueued,
    CallStatus,
    CancelCall,
    RelayCode,
    RelayToCaller,
)
from ringline.protocol.instant import Instant
from ringline.protocol.limits import CANCEL_WAIT_MS, HOLD_MS

__all__ = ["RETRY_MS", "CallerSession"]

RETRY_MS: Final = 500
"""How long before the one retry when the relay names no time."""

_LOOKUP_AGAIN_MS: Final = 1_000
_SPOILED_MS: Final = 1_000
_OPENINGS: Final = 4
_ENDS_KEPT: Final = 1_024
_STATES: Final = {"ringing": 1, "answered": 2, "working": 3}
# protocol §11: retried at most once by the library, with the same message_id.
_RETRIED: Final[dict[RelayCode, Progress]] = {
    "offline": "offline",
    "busy": "busy",
    "rate_limited": "rate_limited",
}


@final
class CallerSession:
    """All calls of one caller to one callee. Every method returns the effects to perform, in order."""

    def __init__(self) -> None:
        """Begin without a connection and without calls."""
        self._calls: dict[str, Pending] = {}
        self._by_id: dict[str, Pending] = {}
        self._ends: dict[str, None] = {}
        self._connected = False
        self.strays = Strays()

    @property
    def idle(self) -> bool:
        """True when no call needs the connection."""
        return not self._calls

    def knows(self, message_id: str) -> bool:
        """True until nothing can come of that call any more."""
        return message_id in self._calls

    @property
    def connected(self) -> bool:
        """True between `opened` and `lost`."""
        return self._connected

    def start(self, out: Outgoing, now: Instant) -> list[Effect]:
        """Take a call. Its ``message_id`` must be that of no other call here."""
        if out.message_id in self._calls:
            raise ValueError("this message_id is under way already")
        call = Pending(out, out.call_id, 1 if out.sent_before else 0, out.retries)
        self._calls[out.message_id] = call
        if call.call_id is not None:
            self._by_id[call.call_id] = call
        return self._bring(call, now) if self._connected else []

    def opened(self, now: Instant) -> list[Effect]:
        """A connection stands: bring every call onto it."""
        self._connected = True
        effects: list[Effect] = []
        for call in list(self._calls.values()):
            call.on_wire = call.answered = False
            if call.given_up_at is not None:
                # Nobody waits; sending it again could only start what was given up.
                effects += self._ask_cancel(call, now)
            elif call.retry_at is None or call.retry_at <= now.mono:
                call.retry_at = None
                effects += self._bring(call, now)
        return effects

    def lost(self, error: RinglineError, now: Instant) -> list[Effect]:
        """The connection is gone, or a dial failed."""
        stood, self._connected = self._connected, False
        effects: list[Effect] = []
        for call in list(self._calls.values()):
            call.on_wire = call.answered = False
            call.looking_up, call.lookup_at = False, None
            call.lost_error = error
            if call.with_relay:
                call.lost_at = now.mono if call.lost_at is None else call.lost_at
            elif not stood:
                # The relay has nothing of it and cannot be dialled: that is the answer.
                effects += self._end(call, LostRelay(error, sent=False))
        return effects

    def ended(self, error: RinglineError, now: Instant) -> list[Effect]:
        """There will be no connection any more."""
        self._connected = False
        return [
            effect
            for call in list(self._calls.values())
            for effect in self._end(call, LostRelay(error, sent=call.with_relay))
        ]

    def closed(self, error: RinglineError, now: Instant) -> list[Effect]:
        """The caller is closed: every call ends, outcomes that are being opened included."""
        for call in self._calls.values():
            call.opening = 0
        return self.ended(error, now)

    def receive(self, frame: RelayToCaller, now: Instant) -> list[Effect]:
        """A frame of the relay."""
        match frame:
            case CallStatus():
                return self._status(frame, now)
            case CallError():
                return self._error(frame, now)
            case CallOutcome():
                return self._outcome(frame, now)
            case CallNotCancelled():
                return self._not_cancelled(frame)
            case CallQueued():
                return self._queued(frame)

    def looked_up(self, message_id: str, known: bool | None, now: Instant) -> list[Effect]:
        """The answer to `Lookup`: whether the relay knows the call; None when it could not be asked."""
        call = self._calls.get(message_id)
        if call is None or not call.looking_up:
            return []
        call.looking_up = False
        if known is None:
            call.lookup_at = now.mono + _LOOKUP_AGAIN_MS
            return []
        if not known:
            # protocol §5: it may have run, and sending it again could make it run twice.
            return self._end(call, Refused("timeout", call.call_id, None, forgotten=True))
        return self._send(call)

    def resealed(self, message_id: str, payload: bytes) -> list[Effect]:
        """The answer to `Reseal`: the same call, sealed anew under the same ``message_id``."""
        call = self._calls.get(message_id)
        if call is None or not call.resealing:
            return []
        call.resealing = False
        call.out = Outgoing(
            message_id=call.out.message_id,
            correlation_id=call.out.correlation_id,
            payload=payload,
            deadline=call.out.deadline,
        )
        call.sendings = 0
        return self._send(call) if self._connected else []

    def not_resealed(self, message_id: str, error: RinglineError) -> list[Effect]:
        """The answer to `Reseal` when it cannot be done: nothing of the call is with the relay."""
        call = self._calls.get(message_id)
        if call is None or not call.resealing:
            return []
        return self._end(call, LostRelay(error, sent=False))

    def opened_outcome(self, message_id: str) -> list[Effect]:
        """The answer to `Open`: it opened, and is kept. The call is over."""
        call = self._calls.get(message_id)
        if call is None:
            self.strays.late += 1  # envelope §3.9: the first one counts
            return []
        return self._end(call, None)

    def unopened_outcome(
        self, message_id: str, now: Instant, error: RinglineError | None = None
    ) -> list[Effect]:
        """The answer to `Open`: it was not taken. A true one may still come, for a moment.

        ``error`` is as in `Unopened`: None says that it is forged.
        """
        call = self._calls.get(message_id)
        if call is None:
            self.strays.late += 1
            return []
        call.opening -= 1
        if call.spoiled_at is None:
            call.spoiled_at = now.mono + _SPOILED_MS
        call.unchecked = error or call.unchecked
        if call.opening == 0 and call.held is not None:
            # The relay's word on the end does not replace an outcome that may be the true one.
            return self._end(call, call.held if call.unchecked is None else Unopened(call.unchecked))
        return []

    def cancel(self, message_id: str, now: Instant) -> list[Effect]:
        """The caller asks for a cancellation; the answer is a `Decided` or an end."""
        call = self._calls.get(message_id)
        if call is None or call.given_up_at is not None:
            return [Decided(message_id, "already_terminal")]
        if not call.with_relay:
            # Never sent, or refused without effect.
            return self._end(call, Withdrawn())
        call.cancel_by = now.mono + CANCEL_WAIT_MS
        return self._ask_cancel(call, now) if call.cancel != "asked" else []

    def give_up(self, message_id: str, now: Instant) -> list[Effect]:
        """The caller stops waiting. A cancellation is asked for as soon as that is possible."""
        call = self._calls.get(message_id)
        if call is None or call.given_up_at is not None:
            return []
        return self._give_up(call, now)

    def deadline(self) -> int | None:
        """Return when `tick` is due next, monotonic ms."""
        times: list[int] = []
        for call in self._calls.values():
            if call.given_up_at is not None:
                times.append(call.given_up_at)
                continue
            if not call.opening:
                times.append(call.out.deadline)
                times += [time for time in (call.spoiled_at,) if time is not None]
            if call.lost_at is not None and not self._connected and call.out.durable_exp is None:
                times.append(call.lost_at + HOLD_MS)
            times += [time for time in (call.retry_at, call.lookup_at, call.cancel_by) if time is not None]
        return min(times, default=None)

    def tick(self, now: Instant) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        for call in list(self._calls.values()):
            if call.given_up_at is not None:
                if now.mono >= call.given_up_at:
                    self._remove(call)
            elif call.unchecked is not None and now.mono >= call.out.deadline and not call.opening:
                # It was answered in time, as far as can be told.
                effects += self._end(call, Unopened(call.unchecked))
            elif now.mono >= call.out.deadline and not call.opening:
                effects += self._give_up(call, now)
            elif call.spoiled_at is not None and now.mono >= call.spoiled_at and not call.opening:
                effects += self._end(call, Unopened(call.unchecked))
            elif (
                call.lost_at is not None
                and not self._connected
                and call.out.durable_exp is None
                and now.mono >= call.lost_at + HOLD_MS
            ):
                # protocol §5: the relay has cancelled it by now, if it still knows it.
                assert call.lost_error is not None
                effects += self._end(call, LostRelay(call.lost_error, sent=True))
            else:
                effects += self._due(call, now)
        return effects

    def _due(self, call: Pending, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        if call.cancel_by is not None and now.mono >= call.cancel_by:
            call.cancel_by = None
            effects.append(Decided(call.out.message_id, "requested"))
        if call.retry_at is not None and now.mono >= call.retry_at and self._connected:
            call.retry_at = None
            effects += self._send(call)
        if call.lookup_at is not None and now.mono >= call.lookup_at:
            call.lookup_at = None
            if self._connected:
                effects += self._bring(call, now)
        return effects

    def _bring(self, call: Pending, now: Instant) -> list[Effect]:
        """Bring a call onto the connection that stands (protocol §5)."""
        if call.resealing or call.looking_up:
            return []
        if call.call_id is None or call.out.durable_exp is not None:
            return self._send(call)
        # A relay that has forgotten a call would take its repeat for a new one: ask before.
        call.looking_up = True
        return [Lookup(call.out.message_id, call.call_id)]

    def _send(self, call: Pending) -> list[Effect]:
        call.on_wire, call.answered = True, False
        call.sendings += 1
        return [
            Send(call.out.payload),
            Tell(call.out.message_id, "sent" if call.sendings == 1 else "sent_again", call.call_id),
        ]

    def _status(self, frame: CallStatus, now: Instant) -> list[Effect]:
        call = self._by_id.get(frame.call_id)
        effects: list[Effect] = []
        if call is not None:
            if call.out.correlation_id != frame.correlation_id:
                self.strays.mismatched += 1
                return []
        else:
            call = self._unanswered(frame.correlation_id)
            durable = call is not None and call.out.durable_exp is not None
            if call is None or call.call_id is not None or durable or frame.call_id in self._ends:
                return self._stray(frame.call_id, known=call is not None)
            effects += self._learn(call, frame.call_id)
        if not call.on_wire:
            self.strays.mismatched += 1
            return []
        if not call.answered:
            call.answered = True
            call.lost_at = None
            if call.cancel != "no":
                # Held until now, or asked on a connection that is gone.
                effects += self._ask_cancel(call, now)
        rank = _STATES[frame.state]
        if rank <= call.state:
            # On a new connection the present status is told anew; the caller knows it.
            self.strays.repeated += 1
        elif call.given_up_at is None:
            call.state = rank
            effects.append(Tell(call.out.message_id, frame.state, call.call_id))
        return effects

    def _error(self, frame: CallError, now: Instant) -> list[Effect]:
        correlation = None if frame.correlation_id is UNSET else frame.correlation_id
        retry_ms = None if frame.retry_after_ms is UNSET else frame.retry_after_ms
        if frame.call_id is not UNSET:
            call = self._by_id.get(frame.call_id)
            if call is None and correlation is not None:
                # The end of a call whose first answer was lost with its connection.
                waiting = self._unanswered(correlation)
                if waiting is None or waiting.call_id is not None:
                    return self._stray(frame.call_id, known=waiting is not None)
                call = waiting
            if call is None:
                return self._stray(frame.call_id, known=False)
            if correlation not in (None, call.out.correlation_id):
                self.strays.mismatched += 1
                return []
            learned = self._learn(call, frame.call_id) if call.call_id is None else []
            return learned + self._end(call, Refused(frame.code, frame.call_id, retry_ms))
        if correlation is not None:
            call = self._unanswered(correlation)
        else:
            # A frame the relay could not read has no ids in its answer; with one in question, it is meant.
            waiting_calls = [each for each in self._calls.values() if each.waits]
            call = waiting_calls[0] if len(waiting_calls) == 1 else None
        if call is None:
            self.strays.unknown += 1
            return []
        return self._refused(call, frame, retry_ms, now)

    def _refused(self, call: Pending, frame: CallError, retry_ms: int | None, now: Instant) -> list[Effect]:
        """An error without ``call_id``: this sending admitted nothing (protocol §3)."""
        call.answered = True
        first = call.sendings == 1 and call.call_id is None
        if call.given_up_at is not None:
            self._remove(call)
            return []
        if (
            frame.code == "timeout"
            and first
            and call.out.durable_exp is None
            and not call.resealed
            and call.cancel == "no"
        ):
            # protocol §5: sealed before the relay's start, and no earlier sending could have run.
            call.resealing = call.resealed = True
            call.on_wire = False
            return [Reseal(call.out.message_id)]
        if frame.code in _RETRIED and call.retries and call.call_id is None and call.cancel == "no":
            at = now.mono + (RETRY_MS if retry_ms is None else retry_ms)
            if at < call.out.deadline:
                call.retries -= 1
                call.refused = frame.code
                call.retry_at = at
                call.on_wire = False
                return [Tell(call.out.message_id, _RETRIED[frame.code], None)]
        # The retry itself may have cost the last unit of a budget: that is not why the call was refused.
        masked = frame.code == "rate_limited" and call.refused is not None
        return self._end(call, Refused((masked and call.refused) or frame.code, None, retry_ms))

    def _queued(self, frame: CallQueued) -> list[Effect]:
        """The relay has stored a durable call: from here on it is asked about over HTTP."""
        call = self._calls.get(frame.message_id)
        if call is None:
            return self._stray(frame.call_id, known=frame.call_id in self._by_id)
        exp = call.out.durable_exp
        if exp is None or not call.on_wire or frame.correlation_id != call.out.correlation_id:
            self.strays.mismatched += 1
            return []
        learned = self._learn(call, frame.call_id) if call.call_id is None else []
        if call.call_id != frame.call_id or frame.expires_at > exp:
            # protocol §6: execute_by is never beyond what was sealed, and a call has one id.
            self.strays.mismatched += 1
            error = ProtocolError("the relay has confirmed another call than the one that was sent")
            return [*learned, *self._end(call, LostRelay(error, sent=True))]
        self._remove(call)
        return [*learned, Queued(frame.message_id, frame)]

    def _outcome(self, frame: CallOutcome, now: Instant) -> list[Effect]:
        call = self._by_id.get(frame.call_id)
        if call is None or call.out.durable_exp is not None:
            # That of a durable call is fetched over HTTP, by whoever wants it.
            return self._stray(frame.call_id, known=call is not None)
        call.answered = True
        # An honest relay sends one. To open is work, and holds up the end of the call: forged ones must
        # neither pile up nor keep a caller beyond his time.
        late = call.given_up_at is None and (
            now.mono >= call.out.deadline or (call.spoiled_at is not None and now.mono >= call.spoiled_at)
        )
        if late or call.opening >= _OPENINGS:
            self.strays.surplus += 1
            return []
        call.opening += 1
        return [Open(call.out.message_id, frame)]

    def _not_cancelled(self, frame: CallNotCancelled) -> list[Effect]:
        call = self._by_id.get(frame.call_id)
        if call is None or call.cancel != "asked":
            return self._stray(frame.call_id, known=call is not None)
        call.cancel, call.cancel_by = "no", None
        if call.given_up_at is not None:
            self._remove(call)
            return []
        return [Decided(call.out.message_id, frame.reason)]

    def _ask_cancel(self, call: Pending, now: Instant) -> list[Effect]:
        """Send ``cancel_call``, or hold it until the call has an id and a connection (protocol §7)."""
        if call.call_id is None or not self._connected:
            call.cancel = "wanted"
            return []
        call.cancel = "asked"
        return [Cancel(CancelCall(call_id=call.call_id))]

    def _give_up(self, call: Pending, now: Instant) -> list[Effect]:
        sent = call.with_relay
        effects: list[Effect] = []
        if call.cancel_by is not None:
            effects.append(Decided(call.out.message_id, "requested"))
            call.cancel_by = None
        if not sent or call.out.durable_exp is not None:
            # Whoever leaves a durable call with the relay wants it done; it is not cancelled.
            return effects + self._end(call, OutOfTime(call.call_id, sent=sent))
        if call.cancel != "asked":
            effects += self._ask_cancel(call, now)
        call.given_up_at = now.mono + HOLD_MS
        call.retry_at = call.lookup_at = call.spoiled_at = call.lost_at = None
        return [*effects, End(call.out.message_id, OutOfTime(call.call_id, sent=True))]

    def _learn(self, call: Pending, call_id: str) -> list[Effect]:
        call.call_id = call_id
        self._by_id[call_id] = call
        return [Learned(call.out.message_id, call_id)]

    def _unanswered(self, correlation_id: str) -> Pending | None:
        for call in self._calls.values():
            if call.waits and call.out.correlation_id == correlation_id:
                return call
        return None

    def _stray(self, call_id: str, *, known: bool) -> list[Effect]:
        if call_id in self._ends:
            self.strays.late += 1
        elif known:
            self.strays.mismatched += 1
        else:
            self.strays.unknown += 1
        return []

    def _end(self, call: Pending, end: Ended | None) -> list[Effect]:
        """End a call; None means that its outcome was opened. An outcome being opened is waited for."""
        if end is not None and call.opening:
            # protocol §5: a late timeout never replaces an outcome.
            call.held = call.held or end
            return []
        self._remove(call)
        if call.given_up_at is not None:
            return []
        effects: list[Effect] = []
        if call.cancel_by is not None or isinstance(end, Withdrawn):
            effects.append(Decided(call.out.message_id, _cancel_answer(end)))
        if end is not None:
            effects.append(End(call.out.message_id, end))
        return effects

    def _remove(self, call: Pending) -> None:
        self._calls.pop(call.out.message_id, None)
        if call.call_id is not None:
            self._by_id.pop(call.call_id, None)
            self._ends[call.call_id] = None
            if len(self._ends) > _ENDS_KEPT:
                del self._ends[next(iter(self._ends))]


def _cancel_answer(end: Ended | None) -> CancelAnswer:
    if isinstance(end, Withdrawn) or (isinstance(end, Refused) and end.code == "canceled"):
        return "canceled"
    if isinstance(end, LostRelay):
        return "requested"
    return "already_terminal"
