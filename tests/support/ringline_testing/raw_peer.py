"""A WebSocket client that is only a socket: it sends exactly the bytes that it is told to send."""

import asyncio
import base64
import contextlib
import hashlib
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import NamedTuple

__all__ = ["Frame", "RawPeer", "Response", "connect", "masked"]

KEY = base64.b64encode(bytes(range(16))).decode()


class Frame(NamedTuple):
    """A frame of the server; ``flags`` are the four high bits of its first byte."""

    opcode: int
    payload: bytes
    flags: int = 0x8


class Response(NamedTuple):
    """The head of an HTTP response, its names in lower case, and the body if it had a length."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def masked(opcode: int, payload: bytes = b"", *, flags: int = 0x8, length: int | None = None) -> bytes:
    """Return a client's frame; ``flags`` are FIN and the reserved bits, ``length`` lies about the payload."""
    size = len(payload) if length is None else length
    first = flags << 4 | opcode
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    mask = b"\x12\x34\x56\x78"
    pad = mask * (len(payload) // 4 + 1)
    mixed = int.from_bytes(payload) ^ int.from_bytes(pad[: len(payload)])
    return head + mask + mixed.to_bytes(len(payload))


class RawPeer:
    """One socket to the server. Everything that waits does so for at most ten seconds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        """Send bytes, in one piece."""
        self.writer.write(b"".join(frames))

    def request(
        self,
        target: str = "/",
        *,
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        without: Iterable[str] = (),
        behind: bytes = b"",
    ) -> None:
        """Send an upgrade request.

        ``headers`` are added; a name of ``without`` (lower case) is left out of what is sent by itself;
        the bytes ``behind`` go in the same piece.
        """
        usual = {
            "host": "127.0.0.1",
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-version": "13",
            "sec-websocket-key": KEY,
        }
        lines = [f"{name}: {value}" for name, value in usual.items() if name not in set(without)]
        lines += [f"{name}: {value}" for name, value in headers]
        self.send("\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode("latin-1") + behind)

    async def response(self) -> Response:
        """Return the next HTTP response."""
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return Response(int(first.split(" ")[1]), headers, body)

    async def open(self, target: str = "/", *, headers: Iterable[tuple[str, str]] = ()) -> Response:
        """Perform the opening handshake and check the answer."""
        self.request(target, headers=headers)
        response = await self.response()
        digest = hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        assert response.status == 101, response
        assert response.headers["sec-websocket-accept"] == base64.b64encode(digest).decode()
        assert response.headers["upgrade"].lower() == "websocket"
        assert response.headers["connection"].lower() == "upgrade"
        return response

    async def frame(self) -> Frame:
        """Return the next frame."""
        async with asyncio.timeout(10):
            first, size = await self.reader.readexactly(2)
            assert size < 128, "a server does not mask"
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2))
            elif size == 127:
                size = int.from_bytes(await self.reader.readexactly(8))
            return Frame(first & 0xF, await self.reader.readexactly(size), first >> 4)

    async def close_frame(self) -> tuple[int, str]:
        """Return code and reason of the next frame, a close frame; 1005 stands for none."""
        frame = await self.frame()
        assert frame.opcode == 8, frame
        if not frame.payload:
            return 1005, ""
        return int.from_bytes(frame.payload[:2]), frame.payload[2:].decode()

    async def end(self) -> bytes:
        """Return everything up to the end of the stream. Raises `ConnectionError` after a reset."""
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def gone(self) -> None:
        """Wait until the server has closed the socket, with a reset or without, and in whatever it says."""
        with contextlib.suppress(ConnectionError):
            await self.end()

    async def hang_up(self) -> None:
        """Close the socket, whatever state it is in."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def connect(
    port: int, *, lazy: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[RawPeer]:
    """Open a socket to ``port`` on 127.0.0.1; hang up at the end.

    A ``lazy`` peer takes only some KiB from the server before the test asks for them.
    """
    with socket.create_connection(("127.0.0.1", port)) as connected:
        if lazy:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connected.setblocking(False)
        limit = 4_096 if lazy else 2**24
        reader, writer = await asyncio.open_connection(
            sock=connected, limit=limit, ssl=tls, server_hostname=None if tls is None else "localhost"
        )
        peer = RawPeer(reader, writer)
        try:
            yield peer
        finally:
            await peer.hang_up()
