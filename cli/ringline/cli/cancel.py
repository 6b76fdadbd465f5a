"""`ringline cancel`."""

import click

from ringline.cli.calling import Calling, calling_options
from ringline.cli.chosen import Chosen
from ringline.cli.page import command as page
from ringline.protocol.codes import Family
from ringline.protocol.errors import RinglineError

__all__ = ["Unconfirmed", "command"]


class Unconfirmed(RinglineError):
    """The stop was asked for, and nothing was decided within the time that the relay waits for it."""

    family = Family.END
    default_code = "still_running"


_H, _E = Family.HTTP, Family.END


@page(
    "cancel",
    examples=[
        ("the call id is in what `ringline call` wrote", "ringline cancel 3q2-7wEjRt6Cg1xKpZsQ0A"),
        ("a durable call, by its receipt", "ringline cancel rcpt_bob_3f0c8d5e9a7b4c2d8e1f6a5b4c3d2e1f"),
        ("a call of another identity of yours", "ringline cancel --as reviewer 3q2-7wEjRt6Cg1xKpZsQ0A"),
    ],
    exits=[
        (0, "canceled, and confirmed"),
        (_H, "already_terminal"),
        (_H, "unknown"),
        (_E, "still_running"),
        (_H, "unauthorized"),
        (Family.LOCAL, "relay_unreachable"),
    ],
    then="ringline call HANDLE --id MESSAGE_ID -, to see what became of a call that was not stopped",
)
@click.argument("call_id")
@calling_options("The identity of yours that made the call. [default: the one that calls by default]")
def command(call_id: str, chosen: Chosen) -> int:
    """Ask for a call to be stopped, and wait up to ten seconds for the confirmation.

    CALL_ID may also be the receipt of a durable call. It is called canceled only when the other side has
    confirmed that the work never began or has stopped.
    """
    from ringline.caller import Cancelled, NotCancelled
    from ringline.caller.claim import is_claim
    from ringline.cli.output import require_output, write_document
    from ringline.cli.report import RELAY_SAYS
    from ringline.protocol.errors import HttpProblem
    from ringline.protocol.names import is_call_id

    if chosen.machine:
        require_output()
    if not is_claim(call_id) and not is_call_id(call_id):
        raise click.UsageError(f"{call_id!r} is no call id; `ringline call` writes it with every error")
    calling = Calling(chosen)
    answer = calling.ask(lambda caller: caller.cancel(call_id))
    if isinstance(answer, NotCancelled):
        raise HttpProblem(code=answer.reason, call_id=call_id)
    if not isinstance(answer, Cancelled):
        raise Unconfirmed(call_id=call_id)
    if chosen.machine:
        write_document({"v": 1, "ok": True, "authenticated": False, "call_id": call_id, "state": "canceled"})
    else:
        calling.report.line("✓", "canceled, and confirmed", RELAY_SAYS)
    return 0
