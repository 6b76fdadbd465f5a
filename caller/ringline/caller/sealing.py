"""From what a person asks to a sealed call, and from a sealed outcome to what the peer said."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace as with_members

from ringline.caller.outbox import Stored
from ringline.caller.receipt import Receipt
from ringline.client import Account, Peer
from ringline.protocol import codec
from ringline.protocol.bodies import Checkpoint, Outcome, Request, decode_outcome, encode_request
from ringline.protocol.context import OutcomeContext, Party, Recipient, RequestContext
from ringline.protocol.envelope import open_outcome, seal_request
from ringline.protocol.errors import BodyError, CannotOpen, ConfigError, MessageTooLarge, PeerFailure
from ringline.protocol.frames import CallOutcome, CallRequest, DeliveryMode
from ringline.protocol.identity import SignedCard
from ringline.protocol.limits import CALLER_FRAME_BYTES, MESSAGE_BYTES, SYNC_LIFE_MS
from ringline.protocol.suites import SUITES
from ringline.protocol.transcript import digest

__all__ = ["Answer", "Question", "open_answer", "read_answer", "seal_call"]

_TOO_LARGE: Final = "shorten the message, or split it over several calls"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, before it is sealed."""

    message: str
    task: str | None = None
    args: Mapping[str, Any] | None = None
    query: Literal["tasks"] | None = None
    context_id: str | None = None
    turn: int | None = None
    prev: str | None = None

    def body(self, traceparent: str | None = None) -> Request:
        """Return it as the JSON under the seal.

        Raises `MessageTooLarge` for a message over `MESSAGE_BYTES` bytes of UTF-8, `ConfigError` for anything
        else that a peer would refuse.
        """
        size = len(self.message.encode("utf-8", "surrogatepass"))
        if size > MESSAGE_BYTES:
            raise MessageTooLarge(
                f"the message has {size:,} bytes of UTF-8; {MESSAGE_BYTES:,} are allowed. "
                "Nothing was sealed or sent.",
                next_step=_TOO_LARGE,
            )
        try:
            request = Request(
                message=self.message,
                task=UNSET if self.task is None else self.task,
                args=UNSET if self.args is None else dict(self.args),
                query=UNSET if self.query is None else self.query,
                context_id=UNSET if self.context_id is None else self.context_id,
                turn=UNSET if self.turn is None else self.turn,
                prev=UNSET if self.prev is None else self.prev,
                traceparent=UNSET if traceparent is None else traceparent,
            )
            encode_request(request)
        except (BodyError, ValueError, TypeError) as error:
            raise ConfigError(
                f"this cannot be asked: {error}. Nothing was sealed or sent.",
                next_step="check message, task and arguments",
            ) from error
        return request


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """An outcome that was opened and read."""

    receipt: Receipt
    outcome: Outcome
    signer: SignedCard


def seal_call(
    account: Account,
    peer: Peer,
    request: Request,
    *,
    message_id: str,
    correlation_id: str,
    now_ms: int,
    durable_ms: int | None = None,
    kt: Checkpoint | UnsetType = UNSET,
) -> Stored:
    """Seal a call. ``now_ms`` is the relay's time, Unix ms; ``kt`` is this side's view of the key log.

    A sync call stands for ten minutes; ``durable_ms`` makes it a durable one that stands so long.

    Raises `MessageTooLarge` when it does not fit the seal or the frame, `ConfigError` for a suite that does
    not run here.
    """
    mode: DeliveryMode = "sync" if durable_ms is None else "durable"
    # What was asked is the same whatever the log was at the time: `content` is without it.
    plain = encode_request(with_members(request, kt=kt))
    content = digest(encode_request(with_members(request, traceparent=UNSET)))
    recipient = peer.recipient
    reply_key = SUITES[recipient.suite].generate()
    context = RequestContext(
        realm=account.address.realm,
        sender=account.party,
        recipient=recipient,
        mode=mode,
        message_id=message_id,
        correlation_id=correlation_id,
        iat=now_ms,
        exp=now_ms + (SYNC_LIFE_MS if durable_ms is None else durable_ms),
    )
    sealed = seal_request(context, plain, reply_key.public, account.operational)
    payload = codec.encode(
        CallRequest(
            envelope=sealed.envelope,
            correlation_id=correlation_id,
            message_id=message_id,
            delivery_mode=UNSET if mode == "sync" else mode,
        )
    )
    if len(payload) > CALLER_FRAME_BYTES:
        raise MessageTooLarge(
            f"the sealed call has {len(payload):,} bytes; a frame may have {CALLER_FRAME_BYTES:,}. "
            "Nothing was sent.",
            next_step=_TOO_LARGE,
        )
    return Stored(
        callee=recipient.handle,
        message_id=message_id,
        correlation_id=correlation_id,
        payload=payload,
        content=content,
        digest=sealed.digest,
        from_ipk=account.ipk,
        to_ipk=recipient.ipk,
        suite=recipient.suite,
        reply_seed=reply_key.seed,
        iat=context.iat,
        exp=context.exp,
        mode=mode,
    )


def open_answer(
    stored: Stored, frame: CallOutcome, *, realm: str, own_handle: str, card: SignedCard, now_ms: int
) -> Receipt:
    """Open the outcome of a kept call; ``card`` is the verified card that its ``sid`` names.

    Everything but the card, the call id, the end and the time of sealing comes from what was kept before
    the call was sent (RL-ENVELOPE-037). Raises `CannotOpen`, and nothing else.
    """
    if stored.reply_seed is None:
        raise CannotOpen("key deleted")
    reply_key = SUITES[stored.suite].private_from_seed(stored.reply_seed)
    context = OutcomeContext(
        realm=realm,
        sender=Party(stored.callee, stored.to_ipk, card.card.id),
        recipient=Recipient(own_handle, stored.from_ipk, stored.suite, reply_key.public),
        mode=stored.mode,
        message_id=stored.message_id,
        correlation_id=stored.correlation_id,
        iat=frame.envelope.iat,
        exp=stored.exp,
        call_id=frame.call_id,
        terminal=frame.terminal,
        request_digest=stored.digest,
    )
    opened = open_outcome(frame.envelope, reply_key, context, card.card.spk)
    return Receipt(
        call_id=frame.call_id,
        terminal=frame.terminal,
        context=opened.context,
        body=opened.json_bytes,
        signature=opened.signature,
        card=card.card.encode(),
        card_signature=card.signature,
        opened_at=now_ms,
    )


def read_answer(receipt: Receipt, message_id: str) -> Answer:
    """Read what a receipt holds.

    Raises `PeerFailure` when the peer says that the call failed; `BodyError` when what he signed breaks the
    protocol, a reply over its limit included: the call was answered then, and must not be made anew.
    """
    card = SignedCard.parse(receipt.card, receipt.card_signature)
    try:
        outcome = decode_outcome(receipt.body, receipt.terminal)
    except (BodyError, MessageTooLarge) as error:
        raise BodyError(
            f"{card.card.handle} has answered, sealed and signed, and it breaks the protocol: {error}. "
            "The call may have run to its end: only its answer cannot be used.",
            call_id=receipt.call_id,
            message_id=message_id,
            next_step=f"tell the owner of {card.card.handle}; do not make the call anew: it could run twice",
        ) from error
    failure = outcome.failure
    if failure is not UNSET:
        raise PeerFailure(
            code=failure.code,
            detail=None if failure.detail is UNSET else failure.detail,
            offered=() if failure.offered is UNSET else failure.offered,
            reason=outcome.reason,
            call_id=receipt.call_id,
            message_id=message_id,
        )
    return Answer(receipt, outcome, card)
