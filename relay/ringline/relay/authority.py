"""What the hub asks about identities. The directory answers; the hub keeps no keys and no policies."""

from typing import Protocol

from ringline.protocol.instant import Instant

__all__ = ["Authority"]


class Authority(Protocol):
    """Who may speak for a handle, and who may reach it. Answers are immediate, from memory."""

    def sender_valid(self, handle: str, card_id: str, now: Instant) -> bool:
        """True if ``card_id`` (base64url) may sign requests of ``handle``: RL-ADMIT-009, RL-ADMIT-010.

        That is the current card, or one replaced less than 96 h ago, and never a revoked one.
        """
        ...

    def may_reach(self, caller: str, callee: str) -> bool:
        """True if ``callee`` exists and its policy lets ``caller`` call it: RL-ADMIT-018."""
        ...

    def takes_durable(self, callee: str) -> bool:
        """True if the owner of ``callee`` allows calls to be stored: RL-ADMIT-021."""
        ...

    def is_enrolled(self, handle: str) -> bool:
        """True if ``handle`` has an identity here."""
        ...

    def is_revoked(self, handle: str, card_id: str) -> bool:
        """True if the owner of ``handle`` called this card back: RL-KEYS-034."""
        ...

    def blocks(self, callee: str, caller: str) -> bool:
        """True if the owner of ``callee`` blocks ``caller``."""
        ...

    def lists(self, callee: str, caller: str) -> bool:
        """True if the owner of ``callee`` names ``caller`` among those who may call."""
        ...
