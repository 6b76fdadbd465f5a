"""What a call gives back: the peer's signed reply."""

from dataclasses import dataclass, field
from typing import Any, final

from msgspec import UNSET

from ringline.caller.receipt import Receipt
from ringline.caller.sealing import Answer
from ringline.protocol.errors import ProtocolError
from ringline.protocol.fingerprint import fingerprint

__all__ = ["Reply", "Signer", "reply_of"]


@final
@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed."""

    handle: str
    ipk: bytes
    """Identity key, 32 bytes."""
    fingerprint: str
    """The identity key as people compare it (RL-KEYS-048)."""

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


def reply_of(answer: Answer, message_id: str, correlation_id: str) -> Reply:
    """Return the reply that an opened outcome holds."""
    reply = answer.outcome.reply
    if reply is UNSET:  # pragma: no cover - a failure was raised
        raise ProtocolError("the outcome holds no reply")
    card = answer.signer.card
    return Reply(
        text=reply.text,
        value=None if reply.value is UNSET else reply.value,
        task=None if reply.task is UNSET else reply.task,
        context_id=None if reply.context_id is UNSET else reply.context_id,
        turn=None if reply.turn is UNSET else reply.turn,
        signed_by=Signer(card.handle, card.ipk, fingerprint(card.ipk)),
        call_id=answer.receipt.call_id,
        message_id=message_id,
        correlation_id=correlation_id,
        receipt=answer.receipt,
    )
