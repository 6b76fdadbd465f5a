"""Leaving a durable call with the relay: from sealed bytes on disk to the relay's word that it has them."""

import asyncio
from typing import final

from ringline.caller.effects import CancelAnswer, Ended, Progress
from ringline.caller.ends import error_of
from ringline.caller.kept import state_after
from ringline.caller.outbox import Stored
from ringline.caller.pending import Outgoing
from ringline.caller.post import Post
from ringline.protocol.errors import ConfigError, RinglineError
from ringline.protocol.frames import CallOutcome, CallQueued

__all__ = ["Submission"]


@final
class Submission:
    """One durable call on its way to the relay; its line calls back here."""

    def __init__(self, post: Post, stored: Stored, timeout_s: float, *, sent_before: bool) -> None:
        """For a call that is in the outbox. ``sent_before``: the relay may have it already."""
        self._post = post
        self._stored = stored
        self._timeout_s = timeout_s
        self._sent_before = sent_before
        self._call_id = stored.call_id
        self._end: asyncio.Future[CallQueued | Ended] = asyncio.get_running_loop().create_future()

    async def run(self) -> CallQueued:
        """Send the bytes until the relay says that it has stored them, note that on disk, and return it.

        Raises what ends a call without an outcome; `CallTimeout` when the time is over, and then the relay
        may have it or not: sending the same bytes again finds out and is free (RL-IDEM-001, RL-IDEM-004).
        """
        stored, post = self._stored, self._post
        line = post.line(stored.callee)
        out = Outgoing(
            message_id=stored.message_id,
            correlation_id=stored.correlation_id,
            payload=stored.payload,
            deadline=post.deadline(self._timeout_s),
            sent_before=self._sent_before,
            call_id=stored.call_id,
            durable_exp=stored.exp,
        )
        try:
            line.start(out, self)
        except ValueError:
            raise ConfigError(
                f"the message_id {stored.message_id} is under way already",
                next_step="await the call that was started with it",
            ) from None
        try:
            end = await self._end
        except asyncio.CancelledError:
            line.give_up(stored.message_id)
            raise
        if not isinstance(end, CallQueued):
            if state_after(end) == "refused":
                # Nothing was delivered. Its result can still be asked for: that sends it once more.
                await post.stored(post.outbox.ended, stored.callee, stored.message_id, "refused")
            raise error_of(
                end, stored.callee, stored.message_id, self._call_id, self._timeout_s, durable=True
            )
        await post.stored(post.outbox.queued, stored.callee, stored.message_id, end)
        return end

    # --- for the line

    def told(self, progress: Progress, call_id: str | None) -> None:
        """For the line."""

    def learned(self, call_id: str) -> None:
        """For the line."""
        self._call_id = call_id

    def queued(self, frame: CallQueued) -> None:
        """For the line."""
        if not self._end.done():
            self._end.set_result(frame)

    def decided(self, answer: CancelAnswer) -> None:
        """For the line; a submission is not cancelled there."""

    def over(self, end: Ended) -> None:
        """For the line."""
        if not self._end.done():
            self._end.set_result(end)

    def reconnecting(self, error: RinglineError) -> None:
        """For the line; it is dialled again until the time is over."""

    async def open(self, frame: CallOutcome) -> bool:
        """For the line, which hands out the outcomes of sync calls alone."""
        raise ConfigError("the outcome of a durable call is fetched over HTTP")

    async def reseal(self) -> bytes:
        """For the line, which asks for it of sync calls alone."""
        raise ConfigError("a durable call is sealed once")
