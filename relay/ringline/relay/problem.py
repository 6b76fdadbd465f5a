"""Refusals of the HTTP interface and of handshakes: one document per kind, the same bytes every time.

Whoever may not know why he is refused gets an answer that was made before he asked (RL-AUTH-021, RL-HTTP-010,
RL-HTTP-027).
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from ringline.protocol.codes import Family, lookup
from ringline.protocol.errors import HttpProblem
from ringline.protocol.shapes import Problem

__all__ = [
    "FORBIDDEN",
    "INTERNAL",
    "MALFORMED",
    "METHOD_NOT_ALLOWED",
    "NOT_FOUND",
    "RELEASE_STATUSES",
    "UNAUTHORIZED",
    "UPGRADE_REQUIRED",
    "Answer",
    "Headers",
    "not_cancelled",
    "of",
]

Headers = tuple[tuple[str, str], ...]

RELEASE_STATUSES: Final = frozenset({401, 403, 404})
"""Answers that leave no earlier than 10 ms after their request was read (RL-HTTP-009)."""

_JSON: Final = (("content-type", "application/problem+json"), ("cache-control", "no-store"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A refusal, ready to be sent: ``headers`` without date and length."""

    status: int
    headers: Headers
    body: bytes


def _answer(
    code: str,
    *,
    detail: str | None = None,
    status: int | None = None,
    retry_after_ms: int | None = None,
    headers: Headers = (),
) -> Answer:
    row = lookup(Family.HTTP, code)
    number = status or row.http_status or 500
    problem = Problem(
        # RFC 9457 §4.2.1: the title of about:blank is the status's own; our word is `code`.
        type="about:blank",
        title=HTTPStatus(number).phrase,
        status=number,
        code=code,
        detail=msgspec.UNSET if detail is None else detail,
        retry_after_ms=msgspec.UNSET if retry_after_ms is None else retry_after_ms,
    )
    return Answer(number, (*_JSON, *headers), msgspec.json.encode(problem))


def of(error: HttpProblem) -> Answer:
    """Return the answer for ``error``; 429 and 503 tell when to come back (RL-ERROR-006)."""
    code, text, wait = error.code, str(error), error.retry_after_ms
    if code in _FIXED:
        return _FIXED[code]
    headers: Headers = ()
    if error.info.http_status in (429, 503):
        wait = 1000 if wait is None else max(wait, 0)
        headers = (("retry-after", str(max(1, -(-wait // 1000)))),)
    return _answer(
        code, detail=None if text == error.info.summary else text, retry_after_ms=wait, headers=headers
    )


UNAUTHORIZED: Final = _answer("unauthorized", headers=(("www-authenticate", "Bearer"),))
"""The 401, whatever was wrong with the log-in (RL-AUTH-021)."""

FORBIDDEN: Final = _answer("forbidden")
"""The 403: another's handle, whether it exists or not; a foreign origin; a foreign host."""

NOT_FOUND: Final = _answer("not_found")
"""The 404: a missing handle, one that is not to be seen, another's call, no such route."""

UPGRADE_REQUIRED: Final = _answer(
    "upgrade_required", headers=(("upgrade", "websocket"), ("sec-websocket-version", "13"))
)

METHOD_NOT_ALLOWED: Final = _answer("malformed", status=405)
"""To be sent with an ``Allow`` header."""

INTERNAL: Final = _answer("internal_error")

MALFORMED: Final = _answer("malformed")


def not_cancelled(reason: str) -> Answer:
    """Return the 409 of a cancellation that did not happen; ``reason`` is its code (RL-CANCEL-012)."""
    return _answer(reason, status=409)


_FIXED: Final = {"unauthorized": UNAUTHORIZED, "forbidden": FORBIDDEN, "not_found": NOT_FOUND}
