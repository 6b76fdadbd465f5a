"""Sealing the outcomes of calls, each to the one-time key of its own request (RL-ENVELOPE-016).

The journal keeps what an outcome says; here it is signed by the card of the day and sealed afresh for every
call and every sending (RL-IDEM-025).
"""

from msgspec import UNSET

from ringline.client import Account, RelayClock
from ringline.listener.effects import Tell
from ringline.protocol.context import OutcomeContext, Party, Recipient
from ringline.protocol.envelope import seal_outcome
from ringline.protocol.frames import CallOutcome

__all__ = ["seal"]


def seal(account: Account, clock: RelayClock, tell: Tell) -> CallOutcome:
    """Return the frame that tells an outcome.

    The identities are those of the request, whatever has happened since (RL-ENVELOPE-017). Raises
    `RinglineError` when it cannot be sealed, which a checked outcome and a checked key do not lead to.
    """
    offer, end = tell.offer, tell.end
    assert end.json is not None
    card, operational = account.signer(offer.own_ipk)
    context = OutcomeContext(
        realm=account.address.realm,
        sender=Party(account.handle, offer.own_ipk, card.card.id),
        recipient=Recipient(offer.handle, offer.from_ipk, offer.suite, offer.reply_public),
        mode=offer.mode,
        message_id=offer.message_id,
        correlation_id=offer.correlation_id,
        iat=clock.now_ms(),
        exp=offer.exp,
        call_id=offer.call_id,
        terminal=end.terminal,
        request_digest=offer.digest,
    )
    return CallOutcome(
        call_id=offer.call_id,
        terminal=end.terminal,
        terminal_reason=end.reason,
        envelope=seal_outcome(context, end.json, operational),
        lease_id=UNSET if tell.lease_id is None else tell.lease_id,
    )
