"""One open WebSocket: everything that does not depend on the library which splits the bytes into frames.

A `Link` is fed whole frames and writes whole frames. It answers pings, keeps the peer alive or gives it
up, performs the closing handshake, bounds what waits for a slow reader, and lets nothing that a receiver
raises reach the event loop. An edge subclasses it with a framing library's parser.

Source: RFC 6455 §5.5, §7; RL-TRANSPORT-031 to RL-TRANSPORT-038.
"""

import asyncio
import enum
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from ringline.protocol.closes import GOING_AWAY, INTERNAL, POLICY
from ringline.protocol.whereabouts import whereabouts
from ringline.relay.edge import EdgeLimits, Gate, Receiver
from ringline.relay.edge_assembly import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Assembly,
    Violation,
    close_frame,
    frame,
    header,
    read_close,
)

__all__ = ["Departure", "Link"]

logger = logging.getLogger("ringline.relay.edge")

_BATCH: Final = 65_536  # bytes

_NOBODY: Final = asyncio.Protocol()

_ids = itertools.count(1)


class _State(enum.Enum):
    OPEN = enum.auto()
    CLOSING = enum.auto()  # our close frame is sent, the peer's is awaited
    OVER = enum.auto()  # nothing is sent or delivered any more; the socket may still be there


# Bound once: every frame asks, and looking a member of an enum up in its class is slow.
_OPEN: Final = _State.OPEN


class Departure(asyncio.Protocol):
    """The last protocol of a socket: what still comes is thrown away until the peer hangs up.

    Closing at once would make the kernel answer bytes on their way with a reset, and the peer might never
    read our last words (RFC 6455 §7.1.1). After ``patience`` seconds the socket is closed all the same.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        patience: float,
        lost: Callable[[], None],
    ) -> None:
        self._lost = lost
        self._timer = loop.call_later(patience, transport.abort)
        if transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner that the socket is gone."""
        self._timer.cancel()
        self._lost()


class Link(ABC):
    """A `Connection`, and what an edge reports to.

    The edge calls `received` for each frame, `violated` when its parser gives up, `ended` at the end of
    the stream and `lost` when the socket is gone.
    """

    __slots__ = (
        "__weakref__",
        "_assembly",
        "_attached",
        "_clean",
        "_code",
        "_connections",
        "_gate",
        "_heard",
        "_limits",
        "_loop",
        "_pinged",
        "_protocol",
        "_queue",
        "_queued",
        "_receiver",
        "_remote",
        "_state",
        "_timer",
        "_told",
        "_transport",
        "id",
    )

    def __init__(
        self,
        *,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        gate: Gate,
        receiver: Receiver,
        limits: EdgeLimits,
        remote: tuple[str, int] | None,
        connections: set[object],
    ) -> None:
        self.id = next(_ids)
        self._remote = remote
        self._transport = transport
        self._loop = loop
        self._gate = gate
        self._receiver = receiver
        self._limits = limits
        self._connections = connections
        self._assembly = Assembly(limits.max_message)
        self._state = _State.OPEN
        self._heard = False
        self._pinged = 0.0
        self._queue: list[bytes] = []
        self._queued = 0
        self._code: int | None = None
        self._clean = False
        self._told = False
        self._attached = False
        self._timer = loop.call_later(limits.ping_interval, self._ping)
        self._protocol: asyncio.Protocol = self._parser()
        connections.add(self)

    @abstractmethod
    def _parser(self) -> asyncio.Protocol:
        """Return a protocol that takes bytes and calls `received`, `violated`, `ended` and `lost`."""

    # --- Connection

    @property
    def remote(self) -> tuple[str, int] | None:
        """See `Connection`."""
        return self._remote

    def send(self, payload: bytes, *, binary: bool = False) -> None:
        """See `Connection`."""
        if self._state is _OPEN:
            self._write(header(BINARY if binary else TEXT, len(payload)), payload)

    def close(self, code: int, reason: str = "") -> None:
        """See `Connection`."""
        last = close_frame(code, reason)
        if self._state is _State.OPEN:
            self._write(last)
            # The write may have found the peer too slow.
            if self._state is _State.OPEN:
                self._state = _State.CLOSING
                self._assembly.discard()
                self._rearm(self._limits.close_timeout, self.abort)

    def abort(self) -> None:
        """See `Connection`."""
        self._state = _State.OVER
        self._queue.clear()
        self._queued = 0
        self._transport.abort()

    def buffered(self) -> int:
        """See `Connection`."""
        return self._queued + self._transport.get_write_buffer_size()

    # --- the server

    @property
    def protocol(self) -> asyncio.Protocol:
        """What the socket's bytes and its end are for at the moment."""
        return self._protocol

    def open(self) -> None:
        """Give the connection to its receiver: the answer to the handshake is written."""
        try:
            self._receiver.opened(self)
        except Exception as exc:
            self._fault("opened", exc)

    def attach(self) -> None:
        """Put the link's own protocol on the socket: uvicorn is done with it."""
        self._attached = True
        self._become(self._protocol)

    def shutdown(self) -> None:
        """Say 1001: uvicorn calls this on every connection when it stops."""
        try:
            self.close(GOING_AWAY, self._gate.farewell())
        except Exception as exc:
            self._fault("farewell", exc)

    # --- the edge

    def received(self, opcode: int, fin: bool, payload: bytes) -> None:
        """Take one frame whose header the parser found to be well-formed."""
        if self._state is not _OPEN:
            if opcode == CLOSE and self._state is _State.CLOSING:
                self._answer_close(payload)
            return
        self._heard = True
        if opcode < CLOSE:
            assembly = self._assembly
            try:
                message = assembly.add(opcode, fin, payload)
            except Violation as violation:
                self.violated(violation.code, violation.reason)
                return
            if message is None:
                return
            try:
                if assembly.text:
                    self._receiver.message(message)
                else:
                    self._receiver.binary(message)
            except Exception as exc:
                self._fault("message", exc)
        elif opcode == PING:
            self._write(frame(PONG, payload))
        elif opcode == CLOSE:
            self._answer_close(payload)

    def violated(self, code: int, reason: str) -> None:
        """Give the connection up because the peer broke a rule (RFC 6455 §7.1.7)."""
        self._give_up(code, reason, self._limits.close_timeout)

    def ended(self) -> None:
        """Take the end of the stream: the peer sends no more, and a close frame is not to be expected."""
        self._over()
        # The transport closes once all is written; a peer that does not read must not hold it open.
        self._rearm(self._limits.drop_timeout, self._transport.abort)

    def lost(self) -> None:
        """Take the end of the socket."""
        self._timer.cancel()
        self._connections.discard(self)
        # A parser and its link hold each other: free its buffers now, not at some later collection.
        self._protocol = _NOBODY
        self._over()

    # --- within

    def _fault(self, method: str, exc: Exception) -> None:
        logger.error("connection %d: %s() raised %s; closing with 1011", self.id, method, whereabouts(exc))
        self._give_up(INTERNAL, "internal error", self._limits.close_timeout)

    def _write(self, head: bytes, payload: bytes = b"") -> None:
        # What one turn of the loop sends to a peer leaves in one system call, unless it is so much that
        # the call is the smaller cost.
        queue = self._queue
        if not queue:
            self._loop.call_soon(self._flush)
        queue.append(head)
        if payload:
            queue.append(payload)
        self._queued += len(head) + len(payload)
        if self._queued > _BATCH:
            self._flush()

    def _flush(self) -> None:
        queue = self._queue
        if not queue:
            return
        self._queue = []
        self._queued = 0
        transport = self._transport
        if transport.is_closing():
            return
        if len(queue) == 1:
            transport.write(queue[0])
        else:
            transport.writelines(queue)
        if transport.get_write_buffer_size() > self._limits.max_buffered:
            self._give_up(POLICY, "slow", self._limits.drop_timeout)

    def _answer_close(self, payload: bytes) -> None:
        try:
            code = read_close(payload)
        except Violation as violation:
            self.violated(violation.code, violation.reason)
            return
        self._code, self._clean = code, True
        # RFC 6455 §5.5.1: echo the code. The server then is the one that hangs up (§7.1.1).
        self._depart(frame(CLOSE, payload[:2]), self._limits.close_timeout)

    def _give_up(self, code: int, reason: str, patience: float) -> None:
        if self._state is not _State.OVER:
            self._code = code
            self._depart(close_frame(code, reason), patience)

    def _depart(self, last: bytes, patience: float) -> None:
        """Send the close frame ``last`` if none was sent yet, and hang up within ``patience`` seconds."""
        if self._state is _State.OPEN:
            self._queue.append(last)
        self._state = _State.OVER
        self._flush()
        self._timer.cancel()
        self._become(Departure(self._transport, self._loop, patience, self.lost))
        self._over()

    def _become(self, protocol: asyncio.Protocol) -> None:
        """Let another protocol have what comes from the socket, from the next read on."""
        self._protocol = protocol
        if self._attached and not self._transport.is_closing():
            self._transport.set_protocol(protocol)

    def _over(self) -> None:
        self._state = _State.OVER
        self._assembly.discard()
        if not self._told:
            self._told = True
            # In a turn of its own: the receiver may be the one that is sending.
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        try:
            self._receiver.closed(self._code, self._clean)
        except Exception as exc:
            logger.error("connection %d: closed() raised %s", self.id, whereabouts(exc))

    def _rearm(self, delay: float, then: Callable[[], None]) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(delay, then)

    def _ping(self) -> None:
        self._heard = False
        self._pinged = self._loop.time()
        self._write(frame(PING, b""))
        if self._state is _State.OPEN:
            self._rearm(min(self._limits.ping_interval, self._limits.ping_timeout), self._judge)

    def _judge(self) -> None:
        limits, elapsed = self._limits, self._loop.time() - self._pinged
        if self._heard:
            # RL-TRANSPORT-033: any frame is a sign of life, and not only a pong.
            self._rearm(max(0.0, limits.ping_interval - elapsed), self._ping)
        elif elapsed < limits.ping_timeout:
            self._rearm(min(limits.ping_interval, limits.ping_timeout - elapsed), self._judge)
        else:
            self._give_up(POLICY, "idle", limits.drop_timeout)
