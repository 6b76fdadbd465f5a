"""Running a handler that is a function of this process.

An async one runs in the event loop of whoever serves, a plain one in a thread of its own. Either way the
connection to the relay lives elsewhere, so a handler that blocks holds up neither pings nor cancellations.
"""

import asyncio
import contextlib
import contextvars
import threading
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast, final

from ringline.client.telemetry import span
from ringline.listener.effects import NO_ROOM, Broken, Result
from ringline.listener.tasks import Call, TaskFailed, produced

__all__ = ["AsyncRun", "Place", "ThreadRun"]

_STOPPED: Final = Broken(detail="the work was stopped")


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Where functions run: the event loop of the async ones, and the context variables of all."""

    loop: asyncio.AbstractEventLoop
    context: contextvars.Context

    @classmethod
    def here(cls) -> "Place":
        """Return the running event loop and the present context."""
        return cls(asyncio.get_running_loop(), contextvars.copy_context())


@final
class ThreadRun:
    """A plain function in a thread. It can be asked to stop, by `Call.cancelled`, and not be made to."""

    def __init__(
        self, handler: Callable[[], Any], call: Call, place: Place, *, expose_errors: bool = False
    ) -> None:
        """``expose_errors`` sends the text of any exception to the caller."""
        self._handler = handler
        self._call = call
        self._context = place.context.copy()
        self._expose = expose_errors

    async def run(self) -> tuple[Result, bool]:
        """Run it; return what it came to, and whether it had been asked to stop before it returned."""
        if self._call.cancelled:
            return _STOPPED, True
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Result, bool]] = loop.create_future()

        def body() -> None:
            try:
                with span("server", parent=self._call.traceparent) as current:
                    current.note("ringline.call_id", self._call.call_id)
                    result = produced(self._handler())
            except BaseException as error:  # a thread has nobody else to tell, not even of SystemExit
                result = _failure(error, expose=self._expose)
            answer = (result, self._call.cancelled)
            _tell(loop, done, answer)

        # Not a pool: a function that never returns must not keep the program from ending.
        name = f"ringline {self._call.call_id}"
        thread = threading.Thread(target=self._context.run, args=(body,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return Broken("busy", NO_ROOM, f"no thread for a call: {error}"), False
        return await done

    def stop(self, *, at_once: bool) -> None:
        """Ask it to stop; there is no other way."""
        del at_once
        self._call.flag.set()


@final
class AsyncRun:
    """An async function in the event loop of the handlers, which may be in another thread."""

    def __init__(
        self,
        handler: Callable[[], Any],
        call: Call,
        place: Place,
        *,
        expose_errors: bool = False,
    ) -> None:
        """``expose_errors`` sends the text of any exception to the caller."""
        self._handler = handler
        self._call = call
        self._loop = place.loop
        self._context = place.context.copy()
        self._expose = expose_errors
        self._task: asyncio.Task[Result] | None = None
        self._stopped = False

    async def run(self) -> tuple[Result, bool]:
        """Run it; return what it came to, and whether it had been cancelled before it ended."""
        own = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Result, bool]] = own.create_future()

        def start() -> None:
            if self._call.cancelled:  # told to stop before there was anything to cancel
                _tell(own, done, (_STOPPED, True))
                return
            self._task = self._loop.create_task(self._guard(), name=f"ringline {self._call.call_id}")
            self._task.add_done_callback(ended)

        def ended(task: asyncio.Task[Result]) -> None:
            # Cancelled before its first step, the guard had no say.
            result = _STOPPED if task.cancelled() else task.result()
            _tell(own, done, (result, self._stopped))

        try:
            self._loop.call_soon_threadsafe(start, context=self._context)
        except RuntimeError:
            return Broken(local="the event loop of the handlers is closed"), False
        return await done

    def stop(self, *, at_once: bool) -> None:
        """Cancel it: it gets `asyncio.CancelledError`, each time this is called."""
        del at_once
        self._call.flag.set()
        with contextlib.suppress(RuntimeError):  # its loop is closed, and no end can be told any more
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and self._task.cancel():
            self._stopped = True

    async def _guard(self) -> Result:
        try:
            with span("server", parent=self._call.traceparent) as current:
                current.note("ringline.call_id", self._call.call_id)
                return produced(await cast(Awaitable[object], self._handler()))
        except asyncio.CancelledError:
            return _STOPPED
        except BaseException as error:  # SystemExit too: it would end the loop, and all other calls
            return _failure(error, expose=self._expose)


def _failure(error: BaseException, *, expose: bool) -> Broken:
    """What a handler's exception comes to: only a text that was meant for the caller leaves this computer."""
    if isinstance(error, TaskFailed):
        return Broken(detail=str(error) or None, local="the task failed on purpose")
    local = "".join(traceback.format_exception(error))
    return Broken(detail=(str(error) or type(error).__name__) if expose else None, local=local)


def _tell(
    loop: asyncio.AbstractEventLoop,
    done: "asyncio.Future[tuple[Result, bool]]",
    answer: tuple[Result, bool],
) -> None:
    def settle() -> None:
        if not done.done():
            done.set_result(answer)

    with contextlib.suppress(RuntimeError):  # the listener is gone; its journal says that the work had begun
        loop.call_soon_threadsafe(settle)
