"""The edge of a listener: it performs what the session wants, and reports what came of it.

Everything here lives in one event loop, which no handler ever runs in. So whatever a handler does, frames are
read, pings answered and cancellations heard.
"""

import asyncio
import contextlib
import logging
import secrets
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, cast, final

from msgspec import UNSET

from ringline.client import Account, Background, KeyLog, Link, Peers, RelayClock, RelayHttp
from ringline.client.backoff import Backoff
from ringline.listener.catalogue import Catalogue
from ringline.listener.effects import (
    Broken,
    Effect,
    Held,
    Note,
    Open,
    Opened,
    Result,
    Run,
    Send,
    Stop,
    Tell,
    Unchecked,
)
from ringline.listener.floor import PATIENCE_MS
from ringline.listener.functions import Place
from ringline.listener.journal import Journal
from ringline.listener.keeping import KeyKeeper
from ringline.listener.notes import Notes
from ringline.listener.opening import Opener
from ringline.listener.reception import Reception
from ringline.listener.sealing import seal
from ringline.listener.session import Session
from ringline.listener.waiting import WaitingRoom
from ringline.listener.worker import Worker
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import Frame, IncomingCall, RelayToListener
from ringline.protocol.instant import Instant
from ringline.protocol.limits import ENVELOPE_SKEW_MS
from ringline.protocol.whereabouts import whereabouts

__all__ = ["Service", "ServiceOptions"]

_log: Final = logging.getLogger(__name__)

_KEYS_EVERY_S: Final = 60.0
_CONTEXT_BYTES: Final = 16
_STOP_MORE_S: Final = 4.0
_LOOK_AT_LOG_S: Final = 300.0
_LOOK_AT_INBOX_S: Final = 0.5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How a listener works: messages at once, and bounds in ms and seconds."""

    capacity: int
    bound_ms: int
    drain_s: float
    expose_errors: bool = False
    patience_ms: int = PATIENCE_MS
    backoff: Backoff | None = None


@final
class Service:
    """One listener at one relay, from its first connection to its last."""

    def __init__(
        self,
        account: Account,
        http: RelayHttp,
        peers: Peers,
        clock: RelayClock,
        journal: Journal,
        catalogue: Catalogue,
        options: ServiceOptions,
        *,
        place: Place,
        note: Callable[[str], None],
        ready: Callable[[], None],
        reception: Reception | None = None,
        room: WaitingRoom | None = None,
        log: KeyLog | None = None,
    ) -> None:
        """Made in the event loop it will live in.

        ``place`` is where functions run. ``note`` is told what the owner should know, ``ready``
        that the first connection stands; ``reception`` knows who has taken an invite up, ``room`` holds
        calls for the owner's word, ``log`` is the relay's key log.
        """
        self._account = account
        self._http = http
        self._clock = clock
        self._journal = journal
        self._options = options
        self._note = Notes(note, time.monotonic)
        self._ready: Callable[[], None] | None = ready
        boot = clock.own_ms()
        self._session = Session(
            journal,
            catalogue,
            capacity=options.capacity,
            mint=_new_context_id,
            bound_ms=options.bound_ms,
            patience_ms=options.patience_ms,
            not_before=None if journal.persistent else boot + ENVELOPE_SKEW_MS,
            kt=lambda: UNSET if log is None else log.kt,
        )
        self._log = log
        meet = None if reception is None else reception.meet
        self._opener = Opener(account, peers, clock, catalogue.access, self._note, meet, room)
        self._room = room
        self._keeper = KeyKeeper(account, http, clock, self._note)
        self._worker = Worker(self._ended, place, expose_errors=options.expose_errors)
        self._link = Link(http, self._path(), "relay_to_listener", self, backoff=options.backoff)
        self._tasks = Background("a task of the listener")
        self._timer: asyncio.TimerHandle | None = None
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle = asyncio.Event()
        self._stops = 0
        self._again = False
        self._fault: RinglineError | None = None

    def _path(self) -> str:
        durable = "" if self._journal.persistent else "&durable=0"
        return (
            f"/v1/listen/{self._account.handle}?instance={self._journal.instance}"
            f"&boot={uuid.uuid4()}&capacity={self._options.capacity}{durable}"
        )

    async def run(self) -> None:
        """Serve until `stop` has done its work.

        Raises `RinglineError` when there can be no connection any more, or the first one fails for a reason
        that waiting does not mend.
        """
        self._link.start()
        keys = asyncio.get_running_loop().create_task(self._keeper.run(_KEYS_EVERY_S))
        if self._log is not None:
            self._tasks.start(self._log.watch(_LOOK_AT_LOG_S))
        if self._room is not None:
            self._tasks.start(self._look_at_inbox(self._room))
        self._arm()
        try:
            await self._finished
        finally:
            keys.cancel()
            if self._timer is not None:
                self._timer.cancel()
            await self._link.close()
            await asyncio.wait({keys})
            await self._tasks.close()
            await self._worker.close()

    def stop(self) -> None:
        """First call: take no more and finish what runs, within the drain bound. Second: stop now."""
        self._stops += 1
        if self._stops == 1:
            self._session.drain()
            if not self._session.idle:
                self._note(
                    f"stopping: no more calls are taken, and those that run get {self._options.drain_s:g} s"
                    " to end; told again, it stops now"
                )
            self._tasks.start(self._drain())
        elif self._stops == 2:
            self._idle.set()

    async def _drain(self) -> None:
        """Wait until every call is answered; what is not done in time is stopped, and reported so."""
        await self._wait_idle(self._options.drain_s)
        if not self._session.idle:
            self._idle.clear()
            self._feed(lambda: self._session.stop(self._now()))
            # What runs is given its time to stop before it is reported as it is.
            await self._wait_idle(self._options.patience_ms / 1_000 + _STOP_MORE_S)
        self._finish()

    def _finish(self) -> None:
        if self._finished.done():
            return
        if self._fault is None:
            self._finished.set_result(None)
        else:
            self._finished.set_exception(self._fault)

    async def _wait_idle(self, seconds: float) -> None:
        if self._session.idle:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    # --- the connection (LinkUser)

    def opened(self) -> None:
        """See `LinkUser.opened`."""
        self._session.connected()
        if self._ready is not None:
            self._ready()
            self._ready = None
        elif self._again:
            self._note("connected again")
        self._again = False

    def frame(self, frame: Frame) -> None:
        """See `LinkUser.frame`."""
        # The link decodes what a relay may send a listener, and nothing else.
        arrived = cast(RelayToListener, frame)
        self._feed(lambda: self._session.received(arrived, self._now()))

    def lost(self, error: RinglineError, retry_s: float) -> None:
        """See `LinkUser.lost`."""
        self._session.disconnected()
        # What only waited is not waited for any more, should this listener be stopping.
        self._look_whether_idle()
        if not self._again:
            self._note(f"no connection: {error}; trying again")
        self._again = True
        _log.info("no connection (%s), next attempt in %.1f s", error.code, retry_s)
        self._arm()

    def ended(self, error: RinglineError) -> None:
        """See `LinkUser.ended`.

        What runs is finished, as far as `stop` would let it: its outcome is kept, and told when this journal
        is listened with again.
        """
        self._session.disconnected()
        self._fault = error
        if self._session.idle:
            self._finish()
        elif self._stops:
            self._look_whether_idle()
        else:
            self._note(f"there will be no connection any more: {error}")
            self.stop()

    # --- performing

    def _feed(self, step: Callable[[], list[Effect]]) -> None:
        """Have the session take a step, and perform what it wants, in order.

        A fault in it is logged and ends here: one call must not take all others with it.
        """
        try:
            self._do(step())
        except Exception as error:
            _log.error("a step of the listener failed: %s", whereabouts(error))
        self._look_whether_idle()
        self._arm()

    def _look_whether_idle(self) -> None:
        if self._stops and self._session.idle:
            self._idle.set()

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(frame):
                    self._link.send(frame)
                case Tell():
                    self._tell(effect)
                case Open(frame):
                    self._tasks.start(self._open(frame))
                case Run(job):
                    self._worker.run(job)
                case Stop(entry_id, at_once):
                    self._worker.stop(entry_id, at_once=at_once)
                case Note(text, call_id):
                    self._note(text if call_id is None else f"call {call_id}: {text}")

    def _tell(self, tell: Tell) -> None:
        try:
            frame = seal(self._account, self._clock, tell)
        except (RinglineError, ValueError) as error:
            self._note(f"call {tell.offer.call_id}: its outcome could not be sealed: {type(error).__name__}")
            return
        if self._link.send(frame):
            _log.info("call %s ended: %s", tell.offer.call_id, tell.end.reason)
            self._note(f"answered {tell.offer.handle}: {tell.end.reason}  call {tell.offer.call_id}")

    async def _open(self, frame: IncomingCall) -> None:
        opened: Opened | Unchecked | Held | None
        try:
            opened = await self._opener.open(frame)
        except Exception as error:  # nothing of a peer's making may leave a call without an answer
            _log.error("a call could not be opened: %s", whereabouts(error))
            opened = Unchecked()
        if self._log is not None and isinstance(opened, Opened):
            # Nobody waits for it: the call is its caller's, whatever the relay shows to whom.
            self._tasks.start(self._log.heard(frame.from_, opened.json))
        self._feed(lambda: self._session.opened(frame.call_id, opened, self._now()))

    async def _look_at_inbox(self, room: WaitingRoom) -> None:
        """Take up the calls that waited and were decided, and forget those that wait no more."""
        waiting = set[str]()
        told = ""
        while True:
            await asyncio.sleep(_LOOK_AT_INBOX_S)
            held = set(self._session.held)
            try:
                for call_id in waiting - held:
                    room.gone(call_id)
                for call_id in [one for one in held if room.decided(one)]:
                    self._reopen(call_id)
                    held.discard(call_id)
            except RinglineError as error:
                if str(error) != told:
                    told = str(error)
                    self._note(told)
            waiting = held

    def _reopen(self, call_id: str) -> None:
        self._feed(lambda: self._session.reopen(call_id, self._now()))

    def _ended(self, entry_id: int, result: Result, stopped: bool) -> None:
        # How a program takes it to be stopped is nobody's concern.
        if isinstance(result, Broken) and result.local and not stopped:
            self._note(f"a call failed here: {result.local}")
        self._feed(lambda: self._session.ended(entry_id, result, stopped=stopped, now=self._now()))

    # --- time

    def _now(self) -> Instant:
        return Instant(self._clock.own_ms(), time.monotonic_ns() // 1_000_000)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        pause_s = max(0, self._session.deadline() - self._now().mono) / 1_000
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._feed(lambda: self._session.tick(self._now()))


def _new_context_id() -> str:
    return f"ctx_{b64encode(secrets.token_bytes(_CONTEXT_BYTES))}"
