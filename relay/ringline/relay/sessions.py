"""All open connections, and the effects that leave by them in order."""

from collections.abc import Iterable, Iterator
from typing import final

from ringline.protocol.frames import CallError, CallRequest, RelayToCaller, RelayToListener
from ringline.relay.effects import Close, Effect, Send
from ringline.relay.session import Role, Session
from ringline.relay.timers import ReleaseDue, Timers

__all__ = ["Sessions"]


@final
class Sessions:
    """Who is connected. What is sent here becomes an effect; to a connection that is gone, nothing."""

    __slots__ = ("_by_handle", "_open", "_timers", "effects")

    def __init__(self, timers: Timers) -> None:
        self.effects: list[Effect] = []
        """What the edge has not been told yet; `take` tells it."""
        self._open: dict[int, Session] = {}
        self._by_handle: dict[str, dict[int, Session]] = {}
        self._timers = timers

    def __len__(self) -> int:
        """The number of connections that the edge still has to close."""
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._open.values()))

    def take(self) -> list[Effect]:
        """Return the effects since the last time."""
        effects = self.effects
        self.effects = []
        return effects

    def add(self, session: Session) -> None:
        """Take in a new connection.

        Raises:
            ValueError: its number is in use; numbers are never used twice.
        """
        if session.connection in self._open:
            raise ValueError(f"connection {session.connection} is open already")
        self._open[session.connection] = session
        self._by_handle.setdefault(session.handle, {})[session.connection] = session

    def get(self, connection: int) -> Session | None:
        """Return the connection's session, None when it is gone or only waits to be closed."""
        session = self._open.get(connection)
        return None if session is None or session.closing else session

    def of(self, handle: str) -> list[Session]:
        """Return the connections that logged in as ``handle``."""
        return [session for session in self._by_handle.get(handle, {}).values() if not session.closing]

    def count(self, role: Role) -> int:
        """Return how many connections have ``role``."""
        return sum(session.role is role for session in self._open.values())

    def snapshot(self) -> dict[str, int]:
        """Return present numbers."""
        return {"now_callers": self.count(Role.CALLER), "now_listeners": self.count(Role.LISTENER)}

    def forget(self, connection: int) -> None:
        """Forget a connection, with whatever was held back for it; one that is unknown already is."""
        session = self._open.pop(connection, None)
        if session is None:
            return
        if session.held:
            self._timers.cancel(ReleaseDue(connection))
        namesakes = self._by_handle[session.handle]
        del namesakes[connection]
        if not namesakes:
            del self._by_handle[session.handle]

    def send(self, connection: int, frame: RelayToCaller | RelayToListener) -> None:
        """Send ``frame``, behind whatever is held back on the connection."""
        session = self._open.get(connection)
        if session is None or session.closing:
            return
        if session.held:
            session.hold(Send(connection, frame))
        else:
            self.effects.append(Send(connection, frame))

    def say(self, effects: Iterable[Effect]) -> None:
        """Let effects happen in their order; a `Send` as by `send`."""
        sessions, leaving = self._open, self.effects
        for effect in effects:
            if isinstance(effect, Send):
                session = sessions.get(effect.connection)
                if session is None or session.closing:
                    continue
                if session.held:
                    session.hold(effect)
                    continue
            leaving.append(effect)

    def send_later(self, session: Session, frame: CallError, due: int, request: CallRequest) -> None:
        """Send ``frame``, the answer to ``request``, at ``due`` and no sooner."""
        session.hold(Send(session.connection, frame), due=due, request=request)
        if len(session.held) == 1:
            self._timers.set(ReleaseDue(session.connection), due)

    def close(self, session: Session, code: int, reason: str) -> None:
        """Close the connection, behind whatever is held back on it; nothing is sent on it any more."""
        effect = Close(session.connection, code, reason)
        if session.held:
            session.closing = True
            session.hold(effect)
        else:
            self.effects.append(effect)
            self.forget(session.connection)

    def release(self, connection: int, now: int) -> None:
        """Let leave what was held back and is due."""
        session = self._open[connection]
        self.effects += session.release(now)
        if session.held:
            self._timers.set(ReleaseDue(connection), session.held[0].due)
        elif session.closing:
            self.forget(connection)
