"""The relay that is meant when none is named: the first one into which this person was invited.

A small file of the state folder, `usual-relay`: base URL and realm, a line each. What the command line or the
environment says goes before it. Read by every command, so nothing of the client is loaded for it.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringline.client import Home, RelayAddress

__all__ = ["DEFAULT_RELAY", "keep_usual", "usual_realm", "usual_relay"]

DEFAULT_RELAY: Final = "http://127.0.0.1:7575"
"""Where `ringline relay dev` listens. The same as the client's, which is not loaded for a help page."""

_NAME: Final = "usual-relay"
_BYTES: Final = 4_096


def usual_relay() -> str:
    """Return the base URL of the usual relay; on a computer that was never invited, the development one's."""
    return _read()[0]


def usual_realm(relay: str) -> str | None:
    """Return the realm of the usual relay if that is the one meant by ``relay``, else None."""
    url, realm = _read()
    return realm if relay == url else None


def keep_usual(home: "Home", address: "RelayAddress") -> bool:
    """Make this the usual relay unless there is one; return whether it was made so now."""
    from ringline.client.home import write_private

    with home.lock(home.root):
        path = home.root / _NAME
        if path.exists():
            return False
        write_private(path, f"{address.base_url}\n{address.realm}\n")
    return True


def _read() -> tuple[str, str | None]:
    given = os.environ.get("RINGLINE_HOME")
    if given:
        root = Path(given).expanduser()
    else:
        import platformdirs

        root = Path(platformdirs.user_data_dir("ringline", appauthor=False))
    try:
        with (root / _NAME).open(encoding="ascii") as file:
            lines = file.read(_BYTES).splitlines()
    except (OSError, ValueError):
        return DEFAULT_RELAY, None
    return (lines[0], lines[1]) if len(lines) == 2 else (DEFAULT_RELAY, None)
