"""One call as the session follows it: what was sent, what the relay has said, what is due."""

from dataclasses import dataclass
from typing import Literal, final

from ringline.caller.effects import Ended
from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import RelayCode

__all__ = ["Outgoing", "Pending", "Strays"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A sealed call, ready to be sent as often as need be."""

    message_id: str
    correlation_id: str
    payload: bytes
    """The whole frame, encoded: repeats are these bytes, verbatim (RL-IDEM-011)."""
    deadline: int
    """When the caller stops waiting, monotonic ms."""
    sent_before: bool = False
    """Whether an earlier process may have sent it."""
    call_id: str | None = None
    """What an earlier process learned."""
    retries: int = 1
    durable_exp: int | None = None
    """Of a durable call: the end of its envelope, Unix ms. It is over here when the relay has it."""


@final
@dataclass(slots=True)
class Pending:
    """One call under way. Times are monotonic ms, None when nothing is due."""

    out: Outgoing
    call_id: str | None
    sendings: int
    retries: int
    refused: RelayCode | None = None  # why it was not admitted the last time
    on_wire: bool = False  # sent on the connection that stands
    answered: bool = False  # the relay said something about it on that connection
    state: int = 0
    resealing: bool = False
    resealed: bool = False
    retry_at: int | None = None
    looking_up: bool = False
    lookup_at: int | None = None
    lost_at: int | None = None
    lost_error: RinglineError | None = None
    opening: int = 0
    held: Ended | None = None  # an end that waits for an outcome being opened
    spoiled_at: int | None = None  # when to give up after an outcome that did not open
    unchecked: RinglineError | None = None  # why one could not be checked: it may be the true one
    cancel: Literal["no", "wanted", "asked"] = "no"
    cancel_by: int | None = None
    given_up_at: int | None = None  # nobody waits any more; kept to send a cancel that is due

    @property
    def with_relay(self) -> bool:
        """Whether the relay may have it: it was sent, and not refused since."""
        return self.sendings > 0 and self.retry_at is None and not self.resealing

    @property
    def waits(self) -> bool:
        """Whether its first answer on this connection is due."""
        return self.on_wire and not self.answered


@final
@dataclass(slots=True)
class Strays:
    """Frames that fitted no call, by kind: counted and otherwise ignored."""

    unknown: int = 0
    """About no call of ours."""
    mismatched: int = 0
    """About a call of ours, with ids that do not belong together."""
    late: int = 0
    """About a call that has ended."""
    repeated: int = 0
    """A status that was told already, or one that goes back."""
    surplus: int = 0
    """An outcome of a call that has enough of them to open, or whose time for them is over."""
