"""`ringline id rotate`, `id succeed` and `id revoke`: keys that are replaced or called back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ringline.cli.options import identity_option, json_option, locking_options, relay_options
from ringline.cli.output import write_document, write_text
from ringline.cli.page import command as page
from ringline.cli.passphrase import asks, secret_options
from ringline.protocol.codes import Family
from ringline.protocol.errors import ConfigError

if TYPE_CHECKING:
    from ringline.cli.keydesk import KeyDesk
    from ringline.client.rotation import Outcome
    from ringline.protocol.statements import Reason

__all__ = ["revoke", "rotate", "succeed"]

_REASONS: Final = ("unspecified", "compromised", "retired")
_EXITS: Final = [
    (Family.LOCAL, "config"),
    (Family.HTTP, "conflict"),
    (Family.LOCAL, "relay_unreachable"),
]

_F = TypeVar("_F", bound=Callable[..., Any])


def _identity_key(function: _F) -> _F:
    """Add where the identity key is, and what opens it."""
    file = click.option(
        "--identity-key",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="The identity key, or a recovery file that has it. [default: identity.key among your files]",
    )
    return file(secret_options("identity", "the identity key, where it is another")(function))


def _called_back(function: _F) -> _F:
    return click.option(
        "--revoke",
        "reason",
        type=click.Choice(_REASONS),
        help="Also call the old card back, for this reason: connections under it end, and queued calls that "
        "it sealed. Without it the old one may go on for 48 hours.",
    )(function)


@page(
    "rotate",
    examples=[
        ("new keys; whoever runs under the old ones takes over the new", "ringline id rotate --as reviewer"),
        ("the operational key was stolen", "ringline id rotate --as reviewer --revoke compromised"),
        ("the identity key is on a stick", "ringline id rotate --identity-key /media/stick/identity.key"),
    ],
    exits=[(0, "the new keys are published"), *_EXITS],
    then="ringline id show",
)
@identity_option("The identity.")
@_identity_key
@_called_back
@relay_options
@locking_options
@json_option
def rotate(reason: str | None, machine: bool, **given: Any) -> None:
    """Replace the operational key and the card of an identity; handle and fingerprint stay."""
    from ringline.cli.keydesk import KeyDesk
    from ringline.client.rotation import rotate as replace

    desk = KeyDesk(**given)
    outcome = desk.run(lambda http, log: replace(http, desk.identity, reason=_reason(reason), log=log))
    first = (
        "new keys, published"
        if outcome.made
        else f"card {desk.account.card.card.serial} was made a moment ago; it is the new one, and published"
    )
    _report(desk, outcome, first, machine)


@page(
    "succeed",
    examples=[
        ("the next identity key takes over", "ringline id succeed --as reviewer"),
        (
            "the identity key was stolen; the next one is in the recovery file",
            "ringline id succeed --identity-key recovery.key --revoke compromised",
        ),
    ],
    exits=[(0, "the handle has a new identity key, and peers follow"), *_EXITS],
    then="ringline id export --recovery FILE",
)
@identity_option("The identity.")
@_identity_key
@_called_back
@relay_options
@locking_options
@json_option
def succeed(reason: str | None, machine: bool, **given: Any) -> None:
    """Hand a handle over to the identity key that its cards have named in advance."""
    from ringline.cli.keydesk import KeyDesk
    from ringline.client.rotation import succeed as hand_over

    desk = KeyDesk(**given)
    before = desk.account.fingerprint
    outcome = desk.run(
        lambda http, log: hand_over(http, desk.identity, desk.place, reason=_reason(reason), log=log)
    )
    first = f"new identity key, published; peers who knew {before} follow to it"
    _report(desk, outcome, first, machine)


@page(
    "revoke",
    examples=[
        ("the present card was stolen and there is no time", "ringline id revoke --as reviewer --yes"),
        ("an earlier card, by its number", "ringline id revoke --card 3 --reason compromised --yes"),
        (
            "signed by the next identity key",
            "ringline id revoke --by next --identity-key recovery.key --yes",
        ),
    ],
    exits=[(0, "the card is called back"), *_EXITS, (Family.HTTP, "not_found")],
    then="ringline id rotate, unless the handle is to stay closed",
)
@identity_option("The identity.")
@click.option(
    "--card",
    "which",
    metavar="CARD",
    help="Number of the card, or its id as `ringline log` shows it. [default: the present one]",
)
@click.option("--reason", type=click.Choice(_REASONS), default="unspecified", help="Why, for your peers.")
@click.option(
    "--by",
    type=click.Choice(("identity", "next")),
    default="identity",
    help="Which key signs: the identity key, or the next one that the card names. [default: identity]",
)
@click.option("--yes", is_flag=True, help="Do not ask: it cannot be taken back.")
@_identity_key
@relay_options
@locking_options
@json_option
def revoke(which: str | None, reason: str, by: Any, yes: bool, machine: bool, **given: Any) -> None:
    """Call a card back: its connections end, with queued calls that it sealed. It cannot be taken back."""
    from ringline.cli.keydesk import KeyDesk
    from ringline.client.rotation import revoke as call_back
    from ringline.protocol.encoding import b64encode

    desk = KeyDesk(**given)
    card_id, card = desk.find(which)
    name = f"card {card.card.serial}" if card is not None else f"card {b64encode(card_id)}"
    present = card_id == desk.account.card.card.id
    if not yes:
        _confirm(f"Call {name} of {desk.account.handle} back for good?")
    why = _reason(reason)
    assert why is not None
    fresh = desk.run(
        lambda http, log: call_back(http, desk.identity, card_id, card, reason=why, by=by, log=log),
        may_log_in=not present,
    )
    if machine:
        write_document({"v": 1, "ok": True, "card_id": b64encode(card_id), "revoked_now": fresh})
        return
    done = "is called back" if fresh else "was called back before"
    rest = (
        f"\n  {desk.account.handle} can neither call nor be called until it has new keys: "
        f"ringline id rotate --as {desk.account.handle}"
        if present
        else ""
    )
    write_text(f"✓ {name} of {desk.account.handle} {done}{rest}\n")


def _confirm(question: str) -> None:
    if not asks():
        raise ConfigError(
            "there is nobody to ask, and it cannot be taken back. Nothing was changed.",
            next_step="say --yes if it is meant",
        )
    click.confirm(question, abort=True, err=True)


def _reason(name: str | None) -> "Reason | None":
    from ringline.protocol.statements import Reason

    return None if name is None else Reason(_REASONS.index(name))


def _report(desk: "KeyDesk", outcome: "Outcome", first: str, machine: bool) -> None:
    from ringline.cli.card import describe, sheet
    from ringline.protocol.encoding import b64encode

    account = desk.account
    before = [card.card for card in outcome.before]
    if machine:
        write_document(
            {
                "v": 1,
                "ok": True,
                "made": outcome.made,
                "revoked": [b64encode(card.id) for card in before if card.id in outcome.revoked],
                "identity": describe(account),
            }
        )
        return
    back = [str(card.serial) for card in reversed(before) if card.id in outcome.revoked]
    second = f"  called back: card {', '.join(back)}\n" if back else ""
    if before and before[0].id not in outcome.revoked:
        second += f"  card {before[0].serial} may be used for 48 more hours by whoever holds its key\n"
    write_text(f"✓ {first}\n{second}{sheet(account)}")
