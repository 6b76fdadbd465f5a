"""`ringline id`: own identities."""

import click

from ringline.cli.options import identity_option, json_option, locking_options, relay_options
from ringline.cli.output import write_document, write_text
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.cli.recovery import export, restore
from ringline.cli.rotate import revoke, rotate, succeed
from ringline.protocol.codes import Family

__all__ = ["command"]


@click.group("id", context_settings=SETTINGS)
def command() -> None:
    """Show your identities; replace, call back, save and restore their keys."""


@page(
    "show",
    examples=[
        ("every identity kept here for the development relay", "ringline id show"),
        ("one of them, with the contact string to hand over", "ringline id show --as echo"),
        ("only the contact string", "ringline id show --as echo --json | jq -r .identities[0].contact"),
    ],
    exits=[(0, "shown"), (Family.LOCAL, "config")],
    then="give the contact string to whoever shall call you:  ringline call 'ringline://…' TEXT",
)
@identity_option("Only this identity.")
@relay_options
@locking_options
@json_option
def show(
    own: str | None, relay: str, realm: str | None, passphrase_file: str | None, plain: bool, machine: bool
) -> None:
    """Show handle, fingerprint, contact string and what runs out of your identities; asks no relay."""
    import time

    from ringline.cli.card import describe, sheet
    from ringline.cli.identity import locking
    from ringline.client.account import Account
    from ringline.client.address import RelayAddress
    from ringline.client.home import Home
    from ringline.protocol.errors import ConfigError

    home, address = Home.default(), RelayAddress.parse(relay, realm)
    names = (own,) if own is not None else home.handles(address)
    if not names:
        raise ConfigError(
            f"there is no identity for {address.base_url} in {home.root}",
            next_step="make one: ringline init --as NAME",
        )
    now = time.time_ns() // 1_000_000
    accounts: list[Account] = []
    for name in names:
        # Each has a passphrase of its own, unless they are all in one file.
        lock = locking(home, address, name, passphrase_file, plain)
        accounts.append(Account.load(home, address, name, now, passphrase=lock.passphrase))
    if machine:
        write_document({"v": 1, "ok": True, "identities": [describe(account) for account in accounts]})
    else:
        write_text("\n".join(sheet(account) for account in accounts))


command.add_command(show)
command.add_command(rotate)
command.add_command(succeed)
command.add_command(revoke)
command.add_command(export)
command.add_command(restore)
