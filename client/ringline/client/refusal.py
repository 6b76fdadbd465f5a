"""What an answer of the relay's HTTP interface is to a client when it is no success, or none of a relay."""

import math
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET

from ringline.client.address import RelayAddress
from ringline.client.answers import read_answer
from ringline.client.exchange import Answer
from ringline.protocol import shapes
from ringline.protocol.codes import REGISTRY, Family
from ringline.protocol.errors import HttpProblem, RinglineError, TransportError

__all__ = ["decode", "not_let_in", "problem_of"]

_BY_STATUS: Final = {
    400: "malformed",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    426: "upgrade_required",
    429: "rate_limited",
    500: "internal_error",
    503: "unavailable",
}
_TEXT_CHARS: Final = 200
_SECONDS_MAX: Final = 86_400

_T = TypeVar("_T")


def decode(address: RelayAddress, answer: Answer, shape: type[_T]) -> _T:
    """Return the JSON of a relay's answer as ``shape``. Raises `TransportError` for what no relay answers."""
    try:
        return read_answer(answer.body, shape)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise _no_relay(address, answer.status) from None


def not_let_in(address: RelayAddress, handle: str, claim: str | None) -> HttpProblem:
    """Return the error for a handle that the relay does not enrol, with that ``claim`` or without one."""
    if claim is None:
        return HttpProblem(
            f"{address.base_url} lets nobody take a handle without an invite, and {handle} has none there",
            code="forbidden",
            next_step="ask somebody there for an invite (ringline invite), and use it: ringline accept",
        )
    return HttpProblem(
        f"{address.base_url} does not take this invite: it was used up, withdrawn or has run out, "
        "or it is for another handle",
        code="forbidden",
        next_step="ask for a new one (ringline invite)",
    )


def problem_of(address: RelayAddress, what: str, answer: Answer) -> RinglineError:
    """Return the error for an answer that is no success; ``what`` is the request, for people."""
    problem = _problem(answer)
    status = answer.status
    if 300 <= status < 400:
        return TransportError(
            f"{address.base_url} answered {what} with a redirect (HTTP {status}); "
            "log-ins are not sent elsewhere",
            next_step="give the relay's final base URL: --relay",
        )
    if problem is None:
        if status in (502, 503, 504):
            return TransportError(
                f"a proxy in front of {address.base_url} answered HTTP {status}: the relay behind it is away",
                retry_after_ms=_retry_after(answer, None),
                next_step="try again later",
            )
        return _no_relay(address, status)
    code = (
        problem.code if (Family.HTTP, problem.code) in REGISTRY else _BY_STATUS.get(status, "internal_error")
    )
    detail = problem.detail if problem.detail is not UNSET else problem.title
    return HttpProblem(
        f"the relay refused {what}: {_plain(detail)} (HTTP {status})",
        code=code,
        retry_after_ms=_retry_after(answer, problem),
        next_step=_NEXT.get(code),
    )


_NEXT: Final = {
    "unauthorized": "publish this identity's keys at the relay: ringline init",
    "unavailable": "try again later",
    "internal_error": "try again later, and tell the relay's operator",
}


def _problem(answer: Answer) -> shapes.Problem | None:
    if answer.content_type != "application/problem+json":
        return None
    try:
        return msgspec.json.decode(answer.body, type=shapes.Problem)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _retry_after(answer: Answer, problem: shapes.Problem | None) -> int | None:
    """Milliseconds, from the problem document or else the ``Retry-After`` header in seconds."""
    if problem is not None and problem.retry_after_ms is not UNSET and problem.retry_after_ms >= 0:
        # JSON has numbers of any length, and what is calculated with this one would fail over them.
        return min(problem.retry_after_ms, _SECONDS_MAX * 1_000)
    try:
        seconds = float(answer.header("Retry-After") or "")
    except ValueError:
        return None
    return int(seconds * 1_000) if math.isfinite(seconds) and 0 <= seconds <= _SECONDS_MAX else None


def _plain(text: str) -> str:
    """A text of the relay's that is safe to print: one line of printable characters."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:_TEXT_CHARS])


def _no_relay(address: RelayAddress, status: int) -> TransportError:
    return TransportError(
        f"what answers at {address.base_url} is not a Ringline relay (HTTP {status})",
        next_step="check --relay; a development relay prints its URLs when it starts",
    )
