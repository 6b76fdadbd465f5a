"""A caller and the peers that the suite plays to it, and the steps of a call that are no case's subject."""

import asyncio
import secrets
from dataclasses import dataclass, replace
from typing import Any, Final, Self, final

import msgspec

from ringline.conformance.caller_house import CallerHouse, Order
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import Identity, now_ms
from ringline.conformance.line import Frame, Line
from ringline.conformance.seals import Damage, seal_body
from ringline.conformance.stand_in import Asked, Dialled, Told, problem
from ringline.conformance.timeline import shorten
from ringline.conformance.verdict import Failed, check
from ringline.conformance.websocket import Ended
from ringline.protocol import bodies
from ringline.protocol.encoding import b64encode
from ringline.protocol.envelope import (
    OpenedRequest,
    Party,
    Recipient,
    RequestContext,
    open_request,
)
from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import Envelope, Terminal

__all__ = ["Peer", "Scene", "Taken", "failure", "reply"]

_NO_DAMAGE: Final = Damage()
_CALL_MS: Final = 15_000


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


@final
class Scene:
    """A caller, told what to do, and a relay that hands its connections to the peers of a case."""

    def __init__(self, stage: CallerStage, house: CallerHouse) -> None:
        self.stage = stage
        self.house = house
        self.peers: dict[str, Peer] = {}
        self.patient: Final = stage.patience.answer * 3
        """Seconds for a step in which the subject may have to dial."""
        self.records: dict[str, dict[str, Any]] = {}
        """What the relay knows of calls, by call id."""
        self.cancels: dict[str, Told] = {}
        """How the relay answers cancellations over HTTP, by call id."""
        self.acknowledged: list[str] = []
        """Call ids, in order."""
        self.looked_up: list[str] = []
        """Call ids that the subject has asked about, in order."""
        house.relay.answering = self._answer
        self._handing = asyncio.create_task(self._hand_over())
        stage.leaving.append(self._leave)

    @classmethod
    async def set(cls, stage: CallerStage, *, own: bool = False, realm: str = "localhost") -> Self:
        """Have a caller; ``own``: for a case that ends it, or teaches it what others must not know."""
        return cls(stage, await stage.house(own=own, realm=realm))

    async def _hand_over(self) -> None:
        while True:
            dialled = await self.house.relay.dialled.get()
            peer = self.peers.get(dialled.asked.path.removeprefix("/v1/call/"))
            if peer is None:
                self.stage.timeline.remark("handshake", "to nobody of this case")
                dialled.socket.abort()
            else:
                peer.take(dialled)

    async def _leave(self) -> None:
        self._handing.cancel()
        for peer in self.peers.values():
            await peer.dispose()

    def _answer(self, asked: Asked) -> Told | None:
        match asked.method, asked.path.strip("/").split("/"):
            case "GET", ["v1", "calls", call_id]:
                self.looked_up.append(call_id)
                record = self.records.get(call_id)
                return (404, problem(404, "not_found")) if record is None else (200, record)
            case "POST", ["v1", "calls", call_id, "ack"]:
                self.acknowledged.append(call_id)
                return 204, None
            case "POST", ["v1", "calls", call_id, "cancel"]:
                told: Told = self.cancels.get(call_id, (404, problem(404, "unknown")))
                return told
            case _:
                return None

    def peer(self, name: str = "bob", **members: Any) -> Peer:
        """Return a new peer whose keys the relay shows from now on."""
        who = Identity(handle=f"{name}-{secrets.token_hex(4)}", realm=self.house.realm, **members)
        peer = self.peers[who.handle] = Peer(self, who)
        self.house.relay.serve(who)
        return peer

    def shows(self, peer: Peer, **changes: Any) -> None:
        """Have the relay show other members of a peer's keys than the true ones."""
        before = self.house.relay.answering
        path = f"/v1/handles/{peer.handle}"

        def answering(asked: Asked) -> Told | None:
            if asked.method == "GET" and asked.path == path and not asked.query:
                body = peer.identity.publication(**changes)
                shown: dict[str, Any] = {"handle": peer.handle, "revoked": list[str]()}
                return 200, shown | body
            return before(asked)

        self.house.relay.answering = answering

    def becomes(self, peer: Peer, identity: Identity) -> None:
        """Have a peer be ``identity`` from now on, under the same handle."""
        peer.identity = identity
        self.house.relay.serve(identity)

    # --- orders

    async def call(self, peer: Peer, message: str = "hello", **members: Any) -> Order:
        """Tell the subject to call a peer."""
        told = {"to": peer.handle, "message": message, "timeout_ms": _CALL_MS} | members
        return await self.house.order("call", **told)

    async def submit(self, peer: Peer, message: str = "hello", **members: Any) -> Order:
        """Tell the subject to leave a durable call for a peer."""
        return await self.house.order("submit", to=peer.handle, message=message, **members)

    async def ring(self, peer: Peer, message: str = "hello", **members: Any) -> tuple[Order, Taken]:
        """Have the subject call a peer, receive its request and say that it rings."""
        order = await self.call(peer, message, **members)
        taken = await self.request(order, peer)
        await taken.status()
        return order, taken

    async def request(self, order: Order, peer: Peer) -> Taken:
        """Receive the request that an order leads to; an end of the order instead fails the case."""
        taken = await self.sending(order, peer)
        if taken is None:
            raise Failed("a request of the caller", shorten(msgspec.json.encode(order.answer.result())))
        return taken

    async def sending(self, order: Order, peer: Peer) -> Taken | None:
        """Receive the next request of an order, or None when the order has ended instead."""
        arriving = asyncio.create_task(peer.request())
        waited: set[asyncio.Future[Any]] = {arriving, order.answer}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not arriving.done():
            await asyncio.wait({arriving}, timeout=0.2)
        if not arriving.done() and order.ended:
            arriving.cancel()
            return None
        return await arriving

    async def left(self, peer: Peer, message: str = "hello", **members: Any) -> tuple[str, Taken]:
        """Have the subject leave a durable call, and store it; return the receipt."""
        order = await self.submit(peer, message, **members)
        taken = await self.request(order, peer)
        await taken.queued()
        end = await self.end(order, "receipt")
        return str(end.get("receipt")), taken

    async def end(self, order: Order, end: str, **members: Any) -> dict[str, Any]:
        """Receive what came of an order, which must be of this kind and have these members."""
        within = self.patient + _CALL_MS / 1_000
        said = await order.end(within)
        wanted = {"end": end} | members
        check(
            all(said.get(name) == value for name, value in wanted.items()),
            shorten(msgspec.json.encode(wanted)),
            shorten(msgspec.json.encode(said)),
        )
        return said

    async def replied(self, order: Order, text: str = "done") -> None:
        """Pass when a call ends with this reply."""
        await self.end(order, "reply", text=text)

    async def refused(self, peer: Peer, why: str, *codes: str, **members: Any) -> dict[str, Any]:
        """Pass when the subject finds by itself that it must not seal to a peer, and sends nothing."""
        before = len(peer.lines)
        order = await self.call(peer, **members)
        said = await self.end(order, "local")
        check(not codes or said.get("code") in codes, f"the code {' or '.join(codes)}: {why}", said)
        check(len(peer.lines) == before, f"no connection to the peer: {why}", "it has dialled")
        peer.nothing_more(why)
        return said

    # --- requests

    def taken(self, peer: Peer, line: Line, frame: Frame) -> Taken:
        """Open a request of the subject for a peer. Raises `Failed` when it does not open."""
        who = peer.identity
        relay = self.house.relay
        card = relay.published[self.house.handle].card.card
        try:
            envelope = msgspec.convert(frame["envelope"], Envelope)
            private = {key.key_id: key for key in map(who.chain.private, who.suites)}
            named = {b64encode(name): key for name, key in private.items()}
            key = named[envelope.kid]
            context = RequestContext(
                realm=self.house.realm,
                sender=Party(self.house.handle, card.ipk, card.id),
                recipient=Recipient(who.handle, who.identity.public, key.suite, key.public),
                mode=frame.get("delivery_mode", "sync"),
                message_id=frame.get("message_id", ""),
                correlation_id=frame["correlation_id"],
                iat=envelope.iat,
                exp=envelope.exp,
            )
            opened = open_request(envelope, key, context, card.spk)
            request = bodies.decode_request(opened.json_bytes)
        except KeyError as error:
            raise Failed("a request to a key of the peer", f"{error} is none") from None
        except (RinglineError, msgspec.MsgspecError) as error:
            why = getattr(error, "reason", "") or str(error)
            raise Failed("a request that opens for the peer", f"{type(error).__name__}: {why}") from None
        return Taken(
            peer=peer,
            line=line,
            frame=frame,
            context=context,
            opened=opened,
            request=request,
            call_id=f"call-{secrets.token_hex(8)}",
        )


def _hides_nothing(line: str, payload: bytes) -> str | None:
    del line, payload
    return None
