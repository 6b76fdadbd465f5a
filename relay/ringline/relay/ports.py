"""The addresses that a relay listens on."""

import socket
from typing import Final

from ringline.protocol.errors import ConfigError
from ringline.relay.options import DEFAULT_PORT

__all__ = ["BACKLOG", "listen", "place_of", "url_of"]

BACKLOG: Final = 1024
"""Connections that wait to be accepted."""

_PORT_MAX: Final = 65_535
_PORT_CHARS: Final = 5  # Python reads no number of thousands of digits


def place_of(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, with brackets around an IPv6 address.

    Raises `ConfigError` for another text.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    is_port = port.isascii() and port.isdecimal() and len(port) <= _PORT_CHARS and int(port) <= _PORT_MAX
    if not colon or not name or not is_port or (":" in name) != bracketed:
        raise ConfigError(f"{text!r} is no address to listen on", next_step="for example 127.0.0.1:9575")
    return name, int(port)


def url_of(scheme: str, host: str, port: int) -> str:
    """Return the base URL of what listens there."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def listen(host: str, port: int, *, again: str) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises `ConfigError` with what to do about a port that is taken: ``again`` is what the operator types,
    up to the number of another.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio switches Nagle's algorithm off for what it accepts; else the second
    # part of an answer waits 40 ms for the acknowledgement of the first.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        another = port + 1 if port < _PORT_MAX else DEFAULT_PORT
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            next_step=f"stop what uses that port, or take another: {again}{another}",
        ) from None
    return listening
