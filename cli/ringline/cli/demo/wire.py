"""The wire between the clients and the relay, with somebody on it who writes everything down.

A TCP proxy on loopback stands where the relay is expected. What passes is what a relay sees: it is recorded
byte for byte, and read as HTTP (RFC 9112) and WebSocket frames (RFC 6455) only to be shown. A meddler may
change what goes to the clients, as a relay could that lies.
"""

import asyncio
import base64
import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Protocol, final

__all__ = ["Meddler", "Passed", "Wire", "forms"]

Direction = Literal["to relay", "from relay"]

_LENGTH: Final = re.compile(rb"(?im)^content-length:[ \t]*([0-9]+)[ \t]*\r$")
_HEAD_BYTES: Final = 65_536
_TEXT: Final = 1  # the opcode of a text frame
_FORM_CHARS: Final = 8  # shorter would be found by chance


class Meddler(Protocol):
    """A relay's lie. Each method returns what the client gets instead."""

    def answer(self, request: str, body: bytes) -> bytes:
        """Change the body of an HTTP answer; ``request`` is its request line without the version."""
        ...

    def message(self, payload: bytes) -> bytes:
        """Change a WebSocket message, without changing its length."""
        ...


@dataclass(frozen=True, slots=True)
class Passed:
    """One HTTP message or WebSocket frame that went by.

    ``at`` is in seconds since the wire began, ``size`` in bytes on the wire, ``content`` without the mask of
    a frame; ``request`` is the request line of the connection.
    """

    at: float
    direction: Direction
    request: str
    is_frame: bool
    size: int
    content: bytes


@final
@dataclass
class Wire:
    """A recording proxy in front of the relay at ``port``. Use it as an asynchronous context manager."""

    port: int
    meddler: Meddler | None = None
    passed: list[Passed] = field(default_factory=list[Passed])
    _raw: bytearray = field(default_factory=bytearray)
    _began: float = field(default_factory=time.monotonic)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def __aenter__(self) -> "Wire":
        """Begin to listen on a port of loopback that was free."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The base URL that clients are given in place of the relay's."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    @property
    def bytes_seen(self) -> int:
        """How many bytes went by, in both directions."""
        return len(self._raw)

    def finds(self, text: str) -> list[str]:
        """Return the names of the `forms` of ``text`` that went by, masked or not."""
        unmasked = b"\n".join(entry.content for entry in self.passed)
        return [name for name, form in forms(text) if form in self._raw or form in unmasked]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            from_relay, to_relay = await asyncio.open_connection("127.0.0.1", self.port, limit=_HEAD_BYTES)
            writers.append(to_relay)
            talk = _Talk()
            async with asyncio.TaskGroup() as group:
                # Who hangs up first ends the other direction too.
                one = group.create_task(self._up(talk, reader, to_relay))
                other = group.create_task(self._down(talk, from_relay, writer))
                one.add_done_callback(lambda _: other.cancel())
                other.add_done_callback(lambda _: one.cancel())
        finally:
            for entry in writers:
                entry.close()
                with contextlib.suppress(OSError):
                    await entry.wait_closed()

    async def _up(self, talk: "_Talk", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass requests, and once the connection speaks WebSocket, frames."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while not talk.upgraded:
                head, body = await _http_message(reader)
                talk.request = head.split(b"\r\n", 1)[0].rsplit(b" ", 1)[0].decode("latin-1")
                self._note("to relay", talk.request, False, head + body, head + body)
                talk.answered.clear()
                writer.write(head + body)
                await writer.drain()
                await talk.answered.wait()
            await self._frames(reader, writer, "to relay", talk.request)

    async def _down(self, talk: "_Talk", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass answers, and once the connection speaks WebSocket, frames."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while not talk.upgraded:
                head, body = await _http_message(reader)
                self._note("from relay", talk.request, False, head + body, head + body)
                if self.meddler is not None and body:
                    body = self.meddler.answer(talk.request, body)
                    head = _LENGTH.sub(b"content-length: %d\r" % len(body), head)
                talk.upgraded = head.split(b" ", 2)[1] == b"101"
                talk.answered.set()
                writer.write(head + body)
                await writer.drain()
            await self._frames(reader, writer, "from relay", talk.request)

    async def _frames(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
        request: str,
    ) -> None:
        while True:
            header, payload = await _frame(reader)
            masked = bool(header[1] & 0x80)
            content = _unmasked(payload, header[-4:]) if masked else payload
            opcode = header[0] & 0x0F
            self._note(direction, request, True, header + payload, content if opcode == _TEXT else b"")
            if self.meddler is not None and direction == "from relay" and opcode == _TEXT:
                payload = self.meddler.message(payload)
                assert len(payload) == len(content)
            writer.write(header + payload)
            await writer.drain()

    def _note(self, direction: Direction, request: str, is_frame: bool, raw: bytes, content: bytes) -> None:
        self._raw += raw
        at = time.monotonic() - self._began
        self.passed.append(Passed(at, direction, request, is_frame, len(raw), content))


@dataclass
class _Talk:
    """What the two directions of one connection share."""

    request: str = ""
    upgraded: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)


def forms(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) for the ways in which a text could lie readable among other bytes."""
    plain = text.encode()
    yield "plain", plain
    yield "UTF-16", text.encode("utf-16-le")
    yield "hexadecimal", plain.hex().encode()
    yield "reversed", plain[::-1]
    for shift in range(3):
        # What base64 makes of the text depends on where in a group of three bytes it begins; the characters
        # at both ends depend on the neighbours.
        encoded = base64.b64encode(b"\0" * shift + plain)[4 if shift else 0 :].rstrip(b"=")[:-1]
        if len(encoded) >= _FORM_CHARS:
            yield f"base64 at {shift}", encoded
            yield f"base64url at {shift}", encoded.translate(bytes.maketrans(b"+/", b"-_"))


async def _http_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head, await reader.readexactly(int(length[1])) if length else b""


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one frame: its header with length and mask, and its payload as it is on the wire."""
    header = await reader.readexactly(2)
    length = header[1] & 0x7F
    if length >= 126:
        more = await reader.readexactly(2 if length == 126 else 8)
        header += more
        length = int.from_bytes(more, "big")
    if header[1] & 0x80:
        header += await reader.readexactly(4)
    return header, await reader.readexactly(length)


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    length = len(payload)
    key = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(length, "big")
