"""Cancellation of calls in a listener's hands: who asked, who is told, and when.

A request is a flag on the call. While it is up, one ``cancel_call`` is with the connection that holds the
call (RL-CANCEL-006), and nobody is told anything until the listener or the end of the call decides
(RL-CANCEL-010).
"""

from typing import final

from ringline.protocol.frames import CallError, CallNotCancelled, CancelCall, NotCancelledReason
from ringline.protocol.lifecycle import State
from ringline.relay.askers import Askers
from ringline.relay.calls import Call
from ringline.relay.effects import CancelAnswer, Decided
from ringline.relay.sessions import Sessions
from ringline.relay.stored_records import BY_REASON
from ringline.relay.timers import Timers

__all__ = ["Cancellation"]


@final
class Cancellation:
    """The cancel requests that are not decided yet. An HTTP one waits ``wait`` ms for the decision."""

    __slots__ = ("_askers", "_counters", "_sessions")

    def __init__(self, sessions: Sessions, timers: Timers, counters: dict[str, int], *, wait: int) -> None:
        self._sessions = sessions
        self._askers = Askers(timers, wait=wait)
        self._counters = counters

    def ask(self, call: Call | None, call_id: str, caller: str, connection: int) -> None:
        """A caller sent ``cancel_call``; its connection need not be attached to the call."""
        # Another's call is answered as one that never was.
        if call is None or call.caller != caller:
            self._sessions.send(connection, CallNotCancelled(call_id=call_id, reason="unknown"))
        elif call.ended:
            self._sessions.send(connection, CallNotCancelled(call_id=call_id, reason="already_terminal"))
        else:
            self._askers.add_connection(call_id, connection)
            self.stop(call)

    def ask_by_http(self, call: Call | None, caller: str, request: int, now: int) -> None:
        """A caller sent ``POST /v1/calls/{id}/cancel``, to be answered by `Decided`."""
        if call is None or call.caller != caller:
            self._decide(request, CancelAnswer.MISSING)
        elif call.ended:
            self._decide(request, CancelAnswer.ALREADY_TERMINAL)
        else:
            self._askers.add_request(call.id, request, now)
            self.stop(call)

    def waited(self, request: int) -> None:
        """No decision in time: the request stands, and the asker is told so."""
        self._askers.waited(request)
        self._decide(request, CancelAnswer.REQUESTED)

    def stop(self, call: Call) -> None:
        """Put the flag up and tell the listener, unless it is up already."""
        if call.cancel_requested:
            return
        call.cancel_requested = True
        self._counters["cancels_requested"] += 1
        if call.instance is not None and call.instance.connection is not None:
            self._sessions.send(call.instance.connection, CancelCall(call_id=call.id))

    def confirmed(self, call: Call) -> bool:
        """True if a listener's ``call_cancelled`` answers a request; an unasked one is counted."""
        if not call.cancel_requested:
            self._counters["cancels_unasked"] += 1
        return call.cancel_requested

    def refused(self, call: Call, reason: NotCancelledReason) -> None:
        """A listener sent ``call_not_cancelled``: the flag goes down, and the askers learn why."""
        if not call.cancel_requested:
            self._counters["cancels_unasked"] += 1
            return
        call.cancel_requested = False
        self._counters["cancels_refused"] += 1
        asked = self._askers.withdraw(call.id)
        for connection in asked.connections:
            self._sessions.send(connection, CallNotCancelled(call_id=call.id, reason=reason))
        for request in asked.requests:
            self._decide(request, BY_REASON[reason])

    def settle(self, call: Call) -> None:
        """The call has ended, and its attached connections know: tell the other askers."""
        asked = self._askers.withdraw(call.id)
        canceled = call.state is State.CANCELED
        for connection in asked.connections:
            if connection in call.attached:
                continue
            if canceled:
                # An end like any other: no status may follow it on that connection.
                call.attached.append(connection)
                self._sessions.send(
                    connection,
                    CallError(
                        origin="relay", code="canceled", call_id=call.id, correlation_id=call.correlation_id
                    ),
                )
            else:
                self._sessions.send(connection, CallNotCancelled(call_id=call.id, reason="already_terminal"))
        for request in asked.requests:
            self._decide(request, CancelAnswer.CANCELED if canceled else CancelAnswer.ALREADY_TERMINAL)

    def _decide(self, request: int, answer: CancelAnswer) -> None:
        self._sessions.effects.append(Decided(request, answer))
