"""The parts of the durable half of a relay, put together: each knows only those before it."""

from collections.abc import Callable
from typing import final

from ringline.relay.askers import Askers
from ringline.relay.authority import Authority
from ringline.relay.call_store import CallStore
from ringline.relay.endings import Endings
from ringline.relay.errands import Errands
from ringline.relay.expiry import Expiry
from ringline.relay.hands import Hands
from ringline.relay.intake import Intake
from ringline.relay.ledger import Ledger
from ringline.relay.mailbox import Mailbox
from ringline.relay.presence import Presence
from ringline.relay.queues import Queue
from ringline.relay.quotas import Quotas
from ringline.relay.reports import Reports
from ringline.relay.sessions import Sessions
from ringline.relay.settings import Settings
from ringline.relay.timers import Timers

__all__ = ["Parts"]


@final
class Parts:
    """One of each, for one relay."""

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        store: CallStore,
        sessions: Sessions,
        presence: Presence,
        timers: Timers,
        counters: dict[str, int],
        ids: Callable[[], str],
        lease_ids: Callable[[], str],
        reach: Callable[[str], None] | None,
    ) -> None:
        self.ledger = Ledger(store, sessions, reach)
        self.errands = Errands(store)
        self.queues: dict[str, Queue] = {}
        self.quotas = Quotas(settings, store)
        self.askers = Askers(timers, wait=settings.cancel_wait_ms)
        self.endings = Endings(
            settings,
            self.ledger,
            self.errands,
            self.queues,
            presence,
            sessions,
            timers,
            self.askers,
            counters,
        )
        self.hands = Hands(
            settings,
            authority,
            self.ledger,
            self.errands,
            self.queues,
            presence,
            timers,
            self.endings,
            self.quotas,
            counters,
            lease_ids,
        )
        self.reports = Reports(
            self.ledger, self.errands, presence, timers, self.endings, self.hands, self.quotas, counters
        )
        self.mailbox = Mailbox(
            settings,
            self.ledger,
            self.errands,
            self.endings,
            self.hands,
            self.quotas,
            self.askers,
            counters,
        )

        self.expiry = Expiry(settings, self.ledger, self.errands, self.endings, self.hands, counters)
        self.intake = Intake(
            settings,
            authority,
            self.ledger,
            self.errands,
            self.endings,
            self.hands,
            self.quotas,
            self.mailbox,
            counters,
            ids,
        )
