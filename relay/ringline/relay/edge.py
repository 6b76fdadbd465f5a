"""What the relay sees of a WebSocket, whatever library carries it.

An edge takes the socket that uvicorn hands over at ``Upgrade: websocket``, so that HTTP and WebSocket
share one port. The relay gives it a `Gate`, which judges each opening handshake, and a `Receiver` for
each connection it lets in; the edge gives back a `Connection`. Everything here is synchronous and runs
in the event loop's thread: a call of a receiver is over before the next frame is looked at.

Use::

    config = uvicorn.Config(
        app, http=port_factory(limits), ws=edge_factory("picows", gate, limits), ...
    )

Source: RFC 6455, RL-TRANSPORT-003 to RL-TRANSPORT-007, RL-TRANSPORT-024 to RL-TRANSPORT-038.
"""

import asyncio
from dataclasses import dataclass, fields
from typing import Final, Protocol

from ringline.protocol.errors import ConfigError
from ringline.protocol.limits import LISTENER_FRAME_BYTES, PING_INTERVAL_MS, PING_TIMEOUT_MS

__all__ = [
    "EDGES",
    "Accepted",
    "Connection",
    "EdgeLimits",
    "Gate",
    "Handshake",
    "Receiver",
    "Refused",
    "edge_factory",
    "port_factory",
]

EDGES: Final = ("picows", "websockets")
"""Names of the edges, the default first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """An opening handshake that is a well-formed WebSocket upgrade (RFC 6455 §4.2.1).

    ``path`` and ``query`` are as sent: ASCII, not percent-decoded, without the ``?`` between them.
    ``headers`` are in the order sent, names in lower case, values as ISO 8859-1. ``remote`` is the other
    end of the socket (never ``X-Forwarded-For``), None if it has no address. ``secure`` means TLS ends
    here. ``received`` is the loop's time, in seconds, when the request was read.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    remote: tuple[str, int] | None
    secure: bool
    received: float

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of the header ``name`` (lower case), in order."""
        return tuple(value for key, value in self.headers if key == name)

    def one(self, name: str) -> str | None:
        """Return the value of the header ``name`` (lower case); None if it is absent or repeated."""
        values = self.all(name)
        return values[0] if len(values) == 1 else None

    def subprotocols(self) -> tuple[str, ...]:
        """Return the subprotocols on offer, in the client's order of preference (RFC 6455 §11.3.4)."""
        offers = (token.strip() for value in self.all("sec-websocket-protocol") for token in value.split(","))
        return tuple(token for token in offers if token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Let the connection in. ``subprotocol`` must be one of those on offer, or None for none at all."""

    receiver: "Receiver"
    subprotocol: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Answer with HTTP instead, then hang up.

    ``Content-Length``, ``Connection`` and what the server sends with every response are added.
    ``release`` is the loop's time, in seconds, before which the answer must not leave: answers that must
    not be told apart by their time share one (RL-HTTP-009). None means at once.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    release: float | None = None


class Connection(Protocol):
    """One open WebSocket, as its receiver holds it. Not for use from another thread."""

    @property
    def id(self) -> int:
        """A number that no other connection of this process has had. For logs."""
        ...

    @property
    def remote(self) -> tuple[str, int] | None:
        """Address and port of the other end, as in `Handshake`."""
        ...

    def send(self, payload: bytes, *, binary: bool = False) -> None:
        """Send one text message; ``payload`` is UTF-8. ``binary`` makes it a binary one, of any bytes.

        Never blocks. A peer that leaves more than ``max_buffered`` bytes waiting is dropped: 1008 with
        the reason ``slow``, then no more patience. After the closing handshake has begun it does nothing.
        """
        ...

    def close(self, code: int, reason: str = "") -> None:
        """Begin the closing handshake; no message is delivered any more. A second call does nothing.

        Raises `ValueError` if ``code`` may not be sent or ``reason`` is longer than 123 bytes of UTF-8.
        """
        ...

    def abort(self) -> None:
        """Close the socket without a close frame, and throw away what waits."""
        ...

    def buffered(self) -> int:
        """Return how many bytes wait to be taken by the peer."""
        ...


class Receiver(Protocol):
    """What the relay does with one connection.

    An exception out of any method closes the connection with 1011; its text is not logged, since it
    may quote what the peer sent.
    """

    def opened(self, connection: Connection) -> None:
        """Take the connection: the first call, exactly once. Sending is allowed from here on."""
        ...

    def message(self, payload: bytes) -> None:
        """Take a whole text message: valid UTF-8, at most ``max_message`` bytes."""
        ...

    def binary(self, payload: bytes) -> None:
        """Take a whole binary message. The protocol has none: refusing it is the relay's to do."""
        ...

    def closed(self, code: int | None, clean: bool) -> None:
        """Learn that nothing can be sent or received any more: the last call, exactly once.

        ``clean`` means that the peer sent a close frame, and ``code`` is then its code (1005 if it had
        none). Else ``code`` is the one with which the edge itself gave the connection up (1002, 1007,
        1008, 1009, 1011), or None when the socket just ended. Never called from within `Connection`'s
        methods, and never while another method of the receiver runs.
        """
        ...


class Gate(Protocol):
    """Who may come in."""

    def handshake(self, request: Handshake) -> Accepted | Refused:
        """Judge one opening handshake. An exception is answered with 500 and not shown."""
        ...

    def farewell(self) -> str:
        """Return the reason of the 1001 that a stopping server closes every connection with."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """Bounds of every connection. Sizes are bytes, times are seconds.

    Raises `ConfigError` when one of them is not positive.
    """

    max_message: int = LISTENER_FRAME_BYTES
    """A longer message closes 1009, from its header or from the fragment that goes over."""

    max_buffered: int = 4 * LISTENER_FRAME_BYTES
    """More than this waiting for one peer drops it. Must hold the longest message that is ever sent."""

    ping_interval: float = PING_INTERVAL_MS / 1000
    """From one ping that was answered to the next."""

    ping_timeout: float = PING_TIMEOUT_MS / 1000
    """A peer from which not one whole frame came for so long after a ping is dropped: 1008, ``idle``."""

    close_timeout: float = 10.0
    """For the peer to answer a close frame, and again to hang up."""

    drop_timeout: float = 1.0
    """For a dropped peer to take its close frame before the socket is closed on it."""

    handshake_timeout: float = 10.0
    """For the head of an HTTP request to arrive, WebSocket or not."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ConfigError(f"the limit {field.name} must be greater than zero")


def edge_factory(name: str, gate: Gate, limits: EdgeLimits | None = None) -> type[asyncio.Protocol]:
    """Return what uvicorn takes as ``ws=``: the edge ``name`` (one of `EDGES`), bound to ``gate``.

    Raises `ConfigError` for another name.
    """
    # Only the chosen library is loaded.
    from ringline.relay.edge_upgrade import bind

    bounds = limits or EdgeLimits()
    if name == "picows":
        from ringline.relay.edge_picows import PicowsLink

        return bind(PicowsLink, gate, bounds)
    if name == "websockets":
        from ringline.relay.edge_websockets import WebsocketsLink

        return bind(WebsocketsLink, gate, bounds)
    raise ConfigError(f"no WebSocket edge is called {name!r}", next_step=f"choose one of {', '.join(EDGES)}")


def port_factory(limits: EdgeLimits | None = None) -> type[asyncio.Protocol]:
    """Return what uvicorn takes as ``http=`` beside `edge_factory`.

    It is uvicorn's own HTTP protocol, which also hands over what a client sent right behind its upgrade
    request, and gives up on a request head that does not arrive.
    """
    from ringline.relay.edge_upgrade import bind_port

    return bind_port(limits or EdgeLimits())
