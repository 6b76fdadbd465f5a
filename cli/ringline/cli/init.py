"""`ringline init`."""

from ringline.cli.options import identity_option, json_option, locking_options, relay_options
from ringline.cli.output import write_document, write_text
from ringline.cli.page import command as page
from ringline.protocol.codes import Family

__all__ = ["command"]


@page(
    "init",
    examples=[
        ("make the identity `reviewer` on a development relay", "ringline init --as reviewer"),
        (
            "at a relay elsewhere, keys locked by a passphrase",
            "ringline init --as reviewer --relay https://relay.example",
        ),
        ("the identity that `ringline call` uses when no other is named", "ringline init"),
    ],
    exits=[
        (0, "the identity exists and its keys are published"),
        (Family.LOCAL, "config"),
        (Family.HTTP, "unauthorized"),
        (Family.LOCAL, "relay_unreachable"),
    ],
    then="ringline id show",
)
@identity_option("The handle to take, 2 to 31 of a-z, 0-9 and hyphen.")
@relay_options
@locking_options
@json_option
def command(
    own: str | None, relay: str, realm: str | None, passphrase_file: str | None, plain: bool, machine: bool
) -> None:
    """Make an identity and publish its keys at the relay; what exists already is used and shown."""
    import asyncio

    from ringline.cli.card import describe, sheet
    from ringline.cli.identity import locking, open_account
    from ringline.client.address import RelayAddress
    from ringline.client.clock import RelayClock
    from ringline.client.home import Home
    from ringline.client.http import RelayHttp

    home, address = Home.default(), RelayAddress.parse(relay, realm)
    account, is_new = open_account(home, address, own, locking(home, address, own, passphrase_file, plain))

    async def publish() -> None:
        http = RelayHttp(address, account, RelayClock())
        await http.info()
        await http.publish()

    asyncio.run(publish())
    if machine:
        write_document({"v": 1, "ok": True, "created": is_new, "identity": describe(account)})
        return
    first = "new identity" if is_new else "this identity exists already"
    write_text(f"✓ {first}, its keys are published at {address.base_url}\n{sheet(account)}")
