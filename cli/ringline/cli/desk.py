"""What commands about invites and contacts work on: the relay, the own identity there, and its contacts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

from ringline.cli.chosen import Chosen, chosen_options

if TYPE_CHECKING:
    from ringline.client import Account, Home, RelayAddress
    from ringline.client.invitations import Invitations

__all__ = ["Desk", "Where", "desk_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Where(Chosen):
    """An own identity to be opened."""

    def open(self) -> "Desk":
        """Load the own identity: the one named, else the only one, else the one that calls by default.

        Raises `ConfigError`.
        """
        import time

        from ringline.cli.identity import locking
        from ringline.client import Account, Home

        home, address = Home.default(), self.address()
        handle = self.own if self.own is not None else home.own_handle(address)
        lock = locking(home, address, handle, self.passphrase_file, self.plain)
        now = time.time_ns() // 1_000_000
        return Desk(home, Account.load(home, address, handle, now, passphrase=lock.passphrase))


def desk_options(whose: str) -> Callable[[_F], _F]:
    """Add the options of an own identity and ``--json``; the function gets them as ``where``.

    ``whose`` is what the page says of ``--as``.
    """
    return chosen_options(whose, "where", Where)


@final
class Desk:
    """An own identity with all that belongs to it here. Nothing is sent before something is asked for."""

    def __init__(self, home: "Home", account: "Account") -> None:
        from ringline.client import Contacts, RelayClock, RelayHttp

        self.home = home
        self.account = account
        self.address: RelayAddress = account.address
        self.http: RelayHttp = RelayHttp(account.address, account, RelayClock())
        self.contacts: Contacts = Contacts(home, home.contacts_file(account.address))

    @property
    def invitations(self) -> "Invitations":
        """The invites of this identity."""
        from ringline.client.invitations import Invitations

        return Invitations(self.home, self.account, self.http, self.contacts)
