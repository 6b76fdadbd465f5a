"""`ringline call`."""

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ringline.cli.app import Invocation
from ringline.cli.calling import Calling, calling_options
from ringline.cli.chosen import Chosen
from ringline.cli.options import Span
from ringline.cli.page import command as page
from ringline.protocol.codes import Family
from ringline.protocol.limits import CALL_BOUND_MS, HOLD_MS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ringline.caller import RunningCall
    from ringline.cli.report import Report

__all__ = ["command"]

_L, _R, _P, _E = Family.LOCAL, Family.RELAY, Family.PEER, Family.END
_CONTACT = "ringline://"
_T = TypeVar("_T")


@page(
    "call",
    examples=[
        ("the reply is printed on standard output", 'ringline call echo "hello"'),
        (
            "a task with arguments, and one JSON document as the answer",
            "ringline call reviewer --task review --arg strict:=true --json - < patch.diff",
        ),
        (
            "a peer who is away: the relay keeps the call, and the receipt fetches the reply later",
            "ringline call bob --durable --no-wait - < question.txt",
        ),
        (
            "a peer whose key you were given: it is pinned, whatever the relay shows",
            "ringline call 'ringline://bob@relay.example/#k=…' \"hello\"",
        ),
    ],
    exits=[
        (0, "completed: the reply is printed"),
        (_E, "failed"),
        (_L, "config"),
        (_R, "unknown_handle"),
        (_R, "offline"),
        (_R, "busy"),
        (_R, "rate_limited"),
        (_R, "timeout"),
        (_R, "canceled"),
        (_R, "unauthorized"),
        (_L, "untrusted_key"),
        (_L, "key_changed"),
        (_L, "bad_signature"),
        (_P, "task_unknown"),
        (_L, "relay_unreachable"),
        (_L, "protocol_error"),
        (_L, "message_too_large"),
        (_L, "detached"),
        (_E, "expired"),
        (_E, "delivery_failed"),
        (_E, "indeterminate_execution"),
        (_E, "still_running"),
    ],
    then="ringline errors show CODE, for what a code means",
)
@click.argument("handle")
@click.argument("text", required=False)
@click.option("--file", metavar="FILE", help="Read the message from this file; - is standard input.")
@click.option("--task", metavar="TASK", help="A task that the callee offers.")
@click.option(
    "--arg",
    "arguments",
    metavar="NAME=TEXT",
    multiple=True,
    help="An argument of the task; NAME:=JSON for other values than text. May be repeated.",
)
@click.option(
    "--timeout",
    type=Span(min=0, min_open=True),
    metavar="SECONDS",
    help=f"How long to wait. [default: {(CALL_BOUND_MS + HOLD_MS) // 1_000}]",
)
@click.option(
    "--id",
    "message_id",
    metavar="MESSAGE_ID",
    help="Name the message: repeated under the same id it never runs twice, and its reply is given again.",
)
@click.option(
    "--durable",
    is_flag=True,
    help="Leave the call with the relay, which keeps it until the callee listens. Ctrl-C only stops waiting.",
)
@click.option(
    "--no-wait", is_flag=True, help="With --durable: print the receipt, for `ringline result`, and end."
)
@click.option(
    "--expires",
    metavar="TIME",
    help="With --durable: by when the work must begin, e.g. 30m, 12h, 2d. [default, and at most: 3d]",
)
@click.option(
    "--trust-new", is_flag=True, help="Pin the key that the relay shows for a handle that is not known yet."
)
@click.option(
    "--contact", "contacts", metavar="STRING", multiple=True, help="Pin the key of this contact string first."
)
@calling_options("The identity of yours that calls. [default: one made for this relay]")
@click.pass_context
def command(
    context: click.Context,
    handle: str,
    text: str | None,
    file: str | None,
    task: str | None,
    arguments: tuple[str, ...],
    timeout: float | None,
    message_id: str | None,
    durable: bool,
    no_wait: bool,
    expires: str | None,
    trust_new: bool,
    contacts: tuple[str, ...],
    chosen: Chosen,
) -> int:
    """Call HANDLE with a message and print the signed reply.

    HANDLE is a name at the relay, or a contact string. TEXT is the message, which a task may do without; -
    reads standard input, which also keeps the message out of the list of processes that other users of this
    computer can see.
    Standard output gets the reply and nothing else, ended by one line feed if it does not end with one;
    status goes to standard error. Ctrl-C asks for the work to be stopped, and waits for the confirmation.
    """
    import asyncio
    import secrets

    from ringline.caller import DEFAULT_TIMEOUT_S, DURABLE_LIFE_S
    from ringline.cli.answer import print_reply
    from ringline.cli.durable import seconds
    from ringline.cli.interrupt import Interrupts, guarded
    from ringline.cli.message import read_message
    from ringline.cli.output import require_output, write_document, write_reply
    from ringline.cli.report import RELAY_SAYS
    from ringline.protocol.contact import Contact
    from ringline.protocol.names import is_task_id

    require_output()
    if not durable and (no_wait or expires is not None):
        raise click.UsageError("--no-wait and --expires are of durable calls: give --durable too")
    if no_wait and timeout is not None:
        raise click.UsageError("--no-wait waits for no reply, so that --timeout means nothing")
    expires_s = DURABLE_LIFE_S if expires is None else seconds(expires)
    invocation: Invocation = context.obj
    known = [Contact.parse(contact) for contact in contacts]
    if handle.startswith(_CONTACT):
        known.append(Contact.parse(handle))
        handle = known[-1].handle
    if known and context.get_parameter_source("relay") is ParameterSource.DEFAULT:
        # A contact string says where its realm is reached.
        chosen = replace(chosen, relay=known[-1].base_url, realm=chosen.realm or known[-1].realm)
    chosen.address()
    if task is not None and not is_task_id(task):
        raise click.UsageError(f"{task!r} is not the id of a task: a-z, 0-9 and hyphen, at most 64")
    args = _arguments(arguments)
    invocation.peer, invocation.task = handle, task
    message = read_message(text, file, needed=task is None)
    calling = Calling(chosen, new=True, contacts=known, trust_new=True if trust_new else None)
    report = calling.report

    async def call() -> None:
        caller = calling.caller()
        with Interrupts() as interrupts:
            try:
                running = caller.start(
                    handle, message, task=task, args=args, timeout=timeout, message_id=message_id
                )
                invocation.again = _again(context, handle, text, file, task, running.message_id)
                story = asyncio.ensure_future(_narrate(running, report))
                try:
                    reply = await _asked(guarded(running, interrupts, report))
                    await story
                finally:
                    story.cancel()
                    await asyncio.wait({story})
            finally:
                report.close()
                await caller.close()
        report.line("✓", "completed", f"signed by {reply.signed_by}")
        report.close()
        print_reply(reply, machine=chosen.machine, notes=calling.notes)

    async def leave() -> None:
        from ringline.cli.durable import chosen_options, collected, steps_for, until_detached
        from ringline.cli.interrupt import Detached

        options = chosen_options(context)
        name = message_id or secrets.token_hex(16)
        invocation.again = _again(context, handle, text, file, task, name)
        lost = Detached("stopped before the relay had confirmed the call", message_id=name)
        lost.still_true = "Whether the relay has it is not known here."
        caller = calling.caller()
        with Interrupts() as interrupts:
            try:
                sending = _asked(
                    caller.submit(handle, message, task=task, args=args, expires=expires_s, message_id=name)
                )
                receipt = await until_detached(sending, interrupts, lost)
                kept = await caller.kept(receipt)
                report.line("✓", "stored; it runs when the callee listens", RELAY_SAYS)
                # Told before the wait, so that whatever ends this process leaves it on the screen.
                report.line(" ", steps_for(receipt, options))
                if no_wait:
                    report.close()
                    if chosen.machine:
                        write_document(
                            {
                                "v": 1,
                                "ok": True,
                                "authenticated": False,
                                "receipt": receipt,
                                "call_id": kept.call_id,
                                "message_id": kept.message_id,
                                "execute_by": kept.execute_by,
                                "notes": calling.notes,
                                "next": [steps_for(receipt, options)],
                            }
                        )
                    else:
                        write_reply(receipt)
                    return
                wait_s = DEFAULT_TIMEOUT_S if timeout is None else timeout
                reply = await collected(caller, receipt, wait_s, interrupts, options)
            finally:
                report.close()
                await caller.close()
        report.line("✓", "completed", f"signed by {reply.signed_by}")
        report.close()
        print_reply(reply, machine=chosen.machine, notes=calling.notes, receipt=receipt)

    asyncio.run(leave() if durable else call())
    return 0


async def _asked(waiting: "Coroutine[Any, Any, _T]") -> _T:
    """Await a call; keys that the relay does not show are, to a caller, a handle that he may not reach."""
    from ringline.protocol.errors import HttpProblem, RelayError

    try:
        return await waiting
    except HttpProblem as error:
        # With a call id it is about something else: the callee was reached.
        if error.code == "not_found" and error.call_id is None:
            raise RelayError(code="unknown_handle", message_id=error.message_id) from error
        raise


async def _narrate(running: "RunningCall", report: "Report") -> None:
    """Tell the events of a call as they come, and explain a state that lasts."""
    import asyncio

    from ringline.cli.report import RELAY_SAYS

    peer = running.callee
    lasting = {
        "sent": "no word of the relay yet",
        "ringing": f"{peer}'s listener has not taken the call yet",
        "answered": f"{peer} has the call and has not begun yet",
        "working": f"{peer} is at work; Ctrl-C asks for it to be stopped",
    }
    timer: asyncio.TimerHandle | None = None
    try:
        async for event in running.events():
            if timer is not None:
                timer.cancel()
            match event.name:
                case "sealed":
                    report.line(" ", f"sealed for {peer} {event.note}")
                case "ringing" | "answered" | "working":
                    report.state(event.name)
                case "offline" | "busy" | "rate_limited":
                    report.line("!", f"{event.name}; trying once more", RELAY_SAYS)
                case "sent_again":
                    report.line("!", "sent again under the same message id")
                case "reconnecting":
                    report.line("!", f"connecting again: {event.note}")
                case _:
                    pass
            if event.name in lasting:
                timer = asyncio.get_running_loop().call_later(3, report.hint, lasting[event.name])
    finally:
        if timer is not None:
            timer.cancel()


def _arguments(words: tuple[str, ...]) -> dict[str, Any] | None:
    """Read ``NAME=TEXT`` and ``NAME:=JSON``."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name:
            raise click.UsageError(f"--arg takes NAME=TEXT or NAME:=JSON, and {word!r} is neither")
        if name in found:
            raise click.UsageError(f"--arg {name} is given twice")
        try:
            found[name] = json.loads(value) if is_json else value
        except (ValueError, RecursionError):
            raise click.UsageError(
                f"the value of --arg {name}:= is no JSON; for text write {name}=…"
            ) from None
    return found or None


def _again(
    context: click.Context, handle: str, text: str | None, file: str | None, task: str | None, message_id: str
) -> str:
    """Return the command that repeats the call under its message id. What it says is left out."""
    words = ["ringline", "call", handle, "--id", message_id]
    for name, option in (("own", "--as"), ("relay", "--relay"), ("realm", "--realm")):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += [option, context.params[name]]
    words += ["--durable"] if context.params["durable"] else []
    words += ["--no-wait"] if context.params["no_wait"] else []
    words += ["--task", task] if task else []
    line = shlex.join(words) + (" --arg …" if context.params["arguments"] else "")
    if file is not None:
        return f"{line} --file {shlex.quote(file)}"
    return f"{line} -" if text == "-" else f'{line} "…"'
