"""Spoken codes at a terminal: one is made and waited with, one is asked for and used."""

import sys
from typing import TYPE_CHECKING, Final

import click

from ringline.cli.output import write_text
from ringline.cli.report import tell

if TYPE_CHECKING:
    from ringline.cli.desk import Desk
    from ringline.client import RelayAddress
    from ringline.client.invitations import Given, Issued
    from ringline.protocol.invite import Invite
    from ringline.protocol.spokencode import SpokenCode

__all__ = ["LIFE_S", "ask_for_code", "hand_over", "is_code", "use_code"]

LIFE_S: Final = 900
"""How long the invite can be taken up that is handed over: who gets it is there."""

_ASKED: Final = "The code (such as 7-crossover-clockwork)"


async def hand_over(desk: "Desk", given: "Given", words: int, wait_s: float, *, machine: bool) -> "Issued":
    """Say a code, wait for whoever has it, make an invite and give it to him.

    The invite is made only then: a code that comes to nothing leaves nothing behind. Raises as
    `ringline.client.pairing.SpokenInvite` and `ringline.client.invitations.Invitations.invite` do.
    """
    from ringline.client.pairing import SpokenInvite

    spoken = SpokenInvite(desk.http, words=words)
    async with spoken as code:
        if machine:
            # Standard output has the one document, at the end.
            tell(f"code  {code.format()}")
        else:
            write_text(f"{code.format()}\n")
            tell(f"  from       {desk.account.handle}  {desk.account.fingerprint}")
            tell("  Say the code to him, where you know each other's voice: there is one try at it.")
            tell(f"  He types   ringline accept --code{_place(desk.address)}")
            tell("  Ctrl-C gives the code up.")
        await spoken.meet(wait_s, lambda text: None if machine else tell(f"  {text}"))
        if not machine:
            tell("✓ the code was used: the other side has the same words")
        invite, issued = await desk.invitations.invite(given, uses=1, ttl_s=LIFE_S)
        await spoken.hand_over(invite.format())
    return issued


def _place(address: "RelayAddress") -> str:
    """Return the options by which somebody else finds the relay, who has never been told of it."""
    from ringline.client import RelayAddress

    realm = "" if RelayAddress.parse(address.base_url) == address else f" --realm {address.realm}"
    return f" --relay {address.base_url}{realm}"


def is_code(text: str) -> bool:
    """True for what is a spoken code and no invite."""
    from ringline.protocol.errors import InviteError
    from ringline.protocol.spokencode import SpokenCode

    try:
        SpokenCode.parse(text)
    except InviteError:
        return False
    return True


def ask_for_code() -> str:
    """Ask for a code at the terminal, and complete its words where it has a way to."""
    if not sys.stdout.isatty():
        return str(click.prompt(_ASKED, err=True))
    try:
        import readline
    except ImportError:
        return str(click.prompt(_ASKED, err=True))
    from ringline.protocol.spokencode import completions

    def complete(text: str, state: int) -> str | None:
        found = completions(text)
        return found[state] if state < len(found) else None

    before, delimiters = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")
    # What is typed here is a secret for a while, and no line to come back to.
    readline.set_auto_history(False)
    try:
        return input(f"{_ASKED}, Tab completes: ")
    except EOFError:
        raise click.Abort from None
    finally:
        readline.set_completer(before)
        readline.set_completer_delims(delimiters)
        readline.set_auto_history(True)


def use_code(address: "RelayAddress", code: "SpokenCode", *, machine: bool) -> "Invite":
    """Return the invite that a code gets at a relay. Raises as `ringline.client.pairing.take_up` does."""
    import asyncio

    from ringline.client.pairing import take_up

    if not machine:
        tell(f"  asking at  {address.base_url}; the other side has to wait there")
    return asyncio.run(take_up(address, code))
