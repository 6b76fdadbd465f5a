"""Connections that the relay closes: ended log-ins, frames that are none, its own end."""

from typing import final

from ringline.protocol.closes import GOING_AWAY, INTERNAL, REMOVED, REPLACED, REVOKED, retry_reason
from ringline.protocol.instant import Instant
from ringline.relay.admission import Admission
from ringline.relay.durable import DurableCalls
from ringline.relay.session import Session
from ringline.relay.sessions import Sessions
from ringline.relay.settings import Settings
from ringline.relay.sync import SyncCalls
from ringline.relay.timers import DrainOver, Timers

__all__ = ["Departures"]


@final
class Departures:
    """Closes connections, so that for the calls of both modes they are gone."""

    def __init__(
        self,
        settings: Settings,
        sessions: Sessions,
        calls: SyncCalls,
        durable: DurableCalls | None,
        admission: Admission,
        timers: Timers,
    ) -> None:
        self.draining = False
        """True once the relay stops."""
        self._settings = settings
        self._sessions = sessions
        self._calls = calls
        self._durable = durable
        self._admission = admission
        self._timers = timers
        self._farewell = retry_reason(settings.drain_retry_ms)

    def part(self, session: Session, code: int, reason: str, now: Instant) -> None:
        """Close a connection; for its calls it is gone."""
        if self._durable is not None:
            self._durable.detach(session, now, lost=False)
        self._calls.part(session, code, reason, now)

    def replace(self, session: Session, now: Instant) -> None:
        """Close a listener's connection in whose place a new one of its instance is.

        It is forgotten, so that its late close changes nothing (RL-TRANSPORT-021, RL-SYNC-024).
        """
        if self._durable is not None:
            self._durable.detach(session, now, lost=False)
        self._sessions.close(session, REPLACED, "replaced")

    def send_away(self, session: Session, now: Instant) -> None:
        """Close a connection of a relay that stops."""
        self.part(session, GOING_AWAY, self._farewell, now)

    def end_log_ins(self, handle: str, card_id: str, code: int, reason: str, now: Instant) -> None:
        """Close all connections that logged in under this card."""
        for session in self._sessions.of(handle):
            if session.card_id == card_id:
                self.part(session, code, reason, now)

    def end_identity(self, handle: str, now: Instant) -> None:
        """End the sync calls of an identity that is no more, and close all its connections."""
        self._calls.end_identity(handle, now)
        for session in self._sessions.of(handle):
            self.part(session, REVOKED, REMOVED, now)

    def close_broken(self, now: Instant) -> None:
        """Close those whose durable work could not be stored: it will be offered again (RL-TRANSPORT-045)."""
        assert self._durable is not None
        while self._durable.to_close:
            session = self._sessions.get(self._durable.to_close.pop())
            if session is not None:
                self.part(session, INTERNAL, "store", now)

    def drain(self, now: Instant) -> None:
        """Begin to stop: no new calls; who has nothing more to do is closed now, the others as they end."""
        if self.draining:
            return
        self.draining = True
        self._calls.farewell = self._farewell
        self._admission.drain_retry_ms = self._settings.drain_retry_ms
        self._timers.set(DrainOver(), now.mono + self._settings.drain_bound_ms)
        if self._durable is not None:
            self._durable.drain()
        self.send_idle_away(now)

    def send_idle_away(self, now: Instant) -> None:
        """Close those that have nothing more to do, while the relay stops."""
        for session in self._sessions:
            if not session.closing and session.idle:
                self.send_away(session, now)

    def stop(self, now: Instant) -> None:
        """The time is over: close everybody."""
        self._calls.give_up_all(now)
        for session in self._sessions:
            if not session.closing:
                self.send_away(session, now)
