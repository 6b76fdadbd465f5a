"""`ringline listen`."""

import time
from typing import Final

import click

from ringline.cli.options import Span, identity_option, locking_options, relay_options
from ringline.cli.page import Page
from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.cli.terminal import shown_line
from ringline.protocol.codes import Family
from ringline.protocol.limits import WORK_BOUND_MAX_MS, WORK_BOUND_MS

__all__ = ["RunPage", "command"]

_RUN: Final = "--run"
_MARKS: Final = {"new": "✓", "ready": "●", "tasks:": " "}


class RunPage(Page):
    """A command whose ``--run`` takes all that follows it: a program and the program's own options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what stands before ``--run`` as options, and the rest as the program."""
        for place, word in enumerate(args):
            if word == "--":
                break
            if word == _RUN or word.startswith(f"{_RUN}="):
                first = [word[len(_RUN) + 1 :]] if word != _RUN else []
                program = [*first, *args[place + 1 :]]
                args = [*args[:place], *(f"{_RUN}={each}" for each in program)]
                break
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            if error.param is not None and any(arg.startswith(f"{_RUN}=-") for arg in given):
                raise click.UsageError(
                    f"{error.format_message()} All that follows --run belongs to the program: "
                    "give the options of this command before it.",
                    ctx,
                ) from None
            raise


@page(
    "listen",
    cls=RunPage,
    examples=[
        (
            "give every message back: `cat` gets it on standard input and prints the reply",
            "ringline listen --as echo --run cat",
        ),
        (
            "a program with options of its own; everything after --run is the program's",
            "ringline listen --as reviewer --run python3 review.py --strict",
        ),
        (
            "let in one caller only, by the contact string that he gave you",
            "ringline listen --as reviewer --allow 'ringline://alice@relay.example/#k=…' --run ./review",
        ),
    ],
    exits=[
        (0, "stopped by Ctrl-C or SIGTERM, after the running calls"),
        (Family.LOCAL, "config"),
        (Family.HTTP, "unauthorized"),
        (Family.LOCAL, "revoked"),
        (Family.LOCAL, "relay_unreachable"),
    ],
    then='ringline call echo "hello", in another terminal',
)
@identity_option("The handle to serve.", required=True)
@click.option(
    _RUN,
    "program",
    metavar="CMD…",
    multiple=True,
    required=True,
    help="The program, with its arguments; must come last. It gets each message on standard input; what it "
    "prints is the reply if it exits with 0, else the caller gets a failure without its text.",
)
@click.option("--task", metavar="ID", help="Offer the program as this task. [default: calls that name none]")
@click.option(
    "--allow",
    metavar="WHO",
    multiple=True,
    help="Let this caller in, a handle or a contact string; may be repeated. "
    "[default: anyone on a development relay, else nobody]",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Have the relay keep durable calls while nobody listens. It stays on at the relay.",
)
@click.option(
    "--hold",
    is_flag=True,
    help="Have durable calls of strangers, and of tasks that were not granted, wait for your word: see "
    "ringline inbox. [default: refuse them]",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1_000),
    default=8,
    show_default=True,
    help="How many messages are worked on at once.",
)
@click.option(
    "--timeout",
    type=Span(min=0, min_open=True, max=WORK_BOUND_MAX_MS // 1_000),
    default=WORK_BOUND_MS / 1_000,
    show_default=True,
    metavar="SECONDS",
    help=f"How long the program may take for one message, at most {WORK_BOUND_MAX_MS // 1_000}.",
)
@click.option(
    "--trust-new", is_flag=True, help="Pin the first key that the relay shows for a caller who is let in."
)
@click.option(
    "--drain",
    type=Span(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running calls get when it is told to stop.",
)
@click.option(
    "--workdir",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Where the program runs. [default: here]",
)
@relay_options
@locking_options
def command(
    own: str,
    program: tuple[str, ...],
    task: str | None,
    allow: tuple[str, ...],
    offline: bool,
    hold: bool,
    concurrency: int,
    timeout: float,
    trust_new: bool,
    drain: float,
    workdir: str | None,
    relay: str,
    realm: str | None,
    passphrase_file: str | None,
    plain: bool,
) -> None:
    """Answer calls to a handle with a program, one run for each message.

    The identity is made on first use. The first Ctrl-C takes no more calls and lets the running ones
    finish; the second stops now.
    """
    from pathlib import Path

    from ringline.cli.identity import locking
    from ringline.client import Home, RelayAddress
    from ringline.listener.command import ListenOptions, listen

    address = RelayAddress.parse(relay, realm)
    lock = locking(Home.default(), address, own, passphrase_file, plain)
    listen(
        ListenOptions(
            name=own,
            run=program,
            task=task,
            relay=relay,
            realm=realm,
            allow=allow,
            trust_new=True if trust_new else None,
            offline=offline,
            hold=hold,
            concurrency=concurrency,
            timeout_s=timeout,
            drain_s=drain,
            workdir=None if workdir is None else Path(workdir),
            passphrase=lock.passphrase,
            plain=lock.plain,
        ),
        _say,
    )
    tell("Stopped.")


def _say(line: str) -> None:
    """Tell a line of the listener, which may quote what a program or a peer wrote."""
    mark = _MARKS.get(line.split(" ", 1)[0])
    tell(f"{mark} {shown_line(line)}" if mark else f"{time.strftime('%H:%M:%S')}  {shown_line(line)}")
