"""A listener that does exactly what a test tells it to, built on `ringline.protocol` alone."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import UNSET
from websockets.exceptions import ConnectionClosed

from ringline.protocol import bodies, codec
from ringline.protocol.context import Party, Recipient, RequestContext
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.envelope import OpenedRequest, open_request, seal_outcome
from ringline.protocol.frames import (
    CallAccepted,
    CallCancelled,
    CallNotCancelled,
    CallOutcome,
    CallRejected,
    CallStarted,
    CancelCall,
    Frame,
    IncomingCall,
    NotCancelledReason,
    Phase,
    Terminal,
)
from ringline.protocol.identity import SignedCard
from ringline_testing.signed import Line, Owner, now_ms

__all__ = ["ScriptedCall", "ScriptedListener", "echo", "scripted_listener"]

_PATIENCE_S: Final = 30.0


@dataclass
class ScriptedCall:
    """One offer of a call, opened."""

    listener: "ScriptedListener"
    frame: IncomingCall
    context: RequestContext
    opened: OpenedRequest
    request: bodies.Request
    cancel_asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def call_id(self) -> str:
        """The relay's id."""
        return self.frame.call_id

    async def accept(self) -> None:
        """Say that the call is in hand."""
        await self.listener.send(CallAccepted(call_id=self.call_id))

    async def start(self) -> None:
        """Say that work has begun."""
        await self.listener.send(CallStarted(call_id=self.call_id))

    async def reject(self) -> None:
        """Say that it cannot be opened."""
        await self.listener.send(CallRejected(call_id=self.call_id, code="protocol_error"))

    async def cancelled(self, phase: Phase = "running") -> None:
        """Confirm the cancellation."""
        await self.listener.send(CallCancelled(call_id=self.call_id, phase=phase))

    async def not_cancelled(self, reason: NotCancelledReason) -> None:
        """Refuse the cancellation."""
        await self.listener.send(CallNotCancelled(call_id=self.call_id, reason=reason))

    def sealed(self, outcome: bodies.Outcome, *, owner: Owner | None = None, **changes: Any) -> CallOutcome:
        """Return the outcome, sealed as it should be; ``changes`` replace what its context is made of."""
        return self.sealed_bytes(bodies.encode_outcome(outcome), outcome.terminal, owner=owner, **changes)

    def sealed_bytes(
        self, body: bytes, terminal: Terminal, *, owner: Owner | None = None, **changes: Any
    ) -> CallOutcome:
        """Return what need not be an outcome, sealed as one."""
        signer = owner or self.listener.owner
        arguments: dict[str, Any] = {
            "card_id": signer.card.card.id,
            "reply_public": self.opened.reply_public,
            "call_id": self.call_id,
            "terminal": terminal,
            "digest": self.opened.digest,
            "iat": now_ms(),
        }
        context = self.context.answer(**(arguments | changes))
        envelope = seal_outcome(context, body, signer.operational)
        return CallOutcome(call_id=self.call_id, terminal=terminal, envelope=envelope)

    async def reply(self, text: str, **members: Any) -> None:
        """Accept and start if that is due, and answer with a reply."""
        await self.accept()
        await self.start()
        await self.finish(bodies.Outcome(reason="completed", reply=bodies.Reply(text=text, **members)))

    async def fail(self, code: bodies.FailureCode, **members: Any) -> None:
        """Answer with a failure."""
        await self.finish(bodies.Outcome(reason="failed", failure=bodies.Failure(code=code, **members)))

    async def finish(self, outcome: bodies.Outcome, **changes: Any) -> None:
        """Seal and send an outcome."""
        await self.listener.send(self.sealed(outcome, **changes))


Script = Callable[[ScriptedCall], Awaitable[None]]


async def echo(call: ScriptedCall) -> None:
    """Answer with what was said."""
    await call.reply(call.request.message)


class ScriptedListener:
    """An agent of a test. ``script`` is run for every offer; change it at any time."""

    def __init__(self, owner: Owner, script: Script) -> None:
        self.owner = owner
        self.script = script
        self.calls: list[ScriptedCall] = []
        self.instance = str(uuid4())
        self.boot = str(uuid4())
        self.capacity = 4
        self._cards: dict[bytes, SignedCard] = {}
        self._line: Line | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()

    async def send(self, frame: Frame) -> None:
        """Send a frame on the present connection."""
        assert self._line is not None, "the listener has no connection"
        await self._line.send(codec.encode(frame).decode())

    async def call(self, number: int = 1) -> ScriptedCall:
        """Wait for the offer of that number, counted from 1."""
        async with asyncio.timeout(_PATIENCE_S):
            while len(self.calls) < number:
                self._arrived.clear()
                await self._arrived.wait()
        return self.calls[number - 1]

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Be connected within the block."""
        target = {"capacity": self.capacity, "instance": self.instance, "boot": self.boot}
        async with self.owner.listening(**target) as line:
            self._line = line
            reader = asyncio.create_task(self._read(line))
            try:
                yield
            finally:
                self._line = None
                reader.cancel()
                for task in [reader, *self._tasks]:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                        await task

    async def _read(self, line: Line) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                frame = codec.decode(str(await line.socket.recv()).encode(), "relay_to_listener")
                if isinstance(frame, CancelCall):
                    for call in self.calls:
                        if call.call_id == frame.call_id:
                            call.cancel_asked.set()
                elif isinstance(frame, IncomingCall):
                    call = await self._open(frame)
                    self.calls.append(call)
                    self._arrived.set()
                    task = asyncio.create_task(self._play(call))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    async def _play(self, call: ScriptedCall) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self.script(call)

    async def _open(self, frame: IncomingCall) -> ScriptedCall:
        envelope = frame.envelope
        sender = await self._card(frame.from_, b64decode(envelope.sid))
        private = self.owner.chain.private(envelope.suite)
        assert envelope.kid == b64encode(private.key_id)
        context = RequestContext(
            realm=self.owner.realm,
            sender=Party(frame.from_, sender.card.ipk, sender.card.id),
            recipient=Recipient(
                self.owner.handle, self.owner.identity.public, envelope.suite, private.public
            ),
            mode="sync",
            message_id="" if frame.message_id is UNSET else frame.message_id,
            correlation_id=frame.correlation_id,
            iat=envelope.iat,
            exp=envelope.exp,
        )
        opened = open_request(envelope, private, context, sender.card.spk)
        return ScriptedCall(self, frame, context, opened, bodies.decode_request(opened.json_bytes))

    async def _card(self, handle: str, card_id: bytes) -> SignedCard:
        if card_id not in self._cards:
            answer = await self.owner.ask("GET", f"/v1/handles/{handle}?card={b64encode(card_id)}")
            assert answer.status == 200, answer
            keys = msgspec.json.decode(answer.body)
            self._cards[card_id] = SignedCard.parse(b64decode(keys["card"]), b64decode(keys["card_sig"]))
        return self._cards[card_id]


@contextlib.asynccontextmanager
async def scripted_listener(
    port: int,
    handle: str = "bob",
    script: Script = echo,
    *,
    suites: Sequence[int] = (1,),
    connected: bool = True,
) -> AsyncGenerator[ScriptedListener]:
    """Enrol ``handle`` at the relay on ``port`` and answer calls by ``script``."""
    owner = Owner(handle=handle, port=port, suites=tuple(suites))
    answer = await owner.publish()
    assert answer.status == 201, answer
    listener = ScriptedListener(owner, script)
    if connected:
        async with listener.listening():
            yield listener
    else:
        yield listener
