"""What the session wants done, in order, and what it is told of it.

The session decides and does nothing; the edge performs these and reports back. That is why a whole
conversation with a relay can be tested as lists (architecture of the project: a pure core, thin edges).
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, final

from msgspec import UNSET, UnsetType

from ringline.listener.entries import End, Offer
from ringline.protocol.bodies import FailureCode, Request
from ringline.protocol.bodies import Offer as TaskOffer
from ringline.protocol.frames import (
    CallAccepted,
    CallCancelled,
    CallNotCancelled,
    CallRejected,
    CallStarted,
    IncomingCall,
)
from ringline.protocol.instant import Instant

__all__ = [
    "NO_ROOM",
    "Broken",
    "Effect",
    "Held",
    "Job",
    "Judge",
    "Note",
    "Open",
    "Opened",
    "Plan",
    "Produced",
    "Refusal",
    "Result",
    "Run",
    "Send",
    "Stop",
    "Tell",
    "Unchecked",
]


NO_ROOM: Final = "this listener has no room to run anything at the moment; nothing was run"
"""What a caller is told when this computer gives no process, thread or file descriptor for his call."""


class Plan(Protocol):
    """A message that may be worked on, and how; made by the `Judge`."""

    @property
    def task(self) -> str | None:
        """The task's id; None for the listener's own answers, which belong to no task."""
        ...

    @property
    def converses(self) -> bool:
        """Whether its outcome opens or continues a conversation."""
        ...

    @property
    def stoppable(self) -> bool:
        """False for a plain function in a thread: it can be asked to stop, and never be made to."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that is not worked on, and what its sender is told under a seal (RL-ENVELOPE-035)."""

    code: FailureCode
    detail: str | None = None
    offered: tuple[str, ...] = ()


class Judge(Protocol):
    """Policy: what becomes of a message that was opened. Asked again after a crash, so it keeps no state."""

    def __call__(self, request: Request, handle: str, call_id: str, /) -> Plan | Refusal:
        """Judge the request of the caller with that handle, in that call."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A request whose seal and signature hold (RL-ENVELOPE-018 to RL-ENVELOPE-032)."""

    from_ipk: bytes
    """Identity key of the caller's card."""
    own_ipk: bytes
    """Identity key of our card under which the prekey was published."""
    digest: bytes
    suite: int
    reply_public: bytes
    json: bytes = field(repr=False)

    def offer(self, frame: IncomingCall, now: Instant) -> Offer:
        """Return what the journal keeps of the call that brought it, offered ``now`` by that frame."""
        return Offer(
            call_id=frame.call_id,
            handle=frame.from_,
            from_ipk=self.from_ipk,
            own_ipk=self.own_ipk,
            digest=self.digest,
            suite=self.suite,
            reply_public=self.reply_public,
            mode="sync" if frame.delivery_mode is UNSET else frame.delivery_mode,
            message_id="" if frame.message_id is UNSET else frame.message_id,
            correlation_id=frame.correlation_id,
            iat=frame.envelope.iat,
            exp=frame.envelope.exp,
            offered_at=now.wall,
            execute_by=None if frame.execute_by is UNSET else frame.execute_by,
            lease_id=None if frame.lease_id is UNSET else frame.lease_id,
        )


@final
@dataclass(frozen=True, slots=True)
class Unchecked:
    """A call that could not be checked at this moment: nothing is said for it and nothing against it."""


@final
@dataclass(frozen=True, slots=True)
class Held:
    """A durable call that waits for its owner's word; it is opened again when he has given it."""


@final
@dataclass(frozen=True, slots=True)
class Produced:
    """What work came to: a text, and perhaps a JSON value or the list of tasks on offer."""

    text: str = field(repr=False)
    value: Any = field(default=UNSET, repr=False)
    offered: tuple[TaskOffer, ...] | UnsetType = UNSET


@final
@dataclass(frozen=True, slots=True)
class Broken:
    """Work that failed. ``detail`` goes under the seal; ``local`` is for the owner of the listener alone."""

    code: FailureCode = "agent_error"
    detail: str | None = None
    local: str = field(default="", repr=False)


Result: TypeAlias = Produced | Broken


@final
@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame of a call."""

    frame: CallAccepted | CallStarted | CallRejected | CallCancelled | CallNotCancelled


@final
@dataclass(frozen=True, slots=True)
class Tell:
    """Seal an outcome for one call, to its own one-time key, and send it under that lease."""

    offer: Offer
    end: End
    lease_id: str | None


@final
@dataclass(frozen=True, slots=True)
class Open:
    """Open a call (RL-ENVELOPE-018 to RL-ENVELOPE-034) and report `Session.opened`."""

    frame: IncomingCall


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work to be done. ``context_id`` and ``turn`` are None outside a conversation."""

    entry_id: int
    plan: Plan
    request: Request = field(repr=False)
    from_ipk: bytes
    offer: Offer
    context_id: str | None
    turn: int | None


@final
@dataclass(frozen=True, slots=True)
class Run:
    """Start the work and report `Session.ended`, once, when it has ended."""

    job: Job


@final
@dataclass(frozen=True, slots=True)
class Stop:
    """Ask running work to stop; ``at_once`` leaves out the polite part. `Session.ended` tells when it has."""

    entry_id: int
    at_once: bool = False


@final
@dataclass(frozen=True, slots=True)
class Note:
    """Something the owner of the listener should know. Holds no text of a peer and no plaintext."""

    text: str
    call_id: str | None = None


Effect: TypeAlias = Send | Tell | Open | Run | Stop | Note
