"""What happens to a call while it is under way, and who says so."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

__all__ = ["Event", "EventName", "Source"]

Source: TypeAlias = Literal["here", "relay", "peer"]
"""Who says it: this program of its own doing, the relay without proof, or the peer, sealed and signed."""

EventName: TypeAlias = Literal[
    "sealed",
    "sent",
    "sent_again",
    "reconnecting",
    "ringing",
    "answered",
    "working",
    "offline",
    "busy",
    "rate_limited",
    "cancel_requested",
    "completed",
    "failed",
    "ended",
]
"""``completed`` and ``failed`` are the peer's; ``ended`` is any other end, as its error tells."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step of a call.

    ``at_ms`` is Unix time by the computer's clock. ``note`` is a sentence for people, or empty.
    """

    name: EventName
    source: Source
    at_ms: int
    message_id: str
    call_id: str | None = None
    note: str = ""

    @property
    def authenticated(self) -> bool:
        """True only for what the peer signed; all else is said by the relay, or by this program."""
        return self.source == "peer"
