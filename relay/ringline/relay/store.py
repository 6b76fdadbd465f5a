"""What the directory keeps, as a list of changes: the interface of every store.

All rules are in `ringline.relay.directory`. A store is told what has already been decided, writes it in
one transaction, and gives it back at the next start in an order in which it can be applied again. Nothing
is read from it while the relay runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from ringline.protocol.errors import RinglineError
from ringline.protocol.shapes import Policy

__all__ = [
    "CardPublished",
    "CardRevoked",
    "Change",
    "ClaimFailed",
    "IdentityRemoved",
    "InviteAccepted",
    "InviteForgotten",
    "InviteIssued",
    "InviteWithdrawn",
    "LogAppended",
    "PolicySet",
    "PrekeyPublished",
    "Store",
    "StoreError",
]


class StoreError(RinglineError):
    """The store could not write or read. What was to be written is not there.

    ``str(error)`` says what the database said, without any of the data.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPublished:
    """A handle's first card, or the one that replaces its current one.

    ``card`` and ``card_sig`` are as published. ``succession`` is the JSON text of the statement with
    which the card came, or None. ``at`` is the relay's Unix time in ms.
    """

    handle: str
    card_id: str
    serial: int
    card: bytes
    card_sig: bytes
    succession: bytes | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrekeyPublished:
    """The statement that is now the handle's, in the place of the one before; as published."""

    handle: str
    card_id: str
    epoch: int
    prekey: bytes
    prekey_sig: bytes
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """The whole policy of a handle."""

    handle: str
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRevoked:
    """A card of the handle counts no more; ``next_ipk`` when the committed next key has signed."""

    handle: str
    card_id: str
    reason: int
    ts: int
    by: Literal["identity", "next"]
    signature: bytes
    next_ipk: bytes | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRemoved:
    """The handle has no identity any more, and will never have another: peers may still know its key."""

    handle: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteIssued:
    """An invite by ``inviter``; None: by the relay itself, for the one handle ``only_for``.

    ``secret_hash`` is all that is kept of its secret. Times are Unix ms.
    """

    invite_id: str
    inviter: str | None
    only_for: str | None
    secret_hash: bytes
    label: str | None
    uses: int
    at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteAccepted:
    """``handle`` took the invite up; ``proof`` is what he sent along for the inviter."""

    invite_id: str
    handle: str
    proof: str | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFailed:
    """One more claim of the invite came to nothing."""

    invite_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteWithdrawn:
    """The inviter wants nobody more to take the invite up."""

    invite_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteForgotten:
    """The invite is long over, and nobody took it up."""

    invite_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAppended:
    """The next entry of the key log, written together with the statement that it holds.

    ``card_id`` is that of the card which the entry is, None for another statement.
    """

    index: int
    entry: bytes
    card_id: str | None


Change: TypeAlias = (
    CardPublished
    | PrekeyPublished
    | PolicySet
    | CardRevoked
    | IdentityRemoved
    | InviteIssued
    | InviteAccepted
    | ClaimFailed
    | InviteWithdrawn
    | InviteForgotten
    | LogAppended
)


class Store(Protocol):
    """Where changes go. Methods block; no two of them run at the same moment."""

    path: str
    """What people call it: the name of its file."""

    def load(self) -> Iterable[Change]:
        """Return changes that make up the present state, in an order that can be applied.

        Raises `StoreError` when what is stored cannot be read.
        """
        ...

    def write(self, changes: Sequence[Change]) -> None:
        """Write all of ``changes`` or none; they outlive a power cut once this returns.

        Raises `StoreError` when nothing was written.
        """
        ...

    def log_entries(self, start: int, end: int) -> list[bytes]:
        """Return the entries of the key log from ``start`` up to, and without, ``end``.

        Raises `StoreError` when they cannot be read.
        """
        ...

    def check(self) -> None:
        """Pass a store that can write now. Raises `StoreError` otherwise."""
        ...

    def close(self) -> None:
        """Let go of the store. A second call does nothing."""
        ...
