"""A relay that lies: it stands in front of a real one and changes what passes, on real sockets.

Everything passes as it is until a test sets one of the hooks. HTTP answers are changed as a whole, frames
one by one, in both directions; connections can be refused, broken, or kept silent.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from ringline.protocol.limits import LISTENER_FRAME_BYTES, SUBPROTOCOL
from ringline_testing.signed import Answer, exchange

__all__ = ["Frames", "Middleman", "Passing", "answer_json", "middleman"]

_PATIENCE_S: Final = 30.0

Frames = list[dict[str, Any] | str | bytes]


def answer_json(answer: Answer, **changes: Any) -> Answer:
    """Return an answer with members of its JSON object replaced."""
    body = msgspec.json.encode(answer.json() | changes)
    return Answer(answer.status, answer.headers, body)


class Middleman:
    """The lying relay. Set hooks at any time."""

    def __init__(self, relay_port: int) -> None:
        self.relay_port = relay_port
        self.port = 0
        self.requests: list[tuple[str, str]] = []
        """Method and target of every HTTP request and upgrade."""
        self.bodies: list[tuple[str, bytes]] = []
        """Target and body of every HTTP request that has one."""
        self.up: list[dict[str, Any]] = []
        """Every frame of the clients, decoded."""
        self.on_answer: Callable[[str, str, Answer], Answer] = lambda method, target, answer: answer
        """Changes an HTTP answer: gets method, target and the relay's answer."""
        self.on_down: Callable[[dict[str, Any]], Frames] = lambda frame: [frame]
        """Makes of one frame of the relay those that the client gets."""
        self.on_up: Callable[[dict[str, Any]], Frames] = lambda frame: [frame]
        """Makes of one frame of the client those that the relay gets."""
        self.on_upgrade: Callable[[str], bytes | None] = lambda target: None
        """Returns a whole HTTP response to refuse an upgrade with."""
        self.passing: list[Passing] = []
        """The WebSockets that stand now."""
        self._came = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The base URL that a client is told."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and break those that stand."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for passing in list(self.passing):
            passing.cut()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that passes makes ``condition`` true."""
        async with asyncio.timeout(_PATIENCE_S):
            while not condition():
                self._came.clear()
                await self._came.wait()

    def told(self) -> None:
        """Something passed."""
        self._came.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ConnectionClosed):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ")
            pairs = [
                (name, value.strip())
                for name, _, value in (line.partition(":") for line in lines[1:] if line)
            ]
            names = {name.lower(): value for name, value in pairs}
            self.requests.append((method, target))
            self.told()
            if names.get("upgrade", "").lower() == "websocket":
                refusal = self.on_upgrade(target)
                if refusal is not None:
                    writer.write(refusal)
                else:
                    await Passing(self, target, names, head, reader, writer).run()
            else:
                body = await reader.readexactly(int(names.get("content-length", "0")))
                if body:
                    self.bodies.append((target, body))
                await self._answer(method, target, names, body, writer)
        writer.close()

    async def _answer(
        self, method: str, target: str, names: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        kept = {
            name: value
            for name, value in names.items()
            if name in ("authorization", "content-type", "accept")
        }
        answer = await exchange(
            self.relay_port, method, target, headers=kept, body=body if body or method == "PUT" else None
        )
        answer = self.on_answer(method, target, answer)
        head = [f"HTTP/1.1 {answer.status} X"]
        head += [
            f"{name}: {value}"
            for name, value in answer.headers
            if name not in ("content-length", "connection")
        ]
        head += [f"content-length: {len(answer.body)}", "connection: close"]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + answer.body)
        await writer.drain()


class Passing:
    """One WebSocket on its way through."""

    def __init__(
        self,
        middle: Middleman,
        target: str,
        names: dict[str, str],
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.target = target
        self._middle = middle
        self._names = names
        self._head = head
        self._reader = reader
        self._writer = writer
        self._protocol = ServerProtocol(
            subprotocols=[Subprotocol(SUBPROTOCOL)], max_size=LISTENER_FRAME_BYTES
        )

    def cut(self) -> None:
        """Break the connection to the client without a close frame."""
        self._writer.transport.abort()

    def close(self, code: int, reason: str = "") -> None:
        """Close the connection to the client."""
        self._protocol.send_close(code, reason)
        self._flush()

    def send(self, frame: dict[str, Any] | str | bytes) -> None:
        """Send a frame to the client: an object as JSON, bytes as a binary message."""
        if self._protocol.state is not State.OPEN:
            return
        if isinstance(frame, bytes):
            self._protocol.send_binary(frame)
        else:
            text = frame if isinstance(frame, str) else msgspec.json.encode(frame).decode()
            self._protocol.send_text(text.encode())
        self._flush()

    async def run(self) -> None:
        """Pass on until one side is gone."""
        self._protocol.receive_data(self._head)
        (request,) = self._protocol.events_received()
        assert isinstance(request, Request)
        try:
            relay = await connect(
                f"ws://127.0.0.1:{self._middle.relay_port}{self.target}",
                additional_headers=Headers([("Authorization", self._names.get("authorization", ""))]),
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                proxy=None,
                max_size=None,
            )
        except InvalidStatus as error:
            response = error.response
            self._writer.write(response.serialize())
            await self._writer.drain()
            return
        self._protocol.send_response(self._protocol.accept(request))
        self._flush()
        self._middle.passing.append(self)
        self._middle.told()
        down = asyncio.create_task(self._down(relay))
        try:
            await self._up(relay)
        finally:
            self._middle.passing.remove(self)
            self._middle.told()
            down.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await down
            await relay.close()

    async def _up(self, relay: ClientConnection) -> None:
        while data := await self._reader.read(65_536):
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                if not isinstance(event, Frame) or event.opcode is not Opcode.TEXT:
                    continue
                frame = msgspec.json.decode(event.data)
                self._middle.up.append(frame)
                self._middle.told()
                for each in self._middle.on_up(frame):
                    await relay.send(
                        each if isinstance(each, (str, bytes)) else msgspec.json.encode(each).decode()
                    )
            self._flush()

    async def _down(self, relay: ClientConnection) -> None:
        try:
            while True:
                frame = msgspec.json.decode(await relay.recv())
                for each in self._middle.on_down(frame):
                    self.send(each)
        except ConnectionClosed:
            received = relay.protocol.close_rcvd
            if received is None:
                self.cut()
            else:
                self.close(received.code, received.reason)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._writer.write(data)
            elif not self._writer.is_closing():
                self._writer.write_eof()


@contextlib.asynccontextmanager
async def middleman(relay_port: int) -> AsyncGenerator[Middleman]:
    """Run a lying relay in front of the one on ``relay_port``."""
    middle = Middleman(relay_port)
    await middle.start()
    try:
        yield middle
    finally:
        await middle.stop()
