"""An identity of the suite: its keys, its log-in, and the statements that it signs or damages.

Nothing here is sent; a stage does that. Built on `ringline.protocol` alone.
"""

import secrets
from dataclasses import dataclass
from typing import Any, Final, final

import msgspec

from ringline.conformance.key_owner import KeyOwner, now_ms
from ringline.protocol import token
from ringline.protocol.encoding import b64encode
from ringline.protocol.signing import SigningKey

__all__ = ["LEFT_OUT", "Identity", "forge", "fresh_id", "now_ms", "seal_like"]

LEFT_OUT: Final = object()
"""In place of a member's value: the member is left out."""


def fresh_id() -> str:
    """Return a message or correlation id that was never used."""
    return secrets.token_hex(16)


def forge(key: SigningKey, header: object, payload: object) -> str:
    """Return a token of any header and payload, signed by ``key``: what `token.mint` would not make.

    Either may be bytes, which are taken as they are.
    """
    parts = (part if isinstance(part, bytes) else msgspec.json.encode(part) for part in (header, payload))
    signed = ".".join(map(b64encode, parts))
    return f"{signed}.{b64encode(key.sign(signed.encode()))}"


def seal_like(card_id: str, *, iat: int, exp: int, ct_chars: int = 2_000) -> dict[str, Any]:
    """Return an envelope that a relay cannot tell from a sealed one; no two are alike."""
    ct = b64encode(secrets.token_bytes(24)) + "A" * (ct_chars - 32) if ct_chars >= 32 else "A" * ct_chars
    return {
        "v": 1,
        "suite": 2,
        "kid": b64encode(bytes(32)),
        "sid": card_id,
        "iat": iat,
        "exp": exp,
        "ct": ct,
    }


def _kept(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not LEFT_OUT}


@final
@dataclass(kw_only=True)
class Identity(KeyOwner):
    """The owner of a handle. Change a member to do it wrong. Times are Unix ms by this machine's clock."""

    offset_ms: int = 0
    """What the subject's clock is ahead of this one."""

    def now(self) -> int:
        """Return Unix ms by the subject's clock."""
        return now_ms() + self.offset_ms

    # --- log-in

    def claims(self, method: str, path: str) -> dict[str, Any]:
        """Return the claims of a token for one request, to be damaged and signed by `forge`."""
        iat = self.now() // 1000
        return {
            "iss": self.handle,
            "sub": self.card_id,
            "aud": self.realm,
            "iat": iat,
            "exp": iat + 60,
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": path,
        }

    def header(self) -> dict[str, Any]:
        """Return the header of a token."""
        return {"alg": "EdDSA", "typ": "JWT", "kid": self.card_id}

    def token(self, method: str, path: str, *, ago_s: int = 0) -> str:
        """Return a token for one request, minted so many seconds ago."""
        return token.mint(
            self.operational,
            handle=self.handle,
            card_id=self.card.card.id,
            realm=self.realm,
            method=method,
            path=path,
            iat=self.now() // 1000 - ago_s,
            jti=secrets.token_urlsafe(16),
        )

    def bearer(self, method: str, path: str) -> tuple[str, str]:
        """Return the header that logs in."""
        return "Authorization", f"Bearer {self.token(method, path)}"

    # --- frames

    def request(
        self, *, ct_chars: int = 2_000, envelope: dict[str, Any] | None = None, **members: Any
    ) -> dict[str, Any]:
        """Return a ``call_request`` that a relay cannot tell from a sealed one.

        ``envelope`` has members of the envelope to change; a member given as `LEFT_OUT`, here or there, is
        left out.
        """
        now = self.now()
        sealed = seal_like(self.card_id, iat=now, exp=now + 600_000, ct_chars=ct_chars)
        frame = {
            "type": "call_request",
            "envelope": _kept(sealed | (envelope or {})),
            "correlation_id": fresh_id(),
            "message_id": fresh_id(),
        }
        return _kept(frame | members)

    def outcome(self, call_id: str, *, ct_chars: int = 2_000, **members: Any) -> dict[str, Any]:
        """Return a ``call_outcome`` that a relay cannot tell from a sealed one."""
        now = self.now()
        frame = {
            "type": "call_outcome",
            "call_id": call_id,
            "terminal": "completed",
            "envelope": seal_like(self.card_id, iat=now, exp=now + 600_000, ct_chars=ct_chars),
        }
        return _kept(frame | members)
