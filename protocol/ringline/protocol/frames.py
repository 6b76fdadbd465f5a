"""The twelve frames, as tagged structs, and the closed union of each direction.

The structs are the only source of the shapes: the codec, ``spec/frames.md`` and the JSON Schema are
made from them. ``null`` is a wrong type everywhere (RL-FRAME-005); an absent member is `msgspec.UNSET`.
Rules that tie members together are in `CallRequest.__post_init__` and its siblings, so that a frame
that exists is a frame that may be sent.
"""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from ringline.protocol import names
from ringline.protocol.limits import INT_MAX, OUTCOME_CT_CHARS

__all__ = [
    "DIRECTIONS",
    "CallAccepted",
    "CallCancelled",
    "CallError",
    "CallNotCancelled",
    "CallOutcome",
    "CallQueued",
    "CallRejected",
    "CallRequest",
    "CallStarted",
    "CallState",
    "CallStatus",
    "CallerToRelay",
    "CancelCall",
    "DeliveryMode",
    "Direction",
    "Envelope",
    "Frame",
    "IncomingCall",
    "ListenerToRelay",
    "NotCancelledReason",
    "Phase",
    "RelayCode",
    "RelayToCaller",
    "RelayToListener",
    "Terminal",
    "TerminalReason",
]

Handle: TypeAlias = Annotated[str, Meta(pattern=names.HANDLE)]
CallId: TypeAlias = Annotated[str, Meta(pattern=names.CALL_ID)]
LeaseId: TypeAlias = Annotated[str, Meta(pattern=names.LEASE_ID)]
MessageId: TypeAlias = Annotated[str, Meta(pattern=names.MESSAGE_ID)]
CorrelationId: TypeAlias = Annotated[str, Meta(pattern=names.CORRELATION_ID)]
HashText: TypeAlias = Annotated[str, Meta(pattern=names.CARD_ID)]
UnixMs: TypeAlias = Annotated[int, Meta(ge=0, le=INT_MAX)]

DeliveryMode: TypeAlias = Literal["sync", "durable"]
CallState: TypeAlias = Literal["ringing", "answered", "working"]
RelayCode: TypeAlias = Literal[
    "unknown_handle",
    "offline",
    "timeout",
    "canceled",
    "unauthorized",
    "rate_limited",
    "message_too_large",
    "protocol_error",
    "busy",
]
Terminal: TypeAlias = Literal["completed", "failed"]
TerminalReason: TypeAlias = Literal[
    "completed",
    "failed",
    "canceled",
    "expired",
    "delivery_failed",
    "revoked",
    "indeterminate_execution",
]
Phase: TypeAlias = Literal["pending", "running"]
NotCancelledReason: TypeAlias = Literal["already_terminal", "unknown", "too_late"]


class Envelope(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sealed text: exactly these members (RL-FRAME-002, RL-FRAME-004).

    ``kid`` and ``sid`` (base64url of 32 bytes) only select keys. ``iat`` and ``exp`` are Unix ms.
    ``ct`` is base64url of the encapsulated key and the ciphertext; whether it is canonical is for the
    opener to judge, not for the relay (RL-ADMIT-005, RL-ENVELOPE-029).
    """

    v: Literal[1]
    suite: Annotated[int, Meta(ge=0, le=0xFFFF)]
    kid: HashText
    sid: HashText
    iat: UnixMs
    exp: UnixMs
    ct: Annotated[str, Meta(min_length=1, max_length=OUTCOME_CT_CHARS)]

    @property
    def size(self) -> int:
        """Bytes of ``ct`` without its base64url: what a relay's quotas count."""
        return len(self.ct) * 3 // 4


class _Frame(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type"):
    """A JSON object whose ``type`` names it; unknown members are refused."""


class CallRequest(_Frame, frozen=True, kw_only=True, tag="call_request"):
    """Caller to relay: an encrypted call. ``delivery_mode`` absent means sync."""

    envelope: Envelope
    correlation_id: CorrelationId
    message_id: MessageId | UnsetType = UNSET
    delivery_mode: DeliveryMode | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        # RL-FRAME-022: a durable call_request without message_id is refused.
        if self.delivery_mode == "durable" and self.message_id is UNSET:
            raise ValueError("a durable call_request needs message_id")


class CallStatus(_Frame, frozen=True, kw_only=True, tag="call_status"):
    """Relay to caller: lifecycle as the relay sees it, unauthenticated. Both ids always."""

    state: CallState
    call_id: CallId
    correlation_id: CorrelationId


class CallQueued(_Frame, frozen=True, kw_only=True, tag="call_queued"):
    """Relay to caller: a durable call is stored. A receipt, not a reply. Times are Unix ms."""

    call_id: CallId
    message_id: MessageId
    correlation_id: CorrelationId
    submitted_at: UnixMs
    expires_at: UnixMs

    def __post_init__(self) -> None:
        # RL-FRAME-030: expires_at is the call's execute_by, which is after submitted_at.
        if self.expires_at <= self.submitted_at:
            raise ValueError("expires_at must be after submitted_at")


class CallError(_Frame, frozen=True, kw_only=True, tag="call_error"):
    """Relay to caller or listener: an operational error, unauthenticated.

    With ``call_id`` it ends that call; without one, the frame it answers admitted nothing (RL-FRAME-034).
    """

    origin: Literal["relay"]
    code: RelayCode
    call_id: CallId | UnsetType = UNSET
    correlation_id: CorrelationId | UnsetType = UNSET
    retry_after_ms: UnixMs | UnsetType = UNSET


class IncomingCall(_Frame, frozen=True, kw_only=True, tag="incoming_call"):
    """Relay to listener: a call, with the routing data that the relay attests."""

    call_id: CallId
    from_: Handle = field(name="from")
    envelope: Envelope
    correlation_id: CorrelationId
    message_id: MessageId | UnsetType = UNSET
    delivery_mode: DeliveryMode | UnsetType = UNSET
    lease_id: LeaseId | UnsetType = UNSET
    execute_by: UnixMs | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        # RL-FRAME-055: refused with delivery_mode sync, or with some and not all members of a durable call.
        leased = (self.lease_id is not UNSET, self.execute_by is not UNSET)
        if self.delivery_mode == "durable":
            if self.message_id is UNSET or not all(leased):
                raise ValueError("a durable incoming_call needs message_id, lease_id and execute_by")
        elif self.delivery_mode is not UNSET or any(leased):
            raise ValueError("a sync incoming_call has no delivery_mode, lease_id or execute_by")


class CancelCall(_Frame, frozen=True, kw_only=True, tag="cancel_call"):
    """Caller to relay, without lease: please cancel. Relay to listener: stop; durable with its lease."""

    call_id: CallId
    lease_id: LeaseId | UnsetType = UNSET


class CallAccepted(_Frame, frozen=True, kw_only=True, tag="call_accepted"):
    """Listener to relay: the call is in its hands and journalled. Nothing has begun."""

    call_id: CallId
    lease_id: LeaseId | UnsetType = UNSET


class CallStarted(_Frame, frozen=True, kw_only=True, tag="call_started"):
    """Listener to relay: sync, work has begun; durable, may it begin? Relay to listener: it may."""

    call_id: CallId
    lease_id: LeaseId | UnsetType = UNSET


class CallOutcome(_Frame, frozen=True, kw_only=True, tag="call_outcome"):
    """Listener to relay to caller: the sealed, signed end. ``terminal_reason`` here is display only."""

    call_id: CallId
    terminal: Terminal
    terminal_reason: TerminalReason | UnsetType = UNSET
    envelope: Envelope
    lease_id: LeaseId | UnsetType = UNSET


class CallRejected(_Frame, frozen=True, kw_only=True, tag="call_rejected"):
    """Listener to relay: not mine to open. Relay to listener: that lease is gone (RL-DURABLE-020)."""

    call_id: CallId
    code: Literal["protocol_error"]
    lease_id: LeaseId | UnsetType = UNSET


class CallCancelled(_Frame, frozen=True, kw_only=True, tag="call_cancelled"):
    """Listener to relay: ``pending``, the waiting work was removed; ``running``, it was seen to stop."""

    call_id: CallId
    phase: Phase
    lease_id: LeaseId | UnsetType = UNSET


class CallNotCancelled(_Frame, frozen=True, kw_only=True, tag="call_not_cancelled"):
    """Listener to relay, and relay to caller: the cancellation did not happen, and why."""

    call_id: CallId
    reason: NotCancelledReason
    lease_id: LeaseId | UnsetType = UNSET


CallerToRelay: TypeAlias = CallRequest | CancelCall
RelayToCaller: TypeAlias = CallStatus | CallQueued | CallError | CallOutcome | CallNotCancelled
RelayToListener: TypeAlias = IncomingCall | CancelCall | CallStarted | CallRejected | CallError
ListenerToRelay: TypeAlias = (
    CallAccepted | CallStarted | CallOutcome | CallRejected | CallCancelled | CallNotCancelled
)
Frame: TypeAlias = CallerToRelay | RelayToCaller | RelayToListener | ListenerToRelay

Direction: TypeAlias = Literal["caller_to_relay", "relay_to_caller", "relay_to_listener", "listener_to_relay"]

# RL-FRAME-001: a frame whose type is not one of those of its direction is refused. The generated pages and
# the codec read this table.
DIRECTIONS: Final[dict[Direction, tuple[type[Struct], ...]]] = {
    "caller_to_relay": (CallRequest, CancelCall),
    "relay_to_caller": (CallStatus, CallQueued, CallError, CallOutcome, CallNotCancelled),
    "relay_to_listener": (IncomingCall, CancelCall, CallStarted, CallRejected, CallError),
    "listener_to_relay": (
        CallAccepted,
        CallStarted,
        CallOutcome,
        CallRejected,
        CallCancelled,
        CallNotCancelled,
    ),
}
