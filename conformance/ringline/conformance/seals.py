"""Sealing and opening as the protocol says, and as nobody may: with the damage that a case asks for.

The right way is that of `ringline.protocol`; what `ringline.protocol.envelope` would not make is put together
here from its parts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, final

import msgspec

from ringline.conformance.verdict import Failed
from ringline.protocol import bodies
from ringline.protocol.context import OutcomeContext, RequestContext
from ringline.protocol.encoding import b64encode
from ringline.protocol.envelope import HEAD_BYTES, open_outcome, padded_size, request_digest, sign_input
from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import Envelope, Terminal
from ringline.protocol.identity import SignedCard
from ringline.protocol.limits import OUTCOME_CAP_BYTES, REQUEST_CAP_BYTES
from ringline.protocol.signing import SIGNATURE_BYTES, SigningKey
from ringline.protocol.suites import SUITES, PrivateKey
from ringline.protocol.transcript import digest, label, u8, vec

__all__ = ["Damage", "Sent", "open_answer", "seal_body", "seal_call"]

Plaintext = Callable[[bytes], bytes]


def _same(plaintext: bytes) -> bytes:
    return plaintext


@final
@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is wrong with a seal; nothing, unless it is told.

    ``sealed_for`` and ``signed_for`` are encoded contexts in place of the true one, for the encryption and
    for the signature.
    """

    sealed_for: bytes | None = None
    signed_for: bytes | None = None
    signing_key: SigningKey | None = None
    version: int = 1
    length: int | None = None
    """In place of the body's length."""
    plaintext: Plaintext = field(default=_same)
    """Changes the plaintext, padding and all, before it is encrypted."""
    public_key: bytes | None = None
    """Is encrypted to, in place of the recipient's."""


_NONE: Final = Damage()


def seal_body(
    context: RequestContext | OutcomeContext,
    body: bytes,
    signing_key: SigningKey,
    damage: Damage = _NONE,
) -> tuple[dict[str, Any], bytes]:
    """Sign and seal ``body``; return the envelope and what was signed."""
    encoded = context.encode()
    signed = sign_input(encoded if damage.signed_for is None else damage.signed_for, body)
    cap = REQUEST_CAP_BYTES if isinstance(context, RequestContext) else OUTCOME_CAP_BYTES
    length = len(body) if damage.length is None else damage.length
    head = u8(damage.version) + (damage.signing_key or signing_key).sign(signed) + length.to_bytes(4, "big")
    assert len(head) == HEAD_BYTES == 1 + SIGNATURE_BYTES + 4
    plaintext = damage.plaintext((head + body).ljust(padded_size(len(body), cap), b"\0"))
    recipient = context.recipient
    info = label("hpke") + digest(encoded if damage.sealed_for is None else damage.sealed_for)
    sealed = SUITES[recipient.suite].seal(damage.public_key or recipient.public_key, info, plaintext)
    envelope: dict[str, Any] = {
        "v": 1,
        "suite": recipient.suite,
        "kid": b64encode(recipient.key_id),
        "sid": b64encode(context.sender.card_id),
        "iat": context.iat,
        "exp": context.exp,
        "ct": b64encode(sealed),
    }
    return envelope, signed


@final
@dataclass(kw_only=True)
class Sent:
    """A request that the suite has sealed, and what opens its outcome."""

    context: RequestContext
    reply_key: PrivateKey
    digest: bytes
    json_bytes: bytes
    frame: dict[str, Any]
    """The `incoming_call` that brings it; change a member to have the relay lie."""

    @property
    def call_id(self) -> str:
        """The id under which it is offered."""
        return str(self.frame["call_id"])

    @property
    def ids(self) -> dict[str, str]:
        """The call's id, and its lease if it has one."""
        return {name: self.frame[name] for name in ("call_id", "lease_id") if name in self.frame}

    def again(self, **members: Any) -> "Sent":
        """Return the same sealed bytes in another frame."""
        return Sent(
            context=self.context,
            reply_key=self.reply_key,
            digest=self.digest,
            json_bytes=self.json_bytes,
            frame=self.frame | members,
        )


def seal_call(
    context: RequestContext,
    json_bytes: bytes,
    signing_key: SigningKey,
    frame: dict[str, Any],
    *,
    damage: Damage = _NONE,
    reply_public: bytes | None = None,
) -> Sent:
    """Seal a request into ``frame``; ``reply_public`` is in place of the one-time key."""
    reply_key = SUITES[context.recipient.suite].generate()
    body = vec(reply_key.public if reply_public is None else reply_public) + json_bytes
    envelope, signed = seal_body(context, body, signing_key, damage)
    return Sent(
        context=context,
        reply_key=reply_key,
        digest=request_digest(signed),
        json_bytes=json_bytes,
        frame=frame | {"envelope": envelope},
    )


def open_answer(sent: Sent, frame: dict[str, Any], card: SignedCard) -> tuple[bodies.Outcome, bytes]:
    """Open the outcome in ``frame`` by the card that signed it; return it with its JSON bytes.

    Raises `Failed` when it does not open as an outcome of this very call.
    """
    terminal: Terminal = frame["terminal"]
    try:
        envelope = msgspec.convert(frame["envelope"], Envelope)
        context = sent.context.answer(
            card_id=card.card.id,
            reply_public=sent.reply_key.public,
            call_id=frame["call_id"],
            terminal=terminal,
            digest=sent.digest,
            iat=envelope.iat,
        )
        opened = open_outcome(envelope, sent.reply_key, context, card.card.spk)
        return bodies.decode_outcome(opened.json_bytes, terminal), opened.json_bytes
    except (RinglineError, msgspec.MsgspecError) as error:
        raise Failed("an outcome that opens for this call", f"{type(error).__name__}: {error}") from None
