"""What all commands of a calling identity share: which it is, at which relay, and how it is told about.

`calling_options` gives a command one argument, ``chosen``, in the place of six options.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, final

from ringline.cli.chosen import Chosen, chosen_options

if TYPE_CHECKING:
    from ringline.caller import AsyncCaller
    from ringline.client import Home, RelayAddress
    from ringline.protocol.contact import Contact

__all__ = ["Calling", "calling_options"]

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


def calling_options(whose: str) -> Callable[[_F], _F]:
    """Add the options of a calling identity and ``--json``; the function gets them as ``chosen``.

    ``whose`` is what the page says of ``--as``.
    """
    return chosen_options(whose, "chosen", Chosen)


@final
class Calling:
    """One run of a command of a calling identity: its report, what was noted, and its caller."""

    def __init__(
        self,
        chosen: Chosen,
        *,
        new: bool = False,
        contacts: "Iterable[Contact]" = (),
        trust_new: bool | None = None,
    ) -> None:
        """Find out how the keys are locked; nothing is sent yet.

        ``new``: an identity that is not there yet is made; the others ask about calls, and without an
        identity there are none. Raises `ConfigError`.
        """
        from ringline.cli.identity import locking
        from ringline.cli.report import open_report
        from ringline.client import Home

        self._address = chosen.address()
        self._contacts = tuple(contacts)
        self._trust_new = trust_new
        home = Home.default()
        self._own = chosen.own if new else _who_asks(home, self._address, chosen.own)
        self._lock = locking(home, self._address, self._own, chosen.passphrase_file, chosen.plain)
        self.report = open_report(machine=chosen.machine)
        self.notes: list[str] = []
        """What was told meanwhile; for the document of ``--json``."""

    def note(self, sentence: str) -> None:
        """Tell a sentence, and keep it."""
        self.notes.append(sentence)
        self.report.line("!", sentence)

    def caller(self) -> "AsyncCaller":
        """Return the caller, to be closed by whoever asked for it."""
        from ringline.caller import AsyncCaller

        return AsyncCaller(
            self._own,
            relay=self._address.base_url,
            realm=self._address.realm,
            passphrase=self._lock.passphrase,
            plain=self._lock.plain,
            trust_new=self._trust_new,
            contacts=self._contacts,
            note=self.note,
        )

    def ask(self, get: "Callable[[AsyncCaller], Awaitable[_T]]") -> _T:
        """Run ``get`` in an event loop, with a caller that is ready and closed afterwards."""
        import asyncio

        async def ask() -> _T:
            async with self.caller() as caller:
                return await get(caller)

        return asyncio.run(ask())


def _who_asks(home: "Home", address: "RelayAddress", handle: str | None) -> str:
    """Return the identity that asks about its calls: the one named, else the only one, else the one that
    calls.

    Raises `ConfigError` when it, or any, is not in this folder.
    """
    from ringline.protocol.errors import ConfigError

    handles = home.handles(address)
    if handles and (handle is None or handle in handles):
        return home.own_handle(address) if handle is None else handle
    who = "no identity" if handle is None else f"no identity {handle}"
    raise ConfigError(
        f"there is {who} for {address.base_url} in {home.root}, so no call was made from here",
        next_step="check --relay, --as and RINGLINE_HOME",
    )
