"""Where a realm is reached.

A realm is a name and never a location: the client takes it from its own configuration, and where it is
reached is configuration too (RL-NAME-002). This module joins the two and derives every URL from them.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final
from urllib.parse import SplitResult, urlsplit

from ringline.protocol.errors import ConfigError
from ringline.protocol.names import is_loopback, is_realm

__all__ = ["DEFAULT_RELAY", "LOCAL_REALM", "RelayAddress"]

DEFAULT_RELAY: Final = "http://127.0.0.1:7575"
"""Where a development relay listens unless told otherwise."""

LOCAL_REALM: Final = "localhost"
"""The realm of every development relay."""

_HTTP_OF: Final = {"http": "http", "ws": "http", "https": "https", "wss": "https"}
_PATH: Final = re.compile(r"[A-Za-z0-9._~/-]*")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


@final
@dataclass(frozen=True)
class RelayAddress:
    """One relay: its realm, and the base URL where it is reached.

    Make one with `parse`. ``base_url`` is ``http://`` or ``https://``, host, port if it is not the
    scheme's own, and the path of a reverse proxy if there is one, without a slash at the end.
    """

    base_url: str
    realm: str

    @classmethod
    def parse(cls, url: str, realm: str | None = None) -> "RelayAddress":
        """Read the base URL of a relay: http(s) or ws(s), which mean the same relay.

        Without ``realm`` it is `LOCAL_REALM` on loopback, else the URL's host.

        Raises `ConfigError` for a URL that is none, http or ws off loopback, a realm that is no name, and
        realm ``localhost`` off loopback, where first keys would be pinned without asking.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _bad(url, "it cannot be read") from None
        scheme = _HTTP_OF.get(parts.scheme.lower())
        host = parts.hostname
        if scheme is None or not host:
            raise _bad(url, "it must begin with http://, https://, ws:// or wss:// and a host")
        if parts.username is not None or parts.password is not None:
            raise _bad(url, "credentials do not belong in it")
        if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
            raise _bad(url, "it ends with its path; query, fragment and escapes do not belong in it")
        loopback = is_loopback(host)
        # RL-NAME-003: no relay is spoken to without TLS unless it is on a loopback address.
        if scheme == "http" and not loopback:
            raise _bad(url, "without TLS only a relay on loopback is used", "use https:// or wss://")
        named = realm if realm is not None else LOCAL_REALM if loopback else host
        if not is_realm(named) or not named.strip("."):
            raise ConfigError(
                f"{named!r} is not a realm: a realm is a name such as relay.example, without port or path",
                next_step="give the relay's realm with --realm",
            )
        # RL-NAME-004: realm localhost is refused for a relay that is not on a loopback address.
        if named == LOCAL_REALM and not loopback:
            raise ConfigError(
                f"realm {LOCAL_REALM} is for development relays on this computer, and {host} is elsewhere",
                next_step="give the relay's own realm with --realm",
            )
        return cls(_base(scheme, host, port, parts), named)

    @property
    def is_local(self) -> bool:
        """True for a development relay: keys are pinned on first use there (RL-KEYS-040)."""
        return self.realm == LOCAL_REALM

    @property
    def is_secure(self) -> bool:
        """True when the relay is reached over TLS."""
        return self.base_url.startswith("https:")

    @cached_property
    def state_key(self) -> str:
        """The name of the folder that holds what is known in this realm.

        Development relays all share one realm, so theirs is named by the base URL too (RL-NAME-005).
        """
        if self.is_local:
            # A plus sign is in no realm, so no realm of that name can exist beside it.
            return f"{LOCAL_REALM}+{_UNSAFE.sub('+', self.base_url)}"
        return f"+{self.realm}" if self.realm.startswith(".") else self.realm

    @property
    def host(self) -> str:
        """The host that is dialled, without brackets."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def port(self) -> int:
        """The TCP port that is dialled."""
        return urlsplit(self.base_url).port or (443 if self.is_secure else 80)

    @property
    def prefix(self) -> str:
        """The path in front of ``/v1``: empty but behind some reverse proxies."""
        return urlsplit(self.base_url).path

    def ws_url(self, path: str) -> str:
        """Return the WebSocket URL of ``path``, which begins with a slash and may carry a query."""
        return "ws" + self.base_url.removeprefix("http") + path


def _base(scheme: str, host: str, port: int | None, parts: SplitResult) -> str:
    shown = f"[{host}]" if ":" in host else host
    default = 443 if scheme == "https" else 80
    place = shown if port is None or port == default else f"{shown}:{port}"
    return f"{scheme}://{place}{parts.path.rstrip('/')}"


def _bad(url: str, why: str, next_step: str = "for example --relay https://relay.example") -> ConfigError:
    # The part that may hold credentials is not repeated.
    shown = url.rsplit("@", 1)[-1] if "@" in url else url
    return ConfigError(f"not a relay's base URL: {shown[:200]!r}: {why}", next_step=next_step)
