"""The relay: routes sealed calls between callers and listeners without being able to read them.

The names are imported on first use: the pure core must not load a server.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from ringline.relay.options import DEFAULT_PORT, RelayOptions
    from ringline.relay.server import RelayServer, run_dev
    from ringline.relay.settings import Settings

__all__ = ["DEFAULT_PORT", "RelayOptions", "RelayServer", "Settings", "run_dev"]

_HOMES: typing.Final = {
    "DEFAULT_PORT": "options",
    "RelayOptions": "options",
    "RelayServer": "server",
    "Settings": "settings",
    "run_dev": "server",
}


def __getattr__(name: str) -> typing.Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
