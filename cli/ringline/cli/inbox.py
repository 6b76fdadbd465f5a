"""`ringline inbox`: calls that wait for their owner's word."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from ringline.cli.desk import Desk, Where, desk_options
from ringline.cli.output import write_document, write_text
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.protocol.codes import Family
from ringline.protocol.dates import spelled
from ringline.protocol.errors import ConfigError

if TYPE_CHECKING:
    from ringline.client.contacts import Pin
    from ringline.client.inbox import Inbox, Waiting

__all__ = ["command"]

_L: Final = Family.LOCAL
_WHOSE: Final = (
    "The identity of yours that was called. [default: the only one, else the one that calls by default]"
)
_STEP: Final = "see what waits: ringline inbox ls"


@click.group("inbox", context_settings=SETTINGS)
def command() -> None:
    """Decide on calls that wait for your word.

    A listener that was started with --hold keeps durable calls here that nobody allowed.
    """


@page(
    "ls",
    examples=[("what waits", "ringline inbox ls"), ("for a program", "ringline inbox ls --json")],
    exits=[(0, "printed"), (_L, "config")],
    then="ringline inbox show ID",
)
@desk_options(_WHOSE)
def ls(where: Where) -> None:
    """List the calls that wait: who asks, and for which task."""
    desk = where.open()
    waiting = [one for one in _inbox(desk).calls() if one.is_open]
    if where.machine:
        write_document({"v": 1, "ok": True, "calls": [_describe(one) for one in waiting]})
        return
    if not waiting:
        write_text("nothing waits\n")
    for one in waiting:
        known = "" if one.known else "  a stranger"
        write_text(f"{one.call_id}  {one.handle:<16}  {_what(one)}  until {_time(one.execute_by)}{known}\n")


@page(
    "show",
    examples=[("who asks, and how to answer", "ringline inbox show xj36Hr1skqrvdQYhW4OQ4Q")],
    exits=[(0, "printed"), (_L, "config")],
    then="ringline inbox allow ID",
)
@click.argument("call_id", metavar="ID")
@desk_options(_WHOSE)
def show(call_id: str, where: Where) -> None:
    """Show one call that waits: whose key, who vouches for it, what it asks, and how to answer."""
    desk = where.open()
    waiting = _find(desk, call_id)
    if where.machine:
        write_document({"v": 1, "ok": True, "call": _describe(waiting)})
        return
    from ringline.protocol.encoding import b64decode
    from ringline.protocol.fingerprint import fingerprint, safety_number

    account, ipk = desk.account, b64decode(waiting.ipk)
    number = safety_number(account.handle, account.ipk, waiting.handle, ipk).split(" ")
    vouched = "a key that is known here" if waiting.known else "NOBODY you know; it is what the relay shows"
    once = f"ringline inbox allow {call_id} --once"
    write_text(
        f"{waiting.handle} asks for {_what(waiting)}, {_size(waiting.bytes)}, sealed for you\n"
        f"  fingerprint    {fingerprint(ipk)}\n"
        f"  safety number  {' '.join(number[:6])}\n"
        f"                 {' '.join(number[6:])}\n"
        f"  vouched for by {vouched}\n"
        f"  waits since    {_time(waiting.held_at)}, and at the longest until {_time(waiting.execute_by)}\n"
        f"Compare the number with {waiting.handle} by another way. Then:\n"
        f"  this call alone     {once}\n"
        f"  from now on         ringline inbox allow {call_id}      (one task: --task ID)\n"
        f"  not this one        ringline inbox deny {call_id}\n"
        f"  never again         ringline inbox block {call_id}\n"
    )


@page(
    "allow",
    examples=[
        ("this call alone", "ringline inbox allow xj36Hr1skqrvdQYhW4OQ4Q --once"),
        ("his calls of this task, from now on", "ringline inbox allow xj36Hr1skqrvdQYhW4OQ4Q --task review"),
        ("all his calls, from now on", "ringline inbox allow xj36Hr1skqrvdQYhW4OQ4Q"),
    ],
    exits=[(0, "the call goes on"), (_L, "config"), (_L, "key_changed")],
    then="ringline contacts show HANDLE",
)
@click.argument("call_id", metavar="ID")
@click.option("--once", is_flag=True, help="This call alone.")
@click.option("--task", metavar="ID", help="His calls of this task from now on, beside those he may make.")
@desk_options(_WHOSE)
def allow(call_id: str, once: bool, task: str | None, where: Where) -> None:
    """Let a call go on, and its caller in. A stranger's key is pinned as it was shown to you."""
    from ringline.protocol.names import is_task_id

    if once and task is not None:
        raise click.UsageError("--once and --task exclude each other")
    if task is not None and not is_task_id(task):
        raise click.UsageError(f"{task!r} is no task: 1 to 64 of a-z, 0-9 and hyphen, the first no hyphen")
    desk = where.open()
    waiting = _find(desk, call_id)
    pin = _pin(desk, waiting, lambda known: known if once else _granted(known, task))
    _inbox(desk).decide(call_id, "once" if once else "allowed")
    _print(desk, waiting, pin, "goes on", where)


@page(
    "deny",
    examples=[("this call does not run", "ringline inbox deny xj36Hr1skqrvdQYhW4OQ4Q")],
    exits=[(0, "the call is refused"), (_L, "config")],
    then="ringline inbox ls",
)
@click.argument("call_id", metavar="ID")
@desk_options(_WHOSE)
def deny(call_id: str, where: Where) -> None:
    """Refuse a call. Its caller may ask again, and may call what he could before."""
    desk = where.open()
    waiting = _find(desk, call_id)
    _inbox(desk).decide(call_id, "denied")
    _print(desk, waiting, None, "is refused", where)


@page(
    "block",
    examples=[
        ("refuse it, and whatever he sends from now on", "ringline inbox block xj36Hr1skqrvdQYhW4OQ4Q")
    ],
    exits=[(0, "he is shut out"), (_L, "config")],
    then="ringline contacts ls",
)
@click.argument("call_id", metavar="ID")
@desk_options(_WHOSE)
def block(call_id: str, where: Where) -> None:
    """Refuse a call and shut its caller out, here and at the relay."""
    import asyncio
    from dataclasses import replace

    from ringline.client.admittance import admit_at_relay

    desk = where.open()
    waiting = _find(desk, call_id)
    pin = _pin(desk, waiting, lambda known: replace(known, state="blocked"))
    _inbox(desk).decide(call_id, "denied")
    trouble = asyncio.run(admit_at_relay(desk.http, waiting.handle, "blocked"))
    if trouble is not None:
        tell(f"! the relay was not told: {trouble}")
    _print(desk, waiting, pin, "is refused", where)


def _inbox(desk: Desk) -> "Inbox":
    from ringline.client.inbox import Inbox

    return Inbox(desk.home, desk.account)


def _find(desk: Desk, call_id: str) -> "Waiting":
    waiting = _inbox(desk).find(call_id)
    if waiting is None:
        raise ConfigError(f"no call {call_id[:64]!r} waits for {desk.account.handle}", next_step=_STEP)
    if not waiting.is_open:
        raise ConfigError(f"that was decided before: {waiting.decision}", next_step=_STEP)
    return waiting


def _pin(desk: Desk, waiting: "Waiting", change: "Callable[[Pin], Pin]") -> "Pin":
    """Pin the key that was shown, if none is known, with what ``change`` makes of it."""
    from ringline.client.contacts import Pin
    from ringline.protocol.encoding import b64decode
    from ringline.protocol.errors import TrustError

    ipk, realm = b64decode(waiting.ipk), desk.address.realm

    def changed(known: "Pin | None") -> "Pin":
        if known is not None and known.ipk != ipk and not waiting.known:
            raise TrustError(
                f"another key of {waiting.handle} has become known since: {known.fingerprint}",
                code="key_changed",
                next_step=f"refuse it: ringline inbox deny {waiting.call_id}",
            )
        first = Pin(
            realm=realm, handle=waiting.handle, ipk=ipk, source="tofu", first_seen=desk.http.clock.own_ms()
        )
        return change(known or first)

    pin = desk.contacts.update(realm, waiting.handle, changed)
    assert pin is not None
    return pin


def _granted(pin: "Pin", task: str | None) -> "Pin":
    from dataclasses import replace

    from ringline.cli.invite import DEFAULT_CALLS

    if task is None:
        tasks = None
    elif pin.state == "allowed":
        # Whoever may call every task keeps that.
        tasks = None if pin.tasks is None else tuple(sorted({*pin.tasks, task}))
    else:
        tasks = (task,)
    calls = pin.calls_per_hour if pin.state == "allowed" else DEFAULT_CALLS
    return replace(pin, state="allowed", tasks=tasks, calls_per_hour=calls)


def _print(desk: Desk, waiting: "Waiting", pin: "Pin | None", becomes: str, where: Where) -> None:
    from ringline.cli.peer_sheet import describe_peer, peer_sheet

    if where.machine:
        peer = None if pin is None else describe_peer(desk.account, pin)
        write_document({"v": 1, "ok": True, "call_id": waiting.call_id, "contact": peer})
        return
    sheet = "" if pin is None else peer_sheet(desk.account, pin)
    write_text(f"✓ the call of {waiting.handle} {becomes}, as soon as the listener has seen it\n{sheet}")


def _describe(waiting: "Waiting") -> dict[str, object]:
    from ringline.protocol.encoding import b64decode
    from ringline.protocol.fingerprint import fingerprint

    return {
        "call_id": waiting.call_id,
        "from": waiting.handle,
        "known": waiting.known,
        "fingerprint": fingerprint(b64decode(waiting.ipk)),
        "task": waiting.task,
        "held_at": waiting.held_at,
        "execute_by": waiting.execute_by,
        "size": _size(waiting.bytes),
    }


def _what(waiting: "Waiting") -> str:
    return "something that was not opened" if waiting.task is None else f"the task {waiting.task}"


def _size(size: int) -> str:
    return f"up to {max(1, -(-size // 1_024))} KiB"


def _time(time_ms: int) -> str:
    return spelled(time_ms, "%Y-%m-%d %H:%M", None)


for _one in (ls, show, allow, deny, block):
    command.add_command(_one)
