"""How a WebSocket ends: each close code, what it means, and whether a client comes back.

One table for the relay, which says them, and for the clients, which act on them (RL-TRANSPORT-037).
"""

import re
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CLOSES",
    "DONE",
    "GOING_AWAY",
    "INTERNAL",
    "INVALID_TEXT",
    "POLICY",
    "POLICY_REASONS",
    "PROTOCOL_ERROR",
    "REMOVED",
    "REPLACED",
    "REVOKED",
    "TOO_BIG",
    "Close",
    "may_reconnect",
    "read_retry",
    "retry_reason",
]

DONE: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
INVALID_TEXT: Final = 1007
POLICY: Final = 1008
TOO_BIG: Final = 1009
INTERNAL: Final = 1011
REPLACED: Final = 4000
REVOKED: Final = 4001


@dataclass(frozen=True, slots=True)
class Close:
    """One row. ``reconnects``: whether a client dials again, after its back-off. ``source``: who says so."""

    code: int
    name: str
    meaning: str
    reconnects: bool
    source: str


CLOSES: Final[dict[int, Close]] = {
    row.code: row
    for row in (
        Close(
            DONE, "done", "the side that closes has no more use for the connection", True, "RFC 6455 §7.4.1"
        ),
        Close(
            GOING_AWAY,
            "going away",
            "the relay stops, or the card of the log-in has expired or was replaced; the reason is "
            "`retry=` and the milliseconds to wait before the next dial",
            True,
            "RL-TRANSPORT-038, RL-TRANSPORT-043",
        ),
        Close(
            PROTOCOL_ERROR,
            "protocol error",
            "a frame that breaks the WebSocket protocol",
            True,
            "RFC 6455 §7.4.1",
        ),
        Close(INVALID_TEXT, "invalid text", "a text message that is not UTF-8", True, "RL-FRAME-010"),
        Close(
            POLICY,
            "policy",
            "the reason says which: `frames` for too many that cannot be read or come too fast, `slow` for a "
            "peer that does not read, `idle` for one that is silent",
            True,
            "RL-FRAME-016, RL-ADMIT-041, RL-TRANSPORT-036, RL-TRANSPORT-032",
        ),
        Close(TOO_BIG, "too big", "a message above every limit", True, "RL-TRANSPORT-027"),
        Close(
            INTERNAL,
            "internal error",
            "a fault of the relay, or a commit that failed: what was not confirmed is to be said again",
            True,
            "RL-ERROR-008, RL-TRANSPORT-045",
        ),
        Close(
            REPLACED,
            "replaced",
            "another connection of the same instance took this one's place; it concerns this one alone",
            False,
            "RL-TRANSPORT-021, RL-TRANSPORT-040",
        ),
        Close(
            REVOKED,
            "revoked",
            "the card of the log-in was revoked, or its identity removed",
            False,
            "RL-TRANSPORT-044, RL-TRANSPORT-041",
        ),
    )
}

POLICY_REASONS: Final = frozenset({"frames", "slow", "idle"})

REMOVED: Final = "removed"
"""The reason of a 4001 whose identity is no more; with any other, a card was called back."""

_RETRY: Final = re.compile(r"\Aretry=([0-9]{1,9})\Z")


def may_reconnect(code: int | None) -> bool:
    """Whether a client dials again after this code; it does after one that it does not know, or none."""
    row = None if code is None else CLOSES.get(code)
    return row is None or row.reconnects


def retry_reason(ms: int) -> str:
    """Return the reason of a `GOING_AWAY` that asks for a pause of ``ms`` milliseconds."""
    return f"retry={ms}"


def read_retry(reason: str) -> int | None:
    """Return the milliseconds that the reason of a `GOING_AWAY` asks for; None when it names none."""
    found = _RETRY.match(reason)
    return int(found[1]) if found else None
