"""The log-in token: a JWT by the operational key, good for one request.

It is bound to realm, method, path and time, and its ``jti`` is used up by whoever verified it fully. The
signed bytes are ASCII and begin with ``ey``, so they can be none of the structures of `transcript`.

A relay checks in this order: `parse`; the card that ``iss`` and ``kid`` name; `verify`, with `DUMMY_SPK`
when there is no such card; `check`; and last the ``jti``. Every failure gets one and the same answer
(RL-AUTH-021).
"""

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, final

import msgspec
import nacl.bindings
from msgspec import Meta, Struct

from ringline.protocol import names
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import BadSignature, RinglineError, TokenError
from ringline.protocol.identity import HASH_BYTES
from ringline.protocol.jsontext import check_json
from ringline.protocol.limits import INT_MAX, TOKEN_LIFE_S, TOKEN_SKEW_S
from ringline.protocol.signing import SIGNATURE_BYTES, SigningKey, check_public
from ringline.protocol.signing import verify as verify_signature
from ringline.protocol.transcript import digest

if TYPE_CHECKING:
    from jwt import PyJWS

__all__ = ["DUMMY_SPK", "TOKEN_CHARS", "Claims", "check", "mint", "parse", "verify"]

TOKEN_CHARS: Final = 4_096
"""The longest token that is looked at."""

DUMMY_SPK: Final = nacl.bindings.crypto_core_ed25519_from_uniform(digest(b"ringline: nobody's key"))
"""RL-AUTH-012. A key to verify against when there is none, so that the time tells nothing: a valid point, and
nobody can know its private half, because it was hashed onto the curve."""

# From /v1/ on: printable ASCII, without query and fragment.
_PATH: Final = r"\A/v1/[!-\"$->@-~]{1,1024}\Z"
_TOKEN: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_Seconds = Annotated[int, Meta(ge=0, le=INT_MAX)]


class _Header(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    alg: Literal["EdDSA"]
    typ: Literal["JWT"]
    kid: Annotated[str, Meta(pattern=names.CARD_ID)]


class _Payload(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    iss: Annotated[str, Meta(pattern=names.HANDLE)]
    sub: Annotated[str, Meta(pattern=names.CARD_ID)]
    aud: Annotated[str, Meta(pattern=names.REALM)]
    iat: _Seconds
    exp: _Seconds
    jti: Annotated[str, Meta(pattern=names.JTI)]
    htm: Annotated[str, Meta(pattern=r"\A[A-Z]{1,16}\Z")]
    htu: Annotated[str, Meta(pattern=_PATH)]


_headers: Final = msgspec.json.Decoder(_Header)
_payloads: Final = msgspec.json.Decoder(_Payload)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a well-formed token says. Only `verify` tells whether anybody said it. Made by `parse`."""

    handle: str
    """``iss``."""
    card_id: bytes
    """``sub`` and ``kid``: the card whose operational key is said to sign, 32 bytes."""
    realm: str
    """``aud``."""
    iat: int
    """Unix time in whole seconds."""
    exp: int
    """Unix time in whole seconds; only bounds the span, is never compared with a clock."""
    jti: str
    method: str
    """``htm``."""
    path: str
    """``htu``: from ``/v1/`` on, without query."""
    token: str = field(repr=False)
    """The text itself, which must not be logged."""


def mint(
    signing_key: SigningKey,
    *,
    handle: str,
    card_id: bytes,
    realm: str,
    method: str,
    path: str,
    iat: int,
    jti: str,
) -> str:
    """Return a token for one request, good for `TOKEN_LIFE_S` seconds.

    ``signing_key`` is the operational key of the card ``card_id`` (32 bytes); ``iat`` is Unix time in
    whole seconds, corrected by the relay's clock; ``jti`` is fresh, 16-64 of ``[A-Za-z0-9_-]``; ``path`` runs
    from ``/v1/`` on, without query.

    Raises `TokenError` for a value that breaks its pattern.
    """
    card = b64encode(card_id)
    payload = {
        "iss": handle,
        "sub": card,
        "aud": realm,
        "iat": iat,
        "exp": iat + TOKEN_LIFE_S,
        "jti": jti,
        "htm": method,
        "htu": path,
    }
    token = _jws().encode(
        msgspec.json.encode(payload), signing_key.seed, algorithm="EdDSA", headers={"kid": card}
    )
    parse(token)
    return token


def parse(token: str) -> Claims:
    """Read a token: exactly its members, in canonical base64url, none twice (RL-AUTH-007, RL-AUTH-008).

    Raises `TokenError`, and nothing else, for whatever is wrong.
    """
    match = _TOKEN.fullmatch(token) if len(token) <= TOKEN_CHARS else None
    if match is None:
        _refuse("not three segments of base64url")
    try:
        raw_header, raw_payload = b64decode(match[1]), b64decode(match[2])
        b64decode(match[3], length=SIGNATURE_BYTES)
        check_json(raw_header, depth=1)
        check_json(raw_payload, depth=1)
        header, payload = _headers.decode(raw_header), _payloads.decode(raw_payload)
        card_id = b64decode(payload.sub, length=HASH_BYTES)
    except (RinglineError, msgspec.MsgspecError, ValueError):
        _refuse("not the members of a log-in token")
    # RL-AUTH-009: a token whose header and claims name different cards is refused.
    if header.kid != payload.sub:
        _refuse("the header names another card than the claims")
    return Claims(
        handle=payload.iss,
        card_id=card_id,
        realm=payload.aud,
        iat=payload.iat,
        exp=payload.exp,
        jti=payload.jti,
        method=payload.htm,
        path=payload.htu,
        token=token,
    )


def verify(claims: Claims, spk: bytes) -> None:
    """Pass a token that ``spk`` (32 bytes) signed: first the key is checked (RL-AUTH-011).

    Raises `TokenError`, and nothing else, for whatever is wrong.
    """
    from jwt.exceptions import PyJWTError

    try:
        check_public(spk)
        _jws().decode_complete(claims.token, spk, algorithms=["EdDSA"])
    except (RinglineError, PyJWTError):
        _refuse("the key or the signature does not hold")


def check(
    claims: Claims, *, realm: str, method: str, path: str, now_s: float, started_s: float | None = None
) -> None:
    """Pass a verified token that is for this request and of this time.

    ``now_s`` and ``started_s`` are Unix time in seconds; the latter is when the relay started, if it has
    forgotten the tokens before (None: it has not).

    Raises `TokenError`.
    """
    # RL-AUTH-013: a token for another realm, another method or another path is refused.
    if claims.realm != realm:
        _refuse("for another realm")
    if claims.method != method or claims.path != path:
        _refuse("for another request")
    # RL-AUTH-014: so is one whose iat is more than 120 s from the relay's own clock, on either side.
    if not abs(now_s - claims.iat) <= TOKEN_SKEW_S:
        _refuse("not of this time")
    # RL-AUTH-015: and one whose exp is not after its iat, or more than 60 s after it. RL-AUTH-016: exp is not
    # compared with the clock.
    if not 0 < claims.exp - claims.iat <= TOKEN_LIFE_S:
        _refuse("good for too long, or for no time")
    # RL-AUTH-019: and one whose iat is before the whole second of the relay's start, if it has forgotten the
    # tokens that were used before.
    if started_s is not None and claims.iat < int(started_s):
        _refuse("older than the relay's memory")


def _refuse(why: str) -> NoReturn:
    raise TokenError(f"log-in token: {why}") from None


@cache
def _jws() -> "PyJWS":
    """The JWS mechanics with one algorithm: Ed25519 by PyNaCl, never by another library (RL-ENVELOPE-007).

    Imported late: the package takes longer to load than all of the protocol.
    """
    from jwt import PyJWS
    from jwt.algorithms import Algorithm

    class PyNaClEdDSA(Algorithm):
        """A key is 32 raw bytes: the seed to sign, the public key to verify; there is no other form."""

        def prepare_key(self, key: Any) -> Any:
            return key

        def sign(self, msg: bytes, key: bytes) -> bytes:
            return SigningKey(key).sign(msg)

        def verify(self, msg: bytes, key: bytes, sig: bytes) -> bool:
            try:
                verify_signature(key, msg, sig)
            except BadSignature:
                return False
            return True

        @staticmethod
        def to_jwk(key_obj: Any, as_dict: bool = False) -> NoReturn:
            raise NotImplementedError

        @staticmethod
        def from_jwk(jwk: Any) -> NoReturn:
            raise NotImplementedError

    jws = PyJWS(algorithms=[])
    jws.register_algorithm("EdDSA", PyNaClEdDSA())
    return jws
