"""Ctrl-C during a call: ask for the stop and wait for the confirmation; asked twice, stop waiting.

Nobody is told that a call was canceled before the other side has confirmed it. A closed terminal and
SIGTERM stop the waiting at once: whoever sends them wants this process to be gone.
"""

import asyncio
import signal
from types import TracebackType
from typing import Any, Final, final

from ringline.caller import Cancellation, Cancelled, NotCancelled, Reply, RunningCall
from ringline.cli.report import RELAY_SAYS, Report
from ringline.protocol.errors import RinglineError

__all__ = ["Detached", "Interrupts", "guarded"]

_HANG_UP: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_NOT_CANCELLED: Final = {
    "already_terminal": "it has ended already",
    "too_late": "it was too late to stop it",
    "unknown": "the relay does not know the call any more",
}


class Detached(RinglineError):
    """This program stopped waiting on demand; what became of the call is not known here."""

    default_code = "detached"


@final
class Interrupts:
    """The signals of one call. Use it as a context manager within the event loop of the main thread."""

    def __init__(self) -> None:
        """Nothing has been pressed."""
        self.cancel = asyncio.Event()
        self.detach = asyncio.Event()

    def __enter__(self) -> "Interrupts":
        """Take the signals over."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._pressed)
        for number in _HANG_UP:
            loop.add_signal_handler(number, self.detach.set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, *_HANG_UP):
            loop.remove_signal_handler(number)

    def _pressed(self) -> None:
        if self.cancel.is_set():
            self.detach.set()
        self.cancel.set()


async def guarded(running: RunningCall, interrupts: Interrupts, report: Report) -> Reply:
    """Wait for the result of a call, and do what the signals ask for meanwhile.

    Raises as `RunningCall.result`, and `Detached`.
    """
    peer = running.callee
    result = asyncio.ensure_future(running.result())
    pressed = asyncio.ensure_future(interrupts.cancel.wait())
    gone = asyncio.ensure_future(interrupts.detach.wait())
    cancelling: asyncio.Future[Cancellation] | None = None
    waiting: set[asyncio.Future[Any]] = {result, pressed, gone}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if result in done:
                return result.result()
            if gone in done:
                raise _detached(running, asked=cancelling is not None)
            if pressed in done:
                waiting.discard(pressed)
                report.line("!", f"cancelling – waiting for {peer} to confirm; Ctrl-C again stops waiting")
                cancelling = asyncio.ensure_future(running.cancel())
                waiting.add(cancelling)
            if cancelling is not None and cancelling in done:
                waiting.discard(cancelling)
                _tell(cancelling.result(), peer, report)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _tell(answer: Cancellation, peer: str, report: Report) -> None:
    """Tell what came of the request. The end itself, if there is one, is the result's to tell."""
    if isinstance(answer, Cancelled):
        return
    if isinstance(answer, NotCancelled):
        report.line("!", f"not cancelled: {_NOT_CANCELLED[answer.reason]}", RELAY_SAYS)
        return
    report.line("!", f"asked for, and not confirmed by {peer} yet; still waiting, Ctrl-C stops that")


def _detached(running: RunningCall, *, asked: bool) -> Detached:
    error = Detached(
        f"stopped waiting for {running.callee}", call_id=running.call_id, message_id=running.message_id
    )
    if running.call_id is None:
        error.still_true = "Whether the relay has the call is not known here."
    elif asked:
        error.still_true = (
            "The stop was asked for and not confirmed: whether the work runs on is not known here."
        )
    else:
        error.still_true = (
            "The relay keeps the call for half a minute and then asks for its stop; "
            "whether the work runs on is not known here."
        )
    return error
