"""An HTTP server that answers with exactly the bytes a test tells it to."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

__all__ = ["Asked", "CannedServer", "canned_server", "reply"]


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class CannedServer:
    """The server: what it was asked, and what it answers."""

    respond: Callable[[Asked], bytes | None]
    """Returns the whole response; None says nothing and keeps the connection open."""
    port: int = 0
    asked: list[Asked] = field(default_factory=list[Asked])
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has come in."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has gone away before it was answered."""

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"


def reply(status: int, body: object = b"", **headers: str) -> bytes:
    """Return a response; a body that is not bytes is written as JSON. ``_`` in a header's name is ``-``."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    kind = "application/json" if status < 400 else "application/problem+json"
    named = {"content-type": kind} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in named.items())]
    head += [f"content-length: {len(data)}", "connection: close"]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + data


@contextlib.asynccontextmanager
async def canned_server(respond: Callable[[Asked], bytes | None]) -> AsyncGenerator[CannedServer]:
    """Run one on a free port of the loopback interface."""
    server = CannedServer(respond)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            pairs = (line.partition(":") for line in head[1:] if line)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            server.asked.append(Asked(method, target, headers, body))
            server.came.set()
            response = server.respond(server.asked[-1])
            if response is None:
                await reader.read()
                server.gone.set()
            else:
                writer.write(response)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
