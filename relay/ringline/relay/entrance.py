"""From which pages and under which names the relay may be spoken to (RL-AUTH-035, RL-AUTH-037)."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, final

__all__ = ["LOOPBACK_NAMES", "Entrance"]

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


@final
class Entrance:
    """Judges the ``Host`` and ``Origin`` headers of every request, upgrades included.

    A page in a browser may talk to the relay only if it came from the relay itself or from an origin on
    the list; programs send no ``Origin``. A relay on loopback is also asked for under its own names only:
    a foreign name that resolves to this machine is some page's trick to become same-origin.
    """

    def __init__(self, *, origins: Iterable[str] = (), names: Iterable[str] | None = None) -> None:
        """``origins`` are served besides the relay's own, e.g. ``https://console.example``.

        ``names`` are the host names that are its own, brackets around IPv6 addresses; None takes any,
        and then only ``origins`` tell whose pages are served.
        """
        self._origins = frozenset(origins)
        self._names = None if names is None else frozenset(name.lower() for name in names)

    def admits(self, hosts: Sequence[str], origins: Sequence[str]) -> bool:
        """True when a request with these values of ``Host`` and ``Origin`` is to be looked at further."""
        if len(hosts) != 1 or len(origins) > 1:
            return False
        host = hosts[0].lower()
        match = _HOST.fullmatch(host)
        # The port is not looked at: a tunnel may have another one, and a page cannot choose the name.
        if self._names is not None and (match is None or match[1] not in self._names):
            return False
        if not origins or origins[0] in self._origins:
            return True
        own = self._names is not None and origins[0] in (f"http://{host}", f"https://{host}")
        return own

    def shares_with(self, origin: str) -> bool:
        """True for an origin on the list: only such a page may read what it asked for (CORS)."""
        return origin in self._origins
