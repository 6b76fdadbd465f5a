"""The page that ``--help`` shows: one sentence, examples, options, exit codes, and what to do next."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from ringline.protocol.errors import Family, lookup

__all__ = ["SETTINGS", "Exit", "Page", "command", "exit_row"]

Exit = tuple[int, str] | tuple[Family, str]
"""One exit code of a command: a number and its meaning, or a row of the registry."""

SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""What every command tells click."""


class Page(click.Command):
    """A command whose help page has examples, exit codes and a next command."""

    examples: Sequence[tuple[str, str]] = ()
    exits: Sequence[Exit] = ()
    then: str = ""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error that ends it names this page."""
        if ctx.obj is not None:
            ctx.obj.page = ctx.command_path
        return super().invoke(ctx)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the page; what a reader looks for first comes first."""
        self.format_help_text(ctx, formatter)
        formatter.write_paragraph()
        self.format_usage(ctx, formatter)
        with formatter.section("Examples"):
            for meaning, line in self.examples:
                formatter.write(f"  {line}\n      {meaning}\n")
        self.format_options(ctx, formatter)
        with formatter.section("Exit codes"):
            rows = [exit_row(entry) for entry in self.exits]
            formatter.write_dl(sorted(rows, key=lambda row: int(row[0])))
        formatter.write(f"\nNext: {self.then}\n")


def exit_row(entry: Exit) -> tuple[str, str]:
    """Return the number of an exit code, and its name and meaning as the registry has them."""
    key, text = entry
    if isinstance(key, Family):
        row = lookup(key, text)
        return str(row.exit_code), f"{row.code}: {row.summary}"
    return str(key), text


def command(
    name: str,
    *,
    examples: Sequence[tuple[str, str]],
    exits: Sequence[Exit],
    then: str,
    cls: type[Page] = Page,
) -> Callable[[Callable[..., int | None]], Page]:
    """Make a function a command, its docstring the sentence on its page.

    ``examples`` are pairs of (meaning, command line); ``then`` is the next command to type.
    """

    def made(function: Callable[..., int | None]) -> Page:
        page = click.command(name, cls=cls, context_settings=SETTINGS)(function)
        page.examples, page.exits, page.then = examples, exits, then
        # The list of a group shows the first sentence whole; click would cut it.
        page.short_help = " ".join((page.help or "").split()).partition(". ")[0].rstrip(".") + "."
        return page

    return made
