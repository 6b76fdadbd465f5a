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

__all__ = ["CardPublished", "CardRevoked", "Change", "PolicySet", "PrekeyPublished", "Store", "StoreError"]


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


Change: TypeAlias = CardPublished | PrekeyPublished | PolicySet | CardRevoked


class Store(Protocol):
    """Where changes go. Methods block; no two of them run at the same moment."""

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

    def check(self) -> None:
        """Pass a store that can write now. Raises `StoreError` otherwise."""
        ...

    def close(self) -> None:
        """Let go of the store. A second call does nothing."""
        ...
