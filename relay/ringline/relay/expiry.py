"""Ends of durable calls that nobody asks for: time, lost authority, a restart."""

from typing import Final, Literal, final

from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import Event, Mode, State, advance
from ringline.relay.endings import Endings
from ringline.relay.errands import Errand, Errands
from ringline.relay.hands import Hands
from ringline.relay.ledger import Ledger
from ringline.relay.settings import Settings
from ringline.relay.stored_records import is_hidden

__all__ = ["Expiry"]

_DURABLE: Final = Mode.DURABLE
_PAGE: Final = 500
_SWEEP: Final = 100
_PARTIES: Final[tuple[Literal["caller"], Literal["callee"]]] = ("caller", "callee")


@final
class Expiry:
    """Finds, by the indices of the store, the calls whose time or authority is over."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        errands: Errands,
        endings: Endings,
        hands: Hands,
        counters: dict[str, int],
    ) -> None:
        self._keep = settings.stored_record_life_ms
        self._stop_wait = settings.stop_wait_ms
        self._ledger = ledger
        self._store = ledger.store
        self._errands = errands
        self._endings = endings
        self._hands = hands
        self._counters = counters

    # --- time

    def not_stopped(self, call_id: str, now: Instant) -> None:
        """A listener did not answer the relay's own request to stop."""
        errand = self._errands.held(call_id)
        if errand is not None and errand.stop is not None and errand.row.state is State.STARTED:
            self._endings.end(errand, advance(_DURABLE, errand.state, Event.STOP_BOUND), now)

    def sweep(self, now: Instant) -> None:
        """Let happen to stored calls what is due by the wall clock."""
        self._endings.looked()
        rows = self._store.due(now.wall, _SWEEP)
        for row in rows:
            self._time_over(self._errands.of(row), now)
        due = self._store.next_due()
        if due is not None:
            self._endings.watch(due, now)

    def _time_over(self, errand: Errand, now: Instant) -> None:
        row = errand.row
        if is_hidden(row):
            due = row.execute_by + self._keep
            self._endings.write(errand, "end", now, due_at=due)
            self._endings.announce(errand, None)
        elif row.ended:
            self._ledger.forget(row)
            self._counters["stored_forgotten"] += 1
        elif row.state is State.STARTED:
            # Should the relay stop meanwhile, the next one begins again.
            wait = self._stop_wait
            self._endings.write(errand, "cancel", now, due_at=now.wall + 2 * wait + 1)
            self._endings.stop(errand, Event.STOPPED, now)
        else:
            self._endings.send_cancel(errand)
            self._endings.end(errand, advance(_DURABLE, errand.state, Event.EXECUTE_BY), now)

    # --- authority

    def recheck(self, handle: str, now: Instant) -> None:
        """The authority of ``handle``, or what it allows, has changed: end the calls that this ends."""
        unfinished = (State.QUEUED, State.PARKED, State.STARTED)
        for party in _PARTIES:
            cursor: int | None = None
            while True:
                rows, cursor = self._store.page(party, handle, unfinished, cursor, _PAGE)
                for row in rows:
                    lost = self._hands.lost_by(row)
                    if lost is not None:
                        self._endings.revoke(self._errands.of(row), lost == "caller", now)
                if cursor is None:
                    break

    # --- the start of the relay

    def end_flagged(self, now: Instant) -> None:
        """End what was to be canceled and was in a listener's hands when the relay ended before."""
        # RL-CANCEL-032: a relay that starts ends as canceled what was to be cancelled and was not started.
        rows = self._store.flagged(0, _PAGE)
        while rows:
            for row in rows:
                self._endings.end(Errand(row=row), advance(_DURABLE, row.state, Event.CANCEL), now)
            rows = self._store.flagged(rows[-1].seq, _PAGE)
