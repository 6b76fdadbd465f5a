"""One identity at one relay: its keys, its card, its prekeys, and when each of them is replaced.

The identity key signs cards and may live elsewhere; the operational key, named by a card, does the daily
work. Prekeys come from a chain beside the operational key. All are in files of `ringline.client.home`,
which several processes of one person may use at a time.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, final

from msgspec import UNSET

from ringline.client.address import RelayAddress
from ringline.client.generation import (
    Generation,
    Passphrase,
    Published,
    forget_secrets,
    format_keys,
    generation_of,
    generations_in,
    is_sealed,
    read_published,
    write_published,
)
from ringline.client.home import Home, read_private, stamp_of, write_private
from ringline.client.identity_files import create_files, lock_of, write_replacement
from ringline.client.keyring import OwnKey, ring_of
from ringline.client.renewal import IdentityKey, Replacement, next_card
from ringline.protocol import keyfile, token
from ringline.protocol.context import Party
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import ConfigError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.prekeys import Prekey, SignedPrekey, epoch_at
from ringline.protocol.shapes import KeysPublication, PrekeyPublication
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import available_suites

__all__ = ["RENEW_BEFORE_MS", "Account", "OwnKey", "Passphrase"]

RENEW_BEFORE_MS: Final = 30 * 86_400_000
"""A card is replaced when less of its life is left than this."""


@final
class Account:
    """An identity, ready for use. Make one with `open`, `create` or `load`.

    The methods that write files raise `ConfigError` when they cannot.
    """

    def __init__(
        self,
        home: Home,
        address: RelayAddress,
        handle: str,
        generations: "list[Generation]",
        published: Published,
        passphrase: str | None,
    ) -> None:
        """For this module; use the class methods."""
        self.home = home
        self.address = address
        self.handle = handle
        self._generations = generations  # the current one first
        self._published = published
        self._passphrase = passphrase
        self._ring: dict[bytes, OwnKey] = {}
        self._ring_epoch = -1
        self._stamp = self._look()

    @classmethod
    def open(
        cls,
        home: Home,
        address: RelayAddress,
        handle: str,
        now_ms: int,
        *,
        passphrase: Passphrase | None = None,
        plain: bool | None = None,
    ) -> "tuple[Account, bool]":
        """Load an identity, or create it if there is none. Returns it and whether it is new.

        The arguments are those of `create`. Of two processes that do this at the same time, one creates.
        """
        with home.lock(home.identity_folder(address, handle)):
            if home.agent_key_file(address, handle).exists():
                return cls.load(home, address, handle, now_ms, passphrase=passphrase), False
            return cls._create(home, address, handle, now_ms, passphrase, plain, None), True

    @classmethod
    def create(
        cls,
        home: Home,
        address: RelayAddress,
        handle: str,
        now_ms: int,
        *,
        passphrase: Passphrase | None = None,
        plain: bool | None = None,
        suites: Collection[int] | None = None,
    ) -> "Account":
        """Make a new identity and write its files. Nothing is published.

        ``passphrase`` locks the key files; ``plain`` leaves them protected by their mode alone, which is the
        default in the development realm only. ``suites`` is what prekeys are published for: by default
        the best that runs here and no other, so that nobody can seal with less.

        Raises `ConfigError` when the identity exists, or neither passphrase nor ``plain`` was chosen.
        """
        with home.lock(home.identity_folder(address, handle)):
            if home.agent_key_file(address, handle).exists():
                raise ConfigError(
                    f"the identity {handle} exists already in {home.identity_folder(address, handle)}",
                    next_step="use it, or choose another name with --as",
                )
            return cls._create(home, address, handle, now_ms, passphrase, plain, suites)

    @classmethod
    def load(
        cls,
        home: Home,
        address: RelayAddress,
        handle: str,
        now_ms: int,
        *,
        passphrase: Passphrase | None = None,
    ) -> "Account":
        """Read an identity from its files; the identity key is not needed and not read.

        Raises `ConfigError` when there is none, when others can read its files, and when they are damaged
        or locked and the passphrase does not open them.
        """
        path = home.agent_key_file(address, handle)
        # Before the file is read: what is written meanwhile is then read once more.
        stamp = stamp_of(path)
        try:
            text = read_private(path)
        except FileNotFoundError:
            raise ConfigError(
                f"there is no identity {handle} for {address.base_url} in {home.root}",
                next_step=f"make it: ringline init --as {handle}",
            ) from None
        secret = passphrase() if is_sealed(path, text) and passphrase is not None else None
        generations = generations_in(path.parent, text, secret, now_ms)
        for generation in generations:
            card = generation.card
            if (card.realm, card.handle) != (address.realm, handle):
                raise ConfigError(
                    f"{path} is the key of {card.handle} in realm {card.realm}, "
                    f"not of {handle} in {address.realm}",
                    next_step="put it back to where it belongs",
                )
        known = read_published(path.parent) or Published([max(available_suites())])
        account = cls(home, address, handle, generations, known, secret)
        account._stamp = stamp
        return account

    @classmethod
    def _create(
        cls,
        home: Home,
        address: RelayAddress,
        handle: str,
        now_ms: int,
        passphrase: Passphrase | None,
        plain: bool | None,
        suites: Collection[int] | None,
    ) -> "Account":
        """Make the files; the lock is held."""
        secret = lock_of(address, handle, passphrase, plain)
        keys, published = create_files(home, address, handle, now_ms, secret, suites)
        return cls(home, address, handle, [generation_of(keys, published, now_ms)], published, secret)

    @property
    def secret(self) -> str | None:
        """The passphrase of the key files, None without one."""
        return self._passphrase

    def keys(self) -> tuple[keyfile.AgentKeys, ...]:
        """Return the operational keys that are still needed, with their cards and chains, newest first."""
        return tuple(generation.keys for generation in self._generations)

    def note_exported(self) -> None:
        """Note that a recovery file of the present identity was made."""
        folder = self.home.identity_folder(self.address, self.handle)
        with self.home.lock(folder):
            self._published = read_published(folder) or self._published
            self._published.exported = b64encode(self.ipk)
            write_published(folder, self._published)

    @property
    def card(self) -> SignedCard:
        """The current card."""
        return self._generations[0].keys.card

    @property
    def ipk(self) -> bytes:
        """The identity's public key, 32 bytes."""
        return self.card.card.ipk

    @property
    def fingerprint(self) -> str:
        """The identity key as people compare it."""
        return fingerprint(self.ipk)

    @property
    def cards(self) -> tuple[SignedCard, ...]:
        """The cards whose keys are still here, the current one first."""
        return tuple(generation.keys.card for generation in self._generations)

    @property
    def party(self) -> Party:
        """This identity as the sender of an envelope."""
        return Party(self.handle, self.ipk, self.card.card.id)

    @property
    def operational(self) -> SigningKey:
        """The key that signs messages, prekeys and log-ins."""
        return self._generations[0].operational

    @property
    def suites(self) -> tuple[int, ...]:
        """The suites that prekeys are published for, ascending."""
        return tuple(suite for suite in self._published.suites if suite in available_suites())

    @property
    def was_published(self) -> bool:
        """True when the current card was published from here at least once."""
        return bool(self._generations[0].published)

    def token(self, method: str, path: str, now_ms: int, jti: str, number: int = 0) -> str:
        """Return a log-in token for one request; ``now_ms`` is the relay's time, ``path`` without query.

        ``number`` is the place in `cards` of the card that logs in.
        """
        generation = self._generations[number]
        return token.mint(
            generation.operational,
            handle=self.handle,
            card_id=generation.card.id,
            realm=self.address.realm,
            method=method,
            path=path,
            iat=now_ms // 1_000,
            jti=jti,
        )

    def prekey(self, now_ms: int, number: int = 0) -> SignedPrekey:
        """Return the present statement: that of today, or the latest published if that is later.

        ``number`` is the place in `cards` of the card that it belongs to.
        """
        generation = self._generations[number]
        epoch = max([epoch_at(now_ms), generation.keys.chain.epoch, *generation.published])
        statement = generation.keys.chain.at(epoch).statement(generation.card.id, self.suites)
        return SignedPrekey.sign(statement, generation.operational)

    def publication(self, now_ms: int, number: int = 0) -> KeysPublication:
        """Return the body of ``PUT /v1/handles/{h}`` (RL-HTTP-018) for the card at that place in `cards`."""
        prekey, card = self.prekey(now_ms, number), self.cards[number]
        return KeysPublication(
            card=b64encode(card.card.encode()),
            card_sig=b64encode(card.signature),
            prekey=b64encode(prekey.prekey.encode()),
            prekey_sig=b64encode(prekey.signature),
            succession=self._published.successions.get(str(card.card.serial), UNSET),
        )

    def prekey_publication(self, now_ms: int) -> PrekeyPublication:
        """Return the body of ``PUT /v1/handles/{h}/prekeys`` (RL-HTTP-022)."""
        prekey = self.prekey(now_ms)
        return PrekeyPublication(
            prekey=b64encode(prekey.prekey.encode()), prekey_sig=b64encode(prekey.signature)
        )

    def rotation_due(self, now_ms: int) -> bool:
        """True when today's prekeys were not published yet (RL-KEYS-021)."""
        return epoch_at(now_ms) > max(self._generations[0].published, default=-1)

    def renewal_due(self, now_ms: int) -> bool:
        """True when the card should be replaced."""
        return now_ms > self.card.card.not_after - RENEW_BEFORE_MS

    def renew(self, now_ms: int, passphrase: Passphrase | None = None) -> None:
        """Replace card and operational key if it is time; the new ones are to be published next.

        Raises `ConfigError` when the identity key is not here or does not open.
        """
        path = self.home.identity_key_file(self.address, self.handle)
        known = self._passphrase
        unlock = passphrase or (None if known is None else lambda: known)

        def make(card: Card) -> Replacement | None:
            if not self.renewal_due(now_ms):
                return None
            return next_card(IdentityKey(path, unlock).read_for(card), card, now_ms)

        self.replace(now_ms, make)

    def replace(
        self,
        now_ms: int,
        make: Callable[[Card], Replacement | None],
        identity: tuple[Path, str | None] | None = None,
    ) -> bool:
        """Put in place what ``make`` makes of the current card; False when it makes nothing.

        ``make`` runs while no other process can do the same. What was sealed to the old prekeys can still be
        opened for as long as it may arrive. A new identity key is written to ``identity``: a file, and the
        passphrase that locks it, if any. The old one is left beside it as ``identity.before.key``.
        """
        folder = self.home.identity_folder(self.address, self.handle)
        with self.home.lock(folder):
            self._adopt(now_ms)
            old = self._generations[0]
            made = make(old.card)
            if made is None:
                return False
            write_replacement(
                folder,
                old,
                made,
                identity or (self.home.identity_key_file(self.address, self.handle), self._passphrase),
                self._published,
                lambda keys, secret: format_keys(keys, secret, self.address, self.handle, now_ms),
                self._passphrase,
            )
            if not old.published:
                self._generations.remove(old)
            self._generations.insert(0, generation_of(made.keys, self._published, now_ms))
            self._ring_epoch = -1
            self._stamp = self._look()
        return True

    def note_published(self, prekey: str, now_ms: int) -> None:
        """Note that today's statement was published, and delete the secrets that are not needed any more.

        ``prekey`` is the statement as it was published, base64url. The caller may be in any thread.
        """
        statement = Prekey.decode(b64decode(prekey))
        with self.home.lock(self.home.identity_folder(self.address, self.handle)):
            self._adopt(now_ms)
            for generation in self._generations:
                if generation.card.id == statement.card_id:
                    generation.published.setdefault(statement.epoch, now_ms)
            self._forget(now_ms)
            self._published.cards = {
                str(generation.card.serial): {
                    str(epoch): time for epoch, time in sorted(generation.published.items())
                }
                for generation in self._generations
            }
            write_published(self.home.identity_folder(self.address, self.handle), self._published)

    def refresh(self, now_ms: int) -> bool:
        """Take over what another process has renewed. Returns whether the card is another one now.

        Raises `ConfigError` when the files cannot be read any more.
        """
        if self._look() == self._stamp:
            return False
        before = self.card
        with self.home.lock(self.home.identity_folder(self.address, self.handle)):
            self._adopt(now_ms)
        return self.card != before

    def signer(self, ipk: bytes) -> tuple[SignedCard, SigningKey]:
        """Return the newest card of an own identity, and the operational key that it names.

        An outcome is signed by the identity that was called, whichever has followed since (RL-ENVELOPE-017).
        Without a key of that identity, the current ones are returned.
        """
        for generation in self._generations:
            if generation.card.ipk == ipk:
                return generation.keys.card, generation.operational
        return self.card, self.operational

    def own_key(self, kid: bytes, now_ms: int) -> OwnKey | None:
        """Return the private key that a ``kid`` (32 bytes) names; None if deleted, or never ours."""
        today = epoch_at(now_ms)
        if self._ring_epoch != today:
            self._ring, self._ring_epoch = ring_of(self._generations, today), today
        return self._ring.get(kid)

    def _adopt(self, now_ms: int) -> None:
        """Read the files again, which another process may have written; the lock is held."""
        stored = Account.load(
            self.home, self.address, self.handle, now_ms, passphrase=lambda: self._passphrase or ""
        )
        self._generations = stored._generations
        self._published = stored._published
        self._ring_epoch = -1
        self._stamp = stored._stamp

    def _look(self) -> tuple[int, int] | None:
        return stamp_of(self.home.agent_key_file(self.address, self.handle))

    def _forget(self, now_ms: int) -> None:
        """Delete the secrets whose time is over; the lock is held."""
        folder = self.home.identity_folder(self.address, self.handle)

        def save(keys: keyfile.AgentKeys) -> None:
            text = format_keys(keys, self._passphrase, self.address, self.handle, now_ms)
            write_private(folder / "agent.key", text)

        if forget_secrets(self._generations, folder, now_ms, save):
            self._ring_epoch = -1
