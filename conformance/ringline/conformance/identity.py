"""An identity of the suite: its keys, its log-in, and the statements that it signs or damages.

Nothing here is sent; a stage does that. Built on `ringline.protocol` alone.
"""

import secrets
import time
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import msgspec

from ringline.protocol import token
from ringline.protocol.encoding import b64encode
from ringline.protocol.identity import NO_NEXT, Card, SignedCard
from ringline.protocol.prekeys import Chain, Prekey, SealingKey, SignedPrekey, epoch_at, window
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    RevokedBy,
    SignedRevocation,
    SignedSuccession,
    Succession,
)

__all__ = ["LEFT_OUT", "Identity", "forge", "fresh_id", "now_ms", "seal_like"]

LEFT_OUT: Final = object()
"""In place of a member's value: the member is left out."""

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR


def now_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000


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
class Identity:
    """The owner of a handle. Change a member to do it wrong. Times are Unix ms by this machine's clock."""

    handle: str
    realm: str
    offset_ms: int = 0
    """What the subject's clock is ahead of this one."""
    identity: SigningKey = field(default_factory=SigningKey.generate)
    operational: SigningKey = field(default_factory=SigningKey.generate)
    serial: int = 1
    next: bytes = NO_NEXT
    not_before: int = field(default_factory=lambda: now_ms() - _HOUR)
    life: int = 90 * _DAY
    chain: Chain = field(default_factory=lambda: Chain.start(epoch_at(now_ms())))
    succession: SignedSuccession | None = None
    suites: tuple[int, ...] = (1,)
    """For which its prekeys are; suite 1 is quick to make."""
    foreign_suites: tuple[int, ...] = ()
    """Suites that nobody knows, of which its prekeys name a key too."""
    prekey_changes: dict[str, Any] = field(default_factory=dict[str, Any])
    """Members of the prekey statement that are not what the calendar says."""

    def now(self) -> int:
        """Return Unix ms by the subject's clock."""
        return now_ms() + self.offset_ms

    @property
    def card(self) -> SignedCard:
        """The card that these members make."""
        return SignedCard.sign(
            Card(
                realm=self.realm,
                handle=self.handle,
                ipk=self.identity.public,
                serial=self.serial,
                not_before=self.not_before,
                not_after=self.not_before + self.life,
                spk=self.operational.public,
                next=self.next,
            ),
            self.identity,
        )

    @property
    def card_id(self) -> str:
        """Its id in base64url."""
        return b64encode(self.card.card.id)

    @property
    def prekey(self) -> SignedPrekey:
        """The statement of the chain's epoch."""
        epoch = self.chain.epoch
        not_before, not_after = window(epoch)
        known = [SealingKey(suite, self.chain.private(suite).public) for suite in self.suites]
        foreign = [SealingKey(suite, bytes(32)) for suite in self.foreign_suites]
        statement = Prekey(
            card_id=self.card.card.id,
            epoch=epoch,
            not_before=not_before,
            not_after=not_after,
            keys=tuple(sorted(known + foreign, key=lambda key: key.suite)),
        )
        return SignedPrekey.sign(replace(statement, **self.prekey_changes), self.operational)

    def renewed(self, **changes: Any) -> "Identity":
        """Return this identity with its next card: another operational key, the serial one higher."""
        fresh: dict[str, Any] = {
            "serial": self.serial + 1,
            "operational": SigningKey.generate(),
            "chain": Chain.start(self.chain.epoch),
            "succession": None,
        }
        return replace(self, **(fresh | changes))

    def with_prekey_of(self, epoch: int) -> "Identity":
        """Return this identity with a prekey statement of another epoch, from a chain of its own."""
        return replace(self, chain=Chain.start(epoch))

    def succeeded(self, new: SigningKey, *, old_signs: bool = False, **changes: Any) -> "Identity":
        """Return the identity whose identity key is ``new``, with the succession that says so."""
        statement = Succession(old_card_id=self.card.card.id, new_ipk=new.public, ts=self.now())
        signed = SignedSuccession.sign(statement, new, self.identity if old_signs else None)
        return self.renewed(**({"identity": new, "next": NO_NEXT, "succession": signed} | changes))

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

    # --- what is published

    def publication(self, **changes: Any) -> dict[str, Any]:
        """Return the body of ``PUT /v1/handles/{h}``."""
        body: dict[str, Any] = {
            "card": b64encode(self.card.card.encode()),
            "card_sig": b64encode(self.card.signature),
        }
        body |= self.prekey_publication()
        if self.succession is not None:
            statement = self.succession.succession
            body["succession"] = {
                "old_card_id": b64encode(statement.old_card_id),
                "new_ipk": b64encode(statement.new_ipk),
                "ts": statement.ts,
                "sig": b64encode(self.succession.signature),
            }
            if self.succession.old_signature is not None:
                body["succession"]["old_sig"] = b64encode(self.succession.old_signature)
        return body | changes

    def prekey_publication(self) -> dict[str, Any]:
        """Return the body of ``PUT …/prekeys``."""
        return {
            "prekey": b64encode(self.prekey.prekey.encode()),
            "prekey_sig": b64encode(self.prekey.signature),
        }

    def revocation(
        self, *, by: RevokedBy = "identity", key: SigningKey | None = None, **changes: Any
    ) -> dict[str, Any]:
        """Return the body of ``POST …/revocations`` for the present card."""
        statement = Revocation(card_id=self.card.card.id, reason=Reason.COMPROMISED, ts=self.now())
        signed = SignedRevocation.sign(statement, key or self.identity, by=by)
        body: dict[str, Any] = {
            "card_id": self.card_id,
            "reason": int(statement.reason),
            "ts": statement.ts,
            "by": by,
            "sig": b64encode(signed.signature),
        }
        if signed.next_ipk is not None:
            body["next_ipk"] = b64encode(signed.next_ipk)
        return body | changes

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
