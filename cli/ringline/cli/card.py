"""An own identity as it is shown to its owner."""

from typing import Final

from ringline.client.account import Account
from ringline.client.clock import wall_ms
from ringline.client.expiry import card_days, warnings
from ringline.client.logstate import followed_key
from ringline.client.recovery import was_exported
from ringline.protocol.contact import Contact
from ringline.protocol.dates import spelled
from ringline.protocol.encoding import b64encode

__all__ = ["describe", "sheet"]

_EXPORT: Final = "ringline id export --recovery FILE"


def describe(account: Account) -> dict[str, object]:
    """Return an identity as JSON: names, keys that may be known to everybody, and where its files are."""
    card = account.card.card
    now_ms = wall_ms()
    place = account.home.identity_key_file(account.address, account.handle)
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
        "days_left": card_days(account, now_ms),
        "identity_key": str(place) if place.exists() else None,
        "recovery_export": was_exported(account),
        "warnings": list(warnings(account, now_ms)),
        "suites": list(account.suites),
        "folder": str(account.home.identity_folder(account.address, account.handle)),
    }


def sheet(account: Account) -> str:
    """Return an identity as lines for a person."""
    card = account.card.card
    until = spelled(card.not_after, "%Y-%m-%d")
    now_ms = wall_ms()
    days = card_days(account, now_ms)
    rest = "1 day" if days == 1 else f"{days} days"
    place = account.home.identity_key_file(account.address, account.handle)
    key = "here" if place.exists() else "not here; every new card needs it"
    saved = "saved in a file" if was_exported(account) else f"none made: {_EXPORT} --as {account.handle}"
    warned = "".join(f"  ! {warning}\n" for warning in warnings(account, now_ms))
    return (
        f"{account.handle}  at {account.address.base_url}  (realm {account.address.realm})\n"
        f"  fingerprint  {account.fingerprint}\n"
        f"  contact      {_contact(account)}\n"
        f"  card         number {card.serial}, holds until {until} ({rest})\n"
        f"  identity key {key}\n"
        f"  recovery     {saved}\n"
        f"  files        {account.home.identity_folder(account.address, account.handle)}\n"
        f"{warned}"
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
