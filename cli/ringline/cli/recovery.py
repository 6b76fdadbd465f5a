"""`ringline id export` and `ringline id import`: keys that leave this computer, and come back."""

from pathlib import Path
from typing import Any, Final

import click

from ringline.cli.options import identity_option, json_option, locking_options, relay_options
from ringline.cli.output import write_document, write_text
from ringline.cli.page import command as page
from ringline.cli.passphrase import passphrase_from, secret_options
from ringline.protocol.codes import Family
from ringline.protocol.errors import ConfigError

__all__ = ["export", "restore"]

_WITHOUT: Final = (
    "Keep it where this computer is not. A lost identity key comes back from this file\n"
    "  and from nowhere else; without both the handle is lost, and queued calls cannot be read."
)
_FOR_HOSTS: Final = (
    "Whoever has it can answer and call as {handle}, and cannot make new cards.\n"
    "  Delete it when it was imported."
)


@page(
    "export",
    examples=[
        ("for the day on which this computer is lost", "ringline id export --recovery recovery.key"),
        ("for a second host that shall answer too", "ringline id export --agent host.key --as reviewer"),
    ],
    exits=[(0, "the file is written"), (Family.LOCAL, "config")],
    then="ringline id import FILE, on the other computer",
)
@identity_option("The identity.")
@click.option("--recovery", metavar="FILE", help="Write everything, the identity key included.")
@click.option(
    "--agent", metavar="FILE", help="Write what another host of this handle needs, no identity key."
)
@click.option("--export-plain", is_flag=True, help="Leave the file to its mode 0600, without a passphrase.")
@secret_options("export", "the file that is written")
@click.option(
    "--identity-key",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The identity key. [default: identity.key among your files]",
)
@secret_options("identity", "the identity key, where it is another")
@relay_options
@locking_options
@json_option
def export(
    recovery: str | None,
    agent: str | None,
    export_plain: bool,
    export_secret: str | None,
    machine: bool,
    **given: Any,
) -> None:
    """Save the keys of an identity in a file, for recovery or for another host of the same handle."""
    from ringline.cli.keydesk import KeyDesk
    from ringline.client.clock import wall_ms
    from ringline.client.recovery import export_agent, export_identity

    if (recovery is None) == (agent is None):
        raise ConfigError("it takes --recovery FILE or --agent FILE", next_step="say which of them")
    if export_plain and export_secret is not None:
        raise ConfigError(
            "--export-plain and a passphrase exclude each other", next_step="choose one of them"
        )
    desk = KeyDesk(**given)
    path = Path(recovery or agent or "")
    unlock = passphrase_from(export_secret, lambda: f"Passphrase for {path}", is_new=lambda: True)
    if unlock is None and not export_plain:
        raise ConfigError(
            "the file needs a passphrase, and there is nobody to ask. Nothing was written.",
            next_step="name a file that holds one: --export-passphrase-file FILE, or say --export-plain",
        )
    secret = None if export_plain or unlock is None else unlock()
    if secret == "":
        raise ConfigError("an empty passphrase protects nothing. Nothing was written.")
    if recovery is not None:
        export_identity(desk.account, desk.identity, path, secret, wall_ms())
        hint = _WITHOUT
    else:
        export_agent(desk.account, path, secret, wall_ms())
        hint = _FOR_HOSTS.format(handle=desk.account.handle)
    card = desk.account.card.card
    if machine:
        document = {
            "handle": card.handle,
            "serial": card.serial,
            "file": str(path),
            "recovery": bool(recovery),
        }
        write_document({"v": 1, "ok": True, "export": document})
        return
    locked = "by its mode alone" if secret is None else "by the passphrase"
    write_text(f"✓ the keys of {card.handle}, card {card.serial}, are in {path}, locked {locked}\n  {hint}\n")


@page(
    "import",
    examples=[
        ("after a loss, or on another host", "ringline id import recovery.key"),
        (
            "without anybody to ask",
            "ringline id import host.key --export-passphrase-file secret --plain",
        ),
    ],
    exits=[
        (0, "the keys are in their places and published"),
        (Family.LOCAL, "config"),
        (Family.HTTP, "conflict"),
        (Family.LOCAL, "relay_unreachable"),
    ],
    then="ringline id show",
)
@click.argument("file", metavar="FILE")
@secret_options("export", "the file")
@relay_options
@locking_options
@json_option
def restore(
    file: str,
    export_secret: str | None,
    relay: str,
    realm: str | None,
    passphrase_file: str | None,
    plain: bool,
    machine: bool,
) -> None:
    """Put the keys of a file in their places, where they are missing or older, and publish them."""
    import asyncio

    from ringline.cli.card import describe, sheet
    from ringline.cli.identity import locking
    from ringline.client.address import RelayAddress
    from ringline.client.clock import RelayClock, wall_ms
    from ringline.client.home import Home
    from ringline.client.http import RelayHttp
    from ringline.client.recovery import keep, read_export
    from ringline.client.recovery import restore as put_back
    from ringline.client.renewal import IdentityKey
    from ringline.client.rotation import recover
    from ringline.protocol.errors import HttpProblem

    home, address = Home.default(), RelayAddress.parse(relay, realm)
    unlock = passphrase_from(export_secret, lambda: f"Passphrase of {file}")
    found = read_export(Path(file), unlock)
    handle = found.card.card.handle
    lock = locking(home, address, handle, passphrase_file, plain)
    undo = keep(home, address, handle)
    account = put_back(home, address, found, wall_ms(), passphrase=lock.passphrase, plain=lock.plain)
    secret = account.secret
    place = IdentityKey(home.identity_key_file(address, handle), None if secret is None else lambda: secret)

    async def publish() -> bool:
        http = RelayHttp(address, account, RelayClock())
        await http.info()
        try:
            made = await recover(http, None if found.identity is None else place)
        except HttpProblem:
            # What no relay takes must not stand in the way of a better file.
            undo()
            raise
        if found.identity is not None and account.ipk == found.card.card.ipk:
            account.note_exported()
        return made

    made = asyncio.run(publish())
    if machine:
        write_document({"v": 1, "ok": True, "made": made, "identity": describe(account)})
        return
    new = "; the saved card was replaced meanwhile, so that new keys were made" if made else ""
    write_text(f"✓ the keys of {handle} are here and published{new}\n{sheet(account)}")
