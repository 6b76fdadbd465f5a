"""The work of one call, from the question to the answer, across connections and processes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, final

from msgspec import UNSET
from msgspec.structs import replace as with_members

from ringline.caller.cancellation import Cancellation, Cancelled, NotCancelled, Requested
from ringline.caller.effects import (
    CancelAnswer,
    Ended,
    Progress,
    Refused,
    Unopened,
    Withdrawn,
)
from ringline.caller.ends import error_of, out_of_time
from ringline.caller.events import Event, EventName, Source
from ringline.caller.kept import state_after
from ringline.caller.line import Line
from ringline.caller.outbox import Stored
from ringline.caller.pending import Outgoing
from ringline.caller.post import Post
from ringline.caller.receipt import Receipt
from ringline.caller.sealing import Answer, Question, read_answer, seal_call
from ringline.client import telemetry
from ringline.client.clock import wall_ms
from ringline.protocol.bodies import Request, encode_request
from ringline.protocol.errors import (
    CannotOpen,
    ConfigError,
    PeerFailure,
    ProtocolError,
    RinglineError,
)
from ringline.protocol.frames import CallOutcome, CallQueued
from ringline.protocol.limits import ENVELOPE_SKEW_MS
from ringline.protocol.transcript import digest

__all__ = ["Errand"]

_PROGRESS: Final[dict[Progress, Source]] = {"sent": "here", "sent_again": "here"}


@final
class Errand:
    """One call. It runs as a task of the event loop from the moment it is made; its line calls back here."""

    def __init__(
        self,
        ready: Callable[[], Awaitable[Post]],
        callee: str,
        question: Question,
        *,
        message_id: str,
        correlation_id: str,
        timeout_s: float,
        repeat: bool,
    ) -> None:
        """For `AsyncCaller`; must be made in a running event loop. ``repeat``: the caller named the id."""
        self.callee = callee
        self.message_id = message_id
        self.correlation_id = correlation_id
        self.call_id: str | None = None
        """The relay's id, once it is known."""
        self._ready = ready
        self._question = question
        self._timeout_s = timeout_s
        self._repeat = repeat
        self._stored: Stored | None = None
        self._post: Post | None = None
        self._line: Line | None = None
        self._events: list[Event] = []
        self._changed = asyncio.Event()
        self._asked: list[asyncio.Future[CancelAnswer]] = []
        self._withdrawn = False
        self._placed = asyncio.Event()
        self._request: Request | None = None
        self._preparing: asyncio.Task[tuple[Post, Stored]] | None = None
        self.finished = False
        """True when the last event is there."""
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[Receipt | Ended] = loop.create_future()
        self._deadline = loop.time() + timeout_s
        self._task = loop.create_task(self._run(), name=f"call {message_id}")
        self._task.add_done_callback(self._finished)

    @property
    def done(self) -> bool:
        """True when `answer` will not have to wait."""
        return self._task.done()

    @property
    def events(self) -> list[Event]:
        """What has happened so far."""
        return self._events

    @property
    def changed(self) -> asyncio.Event:
        """Set when the next event is there, or the call is over."""
        return self._changed

    async def answer(self) -> Answer:
        """Wait for the end and return what the peer said. Raises as `RunningCall.result` documents."""
        return await asyncio.shield(self._task)

    async def cancel(self) -> Cancellation:
        """Ask for the cancellation and return what came of it within ten seconds."""
        if self._task.done():
            return NotCancelled(self.call_id, "already_terminal")
        self._tell("cancel_requested", "here")
        if self._line is None and not self._repeat:
            self._withdrawn = True
            if self._preparing is not None:
                self._preparing.cancel()
            await self.settled()
            return Cancelled(None)
        if self._line is None:
            # An earlier try may have sent it, so it is not cancelled before the relay was told.
            placed = asyncio.ensure_future(self._placed.wait())
            await asyncio.wait({placed, self._task}, return_when=asyncio.FIRST_COMPLETED)
            placed.cancel()
        if self._line is None:
            return NotCancelled(self.call_id, "already_terminal")
        asked: asyncio.Future[CancelAnswer] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._line.cancel(self.message_id)
        answer = await asked
        match answer:
            case "canceled":
                return Cancelled(self.call_id)
            case "requested":
                return Requested(self.call_id)
            case _:
                return NotCancelled(self.call_id, answer)

    async def settled(self) -> None:
        """Wait for the end, whatever it is."""
        await asyncio.wait({self._task})

    def abandon(self) -> None:
        """Stop waiting: a cancellation is asked for, and its answer is not waited for."""
        if self._line is not None:
            self._line.give_up(self.message_id)
        elif not self._task.done():
            self._task.cancel()

    # --- for the line

    def told(self, progress: Progress, call_id: str | None) -> None:
        """For the line."""
        del call_id
        self._tell(progress, _PROGRESS.get(progress, "relay"))

    def learned(self, call_id: str) -> None:
        """For the line."""
        self.call_id = call_id
        if self._post is not None:
            self._post.store_soon(self._post.outbox.learned, self.callee, self.message_id, call_id)

    def queued(self, frame: CallQueued) -> None:
        """For the line; never told of a sync call."""
        del frame

    def decided(self, answer: CancelAnswer) -> None:
        """For the line."""
        for asked in self._asked:
            if not asked.done():
                asked.set_result(answer)
        self._asked.clear()

    def over(self, end: Ended) -> None:
        """For the line."""
        if not self._end.done():
            self._end.set_result(end)

    def reconnecting(self, error: RinglineError) -> None:
        """For the line."""
        self._tell("reconnecting", "here", str(error))

    async def open(self, frame: CallOutcome) -> bool:
        """For the line."""
        post, stored = self._post, self._stored
        assert post is not None
        assert stored is not None
        try:
            receipt = await post.keep(stored, frame)
        except CannotOpen:
            return False  # all else that is raised says why it could not be checked
        if not self._end.done():
            self._end.set_result(receipt)
        return True

    async def reseal(self) -> bytes:
        """For the line."""
        post, stored = self._post, self._stored
        assert post is not None
        assert stored is not None
        started_ms = (await post.http.info()).started_at
        now_ms = post.clock.now_ms()
        # A clock that is a little slow would seal before the relay's start once more.
        if 0 <= started_ms - now_ms < ENVELOPE_SKEW_MS // 2:
            now_ms = started_ms + 1
        peer = await post.peers.resolve(self.callee)
        anew = seal_call(
            post.account,
            peer,
            self._request or self._question.body(),
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            now_ms=now_ms,
            kt=post.kt,
        )
        await post.stored(post.outbox.replace, anew)
        self._stored = anew
        return anew.payload

    # --- the call itself

    async def _run(self) -> Answer:
        with telemetry.span("client") as span:
            return await self._call(span)

    async def _call(self, span: telemetry.CallSpan) -> Answer:
        self._request = request = self._question.body(span.traceparent)
        # A task of its own, so that a cancellation by the person ends it, and not this one.
        self._preparing = asyncio.get_running_loop().create_task(self._prepare(request))
        try:
            async with asyncio.timeout_at(self._deadline):
                if self._withdrawn:
                    self._preparing.cancel()
                post, stored = await self._preparing
        except TimeoutError:
            raise out_of_time(self.message_id, None, self._timeout_s, sent=False) from None
        except asyncio.CancelledError:
            if not self._withdrawn:
                self._preparing.cancel()
                raise
            raise error_of(Withdrawn(), self.callee, self.message_id, None, 0.0) from None
        if self._withdrawn:
            # It was ready at the very moment of the cancellation, and nothing of it was sent.
            raise error_of(Withdrawn(), self.callee, self.message_id, None, 0.0)
        self._post, self._stored = post, stored
        self.call_id = stored.call_id
        sent_before = self._repeat and stored is not self._fresh
        if stored.receipt is not None:
            return self._read(stored.receipt)
        end = await self._on_line(post, stored, sent_before=sent_before)
        if isinstance(end, Receipt):
            span.note("ringline.call_id", end.call_id)
            return self._read(end)
        if (state := state_after(end)) is not None:
            post.store_soon(post.outbox.ended, self.callee, self.message_id, state)
        if isinstance(end, Refused) and end.code == "protocol_error":
            # It may be that the peer has other keys by now: look at them before the next call.
            post.peers.forget(self.callee)
        raise error_of(end, self.callee, self.message_id, self.call_id, self._timeout_s)

    _fresh: Stored | None = None

    async def _prepare(self, request: Request) -> tuple[Post, Stored]:
        post = await self._ready()
        return post, await self._kept(post, request)

    async def _kept(self, post: Post, request: Request) -> Stored:
        """Return what is to be sent: sealed now, or sealed and kept by an earlier try (RL-IDEM-011)."""
        if self._repeat:
            known = await post.stored(post.outbox.find, self.callee, self.message_id)
            if known is not None:
                return self._known(post, known, request)
        peer = await post.peers.resolve(self.callee)
        fresh = seal_call(
            post.account,
            peer,
            request,
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            now_ms=post.clock.now_ms(),
            kt=post.kt,
        )
        self._tell("sealed", "here", peer.pin.fingerprint)
        kept = await post.stored(post.outbox.remember, fresh)
        if kept is not fresh:
            # Another process was faster with the same message_id.
            return self._known(post, kept, request)
        self._fresh = fresh
        return fresh

    def _known(self, post: Post, known: Stored, request: Request) -> Stored:
        if known.mode != "sync" or known.content != digest(
            encode_request(with_members(request, traceparent=UNSET))
        ):
            raise ConfigError(
                f"the message_id {self.message_id} was used before for another message to {self.callee}. "
                "Nothing was sent.",
                next_step="leave it out, or give a new one",
            )
        if known.receipt is None and not known.resendable(post.clock.now_ms()):
            raise out_of_time(self.message_id, known.call_id, self._timeout_s, sent=True)
        self.correlation_id = known.correlation_id
        return known

    async def _on_line(self, post: Post, stored: Stored, *, sent_before: bool) -> Receipt | Ended:
        loop = asyncio.get_running_loop()
        out = Outgoing(
            message_id=stored.message_id,
            correlation_id=stored.correlation_id,
            payload=stored.payload,
            deadline=post.deadline(max(0.0, self._deadline - loop.time())),
            sent_before=sent_before,
            call_id=stored.call_id,
        )
        line = post.line(self.callee)
        try:
            line.start(out, self)
        except ValueError:
            raise ConfigError(
                f"the message_id {self.message_id} is under way already",
                next_step="await the call that was started with it",
            ) from None
        self._line = line
        self._placed.set()
        try:
            return await self._end
        except asyncio.CancelledError:
            line.give_up(self.message_id)
            raise

    def _read(self, receipt: Receipt) -> Answer:
        self.call_id = receipt.call_id
        answer = read_answer(receipt, self.message_id)
        if answer.signer.card.handle != self.callee:  # pragma: no cover - the context binds it
            raise ProtocolError("the receipt is of another callee")
        return answer

    def _finished(self, task: "asyncio.Task[Answer]") -> None:
        self.decided("already_terminal")
        self.finished = True
        if task.cancelled():
            self._tell("ended", "here", "no longer waited for")
        elif (error := task.exception()) is None:
            self._tell("completed", "peer")
        elif isinstance(error, PeerFailure):
            self._tell("failed", "peer", error.code)
        else:
            end = self._end.result() if self._end.done() and not self._end.cancelled() else None
            said = isinstance(end, Refused) or end == Unopened()
            self._tell("ended", "relay" if said else "here", getattr(error, "code", "internal_error"))

    def _tell(self, name: EventName, source: Source, note: str = "") -> None:
        self._events.append(
            Event(
                name=name,
                source=source,
                at_ms=wall_ms(),
                message_id=self.message_id,
                call_id=self.call_id,
                note=note,
            )
        )
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
