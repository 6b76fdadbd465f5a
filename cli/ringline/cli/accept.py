"""`ringline accept`: take up an invite."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ringline.cli.invite import given_options, read_given
from ringline.cli.options import identity_option, json_option, locking_options, relay_options
from ringline.cli.output import write_document, write_text
from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.cli.spoken import ask_for_code, is_code, use_code
from ringline.cli.terminal import shown_line
from ringline.protocol.codes import Family

if TYPE_CHECKING:
    from ringline.client import Account, Home, RelayAddress
    from ringline.client.contacts import Pin
    from ringline.client.invitations import Given
    from ringline.protocol.invite import Invite

__all__ = ["VARIABLE", "command"]

VARIABLE: Final = "RINGLINE_INVITE"
_CHARS: Final = 16_384
_H, _L = Family.HTTP, Family.LOCAL


@page(
    "accept",
    examples=[
        ("it asks for the line that you were given", "ringline accept"),
        (
            "in a pipe, under a name of your choice",
            "ssh host-a ringline invite alice | ringline accept - --as alice",
        ),
        (
            "from a file; let him who invited you call you too",
            "ringline accept --allow --code-file invite.txt",
        ),
        ("a code that was told to you by voice", "ringline accept --code --relay https://relay.example"),
    ],
    exits=[
        (0, "taken up: you are enrolled, and know who has invited you"),
        (_L, "config"),
        (_H, "forbidden"),
        (_H, "conflict"),
        (_L, "key_changed"),
        (_L, "code_failed"),
        (_L, "relay_unreachable"),
    ],
    then="ringline call HANDLE TEXT, to whoever has invited you",
)
@click.argument("source", required=False, metavar="[-]")
@click.option(
    "--code-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Read the invite, or the code, from this file.",
)
@click.option(
    "--code",
    "spoken",
    is_flag=True,
    help="Use a spoken code, such as 7-crossover-clockwork, at the relay that --relay names.",
)
@identity_option("The handle to take, or the identity of yours that was invited.")
@click.option("--allow", is_flag=True, help="Let him who has invited you call you too.")
@given_options
@relay_options
@locking_options
@json_option
def command(
    source: str | None,
    code_file: str | None,
    spoken: bool,
    own: str | None,
    allow: bool,
    tasks: tuple[str, ...],
    calls_per_hour: int,
    relay: str,
    realm: str | None,
    passphrase_file: str | None,
    plain: bool,
    machine: bool,
) -> None:
    """Take up an invite: enrol at its relay, and pin the key of whoever has invited you.

    The line is a secret: it is asked for on a terminal, or read from standard input (-), a file, or the
    variable RINGLINE_INVITE, and never an argument. Taken up once more it says the same again.

    With --code the same is true of a code that was told to you. There is one try at it, while the other side
    waits. An invite says by itself where its relay is; a code does not.
    """
    import asyncio

    from ringline.cli.identity import locking, open_account
    from ringline.client import Home, RelayAddress

    if tasks and not allow:
        raise click.UsageError("--task says what --allow allows: give both")
    given = read_given(tasks, calls_per_hour) if allow else None
    if spoken:
        invite = _by_code(RelayAddress.parse(relay, realm), _read(source, code_file, ask_for_code), machine)
    else:
        _refuse_place(click.get_current_context())
        invite = _by_line(_read(source, code_file, _ask_for_line))
    home, address = Home.default(), RelayAddress.parse(invite.base_url, invite.realm)
    handle = own if own is not None else invite.handle
    lock = locking(home, address, handle, passphrase_file, plain)
    account, _ = open_account(home, address, handle, lock)
    pin = asyncio.run(_accept(home, account, invite, given))
    usual = _remember(home, address, account.handle)
    if machine:
        from ringline.cli.card import describe
        from ringline.cli.peer_sheet import describe_peer

        peer = None if pin is None else describe_peer(account, pin)
        write_document({"v": 1, "ok": True, "identity": describe(account), "inviter": peer})
        return
    write_text(_screen(account, pin, usual=usual))


async def _accept(home: "Home", account: "Account", invite: "Invite", given: "Given | None") -> "Pin | None":
    from contextlib import closing

    from ringline.client import Contacts, KeyLog, Peers, RelayClock, RelayHttp
    from ringline.client.admittance import admit_at_relay
    from ringline.client.invitations import pin_inviter

    clock = RelayClock()
    http = RelayHttp(account.address, account, clock)
    with closing(KeyLog(home, http, clock, _note)) as log:
        await log.greet(await http.info(), () if invite.log is None else (invite.log,))
        proof = invite.prove(account.handle, account.ipk)
        await http.publish(invite.secret if proof is None else f"{invite.secret}:{proof}")
        if invite.inviter is None:
            return None
        contacts = Contacts(home, home.contacts_file(account.address))
        pin_inviter(contacts, invite, given, clock.own_ms())
        # The relay's keys of him must be those of the invite, or what succeeds them rightly.
        peers = Peers(account.address, http, contacts, clock, note=_note, log=log)
        pin = (await peers.resolve(invite.inviter)).pin
    if given is not None:
        trouble = await admit_at_relay(http, invite.inviter, "allowed")
        if trouble is not None:
            tell(f"! the relay was not told to let {invite.inviter} through: {trouble}")
    return pin


def _by_line(text: str) -> "Invite":
    """Return the invite of a line, without the white space that a chat may have put into it."""
    from ringline.protocol.errors import InviteError
    from ringline.protocol.invite import Invite

    if is_code(text):
        raise InviteError(
            "this is a spoken code, and no invite. It was not used",
            next_step="ringline accept --code, with --relay as the other side was told",
        )
    return Invite.parse("".join(text.split()))


def _by_code(address: "RelayAddress", text: str, machine: bool) -> "Invite":
    """Return the invite that a code gets at a relay."""
    from ringline.protocol.spokencode import SpokenCode

    return use_code(address, SpokenCode.parse(text), machine=machine)


def _refuse_place(context: click.Context) -> None:
    for name in ("relay", "realm"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} goes with --code: an invite says by itself where its relay is")


def _note(text: str) -> None:
    tell(f"! {shown_line(text)}")


def _remember(home: "Home", address: "RelayAddress", handle: str) -> bool:
    """Make the first relay and identity that a person is invited with the ones that he need not name."""
    from ringline.client import keep_usual

    home.call_as(address, handle)
    return keep_usual(home, address)


def _ask_for_line() -> str:
    return str(click.prompt("The invite (one line, not shown)", hide_input=True, err=True))


def _read(source: str | None, code_file: str | None, ask: Callable[[], str]) -> str:
    """Return what somebody was given, as it stands; ``ask`` asks for it on a terminal."""
    from ringline.protocol.errors import ConfigError

    if source not in (None, "-"):
        raise ConfigError(
            "an invite is a secret, and others can see the arguments of a command. It was not used; "
            "if others use this computer, withdraw it",
            next_step="ringline accept, which asks for it; or ringline accept - < FILE",
        )
    if source is not None and code_file is not None:
        raise ConfigError("- and --code-file exclude each other", next_step="choose one of them")
    if source == "-":
        return sys.stdin.read(_CHARS)
    if code_file is not None:
        return _from_file(Path(code_file))
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    if sys.stdin.isatty() and sys.stderr.isatty():
        return ask()
    raise ConfigError(
        "there is no invite, and no terminal to ask on",
        next_step=f"give it on standard input (ringline accept -), by --code-file, or in {VARIABLE}",
    )


def _from_file(path: Path) -> str:
    from ringline.protocol.errors import ConfigError

    try:
        with path.open(encoding="ascii") as file:
            return file.read(_CHARS)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(
            f"the invite cannot be read from {path}: {reason}", next_step="check --code-file"
        ) from None


def _screen(account: "Account", pin: "Pin | None", *, usual: bool) -> str:
    from ringline.cli.peer_sheet import peer_sheet

    text = f"✓ {account.handle} is enrolled at {account.address.base_url}\n"
    text += f"  fingerprint    {account.fingerprint}\n"
    if usual:
        text += "  From now on this is the relay that is meant when none is named.\n"
    if pin is None:
        return f"{text}Next:  ringline invite NAME --as {account.handle}\n"
    text += f"\n✓ {pin.handle} has invited you, and this is his key\n{peer_sheet(account, pin)}"
    text += (
        "  Compare the safety number with him by another way, if the invite came by one you do not trust.\n"
    )
    return f'{text}Next:  ringline call {pin.handle} "hello"\n'
