"""Receipts as files: an answer, and all that proves who signed it, to whom, and in answer to what.

Whoever has the file can check it with no secret, no relay and no network (RL-ENVELOPE-043). It is
one JSON object, and has nothing in it that nobody signed::

    {"format": "ringline-receipt", "v": 1,
     "context": ..., "answer": ..., "signature": ..., "card": ..., "card_sig": ...}

``context`` is the encoded context of the outcome and ``answer`` its JSON as text, exactly as they were
signed by the operational key that ``card`` names; the card is signed by the callee's identity key. All but
``answer`` are base64url. Of the request there is its digest: what was asked is not shown to whoever sees
the answer.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Final, Literal, final

import msgspec
from msgspec import Meta

from ringline.protocol.bodies import Outcome, decode_outcome
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.envelope import sign_input
from ringline.protocol.errors import (
    BadSignature,
    BodyError,
    EncodingError,
    MessageTooLarge,
    ProtocolError,
    ReceiptError,
    WeakKey,
)
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.frames import DeliveryMode, Terminal
from ringline.protocol.identity import HASH_BYTES, Card, SignedCard
from ringline.protocol.jsontext import check_json
from ringline.protocol.limits import INT_MAX
from ringline.protocol.names import is_call_id, is_correlation_id, is_handle, is_message_id, is_realm
from ringline.protocol.signing import PUBLIC_BYTES, SIGNATURE_BYTES, verify
from ringline.protocol.suites import SUITES
from ringline.protocol.transcript import Reader

__all__ = ["RECEIPT_BYTES", "Proof", "SignedContext", "SignedOutcome"]

RECEIPT_BYTES: Final = 8 << 20
"""More than the largest answer has as ASCII JSON, each of its characters escaped."""

_FORMAT: Final = "ringline-receipt"
_VERSION: Final = 1
_OUTCOME: Final = 2
_MODES: Final[dict[int, DeliveryMode]] = {0: "sync", 1: "durable"}
_TERMINALS: Final[dict[int, Terminal]] = {1: "completed", 2: "failed"}
_STEP: Final = "ask whoever gave it to you for the file as `ringline receipt save` wrote it"
_NOTHING: Final = "Nothing is proved by this file."

_Text = Annotated[str, Meta(max_length=4_096)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["ringline-receipt"]
    v: Annotated[int, Meta(ge=1, le=1_000_000)]
    context: _Text
    answer: str
    signature: _Text
    card: _Text
    card_sig: _Text


_files: Final = msgspec.json.Decoder(_File)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedContext:
    """What a callee signs around an answer (RL-ENVELOPE-037). Times are Unix ms, digests 32 bytes.

    To exist it must be well-formed; raises `ReceiptError`.
    """

    suite: int
    realm: str
    callee: str
    callee_ipk: bytes
    card_id: bytes
    """Of the callee's card whose operational key signs."""
    caller: str
    caller_ipk: bytes
    reply_key_id: bytes
    """Of the request's one-time key."""
    mode: DeliveryMode
    message_id: str
    """Empty for a sync call without one."""
    correlation_id: str
    answered_at: int
    """When the answer was sealed, by the callee's clock."""
    expires_at: int
    """Until when the request stood, by the caller's clock."""
    call_id: str
    terminal: Terminal
    request_digest: bytes
    """Hash of what the caller signed with his request."""

    def __post_init__(self) -> None:
        names = is_realm(self.realm) and is_handle(self.callee) and is_handle(self.caller)
        ids = is_call_id(self.call_id) and is_correlation_id(self.correlation_id)
        ids = ids and (is_message_id(self.message_id) or (self.mode == "sync" and not self.message_id))
        if not (names and ids):
            raise _unreadable("a name or id in its context breaks its pattern")
        if self.suite not in SUITES:
            raise _unreadable("its context names an unknown suite")
        if max(self.answered_at, self.expires_at) > INT_MAX:
            raise _unreadable("a time in its context is out of range")

    @classmethod
    def decode(cls, data: bytes) -> "SignedContext":
        """Return the context of exactly these bytes. Raises `ReceiptError` for any but an outcome's."""
        try:
            reader = Reader(data)
            reader.label("ctx")
            if reader.unsigned(1) != _OUTCOME:
                raise _unreadable("its context is not that of an answer")
            suite, realm = reader.unsigned(2), reader.text()
            callee, callee_ipk, card_id = reader.text(), reader.take(PUBLIC_BYTES), reader.take(HASH_BYTES)
            caller, caller_ipk, key_id = reader.text(), reader.take(PUBLIC_BYTES), reader.take(HASH_BYTES)
            mode = _MODES.get(reader.unsigned(1))
            message_id, correlation_id = reader.text(), reader.text()
            iat, exp = reader.unsigned(8), reader.unsigned(8)
            call_id, terminal = reader.text(), _TERMINALS.get(reader.unsigned(1))
            digest = reader.take(HASH_BYTES)
            reader.end()
        except EncodingError as error:
            raise _unreadable(f"its context is damaged ({error})") from None
        if mode is None or terminal is None:
            raise _unreadable("its context has a mode or an end that is unknown")
        return cls(
            suite=suite,
            realm=realm,
            callee=callee,
            callee_ipk=callee_ipk,
            card_id=card_id,
            caller=caller,
            caller_ipk=caller_ipk,
            reply_key_id=key_id,
            mode=mode,
            message_id=message_id,
            correlation_id=correlation_id,
            answered_at=iat,
            expires_at=exp,
            call_id=call_id,
            terminal=terminal,
            request_digest=digest,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a receipt proves: both signatures hold, and name each other."""

    context: SignedContext
    card: Card
    answer: bytes
    """The JSON that was signed."""
    outcome: Outcome | None
    """It, read; None for an answer that was signed and breaks the protocol."""

    @property
    def callee_fingerprint(self) -> str:
        """Of the identity that answered."""
        return fingerprint(self.context.callee_ipk)

    @property
    def caller_fingerprint(self) -> str:
        """Of the identity that was answered."""
        return fingerprint(self.context.caller_ipk)

    @property
    def in_time(self) -> bool:
        """Whether the card held when the answer was sealed, by the callee's own clock."""
        return self.card.holds_at(self.context.answered_at)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedOutcome:
    """A receipt as it is handed on. Nothing in it is checked before `verify`."""

    context: bytes
    answer: bytes
    signature: bytes
    card: bytes
    card_signature: bytes

    def format(self) -> str:
        """Return the file, ASCII that is safe to show on any terminal.

        Raises `ReceiptError` for an answer that is no text.
        """
        try:
            answer = self.answer.decode("utf-8")
        except UnicodeDecodeError:
            raise ReceiptError("the answer was signed, and it is no text: no receipt can show it") from None
        members = {
            "format": _FORMAT,
            "v": _VERSION,
            "context": b64encode(self.context),
            "answer": answer,
            "signature": b64encode(self.signature),
            "card": b64encode(self.card),
            "card_sig": b64encode(self.card_signature),
        }
        return json.dumps(members, indent=2).replace("\x7f", "\\u007f") + "\n"

    @classmethod
    def parse(cls, data: bytes) -> "SignedOutcome":
        """Read a file. Raises `ReceiptError`, which quotes nothing of it."""
        if len(data) > RECEIPT_BYTES:
            raise _unreadable(f"it has more than {RECEIPT_BYTES:,} bytes")
        try:
            check_json(data, depth=1)
            file = _files.decode(data)
        except (ProtocolError, msgspec.MsgspecError, ValueError, RecursionError):
            raise _unreadable("it is not the JSON of one") from None
        if file.v != _VERSION:
            raise ReceiptError(
                f"this receipt is of version {file.v}, and this program knows {_VERSION}",
                still_true="Nothing is said about whether it holds.",
                next_step="check it with a newer program",
            )
        try:
            return cls(
                context=b64decode(file.context),
                answer=file.answer.encode("utf-8"),
                signature=b64decode(file.signature, length=SIGNATURE_BYTES),
                card=b64decode(file.card),
                card_signature=b64decode(file.card_sig, length=SIGNATURE_BYTES),
            )
        except (EncodingError, UnicodeEncodeError):
            raise _unreadable("a member is not base64url of its length") from None

    def verify(self) -> Proof:
        """Check both signatures, and that card and context name each other; return what that proves.

        Raises `ReceiptError` for what cannot be read, `BadSignature` or `WeakKey` for what does not hold.
        """
        context = SignedContext.decode(self.context)
        try:
            card = Card.decode(self.card)
        except ProtocolError as error:
            raise _unreadable(f"its card is damaged ({error})") from None
        named = (context.realm, context.callee, context.callee_ipk, context.card_id)
        if named != (card.realm, card.handle, card.ipk, card.id):
            raise _void(f"it holds the card of another than {context.callee}, whose answer it shows")
        try:
            SignedCard(card, self.card_signature).verify()
        except WeakKey as error:
            raise WeakKey(
                f"the card of {card.handle} has a key under which anybody can sign ({error})",
                still_true=_NOTHING,
                next_step=_STEP,
            ) from None
        except BadSignature:
            raise _void(
                f"the card of {card.handle} is not signed by the identity key that it names"
            ) from None
        except ProtocolError as error:
            raise _void(f"the card of {card.handle} does not hold ({error})") from None
        try:
            verify(card.spk, sign_input(self.context, self.answer), self.signature)
        except BadSignature:
            raise _void(f"{context.callee} has not signed this answer in this context") from None
        try:
            outcome = decode_outcome(self.answer, context.terminal)
        except (BodyError, MessageTooLarge):
            outcome = None
        return Proof(context=context, card=card, answer=self.answer, outcome=outcome)


def _unreadable(why: str) -> ReceiptError:
    return ReceiptError(
        f"this is no receipt that can be checked: {why}", still_true=_NOTHING, next_step=_STEP
    )


def _void(why: str) -> BadSignature:
    return BadSignature(f"this receipt does not hold: {why}", still_true=_NOTHING, next_step=_STEP)
