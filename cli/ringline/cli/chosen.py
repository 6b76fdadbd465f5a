"""Which own identity a command is about, and at which relay: six options that many commands share."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ringline.cli.options import identity_option, json_option, locking_options, relay_options

if TYPE_CHECKING:
    from ringline.client import RelayAddress

__all__ = ["Chosen", "chosen_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The options by which an own identity is found, as they were typed."""

    own: str | None
    relay: str
    realm: str | None
    passphrase_file: str | None
    plain: bool
    machine: bool

    def address(self) -> "RelayAddress":
        """Return the relay. Raises `ConfigError` for a URL that is none."""
        from ringline.client import RelayAddress

        return RelayAddress.parse(self.relay, self.realm)


def chosen_options(whose: str, name: str, kind: type[Chosen]) -> Callable[[_F], _F]:
    """Add the options of an own identity and ``--json``; the function gets a ``kind`` of them as ``name``.

    ``whose`` is what the page says of ``--as``.
    """

    def add(function: _F) -> _F:
        @functools.wraps(function)
        def run(
            *args: Any,
            own: str | None,
            relay: str,
            realm: str | None,
            passphrase_file: str | None,
            plain: bool,
            machine: bool,
            **others: Any,
        ) -> Any:
            others[name] = kind(
                own=own,
                relay=relay,
                realm=realm,
                passphrase_file=passphrase_file,
                plain=plain,
                machine=machine,
            )
            return function(*args, **others)

        return cast("_F", identity_option(whose)(relay_options(locking_options(json_option(run)))))

    return add
