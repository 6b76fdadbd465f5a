"""HTTP/1.1 requests exactly as told, one connection each, and their answers as they came."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import msgspec

from ringline.conformance.address import Address
from ringline.conformance.timeline import shorten
from ringline.conformance.verdict import Failed

__all__ = ["Answer", "Headers", "exchange", "head_of", "read_answer"]

Headers = tuple[tuple[str, str], ...]

_HEAD_BYTES: Final = 65_536
_BODY_BYTES: Final = 16 * 1_048_576
_VOLATILE: Final = frozenset({"date", "connection", "keep-alive", "sec-websocket-accept"})


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """One response: the names of headers in lower case and in the order sent."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON. Raises `Failed` for what is none."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            raise Failed("a JSON body", shorten(self.body)) from None

    def header(self, name: str) -> str | None:
        """Return the last header of this name, None if there is none."""
        return dict(self.headers).get(name)

    @property
    def lasting(self) -> tuple[int, Headers, bytes]:
        """What may be compared from one answer to the next: all but date and hop-by-hop headers."""
        kept = sorted(pair for pair in self.headers if pair[0] not in _VOLATILE)
        return self.status, tuple(kept), self.body

    def __str__(self) -> str:
        return f"{self.status} {shorten(self.body)}" if self.body else str(self.status)


def head_of(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of a request as bytes."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def exchange(
    address: Address,
    method: str,
    target: str,
    *,
    headers: Headers = (),
    body: bytes | None = None,
    host: str | None = None,
    patience: float,
) -> Answer:
    """Send one request and return its answer; ``host`` stands in for the subject's own.

    Raises `OSError`, `EOFError`, `TimeoutError` when there is no answer, `ValueError` when it is no HTTP.
    """
    async with asyncio.timeout(patience):
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=address.tls, limit=2 * _HEAD_BYTES
        )
        try:
            own: list[tuple[str, str]] = [("Host", host or address.authority), ("Connection", "close")]
            if body is not None:
                own.append(("Content-Length", str(len(body))))
            writer.write(head_of(method, target, (*own, *headers)) + (body or b""))
            return await read_answer(reader, with_body=method != "HEAD")
        finally:
            writer.close()


async def read_answer(reader: asyncio.StreamReader, *, with_body: bool = True) -> Answer:
    """Read one response. Raises `EOFError` when it ends too early, `ValueError` when it is no HTTP."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.LimitOverrunError:
        raise ValueError("a head of a response without end") from None
    version, _, rest = head[0].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise ValueError(f"no HTTP response: {shorten(head[0])}")
    status = int(rest[:3])
    pairs = tuple((n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in head[1:] if line))
    named = dict(pairs)
    if not with_body or status == 101 or status == 204:
        body = b""
    elif "chunked" in named.get("transfer-encoding", ""):
        body = await _chunks(reader)
    elif "content-length" in named:
        body = await reader.readexactly(min(int(named["content-length"]), _BODY_BYTES))
    else:
        body = await reader.read(_BODY_BYTES)
    return Answer(status, pairs, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if size == 0 or len(body) > _BODY_BYTES:
            return body
        body += await reader.readexactly(size)
        await reader.readexactly(2)
