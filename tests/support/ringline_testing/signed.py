"""One enrolled identity over bare sockets: keys, tokens, and HTTP requests exactly as told.

Built on `ringline.protocol` alone, so that the relay is not tested against our own clients.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from ringline.protocol import token
from ringline.protocol.encoding import b64encode
from ringline.protocol.identity import NO_NEXT, Card, SignedCard
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.prekeys import Chain, SignedPrekey, epoch_at
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    RevokedBy,
    SignedRevocation,
    SignedSuccession,
    Succession,
)

__all__ = ["Answer", "Line", "Owner", "exchange", "now_ms"]

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
_PATIENCE_S: Final = 30.0


def now_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000


class Answer(NamedTuple):
    """One HTTP response: names of headers in lower case and in the order sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return msgspec.json.decode(self.body)

    def header(self, name: str) -> str | None:
        """Return one header's value, None if it is absent."""
        return dict(self.headers).get(name)

    def without_date(self) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
        """Return everything that may be compared from one answer to the next."""
        return self.status, tuple(pair for pair in self.headers if pair[0] != "date"), self.body


async def exchange(
    port: int,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str] | tuple[tuple[str, str], ...] = (),
    body: bytes | None = None,
    host: str | None = None,
) -> Answer:
    """Send one HTTP request on a connection of its own and return the answer.

    ``headers`` are sent as they are; ``Host`` is the relay's own unless ``host`` says otherwise.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}"]
    lines += [f"{name}: {value}" for name, value in pairs]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    async with asyncio.timeout(_PATIENCE_S * 2):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
            return await _answer(reader, method)
        finally:
            writer.close()


async def _answer(reader: asyncio.StreamReader, method: str) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = tuple((n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in head[1:] if line))
    length = int(dict(pairs).get("content-length", "0"))
    body = b"" if method == "HEAD" else await reader.readexactly(length)
    return Answer(int(head[0].split()[1]), pairs, body)


@dataclass(kw_only=True)
class Owner:
    """The owner of a handle at one relay. Change a member to do it wrong."""

    handle: str
    port: int
    realm: str = "localhost"
    identity: SigningKey = field(default_factory=SigningKey.generate)
    operational: SigningKey = field(default_factory=SigningKey.generate)
    serial: int = 1
    next: bytes = NO_NEXT
    not_before: int = field(default_factory=lambda: now_ms() - _HOUR)
    life: int = 90 * _DAY
    chain: Chain = field(default_factory=lambda: Chain.start(epoch_at(now_ms())))
    succession: SignedSuccession | None = None

    @property
    def card(self) -> SignedCard:
        """The card that these members make."""
        return SignedCard.sign(
            Card(
                realm=self.realm,
                handle=self.handle,
                ipk=self.identity.public,
                serial=self.serial,
                not_before=self.not_before,
                not_after=self.not_before + self.life,
                spk=self.operational.public,
                next=self.next,
            ),
            self.identity,
        )

    @property
    def card_id(self) -> str:
        """Its id in base64url."""
        return b64encode(self.card.card.id)

    @property
    def prekey(self) -> SignedPrekey:
        """The statement of the chain's first epoch; suite 1 alone, which is quick to make."""
        return SignedPrekey.sign(self.chain.statement(self.card.card.id, [1]), self.operational)

    def renewed(self, **changes: Any) -> "Owner":
        """Return this owner with the next card: a new operational key, the serial one higher."""
        fresh: dict[str, Any] = {
            "serial": self.serial + 1,
            "operational": SigningKey.generate(),
            "chain": Chain.start(self.chain.epoch),
            "succession": None,
        }
        return replace(self, **(fresh | changes))

    def succeeded(self, new: SigningKey, *, old_signs: bool = False, **changes: Any) -> "Owner":
        """Return the owner whose identity key is ``new``, with the succession that says so."""
        statement = Succession(old_card_id=self.card.card.id, new_ipk=new.public, ts=now_ms())
        signed = SignedSuccession.sign(statement, new, self.identity if old_signs else None)
        return self.renewed(**({"identity": new, "next": NO_NEXT, "succession": signed} | changes))

    # --- log-in

    def token(self, method: str, path: str, **changes: Any) -> str:
        """Return a token for one request; ``changes`` replace arguments of `token.mint`."""
        arguments: dict[str, Any] = {
            "handle": self.handle,
            "card_id": self.card.card.id,
            "realm": self.realm,
            "method": method,
            "path": path,
            "iat": now_ms() // 1000,
            "jti": secrets.token_urlsafe(16),
        }
        return token.mint(self.operational, **(arguments | changes))

    def bearer(self, method: str, path: str, **changes: Any) -> dict[str, str]:
        """Return the header that logs in."""
        return {"Authorization": f"Bearer {self.token(method, path, **changes)}"}

    async def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> Answer:
        """Send one logged-in request; ``body`` is encoded as JSON unless it is bytes."""
        path = target.partition("?")[0]
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        sent = self.bearer(method, path, **changes) | dict(headers or {})
        return await exchange(self.port, method, target, headers=sent, body=data)

    # --- what is published

    def publication(self, **changes: Any) -> dict[str, Any]:
        """Return the body of ``PUT /v1/handles/{h}``."""
        body: dict[str, Any] = {
            "card": b64encode(self.card.card.encode()),
            "card_sig": b64encode(self.card.signature),
        }
        body |= self.prekey_publication()
        if self.succession is not None:
            statement = self.succession.succession
            body["succession"] = {
                "old_card_id": b64encode(statement.old_card_id),
                "new_ipk": b64encode(statement.new_ipk),
                "ts": statement.ts,
                "sig": b64encode(self.succession.signature),
            }
            if self.succession.old_signature is not None:
                body["succession"]["old_sig"] = b64encode(self.succession.old_signature)
        return body | changes

    def prekey_publication(self) -> dict[str, Any]:
        """Return the body of ``PUT …/prekeys``."""
        return {
            "prekey": b64encode(self.prekey.prekey.encode()),
            "prekey_sig": b64encode(self.prekey.signature),
        }

    def revocation(
        self, *, by: RevokedBy = "identity", key: SigningKey | None = None, **changes: Any
    ) -> dict[str, Any]:
        """Return the body of ``POST …/revocations`` for the present card."""
        statement = Revocation(card_id=self.card.card.id, reason=Reason.COMPROMISED, ts=now_ms())
        signed = SignedRevocation.sign(statement, key or self.identity, by=by)
        body: dict[str, Any] = {
            "card_id": self.card_id,
            "reason": int(statement.reason),
            "ts": statement.ts,
            "by": by,
            "sig": b64encode(signed.signature),
        }
        if signed.next_ipk is not None:
            body["next_ipk"] = b64encode(signed.next_ipk)
        return body | changes

    async def publish(self, **changes: Any) -> Answer:
        """Publish the keys."""
        return await self.ask("PUT", f"/v1/handles/{self.handle}", self.publication(**changes))

    @classmethod
    async def enrolled(cls, handle: str, port: int, **members: Any) -> "Owner":
        """Return a new owner whose keys are published."""
        owner = cls(handle=handle, port=port, **members)
        answer = await owner.publish()
        assert answer.status == 201, answer
        return owner

    # --- WebSockets

    def call_path(self, callee: str) -> str:
        """Return the path that calls ``callee``."""
        return f"/v1/call/{callee}"

    def listen_target(
        self, *, capacity: int = 1, instance: str | None = None, boot: str | None = None
    ) -> str:
        """Return the path and query to listen with."""
        instance, boot = instance or str(uuid4()), boot or str(uuid4())
        return f"/v1/listen/{self.handle}?instance={instance}&boot={boot}&capacity={capacity}"

    @contextlib.asynccontextmanager
    async def dial(self, target: str, **changes: Any) -> AsyncGenerator["Line"]:
        """Open a WebSocket, logged in by header; ``changes`` are those of `token`."""
        path = target.partition("?")[0]
        socket = await connect(
            f"ws://127.0.0.1:{self.port}{target}",
            additional_headers=self.bearer("GET", path, **changes),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            proxy=None,
            max_size=None,
        )
        try:
            yield Line(socket)
        finally:
            await socket.close()

    def calling(self, callee: str) -> contextlib.AbstractAsyncContextManager["Line"]:
        """Open a caller's WebSocket."""
        return self.dial(self.call_path(callee))

    def listening(self, **query: Any) -> contextlib.AbstractAsyncContextManager["Line"]:
        """Open a listener's WebSocket; ``query`` is that of `listen_target`."""
        return self.dial(self.listen_target(**query))

    def request(self, **members: Any) -> dict[str, Any]:
        """Return a ``call_request`` that a relay cannot tell from a sealed one."""
        now = now_ms()
        envelope = {
            "v": 1,
            "suite": 2,
            "kid": b64encode(bytes(32)),
            "sid": self.card_id,
            "iat": now,
            "exp": now + 600_000,
            "ct": "A" * 2_000,
        }
        frame = {"type": "call_request", "correlation_id": uuid4().hex, "message_id": uuid4().hex}
        return frame | {"envelope": envelope} | members

    def outcome(self, call_id: str, **members: Any) -> dict[str, Any]:
        """Return a ``call_outcome`` that a relay cannot tell from a sealed one."""
        frame = {"type": "call_outcome", "call_id": call_id, "terminal": "completed"}
        return frame | {"envelope": self.request()["envelope"]} | members


class Line:
    """One WebSocket, speaking JSON. Everything that waits does so for at most ten seconds."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, frame: object) -> None:
        """Send one frame; bytes and strings as they are."""
        await self.socket.send(
            frame if isinstance(frame, (bytes, str)) else msgspec.json.encode(frame).decode()
        )

    async def next(self) -> dict[str, Any]:
        """Return the next frame."""
        async with asyncio.timeout(_PATIENCE_S):
            frame: dict[str, Any] = msgspec.json.decode(await self.socket.recv())
            return frame

    async def closed(self) -> tuple[int, str]:
        """Wait for the relay's close frame, and return its code and reason."""
        async with asyncio.timeout(_PATIENCE_S):
            with contextlib.suppress(ConnectionClosed):
                frame = await self.socket.recv()
                raise AssertionError(f"a frame instead of the end: {frame!r}")
        received = self.socket.protocol.close_rcvd
        assert received is not None, "the end came without a close frame"
        return received.code, received.reason
