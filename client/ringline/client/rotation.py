"""Replacing and calling back the keys of an own identity, at the relay (RL-HTTP-018, RL-HTTP-030).

Files first, then the relay: whoever finds a card that was never published, publishes it, so that a crash
between the two is made up for by the next command or by a running listener.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final, final

from ringline.client.http import RelayHttp
from ringline.client.identity_files import KEPT_IDENTITY
from ringline.client.keylog import KeyLog
from ringline.client.renewal import (
    IdentityKey,
    Replacement,
    made_at,
    next_card,
    next_identity,
    revocation,
)
from ringline.client.trust import read_keys
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, HttpProblem, TransportError, TrustError
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.statements import Reason, RevokedBy

__all__ = ["SAME_MS", "Outcome", "check_newest", "recover", "revoke", "rotate", "succeed"]

SAME_MS: Final = 60_000
"""Two rotations within this time are one: the second finds the work done."""

_TRIES: Final = 32


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it. ``made`` is False when the same was done a moment ago, by another process most likely.

    ``before`` are the earlier cards whose keys are still here, latest first; ``revoked`` has the ids of those
    that were called back, now or before, the latter as far as the relay tells.
    """

    made: bool
    before: tuple[SignedCard, ...]
    revoked: frozenset[bytes]


async def check_newest(http: RelayHttp) -> bool:
    """Pass when the relay shows no card of the own handle that is not here; False when it could not be asked.

    A relay that does not let this card in cannot be asked, and is not believed. Raises `ConfigError` when
    there is one, `TransportError` when the relay cannot be reached.
    """
    account = http.account
    try:
        keys = await http.keys(account.handle)
        shown = read_keys(account.address.realm, account.handle, keys).card
    except (HttpProblem, TrustError):
        return False
    if shown.card.serial > account.card.card.serial:
        # Another process here may have made it since.
        await asyncio.to_thread(account.refresh, http.clock.own_ms())
    mine, theirs = account.card.card, shown.card
    if theirs.serial < mine.serial or theirs == mine:
        return True
    raise ConfigError(
        f"the relay shows card number {theirs.serial} of {account.handle}, made on another computer; "
        f"here is number {mine.serial}. Nothing was changed.",
        next_step=f"there: ringline id export --agent FILE --as {account.handle}; "
        "here: ringline id import FILE. If nobody of yours made it: ringline log verify",
    )


async def rotate(
    http: RelayHttp, identity: IdentityKey, *, reason: Reason | None = None, log: KeyLog | None = None
) -> Outcome:
    """Replace the operational key and the card, publish them, and with ``reason`` call the old card back.

    Raises `ConfigError` when the identity key is not to be had or the relay knows of a later card; what the
    relay raises otherwise, and then the new keys are here and are published with the next command.
    """
    account = http.account
    known = account.card.card
    holds = await check_newest(http)
    now = http.clock.own_ms()
    # Whoever calls cards back, or has done so, means new keys whatever the time.
    one = holds and reason is None

    def make(card: Card) -> Replacement | None:
        # The lock is held: whoever was second sees what the first has made.
        if card != known or (one and card.serial > 1 and 0 <= now - made_at(card) < SAME_MS):
            return None
        return next_card(identity.read_for(card), card, now)

    made = await asyncio.to_thread(account.replace, now, make)
    return await _publish(http, identity, made, reason, log)


async def succeed(
    http: RelayHttp,
    identity: IdentityKey,
    place: IdentityKey,
    *,
    reason: Reason | None = None,
    log: KeyLog | None = None,
) -> Outcome:
    """Hand the handle over to the next identity, to which the card has committed, and publish it.

    ``identity`` has the key that follows; ``place`` is where the new identity's keys are written, locked by
    its passphrase. Raises as `rotate` does.
    """
    account = http.account
    known = account.card.card
    await check_newest(http)
    now = http.clock.own_ms()
    secret = None if place.passphrase is None else await asyncio.to_thread(place.passphrase)

    def make(card: Card) -> Replacement | None:
        if card != known:
            return None
        following, old = identity.read_next(card)
        return next_identity(following, old, card, card.id, now)

    made = await asyncio.to_thread(account.replace, now, make, (place.path, secret))
    return await _publish(http, place, made, reason, log)


async def _publish(
    http: RelayHttp, identity: IdentityKey, made: bool, reason: Reason | None, log: KeyLog | None
) -> Outcome:
    account = http.account
    await http.publish()
    # It is kept until its successor is known to the relay.
    identity.path.with_name(KEPT_IDENTITY).unlink(missing_ok=True)
    before = account.cards[1:]
    ids = {card.card.id for card in before}
    if reason is not None:
        # All of them: which of several was stolen with this computer's files, nobody knows.
        for card in before:
            await revoke(http, identity, card.card.id, card, reason=reason, log=log)
    else:
        shown: list[str] = []
        with contextlib.suppress(HttpProblem, TransportError):
            shown = (await http.keys(account.handle)).revoked if before else []
        ids = {card_id for card_id in ids if b64encode(card_id) in shown}
    return Outcome(made=made, before=before, revoked=frozenset(ids))


async def revoke(
    http: RelayHttp,
    identity: IdentityKey,
    card_id: bytes,
    card: SignedCard | None,
    *,
    reason: Reason,
    by: RevokedBy = "identity",
    log: KeyLog | None = None,
) -> bool:
    """Call a card of the own handle back. Returns False when it was called back before.

    ``card`` is that card, if it is at hand. Raises `ConfigError` without the key that signs it, `HttpProblem`
    when the relay refuses, `LogForked` when its key log leaves the statement out.
    """
    account = http.account
    keys = await asyncio.to_thread(identity.read, account.handle)
    plain = None if card is None else card.card
    statement = revocation(keys, plain, card_id, by, reason, http.clock.own_ms())
    fresh = await http.revoke(account.handle, statement)
    if log is not None and card is not None:
        await log.confirm_revocation(card)
    return fresh


async def recover(http: RelayHttp, identity: IdentityKey | None) -> bool:
    """Publish keys that came from a file; with the identity key a new card if theirs was replaced meanwhile.

    Returns whether a new card was made. Raises `HttpProblem` when the relay takes none of this identity.
    """
    account = http.account
    try:
        await http.publish()
        return False
    except HttpProblem as error:
        if error.code not in ("conflict", "unauthorized"):
            raise
        if identity is None:
            await check_newest(http)
            raise HttpProblem(
                f"{account.address.base_url} takes card {account.card.card.serial} of {account.handle} "
                "no more: it was called back, or replaced more than two days ago",
                code=error.code,
                next_step=f"on the computer with the identity key: ringline id export --agent FILE "
                f"--as {account.handle}; then import that file here",
            ) from error
    keys = await asyncio.to_thread(identity.read_for, account.card.card)
    now = http.clock.own_ms()

    def make(card: Card) -> Replacement:
        return next_card(keys, card, now)

    for _ in range(_TRIES):
        # Nobody is told the number of the present card without a log-in, for which it would be needed.
        await asyncio.to_thread(account.replace, now, make)
        try:
            await http.publish()
            return True
        except HttpProblem as error:
            if error.code not in ("conflict", "unauthorized"):
                raise
    raise HttpProblem(
        f"{account.address.base_url} takes no card of this identity for {account.handle}: the handle "
        "has passed on to its next identity, or is another's",
        code="conflict",
        next_step="use a recovery file that was made after that",
    )
