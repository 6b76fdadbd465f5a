"""Invites as they are handed over: one line of text that holds all that is needed to get in touch.

Where the relay is, whose invite it is and by which key he is known, the relay's one-time secret, a second
secret of the two people alone, with which the inviter can tell who took his invite up without believing the
relay (`Invite.prove`), and the key of the relay's key log, if it has one. A checksum
catches slips before anything is sent anywhere::

    rli1 + base32(version-1 fields + 4 bytes of checksum)

Base32 is Crockford's, lower case: no letter in it looks like another or like a digit. The text is secret
until it was taken up: it belongs neither into an argument of a command nor into a log.
"""

import hmac
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, final

from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import EncodingError, InviteError, WeakKey
from ringline.protocol.names import is_handle, is_invite, is_realm
from ringline.protocol.signing import PUBLIC_BYTES, check_public
from ringline.protocol.transcript import Reader, digest, label, vec

__all__ = ["INVITE_PREFIX", "PAIRING_BYTES", "Invite"]

INVITE_PREFIX: Final = "rli1"
PAIRING_BYTES: Final = 16

_CHARS: Final = 2_048
_CHECKSUM_BYTES: Final = 4
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES: Final = {char: value for value, char in enumerate(_ALPHABET)}
# Only the shape: which places may be reached without TLS is for the client's address to judge.
_BASE_URL: Final = re.compile(r"https?://[a-z0-9.\[\]:-]+(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
_STEP: Final = "ask for the whole line again: it begins with rli1 and has no spaces in it"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Invite:
    """An invite as one person hands it to another.

    Raises `InviteError` for a field that breaks its pattern, `WeakKey` for a key that must not be used.
    """

    realm: str
    secret: str = field(repr=False)
    """What the relay told the inviter, to be sent to it as the member ``invite``."""
    at: str | None = None
    """Base URL where the realm is reached, http(s), without a slash at the end; None: ``https://<realm>``."""
    inviter: str | None = None
    """The inviter's handle; None for an invite of the relay's operator."""
    ipk: bytes | None = None
    """The inviter's identity key, 32 bytes; with ``inviter`` and only with it."""
    pairing: bytes | None = field(default=None, repr=False)
    """The second secret, 16 bytes, which the relay never sees; with ``inviter`` and only with it."""
    handle: str | None = None
    """The one handle that the invite is for; None for any."""
    log: bytes | None = None
    """Public key of the relay's key log, 32 bytes, so that the guest need not take the relay's word for it;
    None when it is not told."""

    def __post_init__(self) -> None:
        if not is_realm(self.realm):
            raise InviteError("the invite's realm is no realm name", next_step=_STEP)
        if not is_invite(self.secret):
            raise InviteError("the invite's secret has another form", next_step=_STEP)
        if self.at is not None and not _BASE_URL.fullmatch(self.at):
            raise InviteError("the invite's address is no http or https base URL", next_step=_STEP)
        for handle in (self.inviter, self.handle):
            if handle is not None and not is_handle(handle):
                raise InviteError("a handle in the invite is no handle", next_step=_STEP)
        if (self.inviter is None) != (self.ipk is None) or (self.inviter is None) != (self.pairing is None):
            raise InviteError("the invite names an inviter by half", next_step=_STEP)
        if self.pairing is not None and len(self.pairing) != PAIRING_BYTES:
            raise InviteError("the invite's pairing secret has another length", next_step=_STEP)
        if self.ipk is not None:
            if len(self.ipk) != PUBLIC_BYTES:
                raise InviteError("the inviter's key has another length", next_step=_STEP)
            check_public(self.ipk)
        if self.log is not None:
            if len(self.log) != PUBLIC_BYTES:
                raise InviteError("the key of the log in the invite has another length", next_step=_STEP)
            check_public(self.log)

    @property
    def base_url(self) -> str:
        """Where the realm is reached."""
        return self.at or f"https://{self.realm}"

    def prove(self, handle: str, ipk: bytes) -> str | None:
        """Return what proves to the inviter that the holder of this invite is ``handle`` with key ``ipk``.

        43 characters of base64url, sent to the relay behind the secret and a colon. None for an operator's
        invite, which is nobody's to check.
        """
        if self.inviter is None or self.ipk is None or self.pairing is None:
            return None
        sides = b"".join(
            vec(part) for part in (self.realm.encode(), self.inviter.encode(), self.ipk, handle.encode(), ipk)
        )
        return b64encode(hmac.digest(self.pairing, label("invite") + sides, "sha256"))

    def format(self) -> str:
        """Return the line to hand over. ``at`` is left out when it says what goes without saying."""
        place = "" if self.base_url == f"https://{self.realm}" else self.base_url
        fields = (place, self.realm, self.secret, self.handle or "", self.inviter or "")
        data = b"".join(vec(part.encode("ascii")) for part in fields)
        data += (self.ipk or b"") + (self.pairing or b"") + (self.log or b"")
        return INVITE_PREFIX + _to_text(data + _checksum(data))

    @classmethod
    def parse(cls, text: str) -> "Invite":
        """Read an invite.

        Raises `InviteError` for anything that `format` would not write, `WeakKey` for a key that must not be
        used. No message repeats any of the text.
        """
        if not text.startswith(INVITE_PREFIX) or len(text) > _CHARS:
            raise InviteError("this is no invite", next_step=_STEP)
        data = _from_text(text[len(INVITE_PREFIX) :])
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if len(data) <= _CHECKSUM_BYTES or checksum != _checksum(body):
            raise InviteError("this invite is damaged: its checksum is wrong", next_step=_STEP)
        try:
            reader = Reader(body)
            place, realm, secret, handle, inviter = (reader.text() for _ in range(5))
            ipk = reader.take(PUBLIC_BYTES) if inviter else None
            pairing = reader.take(PAIRING_BYTES) if inviter else None
            log = _rest(reader)
        except EncodingError:
            raise InviteError("this invite cannot be read", next_step=_STEP) from None
        try:
            invite = cls(
                realm=realm,
                secret=secret,
                at=place or None,
                inviter=inviter or None,
                ipk=ipk,
                pairing=pairing,
                handle=handle or None,
                log=log,
            )
        except WeakKey:
            raise WeakKey("the key in this invite must not be used", next_step=_STEP) from None
        if invite.format() != text:
            raise InviteError("this invite is written in another way than invites are", next_step=_STEP)
        return invite


def _rest(reader: Reader) -> bytes | None:
    """Return the key behind the other fields; None when nothing is there."""
    try:
        reader.end()
    except EncodingError:
        key = reader.take(PUBLIC_BYTES)
        reader.end()
        return key
    return None


def _checksum(data: bytes) -> bytes:
    return digest(label("invite") + sha256(data).digest())[:_CHECKSUM_BYTES]


def _to_text(data: bytes) -> str:
    bits = len(data) * 8
    spare = -bits % 5
    number = int.from_bytes(data, "big") << spare
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(bits + spare - 5, -1, -5))


def _from_text(text: str) -> bytes:
    number = 0
    for char in text:
        value = _VALUES.get(char)
        if value is None:
            raise InviteError(
                "this invite is damaged: it has a character that invites have not", next_step=_STEP
            )
        number = number << 5 | value
    spare = len(text) * 5 % 8
    if spare >= 5 or number & ((1 << spare) - 1):
        raise InviteError("this invite is damaged: a part of it is missing", next_step=_STEP)
    return (number >> spare).to_bytes(len(text) * 5 // 8, "big")
