"""The `ringline` command: its sub-commands, each loaded when it is used, and the one place where errors end.

No traceback reaches a person unless RINGLINE_DEBUG is set, and none ever shows values: they could be keys
or messages.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ringline.cli.output import BROKEN_PIPE, ReaderGone, drop_output, occupy_descriptors, write_document
from ringline.cli.page import SETTINGS
from ringline.cli.report import tell
from ringline.cli.version import VERSION
from ringline.protocol.errors import RinglineError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["COMMANDS", "INTERRUPTED", "Command", "Invocation", "LazyGroup", "app", "main"]

INTERRUPTED: Final = 130
"""Exit code when Ctrl-C ended the command."""


class Command(NamedTuple):
    """Where a command is defined, and its line in the list of commands."""

    module: str
    summary: str


COMMANDS: Final[Mapping[str, Command]] = {
    "demo": Command("ringline.cli.demo", "See it run: a relay, an agent, a call, and two attacks refused."),
    "relay": Command("ringline.cli.relay", "Run a relay."),
    "listen": Command("ringline.cli.listen", "Answer calls with a program."),
    "call": Command("ringline.cli.call", "Call a handle and print the reply."),
    "result": Command("ringline.cli.result", "Print the reply to a durable call."),
    "cancel": Command("ringline.cli.cancel", "Ask for a call to be stopped."),
    "calls": Command("ringline.cli.calls", "Show the calls that you have made."),
    "receipt": Command("ringline.cli.receipt", "Save and check proofs of what was answered."),
    "invite": Command("ringline.cli.invite", "Invite somebody; see and withdraw invites."),
    "accept": Command("ringline.cli.accept", "Take up an invite."),
    "contacts": Command("ringline.cli.contacts", "Show who is known, and decide who may call."),
    "policy": Command("ringline.cli.policy", "Show or change whom the relay lets through to you."),
    "inbox": Command("ringline.cli.inbox", "Decide on calls that wait for your word."),
    "init": Command("ringline.cli.init", "Make an identity and publish its keys."),
    "id": Command("ringline.cli.id", "Show identities; replace, call back and save their keys."),
    "log": Command("ringline.cli.log", "Check the relay's key log, and watch it."),
    "errors": Command("ringline.cli.errors", "Explain error and exit codes, offline."),
    "completion": Command("ringline.cli.completion", "Print the completion script of a shell."),
    "version": Command("ringline.cli.version", "Print the version."),
}


@dataclass
class Invocation:
    """What is known of one run of the command when an error ends it.

    ``machine``: the answer is one JSON document. ``page`` is the command whose page helps further.
    ``peer`` is the handle that is called, ``task`` the task, ``again`` the command that repeats the call
    under the same message id, without its text; a command fills them in as it learns them.
    """

    machine: bool = False
    page: str = "ringline"
    peer: str | None = None
    task: str | None = None
    again: str | None = None


class LazyGroup(click.Group):
    """Commands that are imported when they are used, and listed without."""

    def __init__(self, *args: Any, entries: Mapping[str, Command], **settings: Any) -> None:
        """Offer ``entries``, by name. The module of each has the command as the attribute ``command``."""
        super().__init__(*args, **settings)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table: the first steps first."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Returns None for a name that is none."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        found: click.Command = importlib.import_module(entry.module).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; a name that is none gets near ones suggested."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.entries, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete the name of a command from the table, importing none."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    "ringline",
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings=SETTINGS,
    epilog="First steps:  ringline demo    Every command:  ringline COMMAND --help",
)
@click.version_option(VERSION, message="ringline %(version)s")
def app() -> None:
    """End-to-end encrypted calls between AI agents, over a relay that cannot read them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments``, by default those of the process, and return its exit code."""
    occupy_descriptors()
    words = list(sys.argv[1:] if arguments is None else arguments)
    invocation = Invocation(machine="--json" in _own(words))
    try:
        return _run(words, invocation)
    except ReaderGone:
        drop_output()
        return BROKEN_PIPE


def _run(words: list[str], invocation: Invocation) -> int:
    try:
        result = app.main(words, prog_name="ringline", standalone_mode=False, obj=invocation)
    except click.exceptions.NoArgsIsHelpError as error:
        tell(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        tell("Interrupted.")
        return INTERRUPTED
    except ReaderGone:
        raise
    except Exception as error:
        if os.environ.get("RINGLINE_DEBUG") and not isinstance(error, click.ClickException | RinglineError):
            _trace(error)
        return _end(error, invocation)
    return result if isinstance(result, int) else 0


def _trace(error: Exception) -> None:
    """Show the lines that an error came through. Not its text: that may be a key or a message."""
    import traceback

    steps = "".join(traceback.format_tb(error.__traceback__))
    tell(f"Traceback (most recent call last):\n{steps}{type(error).__name__}")


def _end(error: Exception, invocation: Invocation) -> int:
    """Tell what went wrong, once, and return the exit code."""
    # Not loaded by a command that ends well.
    from ringline.cli.failure import document, explain, lines

    try:
        explanation = explain(
            error,
            page=invocation.page,
            peer=invocation.peer,
            task=invocation.task,
            again=invocation.again,
        )
    except Exception as fault:
        # What an error holds may be a stranger's: to explain it must not be what shows a traceback.
        explanation = explain(fault, again=invocation.again)
    if invocation.machine:
        write_document(document(explanation))
    else:
        tell("\n".join(lines(explanation)))
    return explanation.exit_code


def _own(words: list[str]) -> list[str]:
    """Return the words that are options of this command, and not the message or a program's own."""
    for mark in ("--", "--run"):
        if mark in words:
            words = words[: words.index(mark)]
    return words
