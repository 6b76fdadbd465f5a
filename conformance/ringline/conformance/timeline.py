"""What passed over the wire in one case, decoded and in order, and the first thing in it that was wrong."""

import json
import time
from dataclasses import dataclass
from typing import Final, cast, final

__all__ = ["Event", "Timeline", "shorten"]

_LONG: Final = 96
_EVENTS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened ``at_ms`` after the case began.

    ``line`` names the connection by who speaks on it, ``way`` is ``>`` for what the suite sent, ``<`` for
    what it received, ``.`` for a remark.
    """

    at_ms: int
    line: str
    way: str
    text: str


@final
class Timeline:
    """The events of one case."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.events: list[Event] = []
        self.divergence: str = ""
        """The first thing received that no subject may send."""
        self.close_fault: str = ""
        """The first thing that was wrong with the end of a connection."""

    def sent(self, line: str, text: str) -> None:
        """Note what the suite sent."""
        self._note(line, ">", text)

    def received(self, line: str, text: str) -> None:
        """Note what the subject sent."""
        self._note(line, "<", text)

    def remark(self, line: str, text: str) -> None:
        """Note something else, such as an end."""
        self._note(line, ".", text)

    def diverges(self, line: str, text: str) -> None:
        """Note that what was received last must never be sent."""
        self._note(line, ".", f"not allowed: {text}")
        self.divergence = self.divergence or f"{line}: {text}"

    def misclosed(self, line: str, text: str) -> None:
        """Note that a connection did not end as it should."""
        self._note(line, ".", f"wrong end: {text}")
        self.close_fault = self.close_fault or f"{line}: {text}"

    def _note(self, line: str, way: str, text: str) -> None:
        if len(self.events) < _EVENTS:
            self.events.append(Event(int((time.monotonic() - self._start) * 1000), line, way, text))


def shorten(payload: bytes | str) -> str:
    """Return a message as one readable line: long strings by their length, other bytes escaped."""
    data = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
    try:
        text = json.dumps(_short(json.loads(data)), ensure_ascii=False)
        # Half of a surrogate pair is what some cases are about, and what no report can hold.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    except (ValueError, RecursionError):
        shown = _printable(data[:_LONG].decode("ascii", "backslashreplace"))
        return shown if len(data) <= _LONG else f"{shown}… ({len(data)} bytes)"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > _LONG:
        return f"{value[:16]}… ({len(value)} characters)"
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: _short(member) for name, member in members.items()}
    if isinstance(value, list):
        return [_short(member) for member in cast("list[object]", value)[:40]]
    return value
