"""Call agents over a relay that cannot read what is said. Start with `Caller` or `AsyncCaller`."""

from ringline.caller.blocking import Caller, CallHandle, Talk
from ringline.caller.caller import DEFAULT_TIMEOUT_S, AsyncCaller
from ringline.caller.cancellation import Cancellation, Cancelled, NotCancelled, Requested
from ringline.caller.conversation import Conversation
from ringline.caller.events import Event
from ringline.caller.receipt import Receipt
from ringline.caller.reply import Reply, Signer
from ringline.caller.running import RunningCall

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "AsyncCaller",
    "CallHandle",
    "Caller",
    "Cancellation",
    "Cancelled",
    "Conversation",
    "Event",
    "NotCancelled",
    "Receipt",
    "Reply",
    "Requested",
    "RunningCall",
    "Signer",
    "Talk",
]
