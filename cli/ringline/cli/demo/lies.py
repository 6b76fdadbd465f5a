"""What a relay could do that does not keep to its part, scripted: other keys, and one changed bit."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, final

__all__ = ["FlippedBit", "SwappedKeys"]

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_CIPHERTEXT: Final = re.compile(rb'"ct":"([A-Za-z0-9_-]+)"')


@final
@dataclass
class SwappedKeys:
    """Shows other keys for ``handle``, all of them valid: signed by an identity of the relay's own making."""

    handle: str
    keys: dict[str, Any]
    """The body of a publication by that identity (RL-HTTP-018)."""
    told: int = 0
    """How many times the lie was told."""

    def answer(self, request: str, body: bytes) -> bytes:
        """Replace the keys in the answer to a question for them."""
        if request.split("?", 1)[0] != f"GET /v1/handles/{self.handle}":
            return body
        self.told += 1
        return json.dumps(json.loads(body) | self.keys).encode()

    def message(self, payload: bytes) -> bytes:
        """Leave messages alone."""
        return payload


@final
@dataclass
class FlippedBit:
    """Changes one bit in the middle of the ciphertext of calls on their way to the listener."""

    told: int = 0

    def answer(self, request: str, body: bytes) -> bytes:
        """Leave HTTP alone."""
        return body

    def message(self, payload: bytes) -> bytes:
        """Change a call; the message keeps its length and stays well-formed."""
        found = _CIPHERTEXT.search(payload)
        if b'"type":"incoming_call"' not in payload or found is None:
            return payload
        self.told += 1
        place = (found.start(1) + found.end(1)) // 2
        flipped = _ALPHABET[_ALPHABET.index(chr(payload[place])) ^ 1]
        return payload[:place] + flipped.encode() + payload[place + 1 :]
