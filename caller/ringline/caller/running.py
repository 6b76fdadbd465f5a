"""A call under way, as a program holds it: its events, its result, its cancellation."""

from collections.abc import AsyncIterator
from typing import final

from ringline.caller.cancellation import Cancellation
from ringline.caller.errand import Errand
from ringline.caller.events import Event
from ringline.caller.reply import Reply, reply_of

__all__ = ["RunningCall"]


@final
class RunningCall:
    """A call that was started. Made by `AsyncCaller.start`.

    Leaving it alone does no harm: it goes on, and its outcome is kept. As an ``async with`` block it is
    cancelled when the block is left before its end.
    """

    def __init__(self, errand: Errand) -> None:
        """For `AsyncCaller`."""
        self._errand = errand

    async def __aenter__(self) -> "RunningCall":
        """Return the call itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel the call if it is still under way, and wait at most ten seconds for what comes of it."""
        if not self.done:
            await self.cancel()
            self.abandon()
            await self._errand.settled()

    @property
    def callee(self) -> str:
        """The handle that is called."""
        return self._errand.callee

    @property
    def message_id(self) -> str:
        """The id that names the message: calling again with it never runs it twice."""
        return self._errand.message_id

    @property
    def correlation_id(self) -> str:
        """The id that the relay sees of the conversation."""
        return self._errand.correlation_id

    @property
    def call_id(self) -> str | None:
        """The relay's id, once it is known."""
        return self._errand.call_id

    @property
    def done(self) -> bool:
        """True when `result` will not have to wait."""
        return self._errand.done

    async def result(self) -> Reply:
        """Wait for the end and return the peer's signed reply. May be awaited more than once.

        Raises:
            PeerFailure: the peer says, sealed and signed, that it failed.
            RelayError: the relay says how it ended; nobody has signed that.
            CallTimeout: the time was over; the work may still run.
            TransportError: the relay could not be reached, or was lost for too long.
            TrustError: the peer's key is unknown, changed or revoked; nothing was sealed.
            CannotOpen: an outcome was delivered that does not open.
            MessageTooLarge: nothing was sealed or sent.
            ConfigError: the call cannot be made like this.
        """
        answer = await self._errand.answer()
        return reply_of(answer, self.message_id, self.correlation_id)

    async def events(self) -> AsyncIterator[Event]:
        """Yield what has happened so far and what happens, until the call is over.

        Each event tells who says it; only the last may be authenticated.
        """
        at = 0
        while True:
            # Taken before the look at the list, so that no event between the two is slept through.
            changed = self._errand.changed
            if at < len(self._errand.events):
                yield self._errand.events[at]
                at += 1
            elif self._errand.finished:
                return
            else:
                await changed.wait()

    async def cancel(self) -> Cancellation:
        """Ask for the cancellation and return what came of it, at the latest after ten seconds.

        `Cancelled` is returned only when the relay says that the listener confirmed it, or when nothing of
        the call was with the relay. The call goes on after `NotCancelled` and `Requested`: await `result`.
        """
        return await self._errand.cancel()

    def abandon(self) -> None:
        """Stop waiting: a cancellation is asked for, and its answer is not waited for."""
        self._errand.abandon()
