"""Bytes to frames and back. Every failure is a `FrameError`.

msgspec checks types, patterns, ranges, unknown members, UTF-8 and surrogates. It keeps the last of two
members with one name, which would let two readers see two different frames; `_no_duplicates` refuses
those without a second parse in all but odd cases.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Union, overload

import msgspec
from msgspec import UNSET

from ringline.protocol import frames
from ringline.protocol.errors import FrameError
from ringline.protocol.names import is_correlation_id

__all__ = ["decode", "encode"]

_decoders: Final[Mapping[frames.Direction, msgspec.json.Decoder[Any]]] = {
    # A union made from a tuple at run time has no `X | Y` spelling.
    direction: msgspec.json.Decoder(Union[members])  # noqa: UP007
    for direction, members in frames.DIRECTIONS.items()
}
# The path is ours and harmless; the rest of msgspec's message may quote the peer's text.
_PATH: Final = re.compile(r" - at `([$.a-z_]+)`\Z")


_values: Final = msgspec.structs.astuple
_SEALED: Final = (frames.CallRequest, frames.IncomingCall, frames.CallOutcome)
_TRACED: Final = (frames.CallRequest, frames.IncomingCall)
_ENVELOPE_MEMBERS: Final = len(frames.Envelope.__struct_fields__)


class _Hint(msgspec.Struct):
    """The two members of a refused frame that its answer may depend on."""

    type: str = ""
    correlation_id: str = ""


_hints: Final = msgspec.json.Decoder(_Hint)


encode: Final[Callable[[frames.Frame], bytes]] = msgspec.json.Encoder().encode
"""Return the JSON text of a frame as UTF-8 bytes, its ``type`` first."""


@overload
def decode(payload: bytes, direction: Literal["caller_to_relay"]) -> frames.CallerToRelay: ...
@overload
def decode(payload: bytes, direction: Literal["relay_to_caller"]) -> frames.RelayToCaller: ...
@overload
def decode(payload: bytes, direction: Literal["relay_to_listener"]) -> frames.RelayToListener: ...
@overload
def decode(payload: bytes, direction: Literal["listener_to_relay"]) -> frames.ListenerToRelay: ...
@overload
def decode(payload: bytes, direction: frames.Direction) -> frames.Frame: ...
def decode(payload: bytes, direction: frames.Direction) -> frames.Frame:
    """Read one text message as a frame of ``direction``.

    ``payload`` is the message's bytes, of any content; its size is the connection's business.

    Raises:
        FrameError: it is no such frame; nothing else is ever raised. `FrameError.correlation_id` is
            set when the answer may name one (RL-FRAME-013).
    """
    try:
        frame: frames.Frame = _decoders[direction].decode(payload)
        _no_duplicates(payload, frame)
    # RecursionError: arrays nested beyond what the parser takes. UnicodeDecodeError is a ValueError.
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        place = _PATH.search(str(error))
        where = f" (at {place[1]})" if place else ""
        raise FrameError(
            f"not a frame of {direction.replace('_', ' ')}{where}", correlation_id=_hint(payload)
        ) from None
    return frame


def _hint(payload: bytes) -> str | None:
    """The correlation id of something that was meant as a ``call_request``, if one can be read."""
    try:
        hint = _hints.decode(payload)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    if hint.type == "call_request" and is_correlation_id(hint.correlation_id):
        return hint.correlation_id
    return None


def _no_duplicates(payload: bytes, frame: frames.Frame) -> None:
    """Raise ValueError when a member name occurs twice in one object, the envelope included (RL-FRAME-003).

    A decoded frame has a known number of members, and outside strings a colon stands only between a
    name and its value. Two members take free text; when neither holds a colon, the colons of the
    payload are the members. Otherwise the payload is parsed again, slowly.
    """
    # Every frame passes here, so what can be counted in C is.
    values = _values(frame)
    members = 1 + len(values) - values.count(UNSET)
    if isinstance(frame, _SEALED):
        if ":" in frame.envelope.ct:
            json.loads(payload, object_pairs_hook=_unique)
            return
        members += _ENVELOPE_MEMBERS
    if isinstance(frame, _TRACED) and frame.traceparent is not UNSET and ":" in frame.traceparent:
        json.loads(payload, object_pairs_hook=_unique)
        return
    if payload.count(b":") != members:
        raise ValueError("a member name occurs twice")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member name occurs twice")
    return members
