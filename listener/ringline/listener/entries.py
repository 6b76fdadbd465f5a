"""What the journal keeps of a message, as data, and what is asked of the journal.

An *entry* is a message of one caller, the unit of "at most once"; an *offer* is one call id under which the
relay brought it. Several offers may share an entry: a caller who lost sight of his call sends the same
message again, and the second call joins the work of the first (RL-IDEM-019).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, final

from ringline.protocol.bodies import OutcomeReason
from ringline.protocol.errors import RinglineError
from ringline.protocol.frames import DeliveryMode, Phase, Terminal

__all__ = [
    "ContextClaim",
    "ContextTurn",
    "End",
    "Entry",
    "EntryState",
    "JournalError",
    "Offer",
    "Records",
    "Taking",
    "Verdict",
]


class JournalError(RinglineError):
    """The journal cannot be read or written at this moment: a full or failing disk. Nothing was changed."""

    default_code = "internal_error"


class EntryState(StrEnum):
    """How far a message has come."""

    TAKEN = "taken"  # ours; no handler has begun
    BEGUN = "begun"  # a handler may have taken its first step
    FINISHED = "finished"  # there is an outcome
    CANCELLED = "cancelled"  # removed before it began, or seen to stop


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One call id of a message, with all that its outcome is sealed with. Times are Unix ms."""

    call_id: str
    handle: str
    """The caller, as the relay named him and the seal confirmed it."""
    from_ipk: bytes
    """His identity key."""
    own_ipk: bytes
    """Our identity key at the time of the request: an outcome keeps the two identities of its request."""
    digest: bytes
    """Digest of what the caller signed, which the outcome repeats."""
    suite: int
    reply_public: bytes
    """The request's one-time key."""
    mode: DeliveryMode
    message_id: str
    """Empty when the frame has none."""
    correlation_id: str
    iat: int
    exp: int
    offered_at: int
    execute_by: int | None = None
    lease_id: str | None = None
    granted: bool = False
    """Durable: the relay has let it start."""
    cancelled: Phase | None = None
    """Set when this very call was cancelled, and in which phase."""


@final
@dataclass(frozen=True, slots=True)
class End:
    """The outcome of finished work. ``json`` is None when its time in the journal is over."""

    json: bytes | None = field(repr=False)
    terminal: Terminal
    reason: OutcomeReason


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message and what became of it."""

    id: int
    from_ipk: bytes
    key: str
    """The message id, or the request digest in hex when there is none."""
    payload_digest: bytes
    exp: int
    """The latest of its offers; Unix ms."""
    state: EntryState
    request: bytes | None = field(repr=False)
    """The JSON of the request, while `EntryState.TAKEN`."""
    end: End | None
    offers: Mapping[str, Offer]
    """By call id, in the order they came."""


class Verdict(StrEnum):
    """What became of an attempt to take a message."""

    FRESH = "fresh"
    JOINED = "joined"  # the same payload is known: its work or outcome is this call's too
    CONFLICT = "conflict"  # another payload under the same key
    FULL = "full"  # the caller holds his share of the journal


@final
@dataclass(frozen=True, slots=True)
class Taking:
    """A verdict, and the entry if the call is in it now."""

    verdict: Verdict
    entry: Entry | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ContextClaim:
    """A request's claim to be the next turn of a conversation (RL-CONVERSE-005).

    ``ipk`` is the caller's identity key and ``task`` the name of the task, to which a context is bound;
    ``turn`` and ``prev`` are the request's own, None where it has none.
    """

    context_id: str
    ipk: bytes
    task: str
    turn: int | None
    prev: str | None


@final
@dataclass(frozen=True, slots=True)
class ContextTurn:
    """A turn that was answered: its number from 1, and the ``prev`` that the next one must show."""

    context_id: str
    turn: int
    prev: str


class Records(Protocol):
    """The journal as the session asks it. Every change is on disk when the method returns.

    All raise `JournalError`, and then nothing has changed. ``now`` is Unix ms.
    """

    def find(self, call_id: str) -> Entry | None:
        """Return the entry of a call id."""
        ...

    def opening(self, call_id: str, keep_until: int) -> int:
        """Note that the call is about to be opened; return how many processes have died over it so far.

        The note is remembered until ``keep_until``, and taken away by `closed`, or when the entry begins
        or ends.
        """
        ...

    def closed(self, call_id: str) -> None:
        """Note that this process has dealt with the call, or will not touch it before it is offered again."""
        ...

    def take(
        self,
        *,
        key: str,
        payload_digest: bytes,
        request: bytes,
        offer: Offer,
    ) -> Taking:
        """Take a message that was opened, in one transaction with the check for duplicates."""
        ...

    def offered(self, call_id: str, lease_id: str | None, execute_by: int | None) -> None:
        """Note the lease and bound under which a known call was offered again."""
        ...

    def granted(self, call_id: str) -> None:
        """Note that the relay has let this durable call start."""
        ...

    def claim(self, entry_id: int, claim: ContextClaim, now: int) -> bool:
        """Hold a context for an entry; False when the claim does not fit, for whatever reason."""
        ...

    def begin(self, entry_id: int, *, granted: str | None, mint: ContextClaim | None, now: int) -> bool:
        """Note that the handler is about to take its first step. The request is forgotten.

        ``granted`` is the call whose grant allowed it. ``mint`` is a context to be made for the entry;
        returns whether there was room for it.
        """
        ...

    def finish(self, entry_id: int, end: End, *, turn: ContextTurn | None, now: int) -> None:
        """Keep the outcome. With ``turn`` the context goes on; without, it stands where it stood.

        A reason of ``indeterminate_execution`` ends the context: nobody knows where it stands.
        """
        ...

    def cancel(self, entry_id: int, phases: Mapping[str, Phase], *, now: int) -> None:
        """Keep that the work was removed or seen to stop, and which calls had asked for it."""
        ...

    def confirm(self, call_id: str, phase: Phase) -> None:
        """Note that a call whose work is cancelled was cancelled too."""
        ...

    def purge(self, now: int, *, active: Collection[int]) -> None:
        """Forget what is due; ``active`` are entries that stay whatever their age."""
        ...
