"""What a listener serves: who is let in, at the relay as well, and what others are told of it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import final

from ringline.client import Account, Contacts, RelayHttp
from ringline.listener.access import Access
from ringline.protocol.contact import Contact
from ringline.protocol.errors import ConfigError
from ringline.protocol.names import is_handle
from ringline.protocol.shapes import Policy

__all__ = ["Serving", "callers", "describe", "let_in"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is served, told when the first connection stands."""

    handle: str
    realm: str
    relay: str
    """Base URL of the relay."""
    fingerprint: str
    """The own identity key, as people compare it."""
    is_new: bool
    """Whether the identity was made just now."""
    tasks: tuple[str, ...]
    admits: tuple[str, ...] | None
    """The handles that are let in; None for anyone."""
    contact: str
    """The contact string by which others can trust this identity without the relay."""


def callers(allow: Collection[str] | None) -> tuple[tuple[Contact, ...], frozenset[str]]:
    """Return the contact strings among those who may call, and the handles of all.

    Raises `ConfigError` for what is neither.
    """
    contacts: list[Contact] = []
    handles: set[str] = set()
    for one in allow or ():
        if "://" in one:
            contact = Contact.parse(one)
            contacts.append(contact)
            handles.add(contact.handle)
        elif is_handle(one):
            handles.add(one)
        else:
            raise ConfigError(
                f"{one!r} is neither a handle nor a contact string",
                next_step="allow a handle (alice) or a contact string (ringline://alice@...)",
            )
    return tuple(contacts), frozenset(handles)


async def let_in(
    http: RelayHttp, wanted: frozenset[str], *, offline: bool, note: Callable[[str], None]
) -> None:
    """Tell the relay whom to let through, and to keep calls, as far as that is ``wanted`` or ``offline``.

    Where the policy accepts anyone, as on a development relay, nobody has to be named. All else of it
    stays as it is. Raises as the methods of `RelayHttp`.
    """
    if not wanted and not offline:
        return
    policy = await http.policy()
    missing = [] if policy.accept == "anyone" else sorted(wanted - set(policy.allow))
    turned_on = offline and not policy.offline
    if not missing and not turned_on:
        return
    await http.set_policy(
        Policy(
            offline=policy.offline or offline,
            accept=policy.accept,
            allow=[*policy.allow, *missing],
            block=policy.block,
        )
    )
    if missing:
        note(f"told the relay to let through: {', '.join(missing)}")
    if turned_on:
        note("told the relay to keep durable calls while nobody listens")


def describe(
    account: Account,
    *,
    is_new: bool,
    tasks: tuple[str, ...],
    access: Access,
    contacts: Contacts,
    log_key: bytes | None,
) -> Serving:
    """Return what is served. ``log_key`` is the key of the relay's log, to be handed on."""
    allow = access.allow
    if allow is not None:
        allow |= {pin.handle for pin in contacts.pins() if access.admits(pin.handle)}
    return Serving(
        handle=account.handle,
        realm=account.address.realm,
        relay=account.address.base_url,
        fingerprint=account.fingerprint,
        is_new=is_new,
        tasks=tasks,
        admits=None if allow is None else tuple(sorted(allow - access.block)),
        contact=Contact(
            handle=account.handle,
            realm=account.address.realm,
            ipk=account.ipk,
            at=account.address.base_url,
            log=log_key,
        ).format(),
    )
