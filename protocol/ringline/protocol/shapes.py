"""The JSON of the HTTP interface, as structs.

Requests are closed: what a client sends and a relay decodes refuses unknown members (RL-HTTP-002). Responses
are open: a client ignores members it does not know, so that a later relay may add some (RL-HTTP-003). Binary
members are canonical unpadded base64url (RL-HTTP-011), checked where they are used.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from ringline.protocol import names
from ringline.protocol.frames import Envelope
from ringline.protocol.limits import (
    INT_MAX,
    INVITE_LIFE_MAX_S,
    INVITE_LIFE_MIN_S,
    INVITE_USES,
    PAIRING_MESSAGE_BYTES,
)

__all__ = [
    "CallEnd",
    "CallList",
    "CallRecord",
    "Invite",
    "InviteAcceptance",
    "InviteList",
    "InviteMade",
    "InviteRequest",
    "Keys",
    "KeysPublication",
    "Pairing",
    "PairingAnswer",
    "PairingClaim",
    "PairingMade",
    "PairingMessage",
    "PairingOffer",
    "Policy",
    "PrekeyPublication",
    "Problem",
    "Published",
    "RelayInfo",
    "RevocationStatement",
    "SuccessionStatement",
    "SupersededKeys",
    "Ticket",
    "TicketRequest",
]

Handle: TypeAlias = Annotated[str, Meta(pattern=names.HANDLE)]
HashText: TypeAlias = Annotated[str, Meta(pattern=names.CARD_ID)]
UnixMs: TypeAlias = Annotated[int, Meta(ge=0, le=INT_MAX)]
Binary: TypeAlias = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]+\Z", max_length=16_384)]
Sealed: TypeAlias = Annotated[
    str, Meta(pattern=r"\A[A-Za-z0-9_-]+\Z", max_length=-(-PAIRING_MESSAGE_BYTES * 4 // 3))
]
Nameplate: TypeAlias = Annotated[str, Meta(pattern=names.NAMEPLATE)]
ClaimSecret: TypeAlias = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{22}\Z")]


class _Request(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A closed object."""


class _Response(Struct, frozen=True, kw_only=True):
    """An open object."""


class SuccessionStatement(_Request, frozen=True, kw_only=True):
    """A succession (RL-KEYS-030): ``old_sig`` only when the old card committed to nobody."""

    old_card_id: HashText
    new_ipk: Binary
    ts: UnixMs
    sig: Binary
    old_sig: Binary | UnsetType = UNSET


class KeysPublication(_Request, frozen=True, kw_only=True):
    """Body of ``PUT /v1/handles/{h}``: a signed card and a signed prekey statement."""

    card: Binary
    card_sig: Binary
    prekey: Binary
    prekey_sig: Binary
    succession: SuccessionStatement | UnsetType = UNSET
    invite: Annotated[str, Meta(max_length=512)] | UnsetType = UNSET


class PrekeyPublication(_Request, frozen=True, kw_only=True):
    """Body of ``PUT /v1/handles/{h}/prekeys``."""

    prekey: Binary
    prekey_sig: Binary


class RevocationStatement(_Request, frozen=True, kw_only=True):
    """Body of ``POST /v1/handles/{h}/revocations``; reason 0 unspecified, 1 compromised, 2 retired."""

    card_id: HashText
    reason: Annotated[int, Meta(ge=0, le=255)]
    ts: UnixMs
    by: Literal["identity", "next"]
    sig: Binary
    next_ipk: Binary | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.by == "next") != (self.next_ipk is not UNSET):
            raise ValueError("next_ipk goes with by: next, and only with it")


class Policy(_Request, frozen=True, kw_only=True):
    """Who may reach a handle, and whether it takes durable calls. ``block`` wins (RL-ADMIT-018)."""

    offline: bool
    accept: Literal["anyone", "listed", "invited"]
    allow: Annotated[list[Handle], Meta(max_length=10_000)]
    block: Annotated[list[Handle], Meta(max_length=10_000)]


class TicketRequest(_Request, frozen=True, kw_only=True):
    """Body of ``POST /v1/tickets``: the path and query that the ticket will open."""

    htu: Annotated[str, Meta(min_length=1, max_length=1_024)]


class InviteRequest(_Request, frozen=True, kw_only=True):
    """Body of ``POST /v1/invites``: how many handles may take it up, and for how long.

    ``label`` is the inviter's own note, which the relay can read; our clients keep theirs to themselves.
    """

    uses: Annotated[int, Meta(ge=1, le=INVITE_USES)]
    ttl_s: Annotated[int, Meta(ge=INVITE_LIFE_MIN_S, le=INVITE_LIFE_MAX_S)]
    label: Annotated[str, Meta(max_length=100)] | UnsetType = UNSET


class InviteMade(_Response, frozen=True, kw_only=True):
    """Answer to ``POST /v1/invites``. ``invite`` is the secret to hand over; it is told this once."""

    id: str
    invite: Annotated[str, Meta(pattern=names.INVITE)]
    expires_at: UnixMs


class InviteAcceptance(_Response, frozen=True, kw_only=True):
    """Who took an invite up. ``proof`` is what he sent for the inviter, which the relay cannot judge."""

    handle: Handle
    at: UnixMs
    proof: str | None


class Invite(_Response, frozen=True, kw_only=True):
    """What an inviter is told of one of his invites; its secret is not kept. Times are Unix ms.

    ``state``: ``open`` can be taken up; ``consumed`` by as many as it was for; ``failed`` after too many
    claims that came to nothing; ``expired``; ``void`` when the inviter withdrew it.
    """

    id: str
    label: str | None
    uses: int
    created_at: UnixMs
    expires_at: UnixMs
    state: Literal["open", "consumed", "failed", "expired", "void"]
    failures: int
    accepted: list[InviteAcceptance]


class InviteList(_Response, frozen=True, kw_only=True):
    """One page of an inviter's invites, the newest first; ``next`` as in `CallList`."""

    invites: list[Invite]
    next: str | None


class PairingMessage(_Request, frozen=True, kw_only=True):
    """Body of ``POST /v1/pairings`` and ``POST …/reply``: the inviter's word, opaque to the relay."""

    message: Sealed


class PairingClaim(_Request, frozen=True, kw_only=True):
    """Body of ``POST …/claim``. ``claim`` is 16 random bytes by which the guest is known from now on."""

    claim: ClaimSecret


class PairingAnswer(_Request, frozen=True, kw_only=True):
    """Body of ``POST …/answer``: what the guest has to say, opaque to the relay."""

    claim: ClaimSecret
    message: Sealed


class PairingMade(_Response, frozen=True, kw_only=True):
    """Answer to ``POST /v1/pairings``. ``nameplate`` is the number in the code."""

    nameplate: Nameplate
    expires_at: UnixMs


class PairingOffer(_Response, frozen=True, kw_only=True):
    """Answer to ``POST …/claim``: the inviter's first message."""

    message: Sealed
    expires_at: UnixMs


class Pairing(_Response, frozen=True, kw_only=True):
    """How far two people have come. ``message`` is the last one of the other side, None before there is one.

    ``state``: ``open`` until somebody claims it; ``claimed``; ``answered``; ``replied``; ``received`` once
    the guest was given the reply; ``void`` when the inviter gave it up.
    """

    state: Literal["open", "claimed", "answered", "replied", "received", "void"]
    message: Sealed | None
    expires_at: UnixMs


class Ticket(_Response, frozen=True, kw_only=True):
    """A single-use stand-in for a token, for clients that cannot send headers. ``expires_at`` is Unix ms."""

    ticket: str
    expires_at: UnixMs


class Keys(_Response, frozen=True, kw_only=True):
    """Answer of ``GET /v1/handles/{h}``: the current card and prekey statement."""

    handle: Handle
    card: Binary
    card_sig: Binary
    prekey: Binary
    prekey_sig: Binary
    revoked: list[HashText]
    succession: SuccessionStatement | UnsetType = UNSET
    log_index: UnixMs | UnsetType = UNSET


class SupersededKeys(_Response, frozen=True, kw_only=True):
    """Answer of ``GET /v1/handles/{h}?card=<card_id>``: a card, current or superseded, without prekeys."""

    handle: Handle
    card: Binary
    card_sig: Binary
    revoked: list[HashText]
    log_index: UnixMs | UnsetType = UNSET


class Published(_Response, frozen=True, kw_only=True):
    """Answer to a publication: what the relay now holds."""

    handle: Handle
    card_id: HashText
    serial: int
    prekey_epoch: int


class RelayInfo(_Response, frozen=True, kw_only=True):
    """Answer of ``GET /v1/relay``; ``limits`` and ``budgets`` map names to integers.

    ``log_key`` is the public key of the key log of a relay that has one, Ed25519.
    """

    realm: Annotated[str, Meta(pattern=names.REALM)]
    version: str
    protocols: list[str]
    suites: list[int]
    features: list[str]
    limits: dict[str, int]
    budgets: dict[str, int]
    started_at: UnixMs
    log_key: Binary | UnsetType = UNSET


class CallRecord(_Response, frozen=True, kw_only=True):
    """What the relay knows of a call: always all members, None where not known. Times are Unix ms.

    ``state`` is a word of `ringline.protocol.lifecycle.State.record`. Unauthenticated.
    """

    call_id: str
    from_: str = field(name="from")
    to: str
    mode: Literal["sync", "durable"]
    state: str
    terminal_reason: str | None
    message_id: str | None
    correlation_id: str
    submitted_at: UnixMs
    expires_at: UnixMs | None
    started_at: UnixMs | None
    finished_at: UnixMs | None
    attempts: int
    deferred_until: UnixMs | None
    cancel_requested: bool
    outcome: "CallEnd | None"


class CallEnd(_Response, frozen=True, kw_only=True):
    """The sealed outcome inside a record: what a ``call_outcome`` frame carries of it."""

    terminal: Literal["completed", "failed"]
    terminal_reason: str | None = None
    envelope: Envelope


class CallList(_Response, frozen=True, kw_only=True):
    """One page of records; ``next`` is the cursor of the following one, or None."""

    calls: list[CallRecord]
    next: str | None


class Problem(_Response, frozen=True, kw_only=True, omit_defaults=True):
    """``application/problem+json`` (RFC 9457) with the word of the error registry."""

    type: str
    title: str
    status: int
    code: str
    detail: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
