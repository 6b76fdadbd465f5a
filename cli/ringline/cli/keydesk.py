"""What the commands about own keys have in common: an identity, its identity key, its relay and the log."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar, final

from ringline.cli.identity import locking
from ringline.cli.passphrase import passphrase_from
from ringline.cli.report import tell
from ringline.client import Account, Home, KeyLog, RelayAddress, RelayClock, RelayHttp
from ringline.client.renewal import IdentityKey
from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import ConfigError, EncodingError
from ringline.protocol.identity import HASH_BYTES, SignedCard

__all__ = ["KeyDesk"]

_SERIAL: Final = re.compile(r"[1-9][0-9]{0,9}")

_T = TypeVar("_T")


@final
class KeyDesk:
    """One command's identity, loaded. Raises `ConfigError` when there is none, or it does not open."""

    def __init__(
        self,
        *,
        own: str | None,
        relay: str,
        realm: str | None,
        passphrase_file: str | None,
        plain: bool,
        identity_key: str | None = None,
        identity_secret: str | None = None,
    ) -> None:
        """The arguments are the options of the same names."""
        self.home, self.address = Home.default(), RelayAddress.parse(relay, realm)
        handle = own if own is not None else self.home.own_handle(self.address)
        lock = locking(self.home, self.address, handle, passphrase_file, plain)
        now = time.time_ns() // 1_000_000
        self.account = Account.load(self.home, self.address, handle, now, passphrase=lock.passphrase)
        usual = self.home.identity_key_file(self.address, handle)
        path = usual if identity_key is None else Path(identity_key)
        known = self.account.secret
        unlock = passphrase_from(identity_secret, lambda: f"Passphrase of the identity key {path}")
        if identity_secret is None and known is not None and identity_key is None:
            unlock = _constant(known)
        self.identity = IdentityKey(path, unlock)
        """The identity key, wherever it is."""
        self.place = IdentityKey(usual, None if known is None else _constant(known))
        """Where a new identity key goes, and what locks it."""

    def find(self, which: str | None) -> tuple[bytes, SignedCard | None]:
        """Return the id of an own card by its number or id, and the card if it is known here.

        None is the present one. Raises `ConfigError` for what is neither.
        """
        cards = self.account.cards
        if which is None:
            return cards[0].card.id, cards[0]
        if _SERIAL.fullmatch(which):
            for card in cards:
                if card.card.serial == int(which):
                    return card.card.id, card
            raise ConfigError(
                f"card {which} of {self.account.handle} is not known here; the present one is number "
                f"{cards[0].card.serial}",
                next_step="name it by its id, which the key log has: ringline log verify",
            )
        try:
            card_id = b64decode(which, length=HASH_BYTES)
        except EncodingError:
            raise ConfigError(
                f"{which!r} is neither the number nor the id of a card", next_step="ringline id show --json"
            ) from None
        return card_id, next((card for card in cards if card.card.id == card_id), None)

    def run(
        self, work: Callable[[RelayHttp, KeyLog | None], Awaitable[_T]], *, may_log_in: bool = True
    ) -> _T:
        """Run ``work`` at the relay, with its key log; without log-in there is none to follow."""

        async def at_relay() -> _T:
            clock = RelayClock(warn=tell)
            http = RelayHttp(self.address, self.account, clock)
            info = await http.info()
            if not may_log_in:
                return await work(http, None)
            log = KeyLog(self.home, http, clock, tell)
            try:
                await log.greet(info)
                return await work(http, log)
            finally:
                log.close()

        return asyncio.run(at_relay())


def _constant(text: str) -> Callable[[], str]:
    return lambda: text
