"""`ringline result`."""

from typing import TYPE_CHECKING

import click

from ringline.cli.app import Invocation
from ringline.cli.calling import Calling, calling_options
from ringline.cli.chosen import Chosen
from ringline.cli.options import Span
from ringline.cli.page import command as page
from ringline.protocol.codes import Family

if TYPE_CHECKING:
    from ringline.caller import AsyncCaller, Reply

__all__ = ["command"]

_L, _R, _P, _E, _H = Family.LOCAL, Family.RELAY, Family.PEER, Family.END, Family.HTTP


@page(
    "result",
    examples=[
        (
            "wait at most a minute for the reply, and print it",
            "ringline result rcpt_bob_3f0c8d5e9a7b4c2d8e1f6a5b4c3d2e1f --wait 60",
        ),
        ("only look", "ringline result rcpt_bob_3f0c8d5e9a7b4c2d8e1f6a5b4c3d2e1f --json"),
    ],
    exits=[
        (0, "completed: the reply is printed"),
        (_E, "failed"),
        (_E, "canceled"),
        (_E, "expired"),
        (_E, "delivery_failed"),
        (_E, "indeterminate_execution"),
        (_E, "still_running"),
        (_E, "revoked"),
        (_L, "config"),
        (_L, "bad_signature"),
        (_P, "task_unknown"),
        (_H, "unauthorized"),
        (_L, "relay_unreachable"),
        (_L, "detached"),
    ],
    then="ringline cancel RECEIPT, for a call that is not wanted any more",
)
@click.argument("receipt")
@click.option(
    "--wait",
    type=Span(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for the end. [default: only look]",
)
@calling_options("The identity of yours that made the call. [default: the one that calls by default]")
@click.pass_context
def command(context: click.Context, receipt: str, wait: float, chosen: Chosen) -> int:
    """Print the signed reply to a durable call, or say how it stands.

    RECEIPT is what `ringline call --durable --no-wait` printed. A reply that was fetched once is kept on this
    computer and given again, even when the relay has forgotten it.
    """
    from ringline.cli.answer import print_reply
    from ringline.cli.durable import chosen_options, collected
    from ringline.cli.interrupt import Interrupts
    from ringline.cli.output import require_output

    require_output()
    invocation: Invocation = context.obj
    calling = Calling(chosen)

    async def ask(caller: "AsyncCaller") -> "Reply":
        invocation.peer = (await caller.kept(receipt)).callee
        with Interrupts() as interrupts:
            return await collected(caller, receipt, wait, interrupts, chosen_options(context))

    reply = calling.ask(ask)
    calling.report.line("✓", "completed", f"signed by {reply.signed_by}")
    print_reply(reply, machine=chosen.machine, notes=calling.notes, receipt=receipt)
    return 0
