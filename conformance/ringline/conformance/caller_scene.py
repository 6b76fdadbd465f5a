"""A caller and the relay that the suite plays to it, and the steps of a call that are no case's subject."""

import asyncio
import secrets
from typing import Any, Final, Self, final

import msgspec

from ringline.conformance.caller_house import CallerHouse, Order
from ringline.conformance.caller_peer import Peer, Taken, failure, reply
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import Identity
from ringline.conformance.line import Frame, Line
from ringline.conformance.stand_in import Asked, Told, problem
from ringline.conformance.timeline import shorten
from ringline.conformance.verdict import Failed, check
from ringline.protocol import bodies
from ringline.protocol.context import Party, Recipient, RequestContext
from ringline.protocol.encoding import b64encode
from ringline.protocol.envelope import open_request
from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import Envelope

__all__ = ["Peer", "Scene", "Taken", "failure", "reply"]

_CALL_MS: Final = 15_000


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
