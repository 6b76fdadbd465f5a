"""The sealed envelope: the only file that seals and opens.

The sender signs the plaintext and its whole context, then encrypts both to the recipient's key with the
same context as HPKE's ``info``. The opener reads no context from the envelope: he rebuilds it from the
frame, his own keys and the peer he has pinned.

A request carries a one-time public key; its outcome is sealed to that key and bound to the digest of
exactly what the caller signed.
"""

from dataclasses import dataclass
from typing import Final, final

from ringline.protocol.context import Context, OutcomeContext, RequestContext
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import (
    BadSignature,
    CannotOpen,
    EncodingError,
    MessageTooLarge,
    WeakKey,
)
from ringline.protocol.frames import Envelope
from ringline.protocol.limits import OUTCOME_CAP_BYTES, PAD_FLOOR_BYTES, REQUEST_CAP_BYTES
from ringline.protocol.signing import SIGNATURE_BYTES, SigningKey, verify
from ringline.protocol.suites import SUITES, PrivateKey
from ringline.protocol.transcript import Reader, digest, label, u8, vec

__all__ = [
    "HEAD_BYTES",
    "OpenedOutcome",
    "OpenedRequest",
    "SealedRequest",
    "open_outcome",
    "open_request",
    "padded_size",
    "request_digest",
    "seal_outcome",
    "seal_request",
    "sign_input",
]

_PLAINTEXT_VERSION: Final = 1
HEAD_BYTES: Final = 1 + SIGNATURE_BYTES + 4
"""What stands before the body under every seal: version, signature, length of the body (RL-ENVELOPE-030)."""


def sign_input(context: bytes, body: bytes) -> bytes:
    """Return the 81 bytes that are signed for an encoded context and a body (RL-ENVELOPE-010).

    With the stored context, body, signature and card, anybody can check a receipt by it.
    """
    return label("sig") + digest(context) + digest(body)


def request_digest(signed: bytes) -> bytes:
    """Return what the outcome repeats of its request: the hash of the request's `sign_input`."""
    return digest(signed)


def padded_size(body_bytes: int, cap: int) -> int:
    """Return the size of the plaintext for a body of that size, both in bytes (RL-ENVELOPE-012).

    PADME rounds up so that at most the logarithm of the size shows, for at most 12 % more; short ones all
    look alike, and none exceeds ``cap``.
    """
    size = max(HEAD_BYTES + body_bytes, PAD_FLOOR_BYTES)
    exponent = size.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return min(-(-size // step) * step, cap)


@final
@dataclass(frozen=True, slots=True)
class SealedRequest:
    """A request on its way, and what its sender keeps of it."""

    envelope: Envelope
    digest: bytes
    """`request_digest`, which the outcome will be bound to."""
    context: bytes
    """The encoded context."""
    signature: bytes


@final
@dataclass(frozen=True, slots=True)
class OpenedRequest:
    """A request whose seal, signature and one-time key hold. The JSON is not parsed yet."""

    reply_public: bytes
    """The caller's one-time key, to which the outcome is sealed; of the suite of the request."""
    json_bytes: bytes
    digest: bytes
    """`request_digest`, which the outcome repeats."""
    context: bytes
    """The encoded context."""
    body: bytes
    """One-time key and JSON as they were signed: with ``context``, ``signature`` and card, a receipt."""
    signature: bytes


@final
@dataclass(frozen=True, slots=True)
class OpenedOutcome:
    """An outcome whose seal and signature hold. The JSON is not parsed yet.

    ``json_bytes``, ``context``, ``signature`` and the signer's card together are the receipt.
    """

    json_bytes: bytes
    context: bytes
    """The encoded context."""
    signature: bytes


def seal_request(
    context: RequestContext, json_bytes: bytes, reply_public: bytes, signing_key: SigningKey
) -> SealedRequest:
    """Sign and seal a request (RL-ENVELOPE-009, RL-ENVELOPE-010).

    ``reply_public`` is a fresh key of the recipient's suite, whose secret is stored before anything is sent;
    ``signing_key`` is the operational key of the sender's card.

    Raises `MessageTooLarge` when the body does not fit, `WeakKey` for a recipient's key that must not be
    used, `ConfigError` when the suite is not available here, `ValueError` for a reply key of the wrong size.
    """
    if len(reply_public) != SUITES[context.recipient.suite].npk:
        raise ValueError("the reply key is not of the recipient's suite")
    body = vec(reply_public) + json_bytes
    encoded = context.encode()
    envelope, signed, signature = _seal(context, encoded, body, REQUEST_CAP_BYTES, signing_key)
    return SealedRequest(envelope, request_digest(signed), encoded, signature)


def seal_outcome(context: OutcomeContext, json_bytes: bytes, signing_key: SigningKey) -> Envelope:
    """Sign and seal an outcome to the one-time key of its request (RL-ENVELOPE-016).

    Raises `MessageTooLarge` when the body does not fit (a listener then seals a failure that says so),
    `WeakKey`, and `ConfigError` when the suite is not available here.
    """
    return _seal(context, context.encode(), json_bytes, OUTCOME_CAP_BYTES, signing_key)[0]


def open_request(
    envelope: Envelope, private_key: PrivateKey, context: RequestContext, sender_spk: bytes
) -> OpenedRequest:
    """Open a request, up to its JSON (RL-ENVELOPE-028 to RL-ENVELOPE-032).

    ``context`` is rebuilt as RL-ENVELOPE-018 says; ``sender_spk`` is the operational key of the sender's
    card, which is verified.

    Raises `CannotOpen`, and nothing else, for whatever is wrong.
    """
    encoded = context.encode()
    body, signed, signature = _open(envelope, private_key, context, encoded, REQUEST_CAP_BYTES, sender_spk)
    try:
        reader = Reader(body)
        reply_public = reader.vec()
        # RL-ENVELOPE-032: a one-time key that is not a usable public key of the request's suite is refused.
        SUITES[context.recipient.suite].check_public(reply_public)
    except (EncodingError, WeakKey):
        raise CannotOpen("reply key") from None
    json_bytes = body[2 + len(reply_public) :]
    return OpenedRequest(reply_public, json_bytes, request_digest(signed), encoded, body, signature)


def open_outcome(
    envelope: Envelope, private_key: PrivateKey, context: OutcomeContext, sender_spk: bytes
) -> OpenedOutcome:
    """Open an outcome with the one-time key of its request (RL-ENVELOPE-037).

    ``context`` is rebuilt from the pending call and the frame; ``sender_spk`` is the operational key of the
    listener's verified card, which the envelope's ``sid`` selects.

    Raises `CannotOpen`, and nothing else, for whatever is wrong.
    """
    encoded = context.encode()
    body, _, signature = _open(envelope, private_key, context, encoded, OUTCOME_CAP_BYTES, sender_spk)
    return OpenedOutcome(body, encoded, signature)


def _info(context: bytes) -> bytes:
    return label("hpke") + digest(context)


def _seal(
    context: Context, encoded: bytes, body: bytes, cap: int, signing_key: SigningKey
) -> tuple[Envelope, bytes, bytes]:
    """Return the envelope, what was signed, and the signature."""
    # RL-ENVELOPE-013: a body of more than CAP less 69 bytes is not sealed.
    if HEAD_BYTES + len(body) > cap:
        raise MessageTooLarge(
            f"the body has {len(body)} bytes; {cap - HEAD_BYTES} fit under a seal. Nothing was sealed.",
            next_step="shorten the message, or what goes with it",
        )
    signed = sign_input(encoded, body)
    signature = signing_key.sign(signed)
    head = u8(_PLAINTEXT_VERSION) + signature + len(body).to_bytes(4, "big")
    # RL-ENVELOPE-012: padded with zero bytes to exactly the size that the formula gives.
    plaintext = (head + body).ljust(padded_size(len(body), cap), b"\0")
    recipient = context.recipient
    sealed = SUITES[recipient.suite].seal(recipient.public_key, _info(encoded), plaintext)
    envelope = Envelope(
        v=1,
        suite=recipient.suite,
        kid=b64encode(recipient.key_id),
        sid=b64encode(context.sender.card_id),
        iat=context.iat,
        exp=context.exp,
        ct=b64encode(sealed),
    )
    return envelope, signed, signature


def _open(
    envelope: Envelope, private_key: PrivateKey, context: Context, encoded: bytes, cap: int, sender_spk: bytes
) -> tuple[bytes, bytes, bytes]:
    """Return the body, what was signed, and the signature."""
    recipient = context.recipient
    if private_key.suite != recipient.suite or private_key.public != recipient.public_key:
        raise CannotOpen("key")
    # What the envelope says in the clear must be what the context was built from (RL-ENVELOPE-042). The seal
    # would not notice a change here when the caller of this function took a value from elsewhere.
    if (envelope.v, envelope.suite, envelope.iat, envelope.exp) != (
        1,
        recipient.suite,
        context.iat,
        context.exp,
    ):
        raise CannotOpen("clear members")
    # RL-ENVELOPE-028: the clear `kid` and `sid` are the ids of the key and the card that it is opened and
    # verified with.
    if (envelope.kid, envelope.sid) != (b64encode(recipient.key_id), b64encode(context.sender.card_id)):
        raise CannotOpen("clear ids")
    # RL-ENVELOPE-029: a `ct` that is not canonical base64url is refused.
    try:
        sealed = b64decode(envelope.ct)
    except EncodingError:
        raise CannotOpen("ciphertext encoding") from None
    plaintext = SUITES[recipient.suite].open(private_key, _info(encoded), sealed)
    # RL-ENVELOPE-030: a plaintext that does not begin with 1, is shorter than its head and body, has another
    # size than the formula gives, or anything but zeros behind the body is refused.
    if len(plaintext) < HEAD_BYTES or plaintext[0] != _PLAINTEXT_VERSION:
        raise CannotOpen("plaintext version")
    signature = plaintext[1 : 1 + SIGNATURE_BYTES]
    size = int.from_bytes(plaintext[1 + SIGNATURE_BYTES : HEAD_BYTES], "big")
    end = HEAD_BYTES + size
    if end > len(plaintext) or len(plaintext) != padded_size(size, cap):
        raise CannotOpen("plaintext length")
    if plaintext[end:] != bytes(len(plaintext) - end):
        raise CannotOpen("padding")
    body = plaintext[HEAD_BYTES:end]
    # RL-ENVELOPE-031: and one whose signature does not verify by the operational key of the sender's card.
    signed = sign_input(encoded, body)
    try:
        verify(sender_spk, signed, signature)
    except BadSignature:
        raise CannotOpen("signature") from None
    return body, signed, signature
