"""The listener: serves a handle, opens sealed calls, runs the work and seals the outcome.

::

    from ringline.listener import Call, Listener

    listener = Listener("echo")

    @listener.answer
    def echo(call: Call) -> str:
        return call.message

    listener.run()  # until Ctrl-C
"""

from ringline.listener.listener import Listener
from ringline.listener.runtime import Command
from ringline.listener.serving import Serving
from ringline.listener.tasks import Answer, Call, Conversation, TaskFailed
from ringline.protocol.errors import ConfigError, HttpProblem, RinglineError, TransportError, TrustError

__all__ = [
    "Answer",
    "Call",
    "Command",
    "ConfigError",
    "Conversation",
    "HttpProblem",
    "Listener",
    "RinglineError",
    "Serving",
    "TaskFailed",
    "TransportError",
    "TrustError",
]
