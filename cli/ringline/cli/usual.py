"""The relay that is meant when none is named, for the options of commands.

Help pages ask for it too late to load anything of the client.
"""

from typing import Final

__all__ = ["DEFAULT_RELAY", "usual_realm", "usual_relay"]

DEFAULT_RELAY: Final = "http://127.0.0.1:7575"
"""Where `ringline relay dev` listens. The same as the client's, which is not loaded for a help page."""


def usual_relay() -> str:
    """Return the base URL of the usual relay; on a computer that was never invited, the development one's."""
    return _read()[0]


def usual_realm(relay: str) -> str | None:
    """Return the realm of the usual relay if that is the one meant by ``relay``, else None."""
    url, realm = _read()
    return realm if relay == url else None


def _read() -> tuple[str, str | None]:
    from ringline.client.home import Home
    from ringline.client.usual import usual_relay as read

    return read(Home.default().root)
