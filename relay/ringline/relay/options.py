"""How a relay is run, and what it is not run with."""

import ssl
from dataclasses import dataclass, field
from typing import Final

from ringline.protocol.errors import ConfigError
from ringline.protocol.names import is_handle, is_loopback, is_realm
from ringline.relay.clock import Clock, system_clock
from ringline.relay.edge import EDGES, EdgeLimits
from ringline.relay.settings import Settings
from ringline.relay.strangers import networks

__all__ = ["DEFAULT_PORT", "DEVELOPMENT", "LOCAL_REALM", "RelayOptions"]

DEFAULT_PORT: Final = 7575
DEVELOPMENT: Final = Settings(claims_per_minute=0, failed_logins_per_minute=0, pairing_claims_per_minute=0)
"""Settings of a relay that only its own computer reaches: no budgets for addresses, there is one."""

LOCAL_REALM: Final = "localhost"
"""The realm of every development relay (RL-DEPLOY-004)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a relay is run. ``port`` 0 takes a free one; ``db`` None keeps everything in memory."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    db: str | None = None
    edge: str = EDGES[0]
    realm: str = "localhost"
    origins: tuple[str, ...] = ()
    """Pages that may use this relay besides its own, e.g. ``https://console.example``."""
    settings: Settings = field(default_factory=Settings)
    edge_limits: EdgeLimits | None = None
    """Of WebSockets; None takes them from ``settings``."""
    closing_s: float = 5.0
    """What clients get, in seconds, to answer the close frames of a relay that stops."""
    clock: Clock = system_clock
    open_registration: bool | None = None
    """Whether anybody may take a free handle; None: on a development relay alone."""
    admin: str | None = None
    """The handle that may remove identities and void invites."""
    behind_proxy: bool = False
    """TLS ends before this relay: it may listen where others reach it, and under any name. Needs
    `trusted_proxies`, without which every client has the proxy's address and they share one budget."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose ``X-Forwarded-For`` is believed."""
    tls: ssl.SSLContext | None = None
    admin_listen: tuple[str, int] | None = None
    """Host and port of a listener for whoever runs it: ``/metrics``, and ``/readyz`` with its reasons. Only a
    development relay shows them on its own port too."""

    @property
    def is_development(self) -> bool:
        """Whether this is a relay for its own computer."""
        return self.realm == LOCAL_REALM

    @property
    def is_open(self) -> bool:
        """Whether anybody may take a free handle."""
        return self.is_development if self.open_registration is None else self.open_registration

    def check(self) -> None:
        """Pass options that a relay may be run with. Raises `ConfigError` for others, with what to do.

        Off loopback a relay has TLS, its own or a proxy's, and is no development relay: clients believe
        the first keys they see in realm ``localhost``.
        """
        if not is_realm(self.realm):
            raise ConfigError(f"{self.realm!r} is no realm", next_step="a realm is a host name")
        if self.admin is not None and not is_handle(self.admin):
            raise ConfigError(
                f"{self.admin!r} is no handle",
                next_step="the administrator's handle is 2 to 31 of a-z, 0-9 and hyphen, the first no hyphen",
            )
        networks(self.trusted_proxies)
        if self.behind_proxy and not self.trusted_proxies:
            raise ConfigError(
                "behind a proxy that is not named, all clients are one address to this relay: "
                "one of them who fails to log in, or claims handles, would lock out all others",
                next_step="name the proxy's address, and have it add X-Forwarded-For: "
                "--trusted-proxy 127.0.0.1",
            )
        if is_loopback(self.host):
            return
        if self.is_development:
            raise ConfigError(
                f"a development relay listens on loopback only, not on {self.host}",
                next_step="leave --host away, or name 127.0.0.1, ::1 or localhost; "
                "for others to reach it, run: ringline relay serve --realm NAME",
            )
        if self.tls is None and not self.behind_proxy:
            raise ConfigError(
                f"a relay that listens on {self.host} needs TLS: log-ins would be sent in the clear",
                next_step="give --cert and --key, or say --behind-proxy if a proxy in front of it ends TLS",
            )
