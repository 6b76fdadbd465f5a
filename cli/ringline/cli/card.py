"""An own identity as it is shown to its owner."""

from datetime import UTC, datetime

from ringline.client.account import Account
from ringline.client.logstate import followed_key
from ringline.protocol.contact import Contact
from ringline.protocol.encoding import b64encode

__all__ = ["describe", "sheet"]


def describe(account: Account) -> dict[str, object]:
    """Return an identity as JSON: names, keys that may be known to everybody, and where its files are."""
    card = account.card.card
    return {
        "handle": account.handle,
        "realm": account.address.realm,
        "relay": account.address.base_url,
        "fingerprint": account.fingerprint,
        "public_key": b64encode(account.ipk),
        "contact": _contact(account),
        "card_id": b64encode(card.id),
        "serial": card.serial,
        "not_after": card.not_after,
        "suites": list(account.suites),
        "folder": str(account.home.identity_folder(account.address, account.handle)),
    }


def sheet(account: Account) -> str:
    """Return an identity as lines for a person."""
    card = account.card.card
    until = datetime.fromtimestamp(card.not_after / 1_000, UTC).date()
    return (
        f"{account.handle}  at {account.address.base_url}  (realm {account.address.realm})\n"
        f"  fingerprint  {account.fingerprint}\n"
        f"  contact      {_contact(account)}\n"
        f"  card         number {card.serial}, holds until {until}\n"
        f"  files        {account.home.identity_folder(account.address, account.handle)}\n"
    )


def _contact(account: Account) -> str:
    address = account.address
    return Contact(
        handle=account.handle,
        realm=address.realm,
        ipk=account.ipk,
        at=address.base_url,
        log=followed_key(account.home, address),
    ).format()
