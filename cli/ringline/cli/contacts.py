"""`ringline contacts`: who is known, and who of them may call."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from ringline.cli.desk import Desk, Where, desk_options
from ringline.cli.invite import given_options, read_given
from ringline.cli.output import write_document, write_text
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.cli.terminal import shown_line
from ringline.protocol.codes import Family
from ringline.protocol.errors import ConfigError, TrustError

if TYPE_CHECKING:
    from ringline.client.admittance import Admittance
    from ringline.client.contacts import Pin

__all__ = ["command"]

_L: Final = Family.LOCAL
_WHOSE: Final = (
    "The identity of yours they may call. [default: the only one, else the one that calls by default]"
)
_MARKS: Final = {"allowed": "✓", "pending": "?", "blocked": "✗"}
_STEP: Final = "see who is known: ringline contacts ls"


@click.group("contacts", context_settings=SETTINGS)
def command() -> None:
    """Show who is known, and decide who may call.

    Being known and being let in are two things: you can call whoever is known; who may call you, you decide.
    """


@page(
    "ls",
    examples=[("everybody", "ringline contacts ls"), ("for a program", "ringline contacts ls --json")],
    exits=[(0, "printed"), (_L, "config")],
    then="ringline contacts show HANDLE",
)
@desk_options(_WHOSE)
def ls(where: Where) -> None:
    """List who is known, with key and whether he may call."""
    from ringline.cli.peer_sheet import describe_peer, standing

    desk = where.open()
    pins = [pin for pin in desk.contacts.pins() if pin.realm == desk.address.realm]
    if where.machine:
        write_document({"v": 1, "ok": True, "contacts": [describe_peer(desk.account, pin) for pin in pins]})
        return
    if not pins:
        write_text(f"nobody is known yet at {desk.address.base_url}\n")
        tell("Next:  ringline invite NAME, or: ringline accept")
        return
    width = max(len(pin.handle) for pin in pins)
    for pin in pins:
        label = f'  "{shown_line(pin.label)}"' if pin.label else ""
        write_text(
            f"{_MARKS[pin.state]} {pin.handle:<{width}}  {pin.fingerprint}{label}\n"
            f"  {'':<{width}}  {standing(pin)}\n"
        )


@page(
    "show",
    examples=[("key, safety number, and what he may call", "ringline contacts show bob")],
    exits=[(0, "printed"), (_L, "config")],
    then="ringline contacts verify HANDLE, once you have compared the number with him",
)
@click.argument("handle")
@desk_options(_WHOSE)
def show(handle: str, where: Where) -> None:
    """Show one contact: fingerprint, safety number, how his key came here, and what he may call."""
    desk = where.open()
    _print(desk, _known(desk, handle), where)


@page(
    "allow",
    examples=[
        ("let him call every task", "ringline contacts allow bob"),
        ("one task, five times an hour", "ringline contacts allow bob --task review --calls-per-hour 5"),
        (
            "somebody new, by the contact string that he gave you",
            "ringline contacts allow 'ringline://bob@…'",
        ),
    ],
    exits=[(0, "he is let in"), (_L, "config"), (_L, "key_changed")],
    then="ringline listen, and he can call you",
)
@click.argument("handle", metavar="WHO")
@click.option("--label", metavar="TEXT", help="What you call him; it stays on this computer.")
@given_options
@desk_options(_WHOSE)
def allow(handle: str, label: str | None, tasks: tuple[str, ...], calls_per_hour: int, where: Where) -> None:
    """Let a contact call you. What is said here takes the place of what was said before."""
    given = read_given(tasks, calls_per_hour, label)
    desk = where.open()
    name = _add(desk, handle) if "://" in handle else handle
    pin = _change(desk, name, given.on)
    _tell_relay(desk, name, "allowed")
    _print(desk, pin, where)


@page(
    "block",
    examples=[("never take a call of his again", "ringline contacts block mallory")],
    exits=[(0, "he is shut out"), (_L, "config")],
    then="ringline contacts ls",
)
@click.argument("handle")
@desk_options(_WHOSE)
def block(handle: str, where: Where) -> None:
    """Shut a contact out; his calls that wait at the relay end. Whoever is not known can be blocked too."""
    desk = where.open()
    if desk.contacts.pin(desk.address.realm, _handle(handle)) is None:
        # Without a key there is nothing to pin; a listener lets in nobody of whom none is known.
        if not _tell_relay(desk, handle, "blocked"):
            raise ConfigError(
                f"{handle} is not known here, and the relay could not be told", next_step="try again later"
            )
        if where.machine:
            write_document({"v": 1, "ok": True, "handle": handle, "state": "blocked"})
        else:
            write_text(f"✓ {handle} is not known here; the relay lets nothing of his through to you\n")
        return
    pin = _change(desk, handle, lambda pin: replace(pin, state="blocked"))
    _tell_relay(desk, handle, "blocked")
    _print(desk, pin, where)


@page(
    "verify",
    examples=[
        ("compare the safety number with him, and say so", "ringline contacts verify bob"),
        (
            "without a terminal: the fingerprint that he told you",
            "ringline contacts verify bob --fingerprint '7q4k n2xd 9m3t vb6p …'",
        ),
    ],
    exits=[
        (0, "the key is his: vouched for"),
        (_L, "config"),
        (_L, "key_changed"),
        (_L, "untrusted_key"),
    ],
    then="ringline contacts show HANDLE",
)
@click.argument("handle")
@click.option(
    "--fingerprint", metavar="TEXT", help="The fingerprint or the safety number as he told it to you, whole."
)
@desk_options(_WHOSE)
def verify(handle: str, fingerprint: str | None, where: Where) -> None:
    """Compare a contact's key with what he says it is, by another way than this relay."""
    from ringline.cli.peer_sheet import peer_sheet
    from ringline.client.clock import wall_ms
    from ringline.protocol.fingerprint import safety_number

    desk = where.open()
    pin = _known(desk, handle)
    number = safety_number(desk.account.handle, desk.account.ipk, pin.handle, pin.ipk)
    if fingerprint is not None:
        told = "".join(fingerprint.split()).lower()
        if told not in (pin.fingerprint.replace(" ", ""), number.replace(" ", "")):
            raise TrustError(
                f"that is not the key which is known of {handle}. Nothing was changed.\n"
                f"  known    {pin.fingerprint}",
                code="key_changed",
                next_step=f"do not call {handle} before you know why; to shut him out: "
                f"ringline contacts block {handle}",
            )
    elif where.machine or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            "there is no terminal on which somebody could compare",
            next_step=f"give what {handle} told you: --fingerprint TEXT",
        )
    else:
        tell(peer_sheet(desk.account, pin).rstrip("\n"))
        tell(f"\n{handle} sees the same number with:  ringline contacts show {desk.account.handle}")
        if not click.confirm("Did he read out the same number?", err=True):
            raise TrustError(
                f"the key of {handle} was not vouched for. Nothing was changed.",
                next_step=f"if he has another number, do not call him: ringline contacts block {handle}",
            )
    known = pin.ipk

    def vouch(now: "Pin") -> "Pin":
        if now.ipk != known:
            raise TrustError(f"the key of {handle} has changed meanwhile", code="key_changed")
        return replace(now, verified_at=wall_ms())

    _print(desk, _change(desk, handle, vouch), where)


@page(
    "rm",
    examples=[("forget him, his key too", "ringline contacts rm bob")],
    exits=[(0, "forgotten"), (_L, "config")],
    then="ringline accept, or ringline contacts allow, to know him again",
)
@click.argument("handle")
@desk_options(_WHOSE)
def rm(handle: str, where: Where) -> None:
    """Forget a contact and his key. He may not call any more; a block at the relay stays."""
    desk = where.open()
    pin = _known(desk, handle)
    desk.contacts.update(desk.address.realm, handle, lambda _: None)
    if pin.state != "blocked":
        _tell_relay(desk, handle, "neither")
    if where.machine:
        write_document({"v": 1, "ok": True, "handle": handle, "fingerprint": pin.fingerprint})
    else:
        write_text(f"✓ {handle} is forgotten; his key was {pin.fingerprint}\n")


def _handle(text: str) -> str:
    from ringline.protocol.names import is_handle

    if not is_handle(text):
        raise ConfigError(f"{text!r} is no handle", next_step=_STEP)
    return text


def _known(desk: Desk, handle: str) -> "Pin":
    pin = desk.contacts.pin(desk.address.realm, _handle(handle))
    if pin is None:
        raise ConfigError(f"{handle} is not known at {desk.address.base_url}", next_step=_STEP)
    return pin


def _change(desk: Desk, handle: str, change: "Callable[[Pin], Pin]") -> "Pin":
    """Change what is known of a contact, under the lock of the file."""
    _known(desk, handle)

    def changed(pin: "Pin | None") -> "Pin":
        if pin is None:
            raise ConfigError(f"{handle} was forgotten meanwhile", next_step=_STEP)
        return change(pin)

    after = desk.contacts.update(desk.address.realm, handle, changed)
    assert after is not None
    return after


def _add(desk: Desk, text: str) -> str:
    """Pin a contact string, and return its handle."""
    from ringline.client import Peers, RelayClock
    from ringline.protocol.contact import Contact

    contact = Contact.parse(text)
    Peers(desk.address, desk.http, desk.contacts, RelayClock()).add(contact)
    return contact.handle


def _tell_relay(desk: Desk, handle: str, admittance: "Admittance") -> bool:
    """Have the relay keep to it too; without that, this computer still does. Return whether it knows."""
    import asyncio

    from ringline.client.admittance import admit_at_relay

    trouble = asyncio.run(admit_at_relay(desk.http, handle, admittance))
    if trouble is not None:
        tell(f"! the relay was not told: {shown_line(str(trouble))}")
        tell("  Your listener keeps to it all the same. Say it again when the relay can be reached.")
    return trouble is None


def _print(desk: Desk, pin: "Pin", where: Where) -> None:
    from ringline.cli.peer_sheet import describe_peer, peer_sheet

    if where.machine:
        write_document({"v": 1, "ok": True, "contact": describe_peer(desk.account, pin)})
    else:
        write_text(peer_sheet(desk.account, pin))


for _one in (ls, show, allow, block, verify, rm):
    command.add_command(_one)
