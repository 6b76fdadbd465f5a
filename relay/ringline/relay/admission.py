"""The checks of a call request, in their order (protocol §4, §8). Step 1 is the session's.

Each check says None to go on; the first that says something else has decided. Nothing is charged for a
request that a check before the hourly budget refuses.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final, TypeAlias, final

from msgspec import UNSET, Struct

from ringline.protocol.frames import CallError, CallRequest, Envelope, RelayCode
from ringline.protocol.instant import Instant
from ringline.protocol.lifecycle import Mode
from ringline.protocol.limits import ENVELOPE_SKEW_MS
from ringline.relay.authority import Authority
from ringline.relay.budget import HourlyBudget, TurnBudget
from ringline.relay.calls import Book, Call
from ringline.relay.presence import Instance, Presence
from ringline.relay.session import Session

__all__ = ["Admission", "Attempt", "Refused", "Verdict", "digest"]

_DIGEST_HEAD_CHARS: Final = 2_048
_DIGEST_TAIL_CHARS: Final = 64


def digest(envelope: Envelope) -> bytes:
    """Return what tells one sealed request from another under the same key (protocol §8): 32 bytes.

    It reads the ends of a ciphertext, not all of it: any sealing differs there.
    """
    ct = envelope.ct
    # All but the ends are numbers or of fixed length: the line feeds keep them apart.
    text = (
        f"{envelope.v}\n{envelope.suite}\n{envelope.kid}\n{envelope.sid}\n{envelope.iat}\n{envelope.exp}\n"
        f"{len(ct)}\n{ct[:_DIGEST_HEAD_CHARS]}{ct[-_DIGEST_TAIL_CHARS:]}"
    )
    return sha256(text.encode()).digest()


@final
class Attempt(Struct, eq=False):
    """A request on its way through the checks. ``instance`` is set by the one that finds a place."""

    session: Session
    request: CallRequest
    now: Instant
    mode: Mode
    message_id: str | None
    digest: bytes = b""
    instance: Instance | None = None


@final
class Refused(Struct, frozen=True):
    """A request that admitted nothing: its answer, which never has a ``call_id`` (protocol §3)."""

    code: RelayCode
    retry_after_ms: int | None = None

    def answer(self, request: CallRequest) -> CallError:
        """Return the frame that says so."""
        return CallError(
            origin="relay",
            code=self.code,
            correlation_id=request.correlation_id,
            retry_after_ms=UNSET if self.retry_after_ms is None else self.retry_after_ms,
        )


Verdict: TypeAlias = Attempt | Call | Refused
"""Admitted with a place, or known already, or refused."""

_PROTOCOL_ERROR: Final = Refused("protocol_error")
_TIMEOUT: Final = Refused("timeout")
_UNKNOWN_HANDLE: Final = Refused("unknown_handle")
_OFFLINE: Final = Refused("offline")
_BUSY: Final = Refused("busy")


@final
class Admission:
    """Judges call requests of a relay that started at ``started`` (Unix ms)."""

    def __init__(
        self,
        authority: Authority,
        book: Book,
        presence: Presence,
        hourly: HourlyBudget,
        turns: TurnBudget,
        *,
        started: int,
    ) -> None:
        self._authority = authority
        self._book = book
        self._presence = presence
        self._hourly = hourly
        self._turns = turns
        self._started = started
        self.drain_retry_ms: int | None = None
        """Set while the relay stops: when to try again. No call is admitted then."""
        self._checks: tuple[Callable[[Attempt], Call | Refused | None], ...] = (
            self._one_at_a_time,
            self._known,
            self._sent_to_this_relay,
            self._signed_by_a_valid_card,
            self._in_time,
            self._within_the_hourly_budget,
            self._reachable,
            self._relay_stays,
            self._place,
            self._turn_left,
        )

    def judge(self, session: Session, request: CallRequest, now: Instant) -> Verdict:
        """Decide on a request. What it costs is charged; a turn only when the verdict is to admit it."""
        attempt = Attempt(
            session,
            request,
            now,
            Mode.DURABLE if request.delivery_mode == "durable" else Mode.SYNC,
            None if request.message_id is UNSET else request.message_id,
        )
        for check in self._checks:
            verdict = check(attempt)
            if verdict is not None:
                return verdict
        return attempt

    def _one_at_a_time(self, attempt: Attempt) -> Refused | None:
        # protocol §3: at most one request of a correlation id waits for its first answer.
        waiting = attempt.session.unanswered.get(attempt.request.correlation_id)
        if waiting is None or (attempt.message_id is not None and attempt.message_id == waiting[0]):
            return None
        return _PROTOCOL_ERROR

    def _known(self, attempt: Attempt) -> Call | Refused | None:
        # protocol §4 step 2, §8: the same request is the same call; anything else under its key is wrong.
        if attempt.message_id is None:
            return None
        attempt.digest = digest(attempt.request.envelope)
        session = attempt.session
        call = self._book.known(session.handle, session.target, attempt.message_id)
        if call is None:
            return None
        same = (
            attempt.mode is Mode.SYNC
            and attempt.request.correlation_id == call.correlation_id
            and attempt.digest == call.digest
        )
        return call if same else _PROTOCOL_ERROR

    def _sent_to_this_relay(self, attempt: Attempt) -> Refused | None:
        # protocol §5: sealed before this relay started, it may have run under the one before.
        lost = attempt.mode is Mode.SYNC and attempt.request.envelope.iat < self._started
        return _TIMEOUT if lost else None

    def _signed_by_a_valid_card(self, attempt: Attempt) -> Refused | None:
        # protocol §4 step 3.
        sid, handle = attempt.request.envelope.sid, attempt.session.handle
        return None if self._authority.sender_valid(handle, sid, attempt.now) else _PROTOCOL_ERROR

    def _in_time(self, attempt: Attempt) -> Refused | None:
        # protocol §4 step 3: clocks may differ on a sync call; a durable one is measured by this clock.
        slack = ENVELOPE_SKEW_MS if attempt.mode is Mode.SYNC else 0
        return None if attempt.request.envelope.exp + slack > attempt.now.wall else _PROTOCOL_ERROR

    def _within_the_hourly_budget(self, attempt: Attempt) -> Refused | None:
        # protocol §4 step 3: from here on a request has cost one unit, whatever happens next.
        wait = self._hourly.take(attempt.session.handle, attempt.session.target, attempt.now.mono)
        return Refused("rate_limited", wait) if wait else None

    def _reachable(self, attempt: Attempt) -> Refused | None:
        # protocol §4 step 4: missing and forbidden are one answer.
        reachable = self._authority.may_reach(attempt.session.handle, attempt.session.target)
        return None if reachable else _UNKNOWN_HANDLE

    def _relay_stays(self, attempt: Attempt) -> Refused | None:
        # protocol §2: a relay that stops takes no new calls.
        return None if self.drain_retry_ms is None else Refused("busy", self.drain_retry_ms)

    def _place(self, attempt: Attempt) -> Refused | None:
        # protocol §4 step 5. Nobody here stores calls, so a durable one finds its callee offline whether
        # the owner allows them or not: it is never turned into a sync call.
        if attempt.mode is Mode.DURABLE:
            return _OFFLINE
        place = self._presence.place(
            attempt.session.handle, attempt.session.target, attempt.request.correlation_id, attempt.now.mono
        )
        if not isinstance(place, Instance):
            return _OFFLINE if place == "offline" else _BUSY
        attempt.instance = place
        return None

    def _turn_left(self, attempt: Attempt) -> Refused | None:
        # protocol §4 step 6: a turn is charged with the admission, which nothing prevents any more.
        session = attempt.session
        conversation = (session.handle, session.target, attempt.request.correlation_id)
        wait = self._turns.wait(conversation, attempt.now.mono)
        if wait:
            return Refused("rate_limited", wait)
        self._turns.charge(conversation, attempt.now.mono)
        return None
