"""An edge behind uvicorn's HTTP protocol on a free port of the loopback interface, within the test's loop."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from ringline.relay.edge import (
    Accepted,
    Connection,
    EdgeLimits,
    Handshake,
    Refused,
    edge_factory,
    port_factory,
)

__all__ = ["Door", "EdgeServer", "Event", "Recorder", "serve", "until"]

Event = tuple[str, object, object]


class Recorder:
    """A receiver that writes down what it is told, as (method, argument, argument or None).

    ``on_message`` and ``on_opened``, when given, run within the call.
    """

    connection: Connection

    def __init__(
        self,
        on_message: Callable[["Recorder", bytes], None] | None = None,
        on_opened: Callable[["Recorder"], None] | None = None,
    ) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._on_message = on_message
        self._on_opened = on_opened

    def opened(self, connection: Connection) -> None:
        """Keep the connection."""
        self.connection = connection
        self._events.put_nowait(("opened", None, None))
        if self._on_opened is not None:
            self._on_opened(self)

    def message(self, payload: bytes) -> None:
        """Write the text down."""
        self._events.put_nowait(("message", payload, None))
        if self._on_message is not None:
            self._on_message(self, payload)

    def binary(self, payload: bytes) -> None:
        """Write the bytes down."""
        self._events.put_nowait(("binary", payload, None))

    def closed(self, code: int | None, clean: bool) -> None:
        """Write the end down."""
        self._events.put_nowait(("closed", code, clean))

    async def next(self) -> Event:
        """Return the next event; waits at most ten seconds."""
        return await asyncio.wait_for(self._events.get(), 10)

    def pending(self) -> list[Event]:
        """Return the events that nobody has asked for yet."""
        return [self._events.get_nowait() for _ in range(self._events.qsize())]


@dataclass
class Door:
    """A gate that does what the test says, and lets everybody in until it says so.

    ``receivers`` are those that were let in; ``requests`` is every handshake it was asked about.
    """

    judge: Callable[[Handshake], Accepted | Refused] | None = None
    make: Callable[[], Recorder] = Recorder
    receivers: asyncio.Queue[Recorder] = field(default_factory=asyncio.Queue[Recorder])
    requests: list[Handshake] = field(default_factory=list[Handshake])
    reason: str = "retry=1000"

    def handshake(self, request: Handshake) -> Accepted | Refused:
        """Judge."""
        self.requests.append(request)
        if self.judge is not None:
            return self.judge(request)
        receiver = self.make()
        self.receivers.put_nowait(receiver)
        return Accepted(receiver=receiver)

    def farewell(self) -> str:
        """Return ``reason``."""
        return self.reason

    async def entered(self) -> Recorder:
        """Return the next receiver that was let in, its ``opened`` seen; waits at most ten seconds."""
        receiver = await asyncio.wait_for(self.receivers.get(), 10)
        assert await receiver.next() == ("opened", None, None)
        return receiver


@dataclass(frozen=True)
class EdgeServer:
    """``port`` on 127.0.0.1; ``state`` is uvicorn's, with the connections that a stop would wait for."""

    port: int
    state: ServerState


async def until(reached: Callable[[], bool]) -> None:
    """Wait for something that nothing else tells of; at most ten seconds."""
    async with asyncio.timeout(10):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def _hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"hello {request.url.path}")


@contextlib.asynccontextmanager
async def serve(
    edge: str, door: Door, limits: EdgeLimits, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[EdgeServer]:
    """Serve ``edge`` beside a small HTTP application, as uvicorn wires them.

    At the end every peer must have hung up, and the edge must have noticed. uvicorn's own server object is
    left out: it looks only ten times a second whether to stop.
    """
    config = uvicorn.Config(
        Starlette(routes=[Route("/{name}", _hello)]),
        http=port_factory(limits),
        ws=edge_factory(edge, door, limits),
        lifespan="off",
        log_config=None,
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"), (b"server", b"test")]
    loop = asyncio.get_running_loop()
    make = cast("Callable[..., asyncio.Protocol]", config.http_protocol_class)

    def protocol() -> asyncio.Protocol:
        return make(config=config, server_state=state, app_state={}, _loop=loop)

    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=tls)
    try:
        yield EdgeServer(server.sockets[0].getsockname()[1], state)
    finally:
        server.close()
        await until(lambda: not state.connections)
