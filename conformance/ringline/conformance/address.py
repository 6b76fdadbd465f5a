"""Where a relay is: its base URL taken apart."""

import ssl
from dataclasses import dataclass
from typing import final
from urllib.parse import urlsplit

from ringline.conformance.subject import Unjudgeable

__all__ = ["Address"]

_SCHEMES = {"http": (False, 80), "ws": (False, 80), "https": (True, 443), "wss": (True, 443)}


@final
@dataclass(frozen=True, slots=True)
class Address:
    """Host and port; ``tls`` is the context to connect with, None for plain text."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read a base URL, ``ws`` or ``http``. Raises `Unjudgeable` for what is none."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise Unjudgeable(f"{url!r} is no URL") from None
        if parts.scheme not in _SCHEMES or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise Unjudgeable(f"{url!r} is no base URL of a relay, such as http://127.0.0.1:7575")
        secure, usual = _SCHEMES[parts.scheme]
        return cls(parts.hostname, port or usual, ssl.create_default_context() if secure else None)

    @property
    def authority(self) -> str:
        """What stands in a ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.tls else 80
        return host if self.port == usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}"
