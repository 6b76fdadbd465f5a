"""`ringline result`."""

import click

from ringline.cli.app import Invocation
from ringline.cli.options import identity_option, json_option, locking_options, relay_options
from ringline.cli.page import command as page
from ringline.protocol.errors import Family

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
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for the end. [default: only look]",
)
@identity_option("The identity of yours that made the call. [default: the one that calls by default]")
@relay_options
@locking_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    receipt: str,
    wait: float,
    own: str | None,
    relay: str,
    realm: str | None,
    passphrase_file: str | None,
    plain: bool,
    machine: bool,
) -> int:
    """Print the signed reply to a durable call, or say how it stands.

    RECEIPT is what `ringline call --durable --no-wait` printed. A reply that was fetched once is kept on this
    computer and given again, even when the relay has forgotten it.
    """
    import asyncio

    from ringline.caller import AsyncCaller, Reply
    from ringline.cli.answer import print_reply
    from ringline.cli.durable import chosen_options, collected
    from ringline.cli.identity import locking
    from ringline.cli.interrupt import Interrupts
    from ringline.cli.output import require_output
    from ringline.cli.report import open_report
    from ringline.client import Home, RelayAddress

    require_output()
    invocation: Invocation = context.obj
    address = RelayAddress.parse(relay, realm)
    lock = locking(Home.default(), address, own, passphrase_file, plain)
    report = open_report(machine=machine)
    notes: list[str] = []

    def note(sentence: str) -> None:
        notes.append(sentence)
        report.line("!", sentence)

    async def ask() -> Reply:
        async with AsyncCaller(
            own,
            relay=address.base_url,
            realm=address.realm,
            passphrase=lock.passphrase,
            plain=lock.plain,
            note=note,
        ) as caller:
            invocation.peer = (await caller.kept(receipt)).callee
            with Interrupts() as interrupts:
                return await collected(caller, receipt, wait, interrupts, chosen_options(context))

    reply = asyncio.run(ask())
    report.line("✓", "completed", f"signed by {reply.signed_by}")
    print_reply(reply, machine=machine, notes=notes, receipt=receipt)
    return 0
