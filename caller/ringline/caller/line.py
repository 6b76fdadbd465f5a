"""The connection to one callee and the calls on it: performs what the session wants done."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol, cast, final

from ringline.caller.effects import (
    Cancel,
    CancelAnswer,
    Decided,
    Effect,
    End,
    Ended,
    Learned,
    Lookup,
    Open,
    Progress,
    Queued,
    Reseal,
    Send,
    Tell,
)
from ringline.caller.pending import Outgoing
from ringline.caller.session import CallerSession
from ringline.client import Background, Backoff, Link, RelayClock, RelayHttp
from ringline.protocol.errors import RinglineError, TransportError
from ringline.protocol.frames import CallOutcome, CallQueued, Frame, RelayToCaller
from ringline.protocol.instant import Instant
from ringline.protocol.whereabouts import whereabouts

__all__ = ["IDLE_S", "CallUser", "Line"]

IDLE_S: Final = 30.0
"""How long a connection without calls is kept for the next one."""

_log: Final = logging.getLogger(__name__)
_OPEN_S: Final = 60.0
"""For an outcome to be opened, the signer's card fetched from a slow relay included."""


class CallUser(Protocol):
    """Who made a call on a line. The plain methods must not block."""

    def told(self, progress: Progress, call_id: str | None) -> None:
        """It goes on."""

    def learned(self, call_id: str) -> None:
        """The relay gave it an id."""

    def queued(self, frame: CallQueued) -> None:
        """The relay has stored it, a durable call; nothing more comes here."""

    def decided(self, answer: CancelAnswer) -> None:
        """Something came of the request to cancel."""

    def over(self, end: Ended) -> None:
        """It is over, without an outcome."""

    def reconnecting(self, error: RinglineError) -> None:
        """The connection was lost; it is dialled again."""

    async def open(self, frame: CallOutcome) -> bool:
        """Open and keep an outcome; False when it is forged. Raises why it could not be checked."""
        ...

    async def reseal(self) -> bytes:
        """Seal the call anew, keep that, and return the frame."""
        ...


@final
class Line:
    """All calls to one callee, over one WebSocket that is dialled when it is needed."""

    def __init__(
        self,
        http: RelayHttp,
        callee: str,
        clock: RelayClock,
        *,
        backoff: Backoff | None = None,
        idle_s: float = IDLE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is dialled before the first call."""
        self.callee = callee
        self._http = http
        self._clock = clock
        self._idle_s = idle_s
        self._monotonic = monotonic
        self._session = CallerSession()
        self._link = Link(http, f"/v1/call/{callee}", "relay_to_caller", self, backoff=backoff)
        self._users: dict[str, CallUser] = {}
        self._tasks = Background("a task of a connection")
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self.dead = False
        """True when the line takes no call any more; the next one needs a new line."""

    @property
    def session(self) -> CallerSession:
        """The pure part, for counters and tests."""
        return self._session

    @property
    def link(self) -> Link:
        """The connection."""
        return self._link

    def now(self) -> Instant:
        """Return both clocks, read together."""
        return Instant(self._clock.own_ms(), int(self._monotonic() * 1_000))

    def start(self, out: Outgoing, user: CallUser) -> None:
        """Make a call. Raises `ValueError` when its ``message_id`` is under way on this line."""
        if out.message_id in self._users:
            raise ValueError("this message_id is under way already")
        self._users[out.message_id] = user
        self._perform(self._session.start(out, self.now()))
        self._link.start()
        if not self._link.connected:
            self._link.wake()

    def cancel(self, message_id: str) -> None:
        """Ask for the cancellation of a call; the answer comes to its user."""
        self._perform(self._session.cancel(message_id, self.now()))

    def give_up(self, message_id: str) -> None:
        """Stop waiting for a call."""
        self._perform(self._session.give_up(message_id, self.now()))

    async def close(self) -> None:
        """Close the connection; calls that are under way end as lost."""
        self.dead = True
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        # What waits to be sent, a cancel above all, goes first.
        await self._link.close()
        await self._tasks.close()
        self._perform(self._session.closed(TransportError("this caller was closed"), self.now()))

    def opened(self) -> None:
        """For the link."""
        self._perform(self._session.opened(self.now()))

    def frame(self, frame: Frame) -> None:
        """For the link, which decodes frames of the relay to a caller only."""
        self._perform(self._session.receive(cast("RelayToCaller", frame), self.now()))

    def lost(self, error: RinglineError, retry_s: float) -> None:
        """For the link."""
        del retry_s
        self._perform(self._session.lost(error, self.now()))
        for user in list(self._users.values()):
            user.reconnecting(error)

    def ended(self, error: RinglineError) -> None:
        """For the link."""
        self.dead = True
        self._perform(self._session.ended(error, self.now()))

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._perform_one(effect)
        self._arm()

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send(payload):
                self._link.send_bytes(payload)
            case Cancel(frame):
                self._link.send(frame)
            case Lookup(message_id, call_id):
                self._tasks.start(self._look_up(message_id, call_id))
            case Open(message_id, outcome):
                self._tasks.start(self._open(message_id, outcome))
            case Reseal(message_id):
                self._tasks.start(self._reseal(message_id))
            case Tell(message_id, progress, told_id):
                self._users[message_id].told(progress, told_id)
            case Learned(message_id, learned_id):
                self._users[message_id].learned(learned_id)
            case Queued(message_id, queued):
                self._users[message_id].queued(queued)
            case Decided(message_id, answer):
                user = self._users.get(message_id)
                if user is not None:
                    user.decided(answer)
            case End(message_id, end):
                self._users[message_id].over(end)

    def _arm(self) -> None:
        """Set the one timer, forget who is done, and close the line when it has been idle for a while."""
        loop = asyncio.get_running_loop()
        for message_id in [each for each in self._users if not self._session.knows(each)]:
            del self._users[message_id]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._session.deadline()
        if due is not None and not self.dead:
            delay_s = max(0.0, due / 1_000 - self._monotonic())
            self._timer = loop.call_later(delay_s, self._tick)
        if not self._session.idle:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None
        elif self._idle_timer is None and not self.dead:
            self._idle_timer = loop.call_later(self._idle_s, self._retire)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self._session.tick(self.now()))

    def _retire(self) -> None:
        self._idle_timer = None
        if self._session.idle and not self.dead:
            self.dead = True
            self._tasks.start(self._link.close())

    async def _look_up(self, message_id: str, call_id: str) -> None:
        known: bool | None
        try:
            known = await self._http.record(call_id) is not None
        except RinglineError:
            known = None
        except Exception as error:
            _fault("a call was not looked up", error)
            known = None
        self._perform(self._session.looked_up(message_id, known, self.now()))

    async def _open(self, message_id: str, outcome: CallOutcome) -> None:
        user = self._users.get(message_id)
        opened = False
        unchecked: RinglineError | None = None
        try:
            async with asyncio.timeout(_OPEN_S):
                opened = user is not None and await user.open(outcome)
        except TimeoutError:
            unchecked = TransportError(f"the relay did not show the signer's key within {_OPEN_S:g} s")
        except RinglineError as error:
            unchecked = error
        except Exception as error:
            unchecked = _fault("an outcome was not opened", error)
        if opened:
            self._perform(self._session.opened_outcome(message_id))
        else:
            self._perform(self._session.unopened_outcome(message_id, self.now(), unchecked))

    async def _reseal(self, message_id: str) -> None:
        user = self._users.get(message_id)
        if user is None:
            return
        try:
            payload = await user.reseal()
        except RinglineError as error:
            self._perform(self._session.not_resealed(message_id, error))
        except Exception as error:
            fault = _fault("a call was not sealed anew", error)
            self._perform(self._session.not_resealed(message_id, fault))
        else:
            self._perform(self._session.resealed(message_id, payload))


def _fault(what: str, error: Exception) -> RinglineError:
    """Log a fault of ours without its text, and return it as the error that ends a call."""
    _log.error("%s: %s", what, whereabouts(error))
    return RinglineError(f"a fault in Ringline itself: {type(error).__name__}")
