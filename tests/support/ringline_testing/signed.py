"""One enrolled identity over bare sockets: keys, tokens, and HTTP requests exactly as told.

Built on `ringline.protocol` and the keys of the conformance suite, so that the relay is not tested against
our own clients.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from ringline.conformance.key_owner import KeyOwner, now_ms
from ringline.protocol import token
from ringline.protocol.encoding import b64encode
from ringline.protocol.limits import SUBPROTOCOL

__all__ = ["Answer", "Line", "Owner", "exchange", "now_ms"]

_PATIENCE_S: Final = 30.0


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
class Owner(KeyOwner):
    """The owner of a handle at one relay. Change a member to do it wrong."""

    port: int
    realm: str = "localhost"

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
