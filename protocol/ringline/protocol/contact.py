"""Contact strings: a handle with its identity key, to be handed over by a way that is trusted.

Adding a peer by such a string needs no trust in the relay, because the key comes with it (RL-KEYS-046)::

    ringline://bob@relay.example/?at=https://calls.relay.example#k=<identity key, base64url>

``at`` is there only when the realm is not reached at its own name. ``&log=`` may follow the key, with the
public key of the relay's key log: whoever gets it by a trusted way need not take it from the relay.
"""

import re
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import unquote

from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import ContactError, EncodingError
from ringline.protocol.names import is_handle, is_realm
from ringline.protocol.signing import PUBLIC_BYTES, check_public

__all__ = ["Contact"]

_CHARS: Final = 2_048
_STRING: Final = re.compile(
    r"ringline://([^@/?#]*)@([^@/?#]*)/(?:\?at=([^?#&]*))?#k=([^?#&]*)(?:&log=([^?#&]*))?"
)
# Only the shape: which places may be reached without TLS is for the client's address to judge.
_BASE_URL: Final = re.compile(r"https?://[a-z0-9.\[\]:-]+(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
_STEP: Final = "ask for the whole string again: it begins with ringline:// and ends with the key"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """A peer as his contact string names him.

    Raises `ContactError` for a field that breaks its pattern, `WeakKey` for a key that must not be used.
    """

    handle: str
    realm: str
    ipk: bytes
    """Identity key, 32 bytes."""
    at: str | None = None
    """Base URL where the realm is reached, http(s), without a slash at the end; None: ``https://<realm>``."""

    log: bytes | None = None
    """Public key of the relay's key log, 32 bytes; None when it is not told."""

    def __post_init__(self) -> None:
        if not is_handle(self.handle):
            raise ContactError("the contact's handle is no handle", next_step=_STEP)
        if not is_realm(self.realm):
            raise ContactError("the contact's realm is no realm name", next_step=_STEP)
        if self.at is not None and not _BASE_URL.fullmatch(self.at):
            raise ContactError("the contact's address is no http or https base URL", next_step=_STEP)
        check_public(self.ipk)
        if self.log is not None:
            check_public(self.log)

    @property
    def base_url(self) -> str:
        """Where the realm is reached."""
        return self.at or f"https://{self.realm}"

    def format(self) -> str:
        """Return the string to hand over. ``at`` is left out when it says what goes without saying."""
        place = "" if self.base_url == f"https://{self.realm}" else f"?at={self.base_url}"
        log = "" if self.log is None else f"&log={b64encode(self.log)}"
        return f"ringline://{self.handle}@{self.realm}/{place}#k={b64encode(self.ipk)}{log}"

    @classmethod
    def parse(cls, text: str) -> "Contact":
        """Read a contact string; ``at`` may be percent-encoded.

        Raises `ContactError` for anything that `format` would not write, `WeakKey` for a key that must not
        be used.
        """
        match = _STRING.fullmatch(text) if len(text) <= _CHARS else None
        if match is None:
            raise ContactError("this is no contact string", next_step=_STEP)
        handle, realm, at, key, log = match.groups()
        try:
            ipk = b64decode(key, length=PUBLIC_BYTES)
            log_key = None if log is None else b64decode(log, length=PUBLIC_BYTES)
        except EncodingError:
            raise ContactError("the contact's key is damaged", next_step=_STEP) from None
        place = None if at is None else unquote(at)
        return cls(handle=handle, realm=realm, ipk=ipk, at=place, log=log_key)
