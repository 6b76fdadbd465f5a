"""Ports on which a relay comes back after it was away."""

import contextlib
import random
import socket
from typing import Final

__all__ = ["lasting_port"]

# Below those that Linux, macOS and Windows give to whoever asks for any.
_RANGE: Final = (20_000, 32_000)
_reserved: Final[list[socket.socket]] = []


def lasting_port() -> int:
    """Return a port of the loopback interface that nobody takes while the relay on it is dead.

    A port that the system has chosen is given to another as soon as it is free, be it a listener or the own
    end of a client: one that looks for the relay could even reach itself. So this is none of those; and the
    UDP port of the same number, held until this process ends, keeps other tests off it.

    Raises `OSError` when none is free.
    """
    for port in random.SystemRandom().sample(range(*_RANGE), 200):
        with contextlib.ExitStack() as stack:
            reserving = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            try:
                reserving.bind(("127.0.0.1", port))
                with socket.create_server(("127.0.0.1", port)):
                    pass
            except OSError:
                continue
            stack.pop_all()
            _reserved.append(reserving)
            return port
    raise OSError("no port of the range is free")
