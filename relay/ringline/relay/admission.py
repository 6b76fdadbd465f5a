"""The checks of a call request, in their order (RL-ADMIT-001). Step 1 is the session's.

The first check that a request fails decides. Nothing is charged for one that fails before the hourly budget.
"""

from hashlib import sha256
from typing import Final, Protocol, TypeAlias, final

from msgspec import UNSET, Struct

from ringline.protocol.frames import CallError, CallRequest, Envelope, RelayCode
from ringline.protocol.instant import Instant
from ringline.protocol.limits import ENVELOPE_SKEW_MS
from ringline.relay.authority import Authority
from ringline.relay.budget import HourlyBudget, TurnBudget
from ringline.relay.call_store import CallRow
from ringline.relay.calls import Book, Call
from ringline.relay.presence import Instance, NoPlace, Presence
from ringline.relay.session import Session

__all__ = ["Admission", "Admitted", "Refused", "Stock", "Storable", "Verdict", "digest"]

_DIGEST_HEAD_CHARS: Final = 2_048
_DIGEST_TAIL_CHARS: Final = 64


def digest(envelope: Envelope) -> bytes:
    """Return what tells one sealed request from another under the same key (RL-IDEM-003): 32 bytes.

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
class Admitted(Struct, eq=False):
    """A request that passed, and the instance that has a place for it."""

    request: CallRequest
    message_id: str | None
    digest: bytes  # empty without message_id
    instance: Instance


@final
class Refused(Struct, frozen=True):
    """A request that admitted nothing: its answer, which never has a ``call_id`` (RL-FRAME-032)."""

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


@final
class Storable(Struct, eq=False):
    """A durable request that passed: it is to be stored."""

    request: CallRequest
    digest: bytes


class Stock(Protocol):
    """What admission asks about durable calls."""

    def known(self, caller: str, callee: str, message_id: str, now: Instant) -> CallRow | None:
        """Return the durable call that this message became (RL-IDEM-001)."""
        ...

    def judge(self, caller: str, callee: str, request: CallRequest, now: Instant) -> Refused | None:
        """Return why this request cannot be stored, None when it can (RL-ADMIT-022)."""
        ...


Verdict: TypeAlias = Admitted | Storable | Call | CallRow | Refused
"""It may be handed out, or stored, or is known already, or is refused."""

_PROTOCOL_ERROR: Final = Refused("protocol_error")
_TIMEOUT: Final = Refused("timeout")
_UNKNOWN_HANDLE: Final = Refused("unknown_handle")
_OFFLINE: Final = Refused("offline")
_NO_PLACE: Final[dict[NoPlace, Refused]] = {"offline": _OFFLINE, "busy": Refused("busy")}


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
        self.stock: Stock | None = None
        """The durable calls of a relay that stores some."""
        self.drain_retry_ms: int | None = None
        """Set while the relay stops: when to try again. No call is admitted then."""

    def judge(self, session: Session, request: CallRequest, now: Instant) -> Verdict:
        """Decide on a request, and charge what it costs. The order is that of RL-ADMIT-001."""
        caller, callee = session.handle, session.target
        correlation_id, envelope = request.correlation_id, request.envelope
        message_id = None if request.message_id is UNSET else request.message_id
        durable = request.delivery_mode == "durable"

        # RL-FRAME-026: at most one request of a correlation id waits for its first answer on a connection.
        if session.unanswered and _is_another(session.unanswered.get(correlation_id), message_id):
            return _PROTOCOL_ERROR

        # Step 2. RL-ADMIT-007: a repeated message is answered from its record. RL-IDEM-002: another digest,
        # mode or correlation id under a known name is refused.
        mark = b""
        if message_id is not None:
            mark = digest(envelope)
            call = self._book.known(caller, callee, message_id)
            if call is not None:
                same = not durable and correlation_id == call.correlation_id and mark == call.digest
                return call if same else _PROTOCOL_ERROR
            row = None if self.stock is None else self.stock.known(caller, callee, message_id, now)
            if row is not None:
                same = durable and correlation_id == row.correlation_id and mark == row.digest
                return row if same else _PROTOCOL_ERROR

        # RL-ADMIT-008: a sync request sealed before this relay's start, and without record, is answered
        # timeout: it may have run under the relay before.
        if envelope.iat < self._started and not durable:
            return _TIMEOUT

        # Step 3. RL-ADMIT-009, RL-ADMIT-010: a card of the caller that counts, and is not revoked.
        # RL-ADMIT-011: a sync request until 120 s after its exp. RL-ADMIT-012: a durable one until its exp.
        if not self._authority.sender_valid(caller, envelope.sid, now):
            return _PROTOCOL_ERROR
        if envelope.exp + (0 if durable else ENVELOPE_SKEW_MS) <= now.wall:
            return _PROTOCOL_ERROR

        # RL-ADMIT-013: with a used up hourly budget it is refused. RL-ADMIT-014: else it has cost one unit,
        # whatever the later steps say.
        wait = self._hourly.take(caller, callee, now.mono)
        if wait:
            return Refused("rate_limited", wait)

        # Step 4. RL-ADMIT-015, RL-ADMIT-016: missing and forbidden are one answer.
        if not self._authority.may_reach(caller, callee):
            return _UNKNOWN_HANDLE

        # RL-ADMIT-028: a relay that is stopping answers busy to a new request.
        if self.drain_retry_ms is not None:
            return Refused("busy", self.drain_retry_ms)

        # Step 5. RL-ADMIT-019 to RL-ADMIT-022: a durable call is stored or refused, and never turned into a
        # sync call.
        place: Instance | NoPlace | None = None
        if durable:
            refused = _OFFLINE if self.stock is None else self.stock.judge(caller, callee, request, now)
            if refused is not None:
                return refused
        else:
            place = self._presence.place(caller, callee, correlation_id, now.mono)
            if not isinstance(place, Instance):
                return _NO_PLACE[place]

        # Step 6. RL-ADMIT-023: a turn of the conversation is left. RL-ADMIT-024: it is charged with the
        # admission, which nothing prevents any more.
        conversation = (caller, callee, correlation_id)
        wait = self._turns.wait(conversation, now.mono)
        if wait:
            return Refused("rate_limited", wait)
        self._turns.charge(conversation, now.mono)
        if not isinstance(place, Instance):
            return Storable(request, mark)
        return Admitted(request, message_id, mark, place)


def _is_another(waiting: tuple[str | None, int] | None, message_id: str | None) -> bool:
    """True if an unanswered request has the correlation id of this one, and is not the same message."""
    return waiting is not None and (message_id is None or message_id != waiting[0])
