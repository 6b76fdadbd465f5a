"""Admission of durable calls, and what a repeated request is told."""

from collections.abc import Callable
from typing import Final, final

import msgspec
from msgspec import UNSET

from ringline.protocol.frames import CallQueued, CallRequest
from ringline.protocol.instant import Instant
from ringline.protocol.limits import CARD_GRACE_MS
from ringline.protocol.trace import normalise
from ringline.relay.admission import Refused
from ringline.relay.authority import Authority
from ringline.relay.call_store import CallRow
from ringline.relay.endings import Endings
from ringline.relay.errands import Errand, Errands
from ringline.relay.hands import Hands
from ringline.relay.ledger import Ledger
from ringline.relay.mailbox import Mailbox
from ringline.relay.quotas import Quotas
from ringline.relay.recent import Recent
from ringline.relay.session import Session
from ringline.relay.settings import Settings
from ringline.relay.stored_records import is_hidden, shown_ended

__all__ = ["Intake"]

_PAIRS: Final = 100_000

_json: Final = msgspec.json.Encoder()


@final
class Intake:
    """Takes durable requests in. ``ids`` mints call ids."""

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        ledger: Ledger,
        errands: Errands,
        endings: Endings,
        hands: Hands,
        quotas: Quotas,
        mailbox: Mailbox,
        counters: dict[str, int],
        ids: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._authority = authority
        self._ledger = ledger
        self._store = ledger.store
        self._errands = errands
        self._endings = endings
        self._hands = hands
        self._quotas = quotas
        self._mailbox = mailbox
        self._counters = counters
        self._ids = ids
        self._pairs: Recent[tuple[str, str], bool] = Recent(life=CARD_GRACE_MS, most=_PAIRS)

    def known(self, caller: str, callee: str, message_id: str, now: Instant) -> CallRow | None:
        """Return the durable call that this message became (RL-IDEM-001).

        Most pairs have none, and do not pay for the look.
        """
        pair = (caller, callee)
        met = self._pairs.get(pair, now.mono)
        if met is None:
            met = self._store.shared(caller, callee, max(0, now.wall - CARD_GRACE_MS))
            self._pairs.put(pair, met, now.mono)
        return self._store.find(caller, callee, message_id) if met else None

    def judge(self, caller: str, callee: str, request: CallRequest) -> Refused | None:
        """Return why a request that may reach its callee is not stored, or None (RL-ADMIT-022)."""
        if not self._authority.takes_durable(callee):
            return Refused("offline")
        listed = self._authority.lists(callee, caller)
        if self._quotas.full(caller, callee, listed=listed, size=request.envelope.size):
            return Refused("busy", self._settings.mailbox_retry_ms)
        return None

    def admit(self, session: Session, request: CallRequest, digest: bytes, now: Instant) -> None:
        """Store an admitted request; its ``call_queued`` waits for the commit."""
        assert request.message_id is not UNSET
        traceparent: str | None = None
        if request.traceparent is not UNSET:
            traceparent = normalise(request.traceparent, request.correlation_id)
            if traceparent is None:
                self._counters["traces_dropped"] += 1
        execute_by = min(now.wall + self._settings.durable_life_ms, request.envelope.exp)
        self._ledger.refuse_if_undone(session, request)
        row = self._ledger.insert(
            CallRow(
                call_id=self._ids(),
                seq=0,
                caller=session.handle,
                callee=session.target,
                caller_card=request.envelope.sid,
                listed=self._authority.lists(session.target, session.handle),
                message_id=request.message_id,
                correlation_id=request.correlation_id,
                digest=digest,
                traceparent=traceparent,
                submitted_at=now.wall,
                execute_by=execute_by,
                request_bytes=request.envelope.size,
                due_at=execute_by,
            ),
            _json.encode(request.envelope),
        )
        self._pairs.put((row.caller, row.callee), True, now.mono)
        self._counters["stored_admitted"] += 1
        self._endings.watch(execute_by, now)
        errand = Errand(row=row)
        self._endings.attach(errand, session.connection)
        self._queued(session.connection, row)
        self._hands.fresh[row.call_id] = request.envelope
        self._hands.requeue(errand, now)

    def repeat(self, session: Session, request: CallRequest, row: CallRow, now: Instant) -> None:
        """Answer a request that is a known call already with what is true of it now (RL-IDEM-006)."""
        self._counters["repeated"] += 1
        errand = self._errands.find(row.call_id)
        assert errand is not None
        row = errand.row
        ended = shown_ended(row, session.handle) or (row.ended and not is_hidden(row))
        if not ended:
            self._queued(session.connection, row)
            self._endings.tell_status_to(session.connection, errand)
            self._endings.attach(errand, session.connection)
            return
        outcome = None
        if row.terminal is not None and not row.acknowledged:
            if not self._mailbox.may_send_again(errand, now):
                self._ledger.send(session.connection, Refused("rate_limited").answer(request))
                return
            outcome = self._endings.outcome(row)
        self._queued(session.connection, row)
        self._endings.tell_end_to(session.connection, row, outcome)

    def _queued(self, connection: int, row: CallRow) -> None:
        self._ledger.send(
            connection,
            CallQueued(
                call_id=row.call_id,
                message_id=row.message_id,
                correlation_id=row.correlation_id,
                submitted_at=row.submitted_at,
                expires_at=row.execute_by,
            ),
        )
