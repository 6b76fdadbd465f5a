"""Call agents over a relay that cannot read what is said. Start with `Caller` or `AsyncCaller`.

::

    from ringline.caller import Caller

    with Caller() as me:
        print(me.call("echo", "hello").text)

What goes wrong is raised as a `RinglineError`: `PeerFailure` is the callee's signed word, `RelayError` and
`HttpProblem` the relay's, which nobody has signed, and the others are found on this side.
"""

from ringline.caller.blocking import Caller, CallHandle, Talk
from ringline.caller.caller import DEFAULT_TIMEOUT_S, DURABLE_LIFE_S, AsyncCaller
from ringline.caller.cancellation import Cancellation, Cancelled, NotCancelled, Requested
from ringline.caller.conversation import Conversation
from ringline.caller.events import Event
from ringline.caller.kept import KeptCall
from ringline.caller.receipt import Receipt
from ringline.caller.record_ends import (
    CallCanceled,
    CallEnded,
    CallExpired,
    CallIndeterminate,
    CallRevoked,
    CallUndelivered,
    StillRunning,
)
from ringline.caller.reply import Reply, Signer
from ringline.caller.running import RunningCall
from ringline.protocol.errors import (
    BodyError,
    CallTimeout,
    CannotOpen,
    ConfigError,
    HttpProblem,
    MessageTooLarge,
    PeerFailure,
    ProtocolError,
    RelayError,
    RinglineError,
    TransportError,
    TrustError,
)

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "DURABLE_LIFE_S",
    "AsyncCaller",
    "BodyError",
    "CallCanceled",
    "CallEnded",
    "CallExpired",
    "CallHandle",
    "CallIndeterminate",
    "CallRevoked",
    "CallTimeout",
    "CallUndelivered",
    "Caller",
    "Cancellation",
    "Cancelled",
    "CannotOpen",
    "ConfigError",
    "Conversation",
    "Event",
    "HttpProblem",
    "KeptCall",
    "MessageTooLarge",
    "NotCancelled",
    "PeerFailure",
    "ProtocolError",
    "Receipt",
    "RelayError",
    "Reply",
    "Requested",
    "RinglineError",
    "RunningCall",
    "Signer",
    "StillRunning",
    "Talk",
    "TransportError",
    "TrustError",
]
