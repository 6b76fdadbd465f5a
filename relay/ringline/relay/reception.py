"""What callers ask for and what cannot be read: who acts on it, and what is answered at once."""

from typing import final

from ringline.protocol.closes import POLICY
from ringline.protocol.frames import CallRequest
from ringline.protocol.instant import Instant
from ringline.relay.acquaintances import Acquaintances
from ringline.relay.admission import Admission, Admitted, Refused, Storable
from ringline.relay.budget import HourlyBudget
from ringline.relay.call_store import CallRow
from ringline.relay.calls import Call
from ringline.relay.departures import Departures
from ringline.relay.durable import DurableCalls
from ringline.relay.session import Refusal, Role, Session
from ringline.relay.sessions import Sessions
from ringline.relay.sync import SyncCalls

__all__ = ["Reception"]


@final
class Reception:
    """Has call requests judged. ``release_ms`` is how long the answer about an unknown handle is held."""

    def __init__(
        self,
        sessions: Sessions,
        admission: Admission,
        acquaintances: Acquaintances,
        hourly: HourlyBudget,
        calls: SyncCalls,
        durable: DurableCalls | None,
        departures: Departures,
        counters: dict[str, int],
        *,
        release_ms: int,
    ) -> None:
        self._sessions = sessions
        self._admission = admission
        self._acquaintances = acquaintances
        self._hourly = hourly
        self._calls = calls
        self._durable = durable
        self._departures = departures
        self._counters = counters
        self._release_ms = release_ms

    def request(self, session: Session, request: CallRequest, now: Instant) -> None:
        """Admit a call request, or answer it otherwise."""
        verdict = self._admission.judge(session, request, now)
        if isinstance(verdict, Admitted):
            self._acquaintances.meet(session.handle, session.target, now.mono)
            self._calls.admit(session, verdict, now)
        elif isinstance(verdict, Call):
            self._calls.repeat(session, request, verdict)
        elif isinstance(verdict, Storable):
            assert self._durable is not None
            self._durable.admit(session, request, verdict.digest, now)
        elif isinstance(verdict, CallRow):
            assert self._durable is not None
            self._durable.repeat(session, request, verdict, now)
        else:
            self._turn_away(session, request, verdict, now)

    def _turn_away(self, session: Session, request: CallRequest, refused: Refused, now: Instant) -> None:
        self._counters[f"refused_{refused.code}"] += 1
        answer = refused.answer(request)
        # RL-ADMIT-017: no unknown_handle leaves before a fixed time, so that the look-up's does not show.
        if refused.code == "unknown_handle":
            due = now.mono + self._release_ms
            self._sessions.send_later(session, answer, due, request)
        else:
            self._sessions.send(session.connection, answer)

    def refuse(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """Answer a message that is no frame to act on, and do what else that brings about."""
        self._counters["frames_refused"] += 1
        # RL-TRANSPORT-026: a message that is too large costs its caller one unit of the hourly budgets.
        if refusal.costs and session.role is Role.CALLER:
            self._hourly.take(session.handle, session.target, now.mono)
        if refusal.answer is not None:
            self._sessions.send(session.connection, refusal.answer)
        if refusal.closes:
            self._departures.part(session, POLICY, "frames", now)
