"""From frames to messages: the rules of RFC 6455 that a framing library leaves to its user. Pure.

Both edges hand every frame to the one `Assembly` of its connection, so that they agree on fragments,
lengths, UTF-8 and close codes even where the libraries differ.
"""

import codecs
import struct
from typing import Final

from ringline.protocol.closes import INVALID_TEXT, PROTOCOL_ERROR, TOO_BIG

__all__ = [
    "BINARY",
    "CLOSE",
    "CONTINUATION",
    "NO_STATUS",
    "PING",
    "PONG",
    "TEXT",
    "Assembly",
    "Violation",
    "close_frame",
    "frame",
    "header",
    "read_close",
]

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NO_STATUS: Final = 1005  # never sent: stands for a close frame without a code

_REASON_BYTES: Final = 123  # a control frame's 125 less the code

_medium: Final = struct.Struct("!BBH").pack
_long: Final = struct.Struct("!BBQ").pack


class Violation(Exception):
    """The peer broke a rule; ``code`` and ``reason`` are those of the close frame it gets."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Assembly:
    """The message that is being received on one connection.

    ``limit`` is the number of bytes of the longest message. What has arrived of an unfinished one counts,
    and is kept in one piece: a thousand empty fragments weigh nothing.
    """

    __slots__ = ("_buffer", "_decoder", "_limit", "_open", "text")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open = False
        self._buffer = bytearray()
        self._decoder: codecs.IncrementalDecoder | None = None
        self.text = False
        """Whether the message last begun is text."""

    def add(self, opcode: int, fin: bool, payload: bytes) -> bytes | None:
        """Take one data frame; return the message it completes, None if more is to come.

        Raises `Violation`: 1002 for a continuation of nothing or a message within a message
        (RFC 6455 §5.4), 1007 for text that is not UTF-8, at the first fragment that shows it (§8.1),
        1009 for more than ``limit`` bytes.
        """
        if opcode != CONTINUATION:
            if self._open:
                raise Violation(PROTOCOL_ERROR, "a message within a message")
            self.text = opcode == TEXT
            if fin:
                if len(payload) > self._limit:
                    raise Violation(TOO_BIG, "message too big")
                if self.text and not payload.isascii():
                    _check_utf8(payload)
                return payload
            self._open = True
            self._decoder = codecs.getincrementaldecoder("utf-8")() if self.text else None
        elif not self._open:
            raise Violation(PROTOCOL_ERROR, "a continuation of nothing")
        if len(self._buffer) + len(payload) > self._limit:
            raise Violation(TOO_BIG, "message too big")
        if self._decoder is not None:
            try:
                self._decoder.decode(payload, fin)
            except UnicodeDecodeError as error:
                raise Violation(INVALID_TEXT, "text is not UTF-8") from error
        self._buffer += payload
        if not fin:
            return None
        message = bytes(self._buffer)
        self.discard()
        return message

    def discard(self) -> None:
        """Forget an unfinished message and free its memory."""
        self._open = False
        self._buffer = bytearray()
        self._decoder = None


def _check_utf8(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        raise Violation(INVALID_TEXT, "text is not UTF-8") from error


def _may_be_sent(code: int) -> bool:
    """RFC 6455 §7.4 and the registry it began: 1004 to 1006 and 1015 are never on the wire."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def read_close(payload: bytes) -> int:
    """Return the code in the payload of a close frame, `NO_STATUS` if it is empty.

    Raises `Violation`: 1002 for a single byte or a code that may not be sent (RFC 6455 §5.5.1, §7.4),
    1007 for a reason that is not UTF-8.
    """
    if not payload:
        return NO_STATUS
    code = int.from_bytes(payload[:2])
    # A single byte, taken for a number, is a code that may not be sent either.
    if not _may_be_sent(code):
        raise Violation(PROTOCOL_ERROR, "invalid close code")
    _check_utf8(payload[2:])
    return code


def header(opcode: int, size: int) -> bytes:
    """Return the header of a whole, unmasked frame with ``size`` bytes of payload (RFC 6455 §5.2)."""
    if size < 126:
        return bytes((0x80 | opcode, size))
    if size < 65_536:
        return _medium(0x80 | opcode, 126, size)
    return _long(0x80 | opcode, 127, size)


def frame(opcode: int, payload: bytes) -> bytes:
    """Return a whole, unmasked frame: what a server sends."""
    return header(opcode, len(payload)) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a close frame.

    Raises `ValueError` for a code that may not be sent, and for a reason over 123 bytes.
    """
    text = reason.encode()
    if not _may_be_sent(code):
        raise ValueError(f"close code {code} may not be sent")
    if len(text) > _REASON_BYTES:
        raise ValueError(f"a close reason has at most {_REASON_BYTES} bytes, this one has {len(text)}")
    return frame(CLOSE, code.to_bytes(2) + text)
