"""What a call gives back: the peer's signed reply."""

from dataclasses import dataclass, field
from typing import Any, final

from ringline.caller.receipt import Receipt

__all__ = ["Reply", "Signer"]


@final
@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed."""

    handle: str
    ipk: bytes
    """Identity key, 32 bytes."""
    fingerprint: str
    """The identity key as people compare it (envelope §7)."""

    def __str__(self) -> str:
        return f"{self.handle} {self.fingerprint}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply that the callee sealed to this call and signed.

    ``text`` and ``value`` are the peer's: authentic, and still a stranger's words. Never print them raw to a
    terminal.
    """

    text: str
    value: Any = None
    """Any JSON value, None when there is none."""
    task: str | None = None
    context_id: str | None = None
    """The conversation, when the callee keeps one."""
    turn: int | None = None
    signed_by: Signer
    call_id: str
    message_id: str
    correlation_id: str
    receipt: Receipt = field(repr=False)
    """What proves it."""
