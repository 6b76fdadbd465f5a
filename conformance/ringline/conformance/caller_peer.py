"""Somebody whom the subject calls: what arrives for him, and what he answers, true or false."""

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from ringline.conformance.identity import Identity, now_ms
from ringline.conformance.line import Frame, Line
from ringline.conformance.seals import Damage, seal_body
from ringline.conformance.stand_in import Dialled
from ringline.conformance.timeline import shorten
from ringline.conformance.verdict import Failed, check
from ringline.conformance.websocket import Ended
from ringline.protocol import bodies
from ringline.protocol.context import RequestContext
from ringline.protocol.encoding import b64encode
from ringline.protocol.envelope import OpenedRequest
from ringline.protocol.frames import Envelope, Terminal

if TYPE_CHECKING:
    from ringline.conformance.caller_scene import Scene

__all__ = ["Peer", "Taken", "failure", "reply"]

_NO_DAMAGE: Final = Damage()


def reply(text: str = "done", **members: Any) -> bytes:
    """Return the JSON of a reply, as it is sealed."""
    return msgspec.json.encode({"reason": "completed", "reply": {"text": text} | members})


def failure(code: str = "agent_error", reason: str = "failed", **members: Any) -> bytes:
    """Return the JSON of a failure, as it is sealed."""
    return msgspec.json.encode({"reason": reason, "failure": {"code": code} | members})


@final
class Peer:
    """Somebody whom the subject calls: an identity, and whatever arrives on the connections to it."""

    def __init__(self, scene: "Scene", identity: Identity) -> None:
        self.identity = identity
        self.lines: list[Line] = []
        """Every connection of the subject to this peer, in order."""
        self._scene = scene
        self._frames: asyncio.Queue[tuple[Line, Frame]] = asyncio.Queue()
        self._opened: asyncio.Queue[Line] = asyncio.Queue()
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def handle(self) -> str:
        """Its handle."""
        return self.identity.handle

    @property
    def contact(self) -> str:
        """Its contact string."""
        who = self.identity
        key = b64encode(who.identity.public)
        return f"ringline://{who.handle}@{who.realm}/?at={self._scene.house.relay.url}#k={key}"

    def take(self, dialled: Dialled) -> None:
        """For the scene: a connection to this peer was opened."""
        scene = self._scene
        line = Line(
            dialled.socket,
            self.handle,
            "to caller",
            scene.stage.timeline,
            scene.stage.patience,
            _hides_nothing,
        )
        line.read()
        self.lines.append(line)
        self._opened.put_nowait(line)
        pump = asyncio.create_task(self._pump(line))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    async def _pump(self, line: Line) -> None:
        while not isinstance(arrived := await line.arrival(), Ended):
            self._frames.put_nowait((line, arrived))

    async def connection(self, within: float | None = None) -> Line:
        """Return the next connection of the subject to this peer. Raises `Failed` when none comes."""
        line: Line = await self._next(self._opened, "a connection of the caller", within)
        return line

    async def frame(self, within: float | None = None) -> tuple[Line, Frame]:
        """Return the next frame, and the connection it came on. Raises `Failed` when none comes."""
        arrived: tuple[Line, Frame] = await self._next(self._frames, f"a frame to {self.handle}", within)
        return arrived

    async def _next(self, queue: "asyncio.Queue[Any]", what: str, within: float | None) -> Any:
        seconds = self._scene.patient if within is None else within
        try:
            async with asyncio.timeout(seconds):
                return await queue.get()
        except TimeoutError:
            raise Failed(what, f"nothing within {seconds:g} s") from None

    async def expect(self, kind: str, within: float | None = None, **members: Any) -> tuple[Line, Frame]:
        """Return the next frame, which must be of this type and have these members."""
        line, frame = await self.frame(within)
        wanted = {"type": kind} | members
        check(
            all(frame.get(name) == value for name, value in wanted.items()),
            shorten(msgspec.json.encode(wanted)),
            shorten(msgspec.json.encode(frame)),
        )
        return line, frame

    def nothing_more(self, why: str) -> None:
        """Pass when no frame has arrived that was not taken."""
        if not self._frames.empty():
            _, frame = self._frames.get_nowait()
            raise Failed(f"no further frame: {why}", shorten(msgspec.json.encode(frame)))

    async def silence(self, seconds: float, why: str) -> None:
        """Pass when no frame arrives for so long."""
        try:
            _, frame = await self.frame(seconds)
        except Failed:
            return
        raise Failed(f"no further frame: {why}", shorten(msgspec.json.encode(frame)))

    async def ended(self, line: Line, within: float | None = None) -> Ended:
        """Wait for the subject to end a connection. Raises `Failed` when it does not."""
        seconds = self._scene.patient if within is None else within
        async with asyncio.timeout(seconds + 1):
            for _ in range(int(seconds * 50)):
                if line.ended is not None:
                    return line.ended
                await asyncio.sleep(0.02)
        raise Failed(f"the end of the connection to {self.handle}", "it stays open")

    async def request(self, within: float | None = None) -> "Taken":
        """Receive the next frame, which must be a request that opens for this peer."""
        line, frame = await self.expect("call_request", within)
        return self._scene.taken(self, line, frame)

    async def dispose(self) -> None:
        """Let go of every connection."""
        for pump in list(self._pumps):
            pump.cancel()
        for line in self.lines:
            await line.dispose()


@final
@dataclass(kw_only=True)
class Taken:
    """A request of the subject, opened, and what its outcome is bound to."""

    peer: Peer
    line: Line
    frame: Frame
    context: RequestContext
    opened: OpenedRequest
    request: bodies.Request
    call_id: str

    @property
    def sealed(self) -> Envelope:
        """The envelope."""
        return msgspec.convert(self.frame["envelope"], Envelope)

    @property
    def as_sent(self) -> bytes:
        """What makes it the same when it is sent again."""
        return msgspec.json.encode(self.frame, order="deterministic")

    async def send(self, frame: Frame | bytes | str, line: Line | None = None) -> None:
        """Send the caller a frame, on the connection of the request or another one."""
        await (line or self.line).send(frame)

    async def status(self, state: str = "ringing", line: Line | None = None) -> None:
        """Say how the call is getting on, as a relay does."""
        ids = {"call_id": self.call_id, "correlation_id": self.frame["correlation_id"]}
        await self.send({"type": "call_status", "state": state} | ids, line)

    async def queued(self, **members: Any) -> None:
        """Say that a durable call is stored."""
        now = now_ms()
        frame = {
            "type": "call_queued",
            "call_id": self.call_id,
            "message_id": self.frame["message_id"],
            "correlation_id": self.frame["correlation_id"],
            "submitted_at": now,
            "expires_at": self.context.exp,
        }
        await self.send(frame | members)

    async def error(self, code: str, *, ends: bool = False, **members: Any) -> None:
        """Say that this sending was not admitted, or that the call ``ends``."""
        frame = {"type": "call_error", "origin": "relay", "code": code}
        frame |= {"correlation_id": self.frame["correlation_id"]}
        await self.send(frame | ({"call_id": self.call_id} if ends else {}) | members)

    def outcome(
        self,
        body: bytes | None = None,
        terminal: Terminal = "completed",
        *,
        by: Identity | None = None,
        damage: Damage = _NO_DAMAGE,
        clear: dict[str, Any] | None = None,
        frame: dict[str, Any] | None = None,
        **surroundings: Any,
    ) -> Frame:
        """Return the outcome of this call; a reply, unless ``body`` has another JSON.

        ``by`` signs it in place of the peer, ``surroundings`` are members of its context that are not true,
        ``clear`` and ``frame`` change members of the envelope and the frame after the sealing.
        """
        who = by or self.peer.identity
        context = self.context.answer(
            card_id=who.card.card.id,
            reply_public=self.opened.reply_public,
            call_id=self.call_id,
            terminal=terminal,
            digest=self.opened.digest,
            iat=now_ms(),
        )
        if surroundings:
            context = replace(context, **surroundings)
        envelope, _ = seal_body(context, reply() if body is None else body, who.operational, damage)
        made = {"type": "call_outcome", "call_id": self.call_id, "terminal": terminal}
        return made | {"envelope": envelope | (clear or {})} | (frame or {})

    async def answer(self, text: str = "done") -> None:
        """End the call with a reply."""
        await self.send(self.outcome(reply(text)))

    def record(self, state: str, outcome: Frame | None = None, *, ended: bool = True) -> dict[str, Any]:
        """Return the relay's record of this call."""
        now = now_ms()
        end = {name: outcome[name] for name in ("terminal", "envelope")} if outcome is not None else None
        return {
            "call_id": self.call_id,
            "from": self.context.sender.handle,
            "to": self.peer.handle,
            "mode": self.context.mode,
            "state": state,
            "terminal_reason": state if ended else None,
            "message_id": self.frame.get("message_id"),
            "correlation_id": self.frame["correlation_id"],
            "submitted_at": now - 1_000,
            "expires_at": self.context.exp,
            "started_at": None,
            "finished_at": now if ended else None,
            "attempts": 0,
            "deferred_until": None,
            "cancel_requested": False,
            "outcome": end,
        }


def _hides_nothing(line: str, payload: bytes) -> str | None:
    del line, payload
    return None
