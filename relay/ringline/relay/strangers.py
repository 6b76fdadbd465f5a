"""What an address may do before anybody has logged in from it (RL-ADMIT-046, RL-ADMIT-047).

Two budgets: log-ins that failed, and claims of handles. Both are the exact windows of
`ringline.relay.budget`, as all others are. The kept package for this, limits, was looked at: it measures by
the wall clock, which a step sets free, keeps its own timer threads, and costs more to import than the relay.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, final

from ringline.protocol.errors import ConfigError, HttpProblem
from ringline.protocol.instant import Instant
from ringline.relay.budget import Window

__all__ = ["Strangers", "network_of", "networks"]

_MINUTE_MS: Final = 60_000
_WITH_PORT: Final = re.compile(r"([0-9.]+):[0-9]+|\[([^\]]*)\](?::[0-9]+)?")
_SUBNET: Final = 64  # what one customer of a provider has at least, of IPv6

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and networks from their texts. Raises `ConfigError` for one that is neither."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ConfigError(
                f"{text!r} is no address and no network: {error}",
                next_step="for example 127.0.0.1, 10.0.0.0/8 or fd00::/8",
            ) from None
    return tuple(found)


def network_of(address: str) -> str:
    """Return the subject of an address's budgets: an IPv4 address, an IPv6 /64, or the text itself.

    Some proxies write the port behind it, which would make a subject of each connection.
    """
    match = _WITH_PORT.fullmatch(address)
    try:
        read = ipaddress.ip_address((match[1] or match[2]) if match else address)
    except ValueError:
        return address
    if isinstance(read, ipaddress.IPv6Address):
        if read.ipv4_mapped is not None:
            return str(read.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(read), _SUBNET), strict=False))
    return str(read)


@final
class Strangers:
    """The budgets of all addresses; a limit of 0 is none. ``trusted`` are proxies whose word is taken."""

    def __init__(self, *, failures: int, claims: int, trusted: Sequence[Network] = ()) -> None:
        self._failures: Window[str] = Window(failures, _MINUTE_MS)
        self._claims: Window[str] = Window(claims, _MINUTE_MS)
        self._trusted = tuple(trusted)
        self.warning: str | None = None
        """What the operator should know: a proxy that he named does not say for whom it asks."""

    def subject(self, remote: str, forwarded: Sequence[str]) -> str:
        """Return whose budget a request is charged to.

        ``remote`` is the other end of the socket, ``forwarded`` the values of ``X-Forwarded-For``. They
        are read from the right, past proxies that are trusted: what stands further left anybody can write.
        The empty text is the subject of whoever comes through a trusted proxy that does not say from where.
        """
        subject = remote
        hops = [hop.strip() for value in forwarded for hop in value.split(",")]
        if not hops and self._trusts(remote):
            return ""
        while hops and self._trusts(subject):
            subject = hops.pop()
        return network_of(subject)

    def _trusts(self, address: str) -> bool:
        try:
            read = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(read, ipaddress.IPv6Address) and read.ipv4_mapped is not None:
            read = read.ipv4_mapped  # a socket of both families shows IPv4 so
        return any(read in network for network in self._trusted if network.version == read.version)

    def check_login(self, subject: str, now: Instant) -> None:
        """Pass an address from which not too many log-ins failed. Raises `HttpProblem` (429)."""
        wait = self._failures.wait(subject, now.mono)
        if wait:
            raise HttpProblem(
                "too many log-ins from this address failed", code="rate_limited", retry_after_ms=wait
            )

    def failed_login(self, subject: str, now: Instant) -> None:
        """Charge a log-in that failed, to nobody when it is not known where it came from.

        The budget would be that of all clients of a proxy, and one of them could lock out the others.
        """
        if not subject:
            self.warning = (
                "a trusted proxy passes requests on without X-Forwarded-For: failed log-ins through it have "
                "no budget, and all claims through it one"
            )
            return
        self._failures.charge(subject, now.mono)

    def check_claim(self, subject: str, now: Instant) -> None:
        """Pass an address from which not too many claims came. Raises `HttpProblem` (429)."""
        wait = self._claims.wait(subject, now.mono)
        if wait:
            raise HttpProblem("too many claims from this address", code="rate_limited", retry_after_ms=wait)

    def claimed(self, subject: str, now: Instant) -> None:
        """Charge a claim, whatever came of it."""
        self._claims.charge(subject, now.mono)
