"""One connection: what may be read from it, and what waits to be sent on it."""

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias, final

from msgspec import UNSET, Struct

from ringline.protocol import codec
from ringline.protocol.errors import FrameError
from ringline.protocol.frames import CallError, CallerToRelay, CallRequest, ListenerToRelay
from ringline.protocol.limits import CALLER_FRAME_BYTES, LISTENER_FRAME_BYTES, REQUEST_CT_CHARS
from ringline.protocol.suites import SUITES
from ringline.relay.budget import Rate
from ringline.relay.effects import Effect
from ringline.relay.settings import Settings

if TYPE_CHECKING:
    from ringline.relay.calls import Call
    from ringline.relay.errands import Errand
    from ringline.relay.presence import Instance

__all__ = ["Held", "Inbound", "Refusal", "Role", "Session"]

Inbound: TypeAlias = CallerToRelay | ListenerToRelay

_SECOND_MS: Final = 1_000


class Role(StrEnum):
    """What a connection is, for its whole life."""

    CALLER = "caller"
    LISTENER = "listener"


@final
class Refusal(Struct, frozen=True):
    """A message that is no frame to act on: what to answer, and what else it brings about."""

    answer: CallError | None
    closes: bool = False
    costs: bool = False  # one unit of the hourly budget


_PROTOCOL_ERROR: Final = CallError(origin="relay", code="protocol_error")
_TOO_LARGE: Final = Refusal(CallError(origin="relay", code="message_too_large"), costs=True)


@final
class Held(Struct, frozen=True):
    """An effect that waits its turn on a connection: until ``due``, or only for those before it."""

    due: int
    effect: Effect
    answers: str | None  # the correlation id of the request that this is the first answer to


@final
class Session:
    """The state of one connection. ``target`` is the handle a caller calls; a listener's is its own."""

    __slots__ = (
        "_frame_rate",
        "_frames_per_second",
        "_limit",
        "_refused",
        "_refused_most",
        "_refused_span",
        "calls",
        "card_id",
        "closing",
        "connection",
        "errands",
        "handle",
        "held",
        "instance",
        "role",
        "target",
        "unanswered",
    )

    def __init__(
        self,
        settings: Settings,
        *,
        connection: int,
        role: Role,
        handle: str,
        card_id: str,
        target: str,
        instance: "Instance | None" = None,
    ) -> None:
        self.connection = connection
        self.role = role
        self.handle = handle
        self.card_id = card_id
        self.target = target
        self.instance: Instance | None = instance
        """What a listener's connection serves, for as long as it is the one that does."""
        self.calls: dict[str, Call] = {}
        """The calls that a caller's connection is attached to, until they end (RL-SYNC-026)."""
        self.errands: dict[str, Errand] = {}
        """The durable ones of them."""
        self.unanswered: dict[str, tuple[str | None, int]] = {}
        """Correlation id → message id of the requests that wait for a first answer, and how many."""
        self.held: deque[Held] = deque()
        """What may not leave yet, in the order in which it leaves."""
        self.closing = False
        """The core is done with it; only what is held may still leave."""
        self._limit = CALLER_FRAME_BYTES if role is Role.CALLER else LISTENER_FRAME_BYTES
        self._frames_per_second = settings.frames_per_second
        self._refused_most = settings.undecodable_frames
        self._refused_span = settings.undecodable_window_ms
        # Made when first needed: most connections are idle.
        self._frame_rate: Rate | None = None
        self._refused: Rate | None = None

    @property
    def idle(self) -> bool:
        """True if no unfinished call needs this connection; a stored one can wait for another."""
        return not self.calls and (self.instance is None or not (self.instance.calls or self.instance.leases))

    def read(self, payload: bytes, now: int) -> Inbound | Refusal:
        """Read one text message at ``now`` (ms, the clock that never goes back)."""
        if self._frames_per_second and (hurried := self._count(now)) is not None:
            return hurried
        # RL-TRANSPORT-025: over the connection's own limit it is not read, so the answer has no ids.
        if len(payload) > self._limit:
            return _TOO_LARGE
        try:
            if self.role is Role.LISTENER:
                return codec.decode(payload, "listener_to_relay")
            frame = codec.decode(payload, "caller_to_relay")
        except FrameError as error:
            return self._refuse(error.correlation_id, now)
        if isinstance(frame, CallRequest):
            # RL-ADMIT-002: a suite that is defined. RL-ADMIT-003: an iat before exp. RL-ADMIT-004: a ct that
            # is not too long.
            envelope = frame.envelope
            if (
                envelope.suite not in SUITES
                or envelope.iat >= envelope.exp
                or len(envelope.ct) > REQUEST_CT_CHARS
            ):
                return self._refuse(frame.correlation_id, now)
        elif frame.lease_id is not UNSET:
            # RL-FRAME-025: a cancel_call of a caller that has a lease_id is refused.
            return self._refuse(None, now)
        return frame

    def binary(self, now: int) -> Refusal:
        """Refuse a binary message: no frame is one (RL-FRAME-009)."""
        return (self._frames_per_second and self._count(now)) or self._refuse(None, now)

    def _refuse(self, correlation_id: str | None, now: int) -> Refusal:
        """Answer a refused frame; the one after the twentieth in a minute is also the last.

        Source: RL-FRAME-012, RL-FRAME-013, RL-FRAME-016.
        """
        if self._refused is None:
            self._refused = Rate(self._refused_span)
        answer = _PROTOCOL_ERROR
        if correlation_id is not None:
            answer = CallError(origin="relay", code="protocol_error", correlation_id=correlation_id)
        return Refusal(answer, closes=self._refused.add(now) > self._refused_most)

    def _count(self, now: int) -> Refusal | None:
        """Count a message against the frames per second (RL-ADMIT-040, RL-ADMIT-041)."""
        most = self._frames_per_second
        if self._frame_rate is None:
            self._frame_rate = Rate(_SECOND_MS)
        seen = self._frame_rate.add(now)
        if seen <= most:
            return None
        if seen > 2 * most:
            return Refusal(None, closes=True)
        wait = self._frame_rate.wait(most, now)
        return Refusal(CallError(origin="relay", code="rate_limited", retry_after_ms=wait))

    def hold(self, effect: Effect, *, due: int = 0, request: CallRequest | None = None) -> None:
        """Keep back ``effect`` until ``due``, and until everything held before it has left.

        ``request`` is what it is the first answer to: until it leaves, that request is unanswered.
        """
        answers = None if request is None else self.expect(request)
        self.held.append(Held(due, effect, answers))

    def expect(self, request: CallRequest) -> str:
        """Note that the first answer to ``request`` is still to come; return its correlation id."""
        correlation_id = request.correlation_id
        message_id = None if request.message_id is UNSET else request.message_id
        _, waiting = self.unanswered.get(correlation_id, (None, 0))
        self.unanswered[correlation_id] = (message_id, waiting + 1)
        return correlation_id

    def answered(self, correlation_id: str) -> None:
        """The first answer to a request of `expect` leaves."""
        message_id, waiting = self.unanswered.pop(correlation_id)
        if waiting > 1:
            self.unanswered[correlation_id] = (message_id, waiting - 1)

    def release(self, now: int) -> Iterator[Effect]:
        """Yield what may leave at ``now``; what is left in `held` begins with one that is not due."""
        while self.held and self.held[0].due <= now:
            item = self.held.popleft()
            if item.answers is not None:
                self.answered(item.answers)
            yield item.effect
