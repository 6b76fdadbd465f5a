"""What a caller does with each frame, each loss and each moment: pure, for one connection's worth of calls.

A `CallerSession` knows the calls to one callee. It is told what happens and answers with effects, which
the edge performs in order. It neither seals nor opens: an outcome is handed out as `Open`, and the edge
says what came of it. Whatever else a relay sends is its unauthenticated word (RL-ERROR-002).
"""

from typing import Final, final

from msgspec import UNSET

from ringline.caller.effects import (
    Decided,
    Effect,
    Lookup,
    LostRelay,
    Open,
    Progress,
    Queued,
    Refused,
    Reseal,
    Send,
    Tell,
    Unopened,
)
from ringline.caller.patience import Patience
from ringline.caller.pending import Outgoing, Pending, Strays
from ringline.caller.roll import Roll
from ringline.protocol.errors import ProtocolError, RinglineError
from ringline.protocol.frames import (
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallQueued,
    CallStatus,
    RelayCode,
    RelayToCaller,
)
from ringline.protocol.instant import Instant

__all__ = ["RETRY_MS", "CallerSession"]

RETRY_MS: Final = 500
"""How long before the one retry when the relay names no time."""

_LOOKUP_AGAIN_MS: Final = 1_000
_SPOILED_MS: Final = 1_000
_OPENINGS: Final = 4
_EARLY: Final = 4
_STATES: Final = {"ringing": 1, "answered": 2, "working": 3}
# RL-IDEM-013: what these refused is not repeated by itself more than once, nor before retry_after_ms.
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
        self._roll = Roll()
        self._patience = Patience(self._roll, self._send, self._bring)
        self._early: dict[str, CallOutcome] = {}  # those that have overtaken the first status of their call

    @property
    def strays(self) -> Strays:
        """Frames that fitted no call."""
        return self._roll.strays

    @property
    def idle(self) -> bool:
        """True when no call needs the connection."""
        return not self._roll

    def knows(self, message_id: str) -> bool:
        """True until nothing can come of that call any more."""
        return message_id in self._roll

    @property
    def connected(self) -> bool:
        """True between `opened` and `lost`."""
        return self._roll.connected

    def start(self, out: Outgoing, now: Instant) -> list[Effect]:
        """Take a call. Its ``message_id`` must be that of no other call here."""
        call = Pending(out, out.call_id, 1 if out.sent_before else 0, out.retries)
        self._roll.add(call)
        return self._bring(call, now) if self._roll.connected else []

    def opened(self, now: Instant) -> list[Effect]:
        """A connection stands: bring every call onto it."""
        self._roll.connected = True
        effects: list[Effect] = []
        for call in self._roll:
            call.on_wire = call.answered = False
            if call.given_up_at is not None:
                # Nobody waits; sending it again could only start what was given up.
                effects += self._patience.ask_cancel(call)
            elif call.retry_at is None or call.retry_at <= now.mono:
                call.retry_at = None
                effects += self._bring(call, now)
        return effects

    def lost(self, error: RinglineError, now: Instant) -> list[Effect]:
        """The connection is gone, or a dial failed."""
        stood, self._roll.connected = self._roll.connected, False
        self._early.clear()
        effects: list[Effect] = []
        for call in self._roll:
            call.on_wire = call.answered = False
            call.looking_up, call.lookup_at = False, None
            call.lost_error = error
            if call.with_relay:
                call.lost_at = now.mono if call.lost_at is None else call.lost_at
            elif not stood:
                # The relay has nothing of it and cannot be dialled: that is the answer.
                effects += self._roll.end(call, LostRelay(error, sent=False))
        return effects

    def ended(self, error: RinglineError, now: Instant) -> list[Effect]:
        """There will be no connection any more."""
        self._roll.connected = False
        return [
            effect
            for call in self._roll
            for effect in self._roll.end(call, LostRelay(error, sent=call.with_relay))
        ]

    def closed(self, error: RinglineError, now: Instant) -> list[Effect]:
        """The caller is closed: every call ends, outcomes that are being opened included."""
        for call in self._roll:
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
        call = self._roll.get(message_id)
        if call is None or not call.looking_up:
            return []
        call.looking_up = False
        if known is None:
            call.lookup_at = now.mono + _LOOKUP_AGAIN_MS
            return []
        if not known:
            # RL-SYNC-038: the relay answered 404, so the work may have run; it is not sent again.
            return self._roll.end(call, Refused("timeout", call.call_id, None, forgotten=True))
        return self._send(call)

    def resealed(self, message_id: str, payload: bytes) -> list[Effect]:
        """The answer to `Reseal`: the same call, sealed anew under the same ``message_id``."""
        call = self._roll.get(message_id)
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
        return self._send(call) if self._roll.connected else []

    def not_resealed(self, message_id: str, error: RinglineError) -> list[Effect]:
        """The answer to `Reseal` when it cannot be done: nothing of the call is with the relay."""
        call = self._roll.get(message_id)
        if call is None or not call.resealing:
            return []
        return self._roll.end(call, LostRelay(error, sent=False))

    def opened_outcome(self, message_id: str) -> list[Effect]:
        """The answer to `Open`: it opened, and is kept. The call is over."""
        call = self._roll.get(message_id)
        if call is None:
            self._roll.strays.late += 1  # RL-ENVELOPE-039: the first one counts
            return []
        return self._roll.end(call, None)

    def unopened_outcome(
        self, message_id: str, now: Instant, error: RinglineError | None = None
    ) -> list[Effect]:
        """The answer to `Open`: it was not taken. A true one may still come, for a moment.

        ``error`` is as in `Unopened`: None says that it is forged.
        """
        call = self._roll.get(message_id)
        if call is None:
            self._roll.strays.late += 1
            return []
        call.opening -= 1
        if call.spoiled_at is None:
            call.spoiled_at = now.mono + _SPOILED_MS
        call.unchecked = error or call.unchecked
        if call.opening == 0 and call.held is not None:
            # The relay's word on the end does not replace an outcome that may be the true one.
            return self._roll.end(call, call.held if call.unchecked is None else Unopened(call.unchecked))
        return []

    # --- time

    def cancel(self, message_id: str, now: Instant) -> list[Effect]:
        """The caller asks for a cancellation; the answer is a `Decided` or an end."""
        return self._patience.cancel(message_id, now)

    def give_up(self, message_id: str, now: Instant) -> list[Effect]:
        """The caller stops waiting. A cancellation is asked for as soon as that is possible."""
        return self._patience.give_up(message_id, now)

    def deadline(self) -> int | None:
        """Return when `tick` is due next, monotonic ms."""
        return self._patience.deadline()

    def tick(self, now: Instant) -> list[Effect]:
        """Time has passed."""
        return self._patience.tick(now)

    # --- what is sent, and what comes back

    def _bring(self, call: Pending, now: Instant) -> list[Effect]:
        """Bring a call onto the connection that stands."""
        if call.resealing or call.looking_up:
            return []
        if call.call_id is None or call.out.durable_exp is not None:
            return self._send(call)
        # RL-SYNC-037: a sync request of which the call_id was seen is not sent again before the relay was
        # asked: one that has forgotten the call would take its repeat for a new one.
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
        call = self._roll.find(frame.call_id)
        effects: list[Effect] = []
        if call is not None:
            if call.out.correlation_id != frame.correlation_id:
                self._roll.strays.mismatched += 1
                return []
        else:
            call = self._roll.unanswered(frame.correlation_id)
            durable = call is not None and call.out.durable_exp is not None
            if call is None or call.call_id is not None or durable or self._roll.ended(frame.call_id):
                return self._roll.stray(frame.call_id, known=call is not None)
            effects += self._learn(call, frame.call_id, now)
        if not call.on_wire:
            self._roll.strays.mismatched += 1
            return []
        if not call.answered:
            call.answered = True
            call.lost_at = None
            if call.cancel != "no":
                # Held until now, or asked on a connection that is gone.
                effects += self._patience.ask_cancel(call)
        rank = _STATES[frame.state]
        if rank <= call.state:
            # On a new connection the present status is told anew; the caller knows it.
            self._roll.strays.repeated += 1
        elif call.given_up_at is None:
            call.state = rank
            effects.append(Tell(call.out.message_id, frame.state, call.call_id))
        return effects

    def _error(self, frame: CallError, now: Instant) -> list[Effect]:
        correlation = None if frame.correlation_id is UNSET else frame.correlation_id
        retry_ms = None if frame.retry_after_ms is UNSET else frame.retry_after_ms
        if frame.call_id is not UNSET:
            call = self._roll.find(frame.call_id)
            if call is None and correlation is not None:
                # The end of a call whose first answer was lost with its connection.
                waiting = self._roll.unanswered(correlation)
                if waiting is None or waiting.call_id is not None:
                    return self._roll.stray(frame.call_id, known=waiting is not None)
                call = waiting
            if call is None:
                return self._roll.stray(frame.call_id, known=False)
            if correlation not in (None, call.out.correlation_id):
                self._roll.strays.mismatched += 1
                return []
            learned = self._learn(call, frame.call_id, now) if call.call_id is None else []
            return learned + self._roll.end(call, Refused(frame.code, frame.call_id, retry_ms))
        if correlation is not None:
            call = self._roll.unanswered(correlation)
        else:
            # A frame the relay could not read has no ids in its answer; with one in question, it is meant.
            waiting_calls = [each for each in self._roll if each.waits]
            call = waiting_calls[0] if len(waiting_calls) == 1 else None
        if call is None:
            self._roll.strays.unknown += 1
            return []
        return self._refused(call, frame, retry_ms, now)

    def _refused(self, call: Pending, frame: CallError, retry_ms: int | None, now: Instant) -> list[Effect]:
        """An error without ``call_id``: this sending admitted nothing (RL-FRAME-034)."""
        call.answered = True
        first = call.sendings == 1 and call.call_id is None
        if call.given_up_at is not None:
            self._roll.remove(call)
            return []
        if (
            frame.code == "timeout"
            and first
            and call.out.durable_exp is None
            and not call.resealed
            and call.cancel == "no"
        ):
            # RL-SYNC-036: answered timeout without call_id and never sent before: sealed afresh, once.
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
        return self._roll.end(call, Refused((masked and call.refused) or frame.code, None, retry_ms))

    def _queued(self, frame: CallQueued) -> list[Effect]:
        """The relay has stored a durable call: from here on it is asked about over HTTP."""
        call = self._roll.get(frame.message_id)
        if call is None:
            return self._roll.stray(frame.call_id, known=self._roll.find(frame.call_id) is not None)
        exp = call.out.durable_exp
        if exp is None or not call.on_wire or frame.correlation_id != call.out.correlation_id:
            self._roll.strays.mismatched += 1
            return []
        learned = self._roll.learn(call, frame.call_id) if call.call_id is None else []
        if call.call_id != frame.call_id or frame.expires_at > exp:
            # RL-DURABLE-068: a call_queued of other ids, or expiring after the request's exp, is no receipt.
            self._roll.strays.mismatched += 1
            error = ProtocolError("the relay has confirmed another call than the one that was sent")
            return [*learned, *self._roll.end(call, LostRelay(error, sent=True))]
        self._roll.remove(call)
        return [*learned, Queued(frame.message_id, frame)]

    def _learn(self, call: Pending, call_id: str, now: Instant) -> list[Effect]:
        """Note the id that the relay gave a call, whose outcome may have come under it already."""
        learned = self._roll.learn(call, call_id)
        early = self._early.pop(call_id, None)
        return learned if early is None else learned + self._outcome(early, now)

    def _outcome(self, frame: CallOutcome, now: Instant) -> list[Effect]:
        call = self._roll.find(frame.call_id)
        if call is None and self._overtakes(frame.call_id):
            self._early[frame.call_id] = frame
            return []
        if call is None or call.out.durable_exp is not None:
            # That of a durable call is fetched over HTTP, by whoever wants it.
            return self._roll.stray(frame.call_id, known=call is not None)
        call.answered = True
        # An honest relay sends one. To open is work, and holds up the end of the call: forged ones must
        # neither pile up nor keep a caller beyond his time.
        late = call.given_up_at is None and (
            now.mono >= call.out.deadline or (call.spoiled_at is not None and now.mono >= call.spoiled_at)
        )
        if late or call.opening >= _OPENINGS:
            self._roll.strays.surplus += 1
            return []
        call.opening += 1
        return [Open(call.out.message_id, frame)]

    def _overtakes(self, call_id: str) -> bool:
        """True when an outcome of no call here may be that of one whose id the relay has yet to tell."""
        due = any(call.waits and call.call_id is None and call.out.durable_exp is None for call in self._roll)
        if not due:
            self._early.clear()
        return due and not self._roll.ended(call_id) and len(self._early) < _EARLY

    def _not_cancelled(self, frame: CallNotCancelled) -> list[Effect]:
        call = self._roll.find(frame.call_id)
        if call is None or call.cancel != "asked":
            return self._roll.stray(frame.call_id, known=call is not None)
        call.cancel, call.cancel_by = "no", None
        if call.given_up_at is not None:
            self._roll.remove(call)
            return []
        return [Decided(call.out.message_id, frame.reason)]
