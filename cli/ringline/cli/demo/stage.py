"""Where the demonstration is shown: numbered steps, on a terminal with colour, else as plain text."""

import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Final, final

import click

from ringline.cli.output import write_text
from ringline.cli.terminal import shown_line

__all__ = ["Stage"]

_INDENT: Final = "   "
_WIDTH: Final = 96
_LABEL: Final = 12
_PAUSE_S: Final = 0.5
_ASCII: Final = str.maketrans(
    {"✓": "+", "✗": "x", "●": "*", "→": "->", "←": "<-", "–": "-", "·": "|", "…": "...", "│": "|"}
)


@final
class Stage:
    """Prints the story on standard output. ``plain``: no colours and no pauses, for machines."""

    def __init__(self, *, plain: bool) -> None:
        """Nothing is printed yet."""
        self._plain = plain
        self._step = 0

    def title(self, text: str) -> None:
        """Print the first line."""
        self._write(text, bold=True)

    def step(self, text: str) -> None:
        """Begin the next numbered step."""
        if not self._plain and self._step:
            time.sleep(_PAUSE_S)
        self._step += 1
        self._write("")
        self._write(f"{self._step}  {text}", bold=True, fg="cyan")

    def text(self, text: str) -> None:
        """Print a paragraph."""
        for line in textwrap.wrap(text, _WIDTH - len(_INDENT)):
            self._write(_INDENT + line)

    def command(self, line: str) -> None:
        """Print a command as it is typed."""
        self._write(f"{_INDENT}$ {line}", fg="yellow")

    def fact(self, label: str, text: str) -> None:
        """Print what one party knows, or one fact."""
        first, *more = textwrap.wrap(shown_line(text, 2_000), _WIDTH - len(_INDENT) - _LABEL - 1) or [""]
        self._write(f"{_INDENT}{label:<{_LABEL}} {first}")
        for line in more:
            self._write(f"{_INDENT}{'':<{_LABEL}} {line}")

    def quote(self, lines: Iterable[str]) -> None:
        """Print what a process wrote."""
        for line in lines:
            self._write(f"{_INDENT}│ {shown_line(line)}", dim=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the last column is as long as it is."""
        widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads) - 1)]
        for number, row in enumerate((heads, *rows)):
            cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
            self._write(_INDENT + "  ".join([*cells, row[-1]]).rstrip(), dim=number == 0)

    def good(self, text: str) -> None:
        """Print what was shown to hold."""
        for number, line in enumerate(textwrap.wrap(text, _WIDTH - len(_INDENT) - 2)):
            self._write(f"{_INDENT}{'  ' if number else '✓ '}{line}", fg="green")

    def end(self, text: str, lines: Sequence[str]) -> None:
        """Print the last lines."""
        self._write("")
        self._write(text, bold=True, fg="green")
        for line in lines:
            self._write(_INDENT + line)

    def _write(self, text: str, *, bold: bool = False, dim: bool = False, fg: str | None = None) -> None:
        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        said = text if not sys.stdout.isatty() or encoding.startswith("utf") else text.translate(_ASCII)
        if not self._plain and text:
            said = click.style(said, bold=bold or None, dim=dim or None, fg=fg)
        write_text(said + "\n")
