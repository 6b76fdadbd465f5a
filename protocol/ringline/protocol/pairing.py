"""How two people who share a spoken code, and nothing else, come to share a key through a relay.

SPAKE2: whoever stands between the two, the relay included, learns nothing that he could try words on at
home. He may take part in one exchange with each of them, under one guess of the words each time, and whoever
he tries a wrong one on sees it fail. The guest proves first that he has the words, then the inviter, in the
message that brings the invite under the key::

    inviter                     relay                        guest
       | -- offer: X ------------> | --------------------------> |
       | <------------------------ | <-- answer: Y, proof ------ |
       | -- reply: proof, invite-> | --------------------------> |

The curve is that of the package spake2, and so are the two points and the key's first hash: pure Python and
not in constant time, which is enough for a secret that is used once and told by voice. The package is an
extra and is loaded when it is needed. Chance is the caller's argument.
"""

import hmac
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ringline.protocol.errors import ConfigError, PairingError
from ringline.protocol.transcript import digest, label, vec

__all__ = ["ELEMENT_BYTES", "INSTALL", "PROOF_BYTES", "Guest", "Inviter", "Keys", "check_installed"]

ELEMENT_BYTES: Final = 33
"""A side's letter and a point of edwards25519: the offer, and the front of the answer."""

PROOF_BYTES: Final = 32
INSTALL: Final = "python -m pip install 'ringline[code]'"
"""What to type where the package is missing."""

_KEY_BYTES: Final = 32
# A key seals one text and is forgotten.
_NONCE: Final = bytes(12)
_SIDES: Final = {"SPAKE2_A": b"A", "SPAKE2_B": b"B"}

_WRONG: Final = "the other side has other words than this one, or somebody stands between"
_NONE: Final = "what the other side sent is no message of a pairing"
_STEP: Final = "make a new code, and say it where you know each other's voice: ringline invite --code"

Entropy = Callable[[int], bytes]


def check_installed() -> None:
    """Pass where spoken codes work. Raises `ConfigError` where the package for them is missing."""
    _spake2()


def _spake2() -> Any:
    try:
        return importlib.import_module("spake2")
    except ImportError:
        raise ConfigError(
            "spoken codes need the package spake2, which is not installed. Nothing was sent.",
            next_step=f"{INSTALL}; or do without: ringline invite, and paste the line",
        ) from None


@final
@dataclass(frozen=True, slots=True)
class Keys:
    """What both sides have once they have met, if their words are the same."""

    transcript: bytes = field(repr=False)
    guest: bytes = field(repr=False)
    inviter: bytes = field(repr=False)
    sealing: bytes = field(repr=False)

    @classmethod
    def derive(cls, shared: bytes, *, realm: str, nameplate: str, offer: bytes, element: bytes) -> "Keys":
        """Return the keys of one exchange: bound to the realm, the number, both messages and the roles."""
        parts = (realm.encode("ascii"), nameplate.encode("ascii"), offer, element)
        transcript = digest(label("pairing") + b"".join(vec(part) for part in parts))

        def key(use: str) -> bytes:
            info = label("pairing") + vec(use.encode("ascii"))
            return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=transcript, info=info).derive(shared)

        return cls(transcript, key("guest"), key("inviter"), key("seal"))

    def proof_of(self, key: bytes) -> bytes:
        """Return what shows that a side has its key."""
        return hmac.digest(key, self.transcript, "sha256")

    def check(self, key: bytes, proof: bytes) -> None:
        """Pass the other side's proof. Raises `PairingError` for one that is none."""
        if not hmac.compare_digest(self.proof_of(key), proof):
            raise PairingError(_WRONG, next_step=_STEP)

    def seal(self, invite: str) -> bytes:
        """Return the inviter's reply: his proof, and the invite for whoever has the words."""
        sealed = ChaCha20Poly1305(self.sealing).encrypt(_NONCE, invite.encode("ascii"), self.transcript)
        return self.proof_of(self.inviter) + sealed

    def open(self, reply: bytes) -> str:
        """Return the invite in a reply. Raises `PairingError` for one that the inviter has not made."""
        self.check(self.inviter, reply[:PROOF_BYTES])
        try:
            invite = ChaCha20Poly1305(self.sealing).decrypt(_NONCE, reply[PROOF_BYTES:], self.transcript)
            return invite.decode("ascii")
        except (InvalidTag, ValueError):
            raise PairingError(
                "the inviter's reply was changed on its way, or is no invite", next_step=_STEP
            ) from None


@final
class Inviter:
    """The side that has made the words up. One exchange, one try."""

    def __init__(self, password: bytes, entropy: Entropy) -> None:
        """Raises `ConfigError` as `check_installed` does."""
        self._exchange = _Exchange("SPAKE2_A", password, entropy)
        self.offer: bytes = self._exchange.message

    def meet(self, answer: bytes, *, realm: str, nameplate: str) -> Keys:
        """Return the keys shared with whoever sent ``answer``, if he has the words.

        Raises `PairingError` otherwise: that was the one try.
        """
        element, proof = answer[:ELEMENT_BYTES], answer[ELEMENT_BYTES:]
        shared = self._exchange.finish(element)
        keys = Keys.derive(shared, realm=realm, nameplate=nameplate, offer=self.offer, element=element)
        keys.check(keys.guest, proof)
        return keys


@final
class Guest:
    """The side that was told the words. One exchange, one try."""

    def __init__(
        self, password: bytes, entropy: Entropy, *, offer: bytes, realm: str, nameplate: str
    ) -> None:
        """Raises `PairingError` for an offer that is none, `ConfigError` as `check_installed` does."""
        exchange = _Exchange("SPAKE2_B", password, entropy)
        shared = exchange.finish(offer)
        self.keys = Keys.derive(
            shared, realm=realm, nameplate=nameplate, offer=offer, element=exchange.message
        )
        self.answer: bytes = exchange.message + self.keys.proof_of(self.keys.guest)


class _Exchange:
    """One side of SPAKE2, by the package."""

    def __init__(self, side: str, password: bytes, entropy: Entropy) -> None:
        self._state: Any = getattr(_spake2(), side)(password, entropy_f=entropy)
        self.message: bytes = self._state.start()

    def finish(self, message: bytes) -> bytes:
        if len(message) != ELEMENT_BYTES:
            raise PairingError(_NONE, next_step=_STEP)
        try:
            shared: bytes = self._state.finish(message)
        except Exception:
            # Off the curve, of another order, or one's own come back: the package has a kind for each.
            raise PairingError(_NONE, next_step=_STEP) from None
        return shared
