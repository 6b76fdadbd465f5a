"""What a program keeps of a durable call to ask for its result later, from any process of its identity.

It is no secret and proves nothing: the keys and the sealed bytes are in the outbox. It is made of the
callee and the ``message_id``, so that it is known before the first byte is sent.
"""

from ringline.protocol.errors import ConfigError
from ringline.protocol.names import is_handle, is_message_id

__all__ = ["claim_of", "is_claim", "read_claim"]

_PREFIX = "rcpt_"


def claim_of(callee: str, message_id: str) -> str:
    """Return the receipt, as people call it: ``rcpt_<callee>_<message_id>``."""
    return f"{_PREFIX}{callee}_{message_id}"


def is_claim(text: str) -> bool:
    """Whether this is meant as a receipt, and not as the relay's id of a call."""
    return text.startswith(_PREFIX) and text.count("_") == 2


def read_claim(text: str) -> tuple[str, str]:
    """Return callee and ``message_id``. Raises `ConfigError` for anything else."""
    callee, _, message_id = text.removeprefix(_PREFIX).partition("_")
    if not text.startswith(_PREFIX) or not is_handle(callee) or not is_message_id(message_id):
        raise ConfigError(
            "this is no receipt of a durable call: rcpt_, the callee, and the message's id",
            next_step="list what this identity has sent: ringline calls ls",
        )
    return callee, message_id
