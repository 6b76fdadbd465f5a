"""A WebSocket client that is only a socket: it sends exactly the bytes that it is told to send.

It may mask wrongly, fall silent, half-close, stop reading: what a subject makes of that is what is judged.
"""

import asyncio
import base64
import contextlib
import hashlib
import secrets
import socket
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from ringline.conformance.address import Address
from ringline.conformance.http import Answer, Headers, head_of, read_answer

__all__ = [
    "BINARY",
    "CLOSE",
    "PING",
    "PONG",
    "TEXT",
    "Ended",
    "Message",
    "WebSocket",
    "accept_proof",
    "masked",
    "unmasked",
    "upgrade_headers",
]

TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

_MESSAGE_BYTES: Final = 4 * 1_048_576
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Message(NamedTuple):
    """One message of the subject: its opcode and its bytes."""

    opcode: int
    payload: bytes


@final
@dataclass(frozen=True, slots=True)
class Ended:
    """How a connection ended: the code and reason of the subject's close frame, code None without one."""

    code: int | None
    reason: str = ""
    detail: str = ""

    def __str__(self) -> str:
        if self.code is None:
            return f"an end without a close frame{f' ({self.detail})' if self.detail else ''}"
        return f"close {self.code}{f' {self.reason!r}' if self.reason else ''}"


def masked(opcode: int, payload: bytes = b"", *, fin: bool = True, flags: int = 0) -> bytes:
    """Return a client's frame; ``flags`` are the three reserved bits, 4 being the first."""
    size = len(payload)
    first = (0x80 if fin else 0) | flags << 4 | opcode
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    mask = secrets.token_bytes(4)
    pad = mask * (size // 4 + 1)
    mixed = int.from_bytes(payload) ^ int.from_bytes(pad[:size])
    return head + mask + mixed.to_bytes(size)


def unmasked(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """Return a server's frame."""
    size = len(payload)
    first = (0x80 if fin else 0) | opcode
    if size < 126:
        return struct.pack("!BB", first, size) + payload
    if size < 65_536:
        return struct.pack("!BBH", first, 126, size) + payload
    return struct.pack("!BBQ", first, 127, size) + payload


def accept_proof(key: str) -> str:
    """Return the ``Sec-WebSocket-Accept`` of a ``Sec-WebSocket-Key`` (RFC 6455 §4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def upgrade_headers(key: str, subprotocols: str | None) -> Headers:
    """Return the headers that ask for a WebSocket; without ``subprotocols`` none is offered."""
    offered = () if subprotocols is None else (("Sec-WebSocket-Protocol", subprotocols),)
    return (
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", key),
        *offered,
    )


@final
class WebSocket:
    """One socket on which a WebSocket may be opened; the suite ``serves`` where the subject has opened it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, serves: bool = False
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._serves = serves
        self.answers_pings = True
        """False for a peer that lives and says nothing."""
        self.pinged = asyncio.Event()
        """Set once a ping was received."""
        self.pongs: asyncio.Queue[bytes] = asyncio.Queue()
        """What was in the pongs that were received."""

    @classmethod
    async def connect(cls, address: Address, *, lazy: bool = False) -> "WebSocket":
        """Open a socket. A ``lazy`` one takes only some KiB from the subject while nobody reads.

        Raises `OSError`.
        """
        if not lazy:
            limit = 2 * _MESSAGE_BYTES
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=address.tls, limit=limit
            )
            return cls(reader, writer)
        loop = asyncio.get_running_loop()
        family, kind, number, _, where = (
            await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        )[0]
        raw = socket.socket(family, kind, number)
        try:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            raw.setblocking(False)
            await loop.sock_connect(raw, where)
            name = address.host if address.tls else None
            reader, writer = await asyncio.open_connection(
                sock=raw, ssl=address.tls, server_hostname=name, limit=4_096
            )
        except BaseException:
            raw.close()
            raise
        return cls(reader, writer)

    async def upgrade(
        self,
        address: Address,
        target: str,
        headers: Headers,
        *,
        subprotocols: str | None = "ringline.v1",
        method: str = "GET",
        host: str | None = None,
    ) -> Answer:
        """Ask for a WebSocket and return the answer, whatever it is.

        Raises `ValueError` for an answer that is no HTTP, or a 101 with the wrong proof (RFC 6455 §4.1).
        """
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        own = (("Host", host or address.authority), *upgrade_headers(key, subprotocols))
        self.send_bytes(head_of(method, target, (*own, *headers)))
        answer = await read_answer(self._reader)
        if answer.status == 101 and answer.header("sec-websocket-accept") != accept_proof(key):
            raise ValueError("the answer to the opening handshake does not prove that it was read")
        return answer

    # --- sending

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def framed(self, opcode: int, payload: bytes) -> bytes:
        """Return one whole message or control frame as this side writes it."""
        return unmasked(opcode, payload) if self._serves else masked(opcode, payload)

    def send(self, payload: bytes, *, opcode: int = TEXT) -> None:
        """Send one whole message or control frame."""
        self._writer.write(self.framed(opcode, payload))

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a close frame."""
        self.send(struct.pack("!H", code) + reason.encode(), opcode=CLOSE)

    def half_close(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        if self._writer.can_write_eof():
            self._writer.write_eof()

    def abort(self) -> None:
        """Let the socket break off, as when a host is gone."""
        self._writer.transport.abort()

    async def drain(self) -> None:
        """Wait until the subject has taken most of what was sent. Raises `OSError` when it is gone."""
        await self._writer.drain()

    async def hang_up(self) -> None:
        """Close the socket, whatever state it is in."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # --- receiving

    async def receive(self) -> Message | Ended:
        """Return the next message; pings are answered, a close frame is echoed and ends it.

        Raises `ValueError` for bytes that a server must not send.
        """
        parts: list[bytes] = []
        opening = 0
        try:
            while True:
                fin, opcode, payload = await self._frame()
                if opcode == PING:
                    self.pinged.set()
                    if self.answers_pings:
                        self.send(payload, opcode=PONG)
                elif opcode == CLOSE:
                    return self._closing(payload)
                elif opcode == PONG:
                    self.pongs.put_nowait(payload)
                else:
                    if (opcode == 0) != bool(opening):
                        raise ValueError("fragments of messages in disorder")
                    opening = opening or opcode
                    parts.append(payload)
                    if sum(map(len, parts)) > _MESSAGE_BYTES:
                        raise ValueError("a message beyond every limit")
                    if fin:
                        return Message(opening, b"".join(parts))
        except asyncio.IncompleteReadError:
            return Ended(None, detail="end of stream")
        except OSError as error:
            return Ended(None, detail=error.strerror or type(error).__name__)

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if bool(second & 0x80) is not self._serves:
            raise ValueError("a client must mask" if self._serves else "a server must not mask")
        if first & 0x70:
            raise ValueError("a reserved bit is set, and no extension was agreed on")
        if size == 126:
            size = int.from_bytes(await self._reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await self._reader.readexactly(8))
        if size > _MESSAGE_BYTES:
            raise ValueError("a frame beyond every limit")
        if not self._serves:
            return bool(first & 0x80), first & 0x0F, await self._reader.readexactly(size)
        mask = await self._reader.readexactly(4)
        mixed = int.from_bytes(await self._reader.readexactly(size))
        pad = int.from_bytes((mask * (size // 4 + 1))[:size])
        return bool(first & 0x80), first & 0x0F, (mixed ^ pad).to_bytes(size)

    def _closing(self, payload: bytes) -> Ended:
        if len(payload) == 1:
            raise ValueError("a close frame of one byte")
        with contextlib.suppress(OSError):
            self.send(payload[:2], opcode=CLOSE)
            if self._serves:
                # RFC 6455 §7.1.1: the server closes the TCP connection, and the client waits for that.
                self._writer.close()
        if not payload:
            return Ended(1005)
        return Ended(int.from_bytes(payload[:2]), payload[2:].decode("utf-8", "replace"))
