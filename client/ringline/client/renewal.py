"""What takes the place of an identity's keys: the next card, and the next identity.

Made here, from keys that were read; written and published elsewhere. The identity key signs both, and may be
kept anywhere: on this computer, on a stick, or in a recovery file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from msgspec import UNSET

from ringline.client.generation import Passphrase, is_sealed, new_agent_keys, parse_identity_keys, split_keys
from ringline.client.home import read_private
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import NO_NEXT, Card, next_commitment
from ringline.protocol.keyfile import AgentKeys, IdentityKeys
from ringline.protocol.limits import CLOCK_SLACK_MS
from ringline.protocol.shapes import RevocationStatement, SuccessionStatement
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    RevokedBy,
    SignedRevocation,
    SignedSuccession,
    Succession,
)

__all__ = ["IdentityKey", "Replacement", "made_at", "next_card", "next_identity", "revocation"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Keys that are to take the place of the current ones.

    ``succession`` is published with a card of a new identity, whose keys are ``identity``.
    """

    keys: AgentKeys
    succession: SuccessionStatement | None = None
    identity: IdentityKeys | None = None


@final
@dataclass(frozen=True, slots=True)
class IdentityKey:
    """Where an identity key is, and what opens it. ``passphrase`` None: nothing does."""

    path: Path
    passphrase: Passphrase | None = None

    def text(self, handle: str) -> str:
        """Return the file's part that is the identity key.

        Raises `ConfigError` when it is not there, others can read it, or it is no identity key.
        """
        try:
            text = read_private(self.path)
        except FileNotFoundError:
            raise ConfigError(
                f"the identity key is not at {self.path}; it signs the cards of {handle}",
                next_step="bring it back, say where it is with --identity-key FILE, "
                "or recover it: ringline id import FILE",
            ) from None
        # A recovery file begins with it.
        return split_keys(text)[0]

    def read(self, handle: str) -> IdentityKeys:
        """Return the keys. Raises `ConfigError` as `text` does, and when they do not open."""
        text = self.text(handle)
        sealed = is_sealed(self.path, text)
        if sealed and self.passphrase is None:
            raise ConfigError(
                f"the identity key of {handle} at {self.path} is locked, and there is no passphrase for it",
                next_step="do it where the passphrase can be asked, or name a file that holds it: "
                "ringline id rotate --identity-passphrase-file FILE",
            )
        return parse_identity_keys(self.path, text, self.passphrase or (lambda: ""))

    def read_for(self, card: Card) -> IdentityKeys:
        """Return the keys of the identity that ``card`` is of. Raises `ConfigError` for another's."""
        keys = self.read(card.handle)
        public = SigningKey(keys.seed).public
        if public != card.ipk:
            if next_commitment(public) == card.next:
                raise ConfigError(
                    f"{self.path} is already the next identity key of {card.handle}; "
                    "its succession was begun and not finished",
                    next_step=f"finish it: ringline id succeed --as {card.handle}",
                )
            raise self._stranger(card, public)
        return keys

    def _stranger(self, card: Card, public: bytes) -> ConfigError:
        return ConfigError(
            f"{self.path} is the key of another identity than that of {card.handle}\n"
            f"  there     {fingerprint(public)}\n"
            f"  {card.handle}  {fingerprint(card.ipk)}",
            next_step="name the right file: --identity-key FILE",
        )

    def read_next(self, card: Card) -> tuple[IdentityKeys, SigningKey | None]:
        """Return the identity that follows the one of ``card``, and the old key if it is there.

        Raises `ConfigError` when this file has not the key that the card has committed to.
        """
        keys = self.read(card.handle)
        own = SigningKey(keys.seed)
        if next_commitment(own.public) == card.next:
            # A succession that was begun: its keys were written, and the card was not.
            if keys.next_seed is not None:
                return keys, None
            return IdentityKeys(keys.seed, _new_seed()), None
        if own.public != card.ipk:
            raise self._stranger(card, own.public)
        if card.next == NO_NEXT:
            return IdentityKeys(_new_seed(), _new_seed()), own
        if keys.next_seed is None or next_commitment(SigningKey(keys.next_seed).public) != card.next:
            raise ConfigError(
                f"the next identity key of {card.handle}, which alone can follow, is not in {self.path}",
                next_step="name the recovery file, which has it: --identity-key FILE",
            )
        return IdentityKeys(keys.next_seed, _new_seed()), own


def next_card(identity: IdentityKeys, card: Card, now_ms: int) -> Replacement:
    """Return a new operational key under the same identity, with the card that follows ``card``."""
    # Whoever repeats no commitment could be a thief, so it is repeated also where its key is kept apart.
    keys = new_agent_keys(identity, card.realm, card.handle, card.serial + 1, now_ms, commitment=card.next)
    return Replacement(keys=keys)


def next_identity(
    identity: IdentityKeys, old: SigningKey | None, card: Card, card_id: bytes, now_ms: int
) -> Replacement:
    """Return the keys of the identity that follows the one of ``card``, and the statement that says so.

    ``identity`` are its keys, ``old`` is the key that it follows, if that is at hand.
    """
    new = SigningKey(identity.seed)
    statement = Succession(old_card_id=card_id, new_ipk=new.public, ts=now_ms)
    signed = SignedSuccession.sign(statement, new, old if card.next == NO_NEXT else None)
    return Replacement(
        keys=new_agent_keys(identity, card.realm, card.handle, card.serial + 1, now_ms),
        succession=SuccessionStatement(
            old_card_id=b64encode(card_id),
            new_ipk=b64encode(new.public),
            ts=now_ms,
            sig=b64encode(signed.signature),
            old_sig=UNSET if signed.old_signature is None else b64encode(signed.old_signature),
        ),
        identity=identity,
    )


def revocation(
    identity: IdentityKeys, card: Card | None, card_id: bytes, by: RevokedBy, reason: Reason, now_ms: int
) -> RevocationStatement:
    """Return the statement that calls a card back, signed by the identity key, or by the next one.

    With ``card``, the right one is found when the identity has been succeeded meanwhile. Raises `ConfigError`
    when the key is not there.
    """
    key = SigningKey(identity.seed)
    if by == "next":
        if identity.next_seed is None:
            raise ConfigError(
                "the next identity key is not in that file",
                next_step="name the recovery file, which has it: --identity-key FILE",
            )
        key = SigningKey(identity.next_seed)
    elif card is not None and key.public != card.ipk and next_commitment(key.public) == card.next:
        by = "next"
    signed = SignedRevocation.sign(Revocation(card_id=card_id, reason=reason, ts=now_ms), key, by=by)
    return RevocationStatement(
        card_id=b64encode(card_id),
        reason=int(reason),
        ts=now_ms,
        by=signed.by,
        sig=b64encode(signed.signature),
        next_ipk=UNSET if signed.next_ipk is None else b64encode(signed.next_ipk),
    )


def made_at(card: Card) -> int:
    """Return when a card of this program was made, Unix ms (RL-KEYS-006: it begins an hour earlier)."""
    return card.not_before + CLOCK_SLACK_MS


def _new_seed() -> bytes:
    return SigningKey.generate().seed
