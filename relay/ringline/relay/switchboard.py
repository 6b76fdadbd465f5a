"""Where the pure hub meets sockets: feeds it events, performs its effects in order, keeps its one timer.

Every event reads the clocks once. An event is over, and its effects are with the sockets, before the next
one is looked at.
"""

import asyncio
import itertools
import math
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Final, assert_never, final

from ringline.protocol import codec
from ringline.protocol.errors import HttpProblem
from ringline.relay.auth import Login
from ringline.relay.clock import Clock
from ringline.relay.directory import Directory
from ringline.relay.edge import Connection
from ringline.relay.effects import CancelAnswer, Close, Decided, Effect, Retire, Send
from ringline.relay.hub import Hub
from ringline.relay.store import StoreError
from ringline.relay.telemetry import Telemetry
from ringline.relay.tenure import Tenures

__all__ = ["Switchboard", "store_problem"]

_GATHER_PASSES: Final = 4
"""How often the loop reads all its sockets once more before a turn is committed, while that brings writes.

A flush to the disk costs as much as many calls, and one for more calls costs hardly more. Nobody waits for
what has not arrived: a pass that brings nothing is the last.
"""

_TENURE_LOOK_S: Final = 60.0
"""Ends of cards are wall-clock times, so a timer that sleeps longer could miss a step of that clock."""


@final
class Switchboard:
    """All open connections of a relay and the hub behind them. One event loop's own."""

    def __init__(
        self,
        hub: Hub,
        directory: Directory,
        clock: Clock,
        telemetry: Telemetry,
        *,
        warning: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``warning`` tells what is wrong with the store although it works."""
        self.hub = hub
        self._warning = warning
        self.telemetry = telemetry
        self.clock = clock
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._lines: dict[int, Connection] = {}
        self._held: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed = math.inf
        self._requests = itertools.count(1)
        self._cancels: dict[int, asyncio.Future[CancelAnswer]] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._tenures = Tenures()
        self._tenure_timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None
        self._commit: asyncio.Handle | None = None
        self._gathering = 0
        self._gathered = 0

    # --- connections

    def connections_of(self, handle: str) -> int:
        """Return how many connections ``handle`` has open."""
        return self._held.get(handle, 0)

    def __len__(self) -> int:
        return len(self._lines)

    def join(self, connection: Connection, login: Login, role: str) -> None:
        """Take in a connection, before the hub is told of it."""
        self.telemetry.opened(connection.id, role, login.handle)
        self._lines[connection.id] = connection
        self._held[login.handle] = self._held.get(login.handle, 0) + 1
        self._note_tenure(login.handle, login.card_id)

    def leave(self, connection: Connection, login: Login, code: int | None, clean: bool) -> None:
        """Forget a connection, and let the hub do what follows; ``code`` as in `Receiver.closed`."""
        self.telemetry.closed(connection.id, code, clean)
        del self._lines[connection.id]
        left = self._held[login.handle] - 1
        if left:
            self._held[login.handle] = left
        else:
            del self._held[login.handle]
        self.perform(self.hub.disconnect(connection.id, self.clock(), clean=clean))

    def perform(self, effects: Iterable[Effect]) -> None:
        """Do what the hub said, in its order, and set the timer for what it wants next."""
        lines, encode, hub = self._lines, codec.encode, self.hub
        for effect in effects:
            try:
                if isinstance(effect, Send):
                    line = lines.get(effect.connection)
                    if line is not None:
                        line.send(encode(effect.frame))
                else:
                    self._do(effect)
            except Exception as error:
                # The effects behind it are others' and must not be lost with it.
                self.telemetry.fault(f"a {type(effect).__name__} of the hub", error)
        if self._drained is not None and hub.drained():
            self._drained.set()
        durable = hub.durable
        if durable is not None and durable.ledger.unsaved and self._commit is None:
            # What else arrives in this turn of the loop is in the same transaction.
            self._commit = self._loop.call_soon(self._end_turn)
        if hub.timers.next < self._armed:
            self._arm()

    def _do(self, effect: Close | Decided | Retire) -> None:
        match effect:
            case Close():
                line = self._lines.get(effect.connection)
                if line is not None:
                    line.close(effect.code, effect.reason)
            case Decided():
                cancel = self._cancels.get(effect.request)
                if cancel is not None and not cancel.done():
                    cancel.set_result(effect.answer)
            case Retire():
                for waiter in self._waiting.pop(effect.call_id, ()):
                    if not waiter.done():
                        waiter.set_result(None)
            case _:
                assert_never(effect)

    # --- what is stored

    @property
    def warning(self) -> str | None:
        """What is wrong with the store although it works, None when nothing is."""
        return self._warning()

    @property
    def fault(self) -> str | None:
        """Why durable calls cannot be stored now, None when they can or never are."""
        return None if self.hub.durable is None else self.hub.durable.fault

    def commit(self) -> None:
        """End the turn: make durable what was written in it, then say what waited for that."""
        if self._commit is not None:
            self._commit.cancel()
            self._commit = None
        self._gathering = self._gathered = 0
        self.perform(self.hub.commit(self.clock()))

    def _end_turn(self) -> None:
        durable = self.hub.durable
        written = 0 if durable is None else durable.ledger.written
        if written != self._gathered and self._gathering < _GATHER_PASSES:
            # More has come since the last look: let the loop read once more before the disk is waited for.
            self._gathered = written
            self._gathering += 1
            self._commit = self._loop.call_soon(self._end_turn)
            return
        try:
            self.commit()
        except Exception as error:
            # Else the loop would log it with its text. What was written is in doubt: nothing of it is said.
            self.telemetry.fault("the end of a turn", error)
            if self.hub.durable is not None:
                self.hub.durable.fail(StoreError("the relay has met a fault of its own"), self.clock())
            self._tick()

    @contextmanager
    def settled(self) -> Generator[None]:
        """Look at calls, or change some, with nothing uncommitted before or after.

        Raises `HttpProblem` (503) when the store fails; then nothing was changed.
        """
        if self.hub.unsaved:
            self.commit()
        try:
            yield
        except StoreError as error:
            if self.hub.durable is not None and self.fault is None:
                self.hub.durable.fail(error, self.clock())
            self.commit()
            raise store_problem() from None
        if self.hub.unsaved:
            self.commit()
            if self.fault is not None:
                raise store_problem()
        else:
            # A replay may have made something to hand out.
            self.perform(self.hub.commit(self.clock()))

    def recheck(self, handle: str) -> None:
        """What ``handle`` allows has changed: end the stored calls that it allows no more."""
        self.perform(self.hub.recheck(handle, self.clock()))

    # --- HTTP requests that wait

    async def cancel(self, caller: str, call_id: str) -> CancelAnswer:
        """Ask for the cancellation of a call and return what became of it, in some 10 s (RL-CANCEL-011)."""
        request = next(self._requests)
        decided: asyncio.Future[CancelAnswer] = self._loop.create_future()
        self._cancels[request] = decided
        try:
            self.perform(self.hub.cancel(caller, call_id, request, self.clock()))
            return await decided
        finally:
            del self._cancels[request]

    @asynccontextmanager
    async def end_of(self, call_id: str) -> AsyncGenerator[asyncio.Future[None]]:
        """Give a future that is done when the call's end can be seen in its record."""
        ended: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(call_id, set()).add(ended)
        try:
            yield ended
        finally:
            ended.cancel()
            waiters = self._waiting.get(call_id)
            if waiters is not None:
                waiters.discard(ended)
                if not waiters:
                    del self._waiting[call_id]

    def release_waiters(self) -> None:
        """Answer whoever waits, for an end or a cancellation, with what is true now: the relay stops."""
        for cancel in self._cancels.values():
            if not cancel.done():
                cancel.set_result(CancelAnswer.REQUESTED)
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        self._waiting.clear()

    # --- credentials

    def revoke(self, handle: str, card_id: str) -> None:
        """End every connection that logged in under a card its owner called back (RL-TRANSPORT-044)."""
        self.perform(self.hub.revoke(handle, card_id, self.clock()))

    def remove(self, handle: str) -> None:
        """End every connection of an identity that was removed, and the calls from and to it."""
        self.perform(self.hub.remove(handle, self.clock()))

    def card_replaced(self, handle: str, card_id: str) -> None:
        """Learn that a card logs in for a limited time from now on."""
        self._note_tenure(handle, card_id)

    def _note_tenure(self, handle: str, card_id: str) -> None:
        self._tenures.note(handle, card_id, self._directory.logs_in_until(handle, card_id))
        self._look_later()

    def _look_later(self) -> None:
        end = self._tenures.next()
        if self._tenure_timer is not None:
            self._tenure_timer.cancel()
            self._tenure_timer = None
        if end is not None:
            delay = max(0.0, (end - self.clock().wall) / 1000)
            self._tenure_timer = self._loop.call_later(min(delay, _TENURE_LOOK_S), self._look)

    def _look(self) -> None:
        self._tenure_timer = None
        try:
            self._end_tenures()
        except Exception as error:
            self.telemetry.fault("the look at the cards", error)
        self._look_later()

    def _end_tenures(self) -> None:
        now = self.clock()
        for handle, card_id in self._tenures.due(now.wall):
            end = self._directory.logs_in_until(handle, card_id)
            if end <= now.wall:
                self.perform(self.hub.close_card(handle, card_id, now))
            elif self.connections_of(handle):
                self._tenures.note(handle, card_id, end)

    # --- the timer

    def _arm(self) -> None:
        """Set the one timer to go off when something is due."""
        due = self.hub.deadline()
        if due is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = due
        self._timer = self._loop.call_later(max(0, due - self.clock().mono) / 1000, self._tick)

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed = math.inf
        try:
            self.perform(self.hub.tick(self.clock()))
        except Exception as error:
            self.telemetry.fault("a timer", error)
            self._arm()

    # --- the end

    async def drain(self) -> None:
        """Admit no call any more; return when the running ones have ended or had their time."""
        self._drained = asyncio.Event()
        if self.hub.unsaved:
            self.commit()
        self.perform(self.hub.drain(self.clock()))
        await self._drained.wait()

    def stop(self) -> None:
        """Stop both timers."""
        for timer in (self._timer, self._tenure_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._tenure_timer = None
        if self._commit is not None:
            self.commit()


def store_problem() -> HttpProblem:
    """Return the 503 of a relay whose calls cannot be read or written."""
    return HttpProblem(
        "the relay's storage fails; nothing was changed", code="unavailable", retry_after_ms=5_000
    )
