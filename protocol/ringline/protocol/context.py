"""What a seal binds: everything around a request or an outcome, as the bytes that are hashed.

The context goes into what is signed and into HPKE's ``info``. The opener builds it from what he knows
himself, so a value that was changed on the way is not a comparison that might be forgotten, but an envelope
that does not open (RL-ENVELOPE-018, RL-ENVELOPE-037).
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from ringline.protocol.errors import ProtocolError
from ringline.protocol.frames import DeliveryMode, Terminal
from ringline.protocol.identity import HASH_BYTES
from ringline.protocol.limits import INT_MAX
from ringline.protocol.names import is_call_id, is_correlation_id, is_handle, is_message_id, is_realm
from ringline.protocol.signing import PUBLIC_BYTES
from ringline.protocol.suites import SUITES, key_id
from ringline.protocol.transcript import label, u8, u16, u64, vec

__all__ = ["Context", "OutcomeContext", "Party", "Recipient", "RequestContext"]

_REQUEST: Final = 1
_OUTCOME: Final = 2
_MODES: Final[dict[DeliveryMode, int]] = {"sync": 0, "durable": 1}
_TERMINALS: Final[dict[Terminal, int]] = {"completed": 1, "failed": 2}


@final
@dataclass(frozen=True, slots=True)
class Party:
    """Who sends: a handle, its identity key, and the card whose operational key signs (32 bytes each)."""

    handle: str
    ipk: bytes
    card_id: bytes

    def __post_init__(self) -> None:
        if not is_handle(self.handle) or len(self.ipk) != PUBLIC_BYTES or len(self.card_id) != HASH_BYTES:
            raise ProtocolError("a sender needs a handle, an identity key and a card id")


@final
@dataclass(frozen=True, slots=True)
class Recipient:
    """Who is sealed to: a handle, its identity key, and a public key of a suite."""

    handle: str
    ipk: bytes
    suite: int
    public_key: bytes

    def __post_init__(self) -> None:
        suite = SUITES.get(self.suite)
        if suite is None or len(self.public_key) != suite.npk:
            raise ProtocolError("a recipient needs a public key of a known suite")
        if not is_handle(self.handle) or len(self.ipk) != PUBLIC_BYTES:
            raise ProtocolError("a recipient needs a handle and an identity key")

    @property
    def key_id(self) -> bytes:
        """What names the public key: computed, never taken from an envelope (RL-ENVELOPE-018)."""
        return key_id(self.suite, self.public_key)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Everything around a request that its seal binds (RL-ENVELOPE-018).

    ``message_id`` is empty when the frame has none, ``iat`` and ``exp`` are Unix ms. Raises `ProtocolError`
    for a value that breaks its pattern or range.
    """

    realm: str
    sender: Party
    recipient: Recipient
    mode: DeliveryMode
    message_id: str = ""
    correlation_id: str
    iat: int
    exp: int

    def __post_init__(self) -> None:
        _check(self)

    def encode(self) -> bytes:
        """Return the context as it is hashed into ``info`` and into what is signed."""
        return _common(_REQUEST, self)

    def answer(
        self,
        *,
        card_id: bytes,
        reply_public: bytes,
        call_id: str,
        terminal: Terminal,
        digest: bytes,
        iat: int,
    ) -> "OutcomeContext":
        """Return the context of this request's outcome, with the parts exchanged.

        ``card_id`` is that of the listener's card which signs, ``reply_public`` the request's one-time key,
        ``digest`` what `request_digest` gave for it. The outcome keeps the request's ``exp``.
        """
        return OutcomeContext(
            realm=self.realm,
            sender=Party(self.recipient.handle, self.recipient.ipk, card_id),
            recipient=Recipient(self.sender.handle, self.sender.ipk, self.recipient.suite, reply_public),
            mode=self.mode,
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            iat=iat,
            exp=self.exp,
            call_id=call_id,
            terminal=terminal,
            request_digest=digest,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeContext:
    """Everything around an outcome that its seal binds (RL-ENVELOPE-037); `RequestContext.answer` makes it.

    ``iat`` is the time of sealing, ``exp`` the request's. Raises `ProtocolError` for a value that breaks
    its pattern or range.
    """

    realm: str
    sender: Party
    recipient: Recipient
    mode: DeliveryMode
    message_id: str = ""
    correlation_id: str
    iat: int
    exp: int
    call_id: str
    terminal: Terminal
    request_digest: bytes

    def __post_init__(self) -> None:
        _check(self)
        if not is_call_id(self.call_id) or self.terminal not in _TERMINALS:
            raise ProtocolError("an outcome needs a call id and a known end")
        if len(self.request_digest) != HASH_BYTES:
            raise ProtocolError("an outcome needs the digest of its request")

    def encode(self) -> bytes:
        """Return the context as it is hashed into ``info`` and into what is signed."""
        return b"".join(
            (
                _common(_OUTCOME, self),
                vec(self.call_id.encode("ascii")),
                u8(_TERMINALS[self.terminal]),
                self.request_digest,
            )
        )


Context: TypeAlias = RequestContext | OutcomeContext


def _check(context: Context) -> None:
    if not is_realm(context.realm):
        raise ProtocolError("the realm is no realm name")
    if context.mode not in _MODES:
        raise ProtocolError("the delivery mode is unknown")
    if not (is_message_id(context.message_id) or (context.message_id == "" and context.mode == "sync")):
        raise ProtocolError("the message id is malformed, or missing on a durable call")
    if not is_correlation_id(context.correlation_id):
        raise ProtocolError("the correlation id is malformed")
    if not (0 <= context.iat <= INT_MAX and 0 <= context.exp <= INT_MAX):
        raise ProtocolError("a time is out of range")


def _common(direction: Literal[1, 2], context: Context) -> bytes:
    """The part of a context that both directions have. Each line is one binding
    (RL-ENVELOPE-018, RL-ENVELOPE-037).
    """
    sender, recipient = context.sender, context.recipient
    return b"".join(
        (
            label("ctx"),
            u8(direction),
            u16(recipient.suite),
            vec(context.realm.encode("ascii")),
            vec(sender.handle.encode("ascii")),
            sender.ipk,
            sender.card_id,
            vec(recipient.handle.encode("ascii")),
            recipient.ipk,
            recipient.key_id,
            u8(_MODES[context.mode]),
            vec(context.message_id.encode("ascii")),
            vec(context.correlation_id.encode("ascii")),
            u64(context.iat),
            u64(context.exp),
        )
    )
