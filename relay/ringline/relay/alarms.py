"""Whose business each alarm is."""

from typing import final

from ringline.protocol.instant import Instant
from ringline.relay.calls import Book
from ringline.relay.cancellation import Cancellation
from ringline.relay.departures import Departures
from ringline.relay.durable import DurableCalls
from ringline.relay.sessions import Sessions
from ringline.relay.sync import SyncCalls
from ringline.relay.timers import (
    Alarm,
    BoundPassed,
    CancelWaited,
    DrainOver,
    GraceOver,
    HoldOver,
    RecordsOver,
    ReleaseDue,
)

__all__ = ["Alarms"]


@final
class Alarms:
    """Passes the alarms of a relay's timers on."""

    def __init__(
        self,
        sessions: Sessions,
        book: Book,
        calls: SyncCalls,
        cancellation: Cancellation,
        durable: DurableCalls | None,
        departures: Departures,
    ) -> None:
        self._sessions = sessions
        self._book = book
        self._calls = calls
        self._cancellation = cancellation
        self._durable = durable
        self._departures = departures

    def ring(self, alarm: Alarm, now: Instant) -> None:
        """Let happen what ``alarm`` stands for."""
        match alarm:
            case BoundPassed():
                self._calls.bound_passed(alarm.call_id, now)
            case HoldOver():
                self._calls.hold_over(alarm.call_id)
            case GraceOver():
                self._calls.grace_over(alarm.handle, alarm.instance, now)
            case ReleaseDue():
                self._sessions.release(alarm.connection, now.mono)
            case CancelWaited():
                if self._durable is None or not self._durable.waited(alarm.request):
                    self._cancellation.waited(alarm.request)
            case RecordsOver():
                self._book.purge(now.mono)
            case DrainOver():
                self._departures.stop(now)
            case _:
                assert self._durable is not None
                self._durable.happen(alarm, now)
