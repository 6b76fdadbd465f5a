"""The portable edge: frames are split by the sans-IO protocol of the `websockets` package.

Only its reader is used. What it wants to send (pongs, echoes of close frames) the link sends itself, so
that both edges behave alike; when the library fails a connection, the code is read from the close frame
that it wrote for the purpose.
"""

import asyncio
import logging

from websockets.frames import Frame
from websockets.protocol import State
from websockets.server import ServerProtocol

from ringline.protocol.closes import PROTOCOL_ERROR
from ringline.relay.edge_assembly import CLOSE, NO_STATUS
from ringline.relay.edge_link import Link

__all__ = ["WebsocketsLink"]

# The library logs whole frames at the level DEBUG (RL-PRIVACY-001): it gets a logger that has no ears.
_silent = logging.Logger("websockets", logging.CRITICAL + 1)


class WebsocketsLink(Link):
    """A link whose bytes the `websockets` package splits into frames."""

    __slots__ = ()

    def _parser(self) -> asyncio.Protocol:
        return _Parser(self, self._limits.max_message)


class _Parser(asyncio.Protocol):
    def __init__(self, link: Link, max_message: int) -> None:
        self._link = link
        self._frames = ServerProtocol(state=State.OPEN, max_size=max_message, logger=_silent)

    def data_received(self, data: bytes) -> None:
        frames = self._frames
        frames.receive_data(data)
        output = frames.data_to_send()
        closed = False
        for event in frames.events_received():
            if isinstance(event, Frame):
                closed = closed or event.opcode == CLOSE
                self._link.received(event.opcode, event.fin, bytes(event.data))
        if not frames.close_expected() or closed:
            return
        last = frames.close_rcvd
        if last is None:
            self._link.violated(_failure(output), "broken frame")
        else:
            # The library fails a connection that is closed within a message; RFC 6455 §5.4 lets control
            # frames come there.
            self._link.received(CLOSE, True, b"" if last.code == NO_STATUS else last.serialize())

    def eof_received(self) -> None:
        self._link.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost()


def _failure(output: list[bytes]) -> int:
    """Return the code of the close frame that ends what the library would send."""
    for data in reversed(output):
        if data and data[0] == 0x80 | CLOSE:
            return int.from_bytes(data[2:4])
    return PROTOCOL_ERROR
