"""Answers of the HTTP interface, as the server sends them."""

from typing import Final

import msgspec
from starlette.responses import Response

from ringline.relay.problem import Answer

__all__ = ["refuse", "reply"]

_json: Final = msgspec.json.Encoder()


def refuse(refusal: Answer, headers: dict[str, str] | None = None) -> Response:
    """Return a refusal, with further ``headers``."""
    return Response(refusal.body, refusal.status, dict(refusal.headers) | (headers or {}))


def reply(value: object, status: int = 200) -> Response:
    """Return ``value`` as JSON, for nobody to keep."""
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return Response(_json.encode(value), status, headers)
