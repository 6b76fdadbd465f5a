"""`ringline calls`: what this identity has sent, from its own outbox."""

from typing import TYPE_CHECKING

import click

from ringline.cli.calling import Calling, calling_options
from ringline.cli.chosen import Chosen
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.protocol.codes import Family
from ringline.protocol.dates import spelled

if TYPE_CHECKING:
    from ringline.caller import AsyncCaller, KeptCall
    from ringline.protocol.shapes import CallRecord

__all__ = ["command"]

_L, _H = Family.LOCAL, Family.HTTP
_OWN = "The identity of yours that made the calls. [default: the one that calls by default]"


@click.group("calls", context_settings=SETTINGS)
def command() -> None:
    """Show the calls that you have made."""


@page(
    "ls",
    examples=[
        ("the latest, newest first", "ringline calls ls"),
        ("for a program, as one document", "ringline calls ls --limit 500 --json"),
    ],
    exits=[(0, "printed"), (_L, "config"), (_L, "relay_unreachable")],
    then="ringline calls show RECEIPT",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most."
)
@calling_options(_OWN)
def ls(limit: int, chosen: Chosen) -> int:
    """List the calls that you have made, newest first; asks no callee.

    The list is kept on this computer and holds no message. The state is what is known here: sealed, then
    submitted to the relay, then its end. Completed and failed are signed by the callee, other ends are the
    relay's word: timeout may have run, refused was never delivered; `ringline calls show` asks it anew.
    """
    from ringline.cli.output import require_output, write_document, write_text

    require_output()
    found = Calling(chosen).ask(lambda caller: caller.calls(limit))
    if chosen.machine:
        write_document({"v": 1, "ok": True, "calls": [_document(call) for call in found]})
    else:
        write_text("".join(f"{_time(each.sealed_at)}  {each.state:<23}  {each.receipt}\n" for each in found))
    return 0


@page(
    "show",
    examples=[
        (
            "one call, as the outbox and the relay know it",
            "ringline calls show rcpt_bob_3f0c8d5e9a7b4c2d8e1f6a5b4c3d2e1f",
        ),
    ],
    exits=[(0, "printed"), (_L, "config"), (_H, "unauthorized"), (_L, "relay_unreachable")],
    then="ringline result RECEIPT --wait 60",
)
@click.argument("receipt")
@calling_options(_OWN)
def show(receipt: str, chosen: Chosen) -> int:
    """Show one call: what is known here, and what the relay says. RECEIPT may also be a call id."""
    import msgspec

    from ringline.cli.output import require_output, write_document, write_text

    require_output()

    async def get(caller: "AsyncCaller") -> "tuple[KeptCall, CallRecord | None]":
        return await caller.kept(receipt), await caller.record(receipt)

    call, record = Calling(chosen).ask(get)
    told = None if record is None else msgspec.to_builtins(record)
    if told is not None:
        # It is sealed; `ringline result` opens it.
        told["outcome"] = told["outcome"] is not None
    if chosen.machine:
        write_document({"v": 1, "ok": True, "call": _document(call), "relay": told})
        return 0
    rows = _document(call) | {"sealed_at": _time(call.sealed_at), "execute_by": _time(call.execute_by)}
    plain_words = {True: "yes", False: "no"}
    text = "".join(
        f"{name:<16} {plain_words[value] if isinstance(value, bool) else value}\n"
        for name, value in rows.items()
        if value is not None
    )
    if record is None:
        text += "the relay does not know it\n"
    else:
        text += f"{'relay says':<16} {record.state}"
        # It counts the hand-outs that came to nothing, not those that did.
        text += f", lost attempts {record.attempts}" if record.attempts else ""
        text += ", cancel requested" if record.cancel_requested else ""
        deferred = f", deferred until {_time(record.deferred_until)}" if record.deferred_until else ""
        text += f"{deferred}\n"
    write_text(text)
    return 0


command.add_command(ls)
command.add_command(show)


def _document(call: "KeptCall") -> dict[str, object]:
    return {
        "receipt": call.receipt,
        "callee": call.callee,
        "mode": call.mode,
        "state": call.state,
        "authenticated": call.signed,
        "call_id": call.call_id,
        "message_id": call.message_id,
        "sealed_at": call.sealed_at,
        "execute_by": call.execute_by,
        "acknowledged": call.acknowledged,
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else spelled(ms, "%Y-%m-%d %H:%M:%S", None)
