"""The relay that is meant when none is named: the first one into which this person was invited.

A small file of the state folder, `usual-relay`: base URL and realm, a line each. What the command line, a
program or the environment says goes before it.
"""

import os
from pathlib import Path
from typing import Final

from ringline.client.address import DEFAULT_RELAY, RelayAddress
from ringline.client.home import Home, write_private

__all__ = ["keep_usual", "meant_relay", "usual_relay"]

_NAME: Final = "usual-relay"
_BYTES: Final = 4_096


def usual_relay(root: Path) -> tuple[str, str | None]:
    """Return base URL and realm of the usual relay; where nobody was ever invited, the development one's."""
    try:
        with (root / _NAME).open(encoding="ascii") as file:
            lines = file.read(_BYTES).splitlines()
    except (OSError, ValueError):
        return DEFAULT_RELAY, None
    return (lines[0], lines[1]) if len(lines) == 2 else (DEFAULT_RELAY, None)


def meant_relay(relay: str | None, realm: str | None, home: Home) -> RelayAddress:
    """Return the relay that a program means: the one it names, else ``RINGLINE_RELAY``, else the usual one.

    Its realm is ``realm``, else ``RINGLINE_REALM`` where the relay was not named either, else the usual
    relay's where that is the one meant. Raises `ConfigError` as `RelayAddress.parse` does.
    """
    url, known = usual_relay(home.root)
    if relay is None:
        relay = os.environ.get("RINGLINE_RELAY") or url
        realm = realm or os.environ.get("RINGLINE_REALM") or None
    return RelayAddress.parse(relay, realm or (known if relay == url else None))


def keep_usual(home: Home, address: RelayAddress) -> bool:
    """Make this the usual relay unless there is one; return whether it was made so now."""
    with home.lock(home.root):
        path = home.root / _NAME
        if path.exists():
            return False
        write_private(path, f"{address.base_url}\n{address.realm}\n")
    return True
