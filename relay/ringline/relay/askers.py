"""Who waits for the decision on a cancel request: connections, and HTTP requests (RL-CANCEL-023)."""

from typing import Final, final

from msgspec import Struct

from ringline.relay.timers import CancelWaited, Timers

__all__ = ["Asked", "Askers"]


@final
class Asked(Struct, eq=False):
    """Who asked for the cancellation of one call, in order."""

    connections: dict[int, None] = {}
    requests: dict[int, None] = {}


@final
class Askers:
    """All of them. An HTTP request waits ``wait`` ms, and is then to be told that its request stands."""

    __slots__ = ("_asked", "_call_of", "_timers", "_wait")

    def __init__(self, timers: Timers, *, wait: int) -> None:
        self._timers = timers
        self._wait = wait
        self._asked: dict[str, Asked] = {}
        self._call_of: dict[int, str] = {}

    def add_connection(self, call_id: str, connection: int) -> None:
        """A connection waits."""
        self._asked.setdefault(call_id, Asked()).connections[connection] = None

    def add_request(self, call_id: str, request: int, now: int) -> None:
        """An HTTP request waits, from ``now`` (ms, the clock that never goes back)."""
        self._asked.setdefault(call_id, Asked()).requests[request] = None
        self._call_of[request] = call_id
        self._timers.set(CancelWaited(request), now + self._wait)

    def waited(self, request: int) -> str | None:
        """The request has waited long enough; return the call it was about, None if it is another's."""
        call_id = self._call_of.pop(request, None)
        if call_id is not None:
            asked = self._asked[call_id]
            del asked.requests[request]
            if not asked.requests and not asked.connections:
                del self._asked[call_id]
        return call_id

    def drop(self, request: int) -> None:
        """The request is answered otherwise."""
        if self.waited(request) is not None:
            self._timers.cancel(CancelWaited(request))

    def withdraw(self, call_id: str) -> Asked:
        """It is decided: return who waited, and forget them."""
        asked = self._asked.pop(call_id, _NOBODY)
        for request in asked.requests:
            del self._call_of[request]
            self._timers.cancel(CancelWaited(request))
        return asked


_NOBODY: Final = Asked()
