"""Standard error: what goes on, who says so, and since when.

On a terminal the states of a call are one live line, which stays when the next thing happens; elsewhere
each change is a line of its own. What the relay says and what the peer has signed are marked apart in both.
"""

import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, final

from ringline.cli.terminal import shown_line

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

__all__ = ["RELAY_SAYS", "LiveReport", "PlainReport", "Report", "SilentReport", "open_report", "tell"]

RELAY_SAYS: Final = "relay says"
"""Beside what nobody has signed."""

_SAYS_COLUMN: Final = 22
_SPARE_COLUMNS: Final = 4
_INDENT: Final = 10
_FINGERPRINT: Final = re.compile(r" ((?:[0-9a-z]{4} ){7}[0-9a-z]{4})\Z")
# For terminals and files that are not UTF-8.
_ASCII: Final = str.maketrans({"✓": "+", "✗": "x", "●": "*", "→": "->", "–": "-", "·": "|", "…": "..."})
_STYLES: Final = {"✓": "green", "✗": "red", "●": "cyan", "!": "yellow"}


class Report(Protocol):
    """What a command tells a person while it runs. All texts are neutralised here."""

    def state(self, name: str) -> None:
        """Tell a state that the relay reports."""
        ...

    def line(self, mark: str, text: str, says: str = "") -> None:
        """Tell one thing for good. ``mark`` is one character; ``says`` is whose word it is."""
        ...

    def hint(self, text: str) -> None:
        """Explain the present state to somebody who waits."""
        ...

    def close(self) -> None:
        """End the live line, before the reply is printed."""
        ...


def open_report(*, machine: bool = False, clock: Callable[[], float] = time.monotonic) -> Report:
    """Return the report that fits standard error. ``machine``: none, since the document says it all."""
    if machine:
        return SilentReport()
    if _is_terminal() and os.environ.get("TERM", "") not in ("", "dumb"):
        return LiveReport(clock)
    return PlainReport(clock)


def tell(text: str) -> None:
    """Write lines of our own, already neutralised, to standard error. Never fails."""
    stream = sys.stderr
    if stream is None:  # pyright: ignore[reportUnnecessaryComparison] # closed by `2>&-`
        return
    encoding = (stream.encoding or "ascii").lower().replace("-", "")
    try:
        stream.write((text if encoding.startswith("utf") else text.translate(_ASCII)) + "\n")
        stream.flush()
    except (OSError, ValueError):
        # Whoever started this does not want to know.
        return


@final
class SilentReport:
    """Tells nothing."""

    def state(self, name: str) -> None:
        """Tell nothing."""

    def line(self, mark: str, text: str, says: str = "") -> None:
        """Tell nothing."""

    def hint(self, text: str) -> None:
        """Tell nothing."""

    def close(self) -> None:
        """Do nothing."""


@final
class PlainReport:
    """One line per change, without colour or movement."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin at zero seconds; ``clock`` gives seconds."""
        self._clock = clock
        self._began = clock()

    def state(self, name: str) -> None:
        """Write the state and since when."""
        self.line(" ", name, RELAY_SAYS)

    def line(self, mark: str, text: str, says: str = "") -> None:
        """Write one line."""
        tell(_row(mark, self._clock() - self._began, text, says))

    def hint(self, text: str) -> None:
        """Write the explanation as a line."""
        self.line(" ", text)

    def close(self) -> None:
        """Do nothing: every line is out."""


@final
class LiveReport:
    """A live line by `rich`, loaded only here. NO_COLOR is honoured by it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin at zero seconds; ``clock`` gives seconds."""
        from rich.console import Console

        self._clock = clock
        self._began = clock()
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._states: list[str] = []
        self._since = 0.0
        self._hint = ""

    def state(self, name: str) -> None:
        """Add the state to the live line."""
        from rich.live import Live

        self._states.append(shown_line(name))
        self._since = self._clock() - self._began
        self._hint = ""
        if self._live is None:
            self._live = Live(
                console=self._console, transient=True, refresh_per_second=8, get_renderable=self._now
            )
            self._live.start()
        else:
            self._live.refresh()

    def line(self, mark: str, text: str, says: str = "") -> None:
        """Let the live line stand, and write one below it."""
        self._stand()
        self._print(_row(mark, self._clock() - self._began, text, says), mark)

    def hint(self, text: str) -> None:
        """Show the explanation at the end of the live line."""
        self._hint = shown_line(text)

    def close(self) -> None:
        """Let the live line stand."""
        self._stand()

    def _stand(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._states:
            self._print(_row(" ", self._since, " → ".join(self._states), RELAY_SAYS), " ")
            self._states.clear()
            self._hint = ""

    def _now(self) -> "Text":
        row = _row(" ", self._clock() - self._began, " → ".join(self._states) + " …", RELAY_SAYS)
        text = self._text(row + (f"  – {self._hint}" if self._hint else ""), " ")
        # Room for the ^C that the terminal adds: a line that wraps could not be taken back.
        text.truncate(max(1, self._console.width - _SPARE_COLUMNS), overflow="ellipsis")
        return text

    def _print(self, row: str, mark: str) -> None:
        for line in _fitted(row, self._console.width):
            self._console.print(self._text(line, mark if line[:1] == mark else " "), soft_wrap=True)

    def _text(self, row: str, mark: str) -> "Text":
        from rich.text import Text

        encoding = (self._console.encoding or "ascii").lower().replace("-", "")
        row = row if encoding.startswith("utf") else row.translate(_ASCII)
        text = Text(row, no_wrap=True, overflow="ellipsis")
        text.stylize("dim", 1, min(9, len(row)))
        if mark in _STYLES:
            text.stylize(f"bold {_STYLES[mark]}", 0, 1)
        if (place := row.rfind(RELAY_SAYS)) >= 0:
            text.stylize("dim", place)
        return text


def _fitted(row: str, width: int) -> list[str]:
    """Return a row in lines: a fingerprint that would be broken gets one of its own, to be compared."""
    found = _FINGERPRINT.search(row)
    if found is None or len(row) <= width:
        return [row]
    return [row[: found.start()].rstrip(), " " * _INDENT + found[1]]


def _row(mark: str, seconds: float, text: str, says: str) -> str:
    said = shown_line(text)
    row = f"{mark} {seconds:6.2f}s {said}"
    return f"{row:<{_SAYS_COLUMN}}  {shown_line(says)}" if says else row


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]
