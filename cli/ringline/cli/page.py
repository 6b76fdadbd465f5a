"""The page that ``--help`` shows: one sentence, examples, options, exit codes, and what to do next."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from ringline.protocol.codes import Family, lookup

__all__ = ["SETTINGS", "Exit", "Page", "command", "exit_row"]

Exit = tuple[int, str] | tuple[Family, str]
"""One exit code of a command: a number and its meaning, or a row of the registry."""

SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""What every command tells click."""

# A relay's ids are 16 random bytes in base64url: one in 64 begins with a hyphen.
_HYPHENED_ID: Final = re.compile(r"-[A-Za-z0-9_-]{21}")
# No argument of a process can hold it, so it marks a word without being mistaken for a part of one.
_MARK: Final = "\0"


class Page(click.Command):
    """A command whose help page has examples, exit codes and a next command."""

    examples: Sequence[tuple[str, str]] = ()
    exits: Sequence[Exit] = ()
    then: str = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line; an id that begins with a hyphen is an id, not options."""
        super().parse_args(ctx, self._marked(ctx, args))
        for name, value in ctx.params.items():
            if isinstance(value, str):
                ctx.params[name] = value.removeprefix(_MARK)
        return ctx.args

    def _marked(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the words, each marked that click would take for an option though it is an id."""
        options = [given for given in self.get_params(ctx) if isinstance(given, click.Option)]
        names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        # What follows one of these is its value, whatever it begins with.
        valued = {
            name for option in options if not option.is_flag and not option.count for name in option.opts
        }
        end = args.index("--") if "--" in args else len(args)
        marked: list[str] = []
        for before, word in zip(["", *args], args[:end], strict=False):
            is_id = _HYPHENED_ID.fullmatch(word) and word not in names and before not in valued
            marked.append(_MARK + word if is_id else word)
        return marked + args[end:]

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
