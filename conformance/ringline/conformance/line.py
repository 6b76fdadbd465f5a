"""One connection of the suite to a relay, in one role: frames in and out, each on the record.

A task reads all the time, so that pings are answered and what is sent unasked is seen. Whatever arrives is
decoded as the schema of its direction says; the first thing that is not so is the case's divergence.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, final

import msgspec

from ringline.conformance.subject import Patience
from ringline.conformance.timeline import Timeline, shorten
from ringline.conformance.verdict import Failed, check
from ringline.conformance.websocket import BINARY, TEXT, Ended, Message, WebSocket
from ringline.protocol import codec
from ringline.protocol.errors import FrameError
from ringline.protocol.frames import Direction
from ringline.protocol.limits import CALLER_FRAME_BYTES, LISTENER_FRAME_BYTES

__all__ = ["Frame", "Line", "Side"]

Frame: TypeAlias = dict[str, Any]
Side: TypeAlias = Literal["caller", "listener", "to caller", "to listener"]
"""What the suite is on a connection: a caller, a listener, or the relay towards one of them."""

_READS: Final[dict[Side, Direction]] = {
    "caller": "relay_to_caller",
    "listener": "relay_to_listener",
    "to caller": "caller_to_relay",
    "to listener": "listener_to_relay",
}
_MOST_BYTES: Final[dict[Side, int]] = {"to caller": CALLER_FRAME_BYTES, "to listener": LISTENER_FRAME_BYTES}
"""What a subject may send at most (RL-TRANSPORT-029, RL-TRANSPORT-030)."""

_UNKNOWN_CALL: Final = "no-such-call-of-the-suite"


@final
class Line:
    """A caller's or a listener's connection. Everything that waits does so for a bounded time."""

    def __init__(
        self,
        socket: WebSocket,
        name: str,
        side: Side,
        timeline: Timeline,
        patience: Patience,
        inspect: Callable[[str, bytes], str | None],
    ) -> None:
        """``inspect`` is given this line's name and each message, and returns what must not be in it."""
        self.socket = socket
        self.name = name
        self.side: Side = side
        self.ended: Ended | None = None
        """How the connection ended, None while it lives."""
        self._timeline = timeline
        self._patience = patience
        self._inspect = inspect
        self._arrived: asyncio.Queue[Frame | Ended] = asyncio.Queue()
        self._fences = 0
        self._reader: asyncio.Task[None] | None = None

    def record(self, timeline: Timeline) -> None:
        """Put on another record what passes from now on."""
        self._timeline = timeline

    def read(self) -> None:
        """Begin to read; a line that never does is a peer that stalls."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while self.ended is None:
            try:
                arrived = await self.socket.receive()
            except ValueError as error:
                self._timeline.diverges(self.name, str(error))
                arrived = Ended(None, detail="broken off by the suite")
                self.socket.abort()
            if isinstance(arrived, Ended):
                self._timeline.remark(self.name, str(arrived))
                self.ended = arrived
                await self._arrived.put(arrived)
            else:
                await self._arrived.put(self._take(arrived))

    def _take(self, message: Message) -> Frame:
        self._timeline.received(self.name, shorten(message.payload))
        leak = self._inspect(self.name, message.payload)
        if leak is not None:
            self._timeline.diverges(self.name, leak)
        most = _MOST_BYTES.get(self.side)
        if most is not None and len(message.payload) > most:
            told = f"a message of {len(message.payload):,} bytes; {most:,} are the most"
            self._timeline.diverges(self.name, told)
        if message.opcode != TEXT:
            self._timeline.diverges(self.name, "a binary message")
            return {}
        try:
            codec.decode(message.payload, _READS[self.side])
        except FrameError as error:
            self._timeline.diverges(self.name, str(error))
        try:
            return msgspec.json.decode(message.payload, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return {}

    # --- sending

    async def send(self, frame: Frame | bytes | str) -> None:
        """Send one text message: a frame, or text and bytes as they are."""
        payload = frame.encode("utf-8", "surrogatepass") if isinstance(frame, str) else frame
        data = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        self._timeline.sent(self.name, shorten(data))
        await self._write(self.socket.framed(TEXT, data))

    async def send_binary(self, payload: bytes) -> None:
        """Send one binary message."""
        self._timeline.sent(self.name, f"binary: {shorten(payload)}")
        await self._write(self.socket.framed(BINARY, payload))

    async def send_raw(self, data: bytes, what: str) -> None:
        """Send bytes as they are; ``what`` they are is noted."""
        self._timeline.sent(self.name, what)
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        try:
            self.socket.send_bytes(data)
            async with asyncio.timeout(self._patience.answer):
                await self.socket.drain()
        except (OSError, TimeoutError) as error:
            # Whether that is right is for the case to say, by what it waits for next.
            self._timeline.remark(self.name, f"could not be sent: {type(error).__name__}")

    async def leave(self, code: int = 1000) -> None:
        """Close in good order, and wait for the subject to have done so too."""
        self._timeline.sent(self.name, f"close {code}")
        self.socket.close(code)
        await self._end()
        await self._stop()

    def half_close(self) -> None:
        """Say, below the WebSocket, that nothing more will be sent; go on reading."""
        self._timeline.sent(self.name, "(the end of the stream)")
        self.socket.half_close()

    async def break_off(self) -> None:
        """Let the connection break, without a word."""
        self._timeline.sent(self.name, "(the connection breaks)")
        self.socket.abort()
        await self._stop()

    async def _stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        await self.socket.hang_up()

    async def dispose(self) -> None:
        """Let go of the connection at the end of a case."""
        self.socket.abort()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(1):
                await self._stop()

    # --- receiving

    async def arrival(self) -> Frame | Ended:
        """Return the next frame, or how the connection ended, however long that takes."""
        return await self._arrived.get()

    async def next(self, within: float | None = None) -> Frame:
        """Return the next frame. Raises `Failed` when none comes, or the connection ends instead."""
        try:
            async with asyncio.timeout(self._patience.answer if within is None else within):
                arrived = await self._arrived.get()
        except TimeoutError:
            raise Failed(f"a frame to {self.name}", "nothing in time") from None
        if isinstance(arrived, Ended):
            await self._arrived.put(arrived)
            raise Failed(f"a frame to {self.name}", str(arrived))
        return arrived

    async def expect(self, kind: str, within: float | None = None, **members: Any) -> Frame:
        """Return the next frame, which must be of type ``kind`` and have these members.

        A member given as None must be absent; `from` is written ``from_``.
        """
        wanted = {"type": kind} | {name.rstrip("_"): value for name, value in members.items()}
        try:
            frame = await self.next(within)
        except Failed as error:
            raise Failed(f"{shorten(msgspec.json.encode(wanted))} to {self.name}", error.actual) from None
        for name, value in wanted.items():
            if frame.get(name) != value:
                raise Failed(
                    f"{shorten(msgspec.json.encode(wanted))} to {self.name}",
                    shorten(msgspec.json.encode(frame)),
                )
        return frame

    async def refused(self, code: str = "protocol_error", **members: Any) -> Frame:
        """Return the next frame, which must be the relay's refusal of a frame: no ``call_id``."""
        return await self.expect("call_error", origin="relay", code=code, call_id=None, **members)

    async def quiet(self, why: str = "") -> None:
        """Pass when nothing has been sent on this line as an effect of what was done before.

        A frame whose answer is known is sent: it must be the next to arrive, and nothing behind it.
        """
        self._fences += 1
        unknown = f"{_UNKNOWN_CALL}-{self._fences}"
        if self.side == "listener":
            probe, answer = "call_accepted", "cancel_call"
        else:
            probe, answer = "cancel_call", "call_not_cancelled"
        await self.send({"type": probe, "call_id": unknown})
        frame = await self.next()
        if frame.get("type") != answer or frame.get("call_id") != unknown:
            raise Failed(
                f"nothing more to {self.name}{f': {why}' if why else ''}",
                shorten(msgspec.json.encode(frame)),
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience.quiet):
                late = await self._arrived.get()
                await self._arrived.put(late)
                if not isinstance(late, Ended):
                    raise Failed(
                        f"nothing more to {self.name}{f': {why}' if why else ''}",
                        shorten(msgspec.json.encode(late)),
                    )

    async def drain_until_end(self, within: float | None = None) -> list[Frame]:
        """Return every frame up to the end of the connection. Raises `Failed` when it does not end."""
        frames: list[Frame] = []
        try:
            async with asyncio.timeout(self._patience.answer if within is None else within):
                while not isinstance(arrived := await self._arrived.get(), Ended):
                    frames.append(arrived)
        except TimeoutError:
            raise Failed(f"the end of {self.name}'s connection", "it stays open") from None
        await self._arrived.put(arrived)
        return frames

    async def closed(self, *codes: int, reason: str | None = None, within: float | None = None) -> Ended:
        """Wait for the subject to end the connection, nothing being sent before.

        That it ends is the case's business (`Failed` else); whether it does so with one of ``codes`` and
        ``reason`` is judged apart.
        """
        frames = await self.drain_until_end(within)
        ended = self.ended
        assert ended is not None
        check(not frames, f"the end of {self.name}'s connection", shorten(msgspec.json.encode(frames)))
        self.judge_end(*codes, reason=reason)
        return ended

    def judge_end(self, *codes: int, reason: str | None = None) -> None:
        """Judge, apart from the case, with which code and reason the connection has ended."""
        ended = self.ended
        assert ended is not None
        if ended.code not in codes or (reason is not None and ended.reason != reason):
            wanted = " or ".join(map(str, codes)) + (f" {reason!r}" if reason else "")
            self._timeline.misclosed(self.name, f"{ended} instead of close {wanted}")

    async def _end(self) -> None:
        with contextlib.suppress(Failed):
            await self.drain_until_end()
