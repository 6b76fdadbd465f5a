"""The fast edge: frames are split by picows, in C, straight from the buffer that the loop reads into.

picows' protocol is made to own its socket, its handshake and its failures. Here it is a parser and no
more: it gets a `_Tap` for a transport, a handshake of our own making to begin with, and what it writes is
looked at instead of being sent. Its constructor is not public: the minor version is pinned, and
tests/unit/relay/test_edge_picows.py holds the seam.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from picows import WSAutoPingStrategy, WSFrame, WSListener, WSMsgType, WSTransport

from ringline.protocol.closes import PROTOCOL_ERROR
from ringline.relay.edge_assembly import CLOSE
from ringline.relay.edge_link import Link

if TYPE_CHECKING:

    class WSProtocol(asyncio.BufferedProtocol):
        """What picows does not declare."""

        def __init__(self, *args: object) -> None: ...

        def get_buffer(self, sizehint: int) -> memoryview: ...

else:
    from picows.picows import WSProtocol

__all__ = ["PicowsLink"]

READ_BUFFER: Final = 4096

# Brings a new parser to the point where frames begin; the real handshake was judged before.
_HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class _Silence:
    """A logger without ears: picows logs close reasons and, at low levels, whole requests (RL-PRIVACY-001).

    Not a `logging.Logger`: picows would make a child of it for each connection.
    """

    def isEnabledFor(self, level: int) -> bool:
        return False

    def _drop(self, *args: object, **kwargs: object) -> None: ...

    log = debug = info = warning = error = exception = _drop


class _NoSocket:
    """picows sets options of its socket and writes to its descriptor when it can: not to ours."""

    def fileno(self) -> int:
        return -1

    def setsockopt(self, *args: object) -> None: ...

    def getsockopt(self, *args: object) -> int:
        return 0


_SILENCE: Final = _Silence()
_NO_SOCKET: Final = _NoSocket()


class PicowsLink(Link):
    """A link whose bytes picows splits into frames."""

    __slots__ = ()

    def _parser(self) -> asyncio.Protocol:
        # asyncio and uvloop both see a BufferedProtocol; `Link.protocol` wants its data_received().
        return cast("asyncio.Protocol", _Parser(self, self._limits.max_message))

    def failed(self, code: int) -> None:
        """Take the parser's failure: in the next turn, since picows reads one frame ahead.

        The frame before the broken one is yet to be delivered when this is called.
        """
        self._loop.call_soon(self.violated, code, "broken frame")

    def slim(self) -> None:
        """Free a read buffer that has grown; call this only where no part of a frame is left unread.

        It never shrinks by itself, so that one long message would be paid for as long as the connection
        lasts.
        """
        parser: object = self._protocol
        if isinstance(parser, _Parser) and len(parser.get_buffer(-1)) > 4 * READ_BUFFER:
            self._become(self._parser())


class _Ear(WSListener):
    __slots__ = ("_link",)

    def __init__(self, link: PicowsLink) -> None:
        self._link = link

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            # RFC 6455 §5.2: reserved for extensions, and none is in use.
            self._link.violated(PROTOCOL_ERROR, "reserved bits")
            return
        kind: Any = frame.msg_type
        self._link.received(kind, bool(frame.fin), frame.get_payload_as_bytes())
        # A pong is the sign of a quiet moment, and comes once in every ping interval at least.
        if kind is WSMsgType.PONG and not frame.tail_size:
            self._link.slim()

    def pause_writing(self) -> None:
        """The link bounds what waits: no need to know."""

    def resume_writing(self) -> None:
        """As above."""


class _Tap:
    """The transport of a parser: what picows writes to it is heard, and goes nowhere."""

    def __init__(self, link: PicowsLink) -> None:
        self._link = link

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _NO_SOCKET if name == "socket" else default

    def get_write_buffer_size(self) -> int:
        return 1  # else picows writes to the descriptor itself

    def write(self, data: bytes | bytearray) -> None:
        # The answer to the handshake, or the close frame with which picows fails a connection.
        if data[0] == 0x80 | CLOSE:
            self._link.failed(int.from_bytes(data[2:4]))

    def close(self) -> None:
        """picows hangs up a moment after it has failed a connection; the link sees to it already."""


class _Parser(WSProtocol):
    def __init__(self, link: PicowsLink, max_message: int) -> None:
        ear = _Ear(link)

        def listener(request: object) -> WSListener:
            return ear

        super().__init__(
            None,  # host and port: of a client
            None,  # path: of a client
            False,  # client side
            listener,
            _SILENCE,
            True,  # close on an exception of the listener
            None,  # handshake time-out
            False,  # pings of its own
            0,
            0,
            WSAutoPingStrategy.PING_PERIODICALLY,
            False,  # pongs of its own
            max_message,
            None,  # headers: of a client
            READ_BUFFER,
        )
        self._link = link
        super().connection_made(cast("asyncio.BaseTransport", _Tap(link)))
        self.data_received(_HANDSHAKE)

    def data_received(self, data: bytes) -> None:
        # While uvicorn still has the socket, and for the handshake: the loop reads into get_buffer().
        rest = memoryview(data)
        while rest:
            room = self.get_buffer(-1)
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            self.buffer_updated(size)
            rest = rest[size:]

    def eof_received(self) -> bool | None:
        self._link.ended()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost()
