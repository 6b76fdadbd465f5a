"""The WebSocket to a relay: dialled, logged in, read, and dialled again when it is lost.

A `Link` belongs to one role and one path. Whoever uses it says again what is true each time it opens;
nothing is kept here for a connection that is gone. What the relay sends cannot raise out of the reader:
a damaged frame is counted, and after twenty the connection is closed and made anew (RL-FRAME-018,
RL-FRAME-019).
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVarTuple, final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from ringline.client.backoff import Backoff
from ringline.client.dial import CLOSE_S, Dialler, FinalError
from ringline.client.http import RelayHttp
from ringline.protocol import codec
from ringline.protocol.closes import POLICY
from ringline.protocol.errors import FrameError, RinglineError
from ringline.protocol.frames import Direction, Frame
from ringline.protocol.limits import (
    CALLER_FRAME_BYTES,
    LISTENER_FRAME_BYTES,
    PING_INTERVAL_MS,
    PING_TIMEOUT_MS,
    UNDECODABLE_FRAMES,
)
from ringline.protocol.whereabouts import whereabouts

__all__ = ["Link", "LinkUser"]

_log: Final = logging.getLogger(__name__)

_Args = TypeVarTuple("_Args")

_WAITING_BYTES: Final = 64 * 1_048_576

# An incoming_call is a caller's frame whose clear members the relay wrote anew, and shorter.
_MAX_BYTES: Final[dict[Direction, int]] = {
    "relay_to_caller": LISTENER_FRAME_BYTES,
    "relay_to_listener": CALLER_FRAME_BYTES,
}


class LinkUser(Protocol):
    """Who uses a link. All methods are called in the event loop, none of them may block."""

    def opened(self) -> None:
        """A connection stands; nothing that was sent before is known to have arrived."""

    def frame(self, frame: Frame) -> None:
        """A frame of the relay arrived."""

    def lost(self, error: RinglineError, retry_s: float) -> None:
        """There is no connection; the link dials again in ``retry_s`` seconds."""

    def ended(self, error: RinglineError) -> None:
        """There is no connection and there will be none; ``error`` says why."""


@final
class Link:
    """A WebSocket that comes back by itself.

    ``path`` begins with ``/v1/`` and may carry a query; ``direction`` is that of what the relay sends.
    """

    def __init__(
        self,
        http: RelayHttp,
        path: str,
        direction: Direction,
        user: LinkUser,
        *,
        backoff: Backoff | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        ping_interval_s: float = PING_INTERVAL_MS / 1_000,
        ping_timeout_s: float = PING_TIMEOUT_MS / 1_000,
    ) -> None:
        """Nothing is dialled before `start`."""
        self._path = path
        self._direction: Direction = direction
        ping = (ping_interval_s, ping_timeout_s)
        self._dialler = Dialler(http, path, max_bytes=_MAX_BYTES[direction], ping=ping)
        self._user = user
        self._backoff = backoff or Backoff(random.random)
        self._monotonic = monotonic
        self._task: asyncio.Task[None] | None = None
        self._socket: ClientConnection | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._more = asyncio.Event()
        self._sent = asyncio.Event()
        self._sent.set()
        self._hurry = asyncio.Event()
        self.damaged = 0
        """Frames of the relay that could not be read, over all connections."""

    @property
    def connected(self) -> bool:
        """True while a connection stands."""
        return self._socket is not None

    @property
    def ended(self) -> bool:
        """True when the link will not dial any more."""
        return self._task is not None and self._task.done()

    def start(self) -> None:
        """Begin to dial, in the running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._live(), name=f"link {self._path[:9]}")

    def wake(self) -> None:
        """Dial now instead of after the delay."""
        self._hurry.set()

    def send(self, frame: Frame) -> bool:
        """Send a frame on the connection that stands. Returns False when there is none: it is not kept."""
        return self.send_bytes(codec.encode(frame))

    def send_bytes(self, payload: bytes) -> bool:
        """Send a frame that is already encoded, as `send` does."""
        if self._socket is None:
            return False
        if self._waiting_bytes + len(payload) > _WAITING_BYTES:
            # The relay takes nothing any more; a new connection starts from what is true then.
            self._socket.transport.abort()
            return False
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        self._more.set()
        self._sent.clear()
        return True

    async def close(self) -> None:
        """Close the connection with 1000 and dial no more. What waits to be sent is sent first."""
        if self._task is None or self._task.done():
            return
        socket = self._socket
        if socket is not None:
            with contextlib.suppress(WebSocketException, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._sent.wait()
                    await socket.close()
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _live(self) -> None:
        """Run until told to stop; a link that ends in any other way says so to its user."""
        try:
            await self._run()
        except Exception as error:
            _log.error("the connection was given up: %s", whereabouts(error))
            fault = RinglineError(f"the connection was given up over a fault here: {type(error).__name__}")
            self._tell(self._user.ended, fault)

    async def _run(self) -> None:
        while True:
            hint_s: float | None = None
            try:
                socket = await self._dialler.dial()
            except FinalError as final_error:
                self._tell(self._user.ended, final_error.error)
                return
            except RinglineError as error:
                cause: RinglineError = error
                if error.retry_after_ms is not None:
                    hint_s = error.retry_after_ms / 1_000
            else:
                self._backoff.opened(self._monotonic())
                try:
                    cause = await self._use(socket)
                except FinalError as final_error:
                    self._tell(self._user.ended, final_error.error)
                    return
                if cause.retry_after_ms is not None:
                    hint_s = cause.retry_after_ms / 1_000
            delay_s = self._backoff.failed(self._monotonic(), hint_s)
            self._hurry.clear()
            self._tell(self._user.lost, cause, delay_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._hurry.wait()

    async def _use(self, socket: ClientConnection) -> RinglineError:
        """Pump until the connection ends and return why it did."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._socket = socket
        damaged_before = self.damaged
        writer = asyncio.get_running_loop().create_task(self._write(socket))
        try:
            self._tell(self._user.opened)
            await self._read(socket)
        except ConnectionClosed:
            pass
        finally:
            self._socket = None
            self._sent.set()
            writer.cancel()
            # Not `await writer`: a cancellation of this very task must not be taken for the writer's.
            await asyncio.wait({writer})
            if socket.state.name != "CLOSED":
                socket.transport.abort()
            if (damaged := self.damaged - damaged_before) > 1:
                _log.warning("that connection had %d frames that cannot be read", damaged)
        return await self._dialler.why_closed(socket)

    async def _read(self, socket: ClientConnection) -> None:
        damaged = 0
        while True:
            message = await socket.recv()
            try:
                # RL-FRAME-008: a message that is not one JSON object is refused, and a binary one is none.
                if isinstance(message, bytes):
                    raise FrameError("a binary message")
                frame = codec.decode(message.encode(), self._direction)
            except FrameError:
                damaged += 1
                self.damaged += 1
                if damaged == 1:
                    # One line, whatever a relay sends: it must not be able to flood a terminal.
                    _log.warning(
                        "the relay sent a frame that cannot be read; others of this connection are counted"
                    )
                if damaged >= UNDECODABLE_FRAMES:
                    await socket.close(POLICY, "frames")
                    return
                continue
            self._tell(self._user.frame, frame)

    async def _write(self, socket: ClientConnection) -> None:
        try:
            await self._write_all(socket)
        except ConnectionClosed:
            pass
        except Exception as error:
            # A connection on which nothing is sent any more must not look as if it stood.
            _log.error("a frame was not sent: %s", whereabouts(error))
            socket.transport.abort()

    async def _write_all(self, socket: ClientConnection) -> None:
        while True:
            while self._waiting:
                payload = self._waiting[0]
                await socket.send(payload, text=True)
                self._waiting.popleft()
                self._waiting_bytes -= len(payload)
            self._more.clear()
            self._sent.set()
            await self._more.wait()

    def _tell(self, call: Callable[[*_Args], None], *args: *_Args) -> None:
        """Call the user; whatever he raises must not end the reader."""
        try:
            call(*args)
        except Exception as error:
            _log.error("a frame was not handled: %s", whereabouts(error))
