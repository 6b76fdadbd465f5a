"""How long a call is waited for and how one stops waiting: bounds, holds, cancellations."""

from collections.abc import Callable
from typing import final

from ringline.caller.effects import (
    Cancel,
    Decided,
    Effect,
    End,
    LostRelay,
    OutOfTime,
    Unopened,
    Withdrawn,
)
from ringline.caller.pending import Pending
from ringline.caller.roll import Roll
from ringline.protocol.frames import CancelCall
from ringline.protocol.instant import Instant
from ringline.protocol.limits import CANCEL_WAIT_MS, HOLD_MS

__all__ = ["Patience"]


@final
class Patience:
    """The time of every call on a roll. Every method returns the effects to perform, in order."""

    def __init__(
        self,
        roll: Roll,
        send: Callable[[Pending], list[Effect]],
        bring: Callable[[Pending, Instant], list[Effect]],
    ) -> None:
        """``send`` sends a call, ``bring`` brings one onto the connection that stands."""
        self._roll = roll
        self._send = send
        self._bring = bring

    def cancel(self, message_id: str, now: Instant) -> list[Effect]:
        """The caller asks for a cancellation; the answer is a `Decided` or an end."""
        call = self._roll.get(message_id)
        if call is None or call.given_up_at is not None:
            return [Decided(message_id, "already_terminal")]
        if not call.with_relay:
            # Never sent, or refused without effect.
            return self._roll.end(call, Withdrawn())
        call.cancel_by = now.mono + CANCEL_WAIT_MS
        return self.ask_cancel(call) if call.cancel != "asked" else []

    def give_up(self, message_id: str, now: Instant) -> list[Effect]:
        """The caller stops waiting. A cancellation is asked for as soon as that is possible."""
        call = self._roll.get(message_id)
        if call is None or call.given_up_at is not None:
            return []
        return self._stop_waiting(call, now)

    def deadline(self) -> int | None:
        """Return when `tick` is due next, monotonic ms."""
        times: list[int] = []
        for call in self._roll:
            if call.given_up_at is not None:
                times.append(call.given_up_at)
                continue
            if not call.opening:
                times.append(call.out.deadline)
                times += [time for time in (call.spoiled_at,) if time is not None]
            if call.lost_at is not None and not self._roll.connected and call.out.durable_exp is None:
                times.append(call.lost_at + HOLD_MS)
            times += [time for time in (call.retry_at, call.lookup_at, call.cancel_by) if time is not None]
        return min(times, default=None)

    def tick(self, now: Instant) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        for call in self._roll:
            if call.given_up_at is not None:
                if now.mono >= call.given_up_at:
                    self._roll.remove(call)
            elif call.unchecked is not None and now.mono >= call.out.deadline and not call.opening:
                # It was answered in time, as far as can be told.
                effects += self._roll.end(call, Unopened(call.unchecked))
            elif now.mono >= call.out.deadline and not call.opening:
                effects += self._stop_waiting(call, now)
            elif call.spoiled_at is not None and now.mono >= call.spoiled_at and not call.opening:
                effects += self._roll.end(call, Unopened(call.unchecked))
            elif (
                call.lost_at is not None
                and not self._roll.connected
                and call.out.durable_exp is None
                and now.mono >= call.lost_at + HOLD_MS
            ):
                # RL-SYNC-028: the relay has asked for its cancellation by now, if it still knows it.
                assert call.lost_error is not None
                effects += self._roll.end(call, LostRelay(call.lost_error, sent=True))
            else:
                effects += self._due(call, now)
        return effects

    def _due(self, call: Pending, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        if call.cancel_by is not None and now.mono >= call.cancel_by:
            call.cancel_by = None
            effects.append(Decided(call.out.message_id, "requested"))
        if call.retry_at is not None and now.mono >= call.retry_at and self._roll.connected:
            call.retry_at = None
            effects += self._send(call)
        if call.lookup_at is not None and now.mono >= call.lookup_at:
            call.lookup_at = None
            if self._roll.connected:
                effects += self._bring(call, now)
        return effects

    def ask_cancel(self, call: Pending) -> list[Effect]:
        """Send ``cancel_call``, or hold it until the call has an id and a connection (RL-CANCEL-013)."""
        if call.call_id is None or not self._roll.connected:
            call.cancel = "wanted"
            return []
        call.cancel = "asked"
        return [Cancel(CancelCall(call_id=call.call_id))]

    def _stop_waiting(self, call: Pending, now: Instant) -> list[Effect]:
        sent = call.with_relay
        effects: list[Effect] = []
        if call.cancel_by is not None:
            effects.append(Decided(call.out.message_id, "requested"))
            call.cancel_by = None
        if not sent or call.out.durable_exp is not None:
            # Whoever leaves a durable call with the relay wants it done; it is not cancelled.
            return effects + self._roll.end(call, OutOfTime(call.call_id, sent=sent))
        if call.cancel != "asked":
            effects += self.ask_cancel(call)
        call.given_up_at = now.mono + HOLD_MS
        call.retry_at = call.lookup_at = call.spoiled_at = call.lost_at = None
        return [*effects, End(call.out.message_id, OutOfTime(call.call_id, sent=True))]
