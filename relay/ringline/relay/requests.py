"""Reading HTTP requests: closed queries and closed bodies, bounded in size and time.

Source: RL-HTTP-002, RL-HTTP-004, RL-HTTP-005, RL-HTTP-008.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from ringline.protocol import names
from ringline.protocol.errors import HttpProblem, ProtocolError
from ringline.protocol.jsontext import check_json
from ringline.relay.auth import Login

__all__ = [
    "LARGE_BODY_BYTES",
    "SMALL_BODY_BYTES",
    "authorization",
    "check_owner",
    "handle_of",
    "no_body",
    "parameters",
    "read",
]

SMALL_BODY_BYTES: Final = 65_536
"""Room for a card, a prekey with every suite, and a succession."""

LARGE_BODY_BYTES: Final = 1_048_576
"""Room for the two lists of a policy."""

_BODY_TIMEOUT_S: Final = 10.0
_DEPTH: Final = 4

T = TypeVar("T")


def handle_of(request: Request) -> str:
    """Return the handle of the path. Raises `HttpProblem` (404) for what is none."""
    handle: str = request.path_params["handle"]
    if not names.is_handle(handle):
        raise HttpProblem(code="not_found")
    return handle


def authorization(request: Request) -> str | None:
    """Return the one ``Authorization`` header, None without it and with several."""
    values = request.headers.getlist("authorization")
    return values[0] if len(values) == 1 else None


def check_owner(login: Login, handle: str) -> None:
    """Pass the owner of ``handle``. Raises `HttpProblem` (403), the same whether another's exists or not."""
    if login.handle != handle:
        raise HttpProblem(code="forbidden")


def parameters(request: Request, *allowed: str) -> Mapping[str, str]:
    """Return the query's parameters: of the ``allowed`` names, each at most once.

    Raises `HttpProblem` (400).
    """
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    # An empty query is as good as none, but one that starlette read nothing from is not.
    if len(given) != len(pairs) or not given.keys() <= set(allowed) or (request.url.query and not pairs):
        wanted = ", ".join(allowed) if allowed else "nothing"
        raise HttpProblem(f"the query may hold {wanted}, each once", code="malformed")
    return given


async def read(request: Request, shape: type[T], *, limit: int = SMALL_BODY_BYTES) -> T:
    """Return the body as a ``shape`` of `ringline.protocol.shapes`; at most ``limit`` bytes.

    Raises `HttpProblem`: 413 for more, 400 for anything that is not exactly that shape.
    """
    body = await _bytes(request, limit)
    try:
        check_json(body, depth=_DEPTH)
        return msgspec.json.decode(body, type=shape)
    except (ProtocolError, msgspec.MsgspecError, ValueError, RecursionError):
        raise HttpProblem("the body is not the JSON object of this route", code="malformed") from None


async def no_body(request: Request) -> None:
    """Pass a request without a body, or with an empty object. Raises `HttpProblem` (400, 413)."""
    body = await _bytes(request, SMALL_BODY_BYTES)
    if body.strip(b" \t\r\n") not in (b"", b"{}"):
        raise HttpProblem("this request takes no body", code="malformed")


async def _bytes(request: Request, limit: int) -> bytes:
    too_large = HttpProblem(f"the body is longer than {limit} bytes", code="too_large")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise HttpProblem("the body did not arrive in time", code="malformed") from None
    except ClientDisconnect:
        raise HttpProblem("the client went away", code="malformed") from None
    return bytes(body)
