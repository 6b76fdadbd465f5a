"""The opening handshake as bytes: reading the request, writing the answer. Both edges share it.

uvicorn parses the request first and writes it out again for the protocol that takes over; so what is read
here is well-formed HTTP/1.1, and what is left to judge is whether it is a WebSocket upgrade.

Source: RFC 6455 §4.2.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from ringline.protocol.errors import HttpProblem
from ringline.relay import problem
from ringline.relay.edge import Handshake, Refused

__all__ = ["Headers", "Upgrade", "UpgradeError", "answer", "read_upgrade", "refusal", "switching_protocols"]

Headers = tuple[tuple[str, str], ...]

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """A valid upgrade request. ``key`` is what the answer must prove to have read."""

    handshake: Handshake
    key: str


class UpgradeError(Exception):
    """The request is no upgrade that can be granted; ``refused`` is the answer to it."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"refused with {refused.status}")
        self.refused = refused


def refusal(document: problem.Answer, *headers: tuple[str, str]) -> Refused:
    """Return the refusal that carries ``document`` and further ``headers``, to be sent at once."""
    return Refused(status=document.status, headers=(*document.headers, *headers), body=document.body)


def _malformed(detail: str) -> UpgradeError:
    return UpgradeError(refusal(problem.of(HttpProblem(detail, code="malformed"))))


def read_upgrade(request: bytes, *, remote: tuple[str, int] | None, secure: bool, received: float) -> Upgrade:
    """Return the upgrade that the head of an HTTP request asks for.

    ``remote``, ``secure`` and ``received`` are passed on, see `Handshake`.

    Raises `UpgradeError`: 405 for another method than GET, 426 with the version that is spoken here for any
    other, 400 for everything else that RFC 6455 §4.2.1 asks for and is not there, and for a body.
    """
    line, _, rest = request.partition(b"\r\n")
    method, _, target = line.rpartition(b" ")[0].decode("latin-1").partition(" ")
    headers = _headers(rest)
    if method != "GET":
        raise UpgradeError(refusal(problem.METHOD_NOT_ALLOWED, ("allow", "GET")))
    path, query = _resource(target)
    given: dict[str, list[str]] = {}
    for name, value in headers:
        given.setdefault(name, []).append(value)
    if _tokens(given, "upgrade") != ["websocket"] or "upgrade" not in _tokens(given, "connection"):
        raise _malformed("not a WebSocket upgrade")
    if len(given.get("host", ())) != 1:
        raise _malformed("exactly one Host header is needed")
    if "transfer-encoding" in given or given.get("content-length", ["0"]) != ["0"]:
        raise _malformed("an upgrade has no body")
    if given.get("sec-websocket-version") != ["13"]:
        raise UpgradeError(refusal(problem.UPGRADE_REQUIRED))
    keys = given.get("sec-websocket-key", [])
    if len(keys) != 1 or not _is_key(keys[0]):
        raise _malformed("Sec-WebSocket-Key is not 16 bytes of base64")
    handshake = Handshake(
        method=method,
        path=path,
        query=query,
        headers=headers,
        remote=remote,
        secure=secure,
        received=received,
    )
    return Upgrade(handshake=handshake, key=keys[0])


def _headers(lines: bytes) -> Headers:
    pairs = (line.decode("latin-1").partition(":") for line in lines.split(b"\r\n") if line)
    return tuple((name.lower(), value.strip(" \t")) for name, _, value in pairs)


def _tokens(given: dict[str, list[str]], name: str) -> list[str]:
    return [token.strip().lower() for value in given.get(name, ()) for token in value.split(",")]


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _resource(target: str) -> tuple[str, str]:
    """Split the request target into path and query; an absolute URI names one too (RFC 6455 §4.2.1)."""
    if not target.startswith("/"):
        try:
            parts = urlsplit(target)
        except ValueError:
            target = ""
        else:
            target = f"{parts.path or '/'}?{parts.query}" if parts.scheme in ("http", "https") else ""
    if not target.startswith("/") or not target.isascii() or "#" in target:
        raise _malformed("the request target is not a path")
    path, _, query = target.partition("?")
    return path, query


def switching_protocols(key: str, subprotocol: str | None, common: Headers) -> bytes:
    """Return the 101 that proves to have read ``key`` (RFC 6455 §4.2.2).

    ``common`` are the headers that the server sends with every response. No extension is ever accepted
    (RL-TRANSPORT-006), so none is named.
    """
    accept = base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()
    headers: Headers = (
        *common,
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-accept", accept),
    )
    if subprotocol is not None:
        headers += (("sec-websocket-protocol", subprotocol),)
    return _head(101, headers)


def answer(refused: Refused, common: Headers) -> bytes:
    """Return the HTTP response that refuses; ``common`` as in `switching_protocols`."""
    named = {name.lower() for name, _ in refused.headers}
    headers = (
        *((name, value) for name, value in common if name not in named),
        *refused.headers,
        ("content-length", str(len(refused.body))),
        ("connection", "close"),
    )
    return _head(refused.status, headers) + refused.body


def _head(status: int, headers: Headers) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break within a header")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
