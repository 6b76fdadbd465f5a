"""The reply to a call, as a person and a program get it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringline.caller import Reply

__all__ = ["print_reply"]


def print_reply(reply: "Reply", *, machine: bool, notes: Sequence[str], receipt: str | None = None) -> None:
    """Print a reply on standard output: its text, or with ``machine`` one JSON document.

    ``receipt`` is that of a durable call. Raises `ConfigError` when it cannot be written; it is of a call
    that is done, and says which.
    """
    from ringline.cli.output import write_document, write_reply
    from ringline.protocol.encoding import b64encode
    from ringline.protocol.errors import ConfigError

    try:
        if not machine:
            write_reply(reply.text)
            return
        write_document(
            {
                "v": 1,
                "ok": True,
                "authenticated": True,
                "reply": {
                    "text": reply.text,
                    "value": reply.value,
                    "task": reply.task,
                    "context_id": reply.context_id,
                },
                "signed_by": {
                    "handle": reply.signed_by.handle,
                    "fingerprint": reply.signed_by.fingerprint,
                    "public_key": b64encode(reply.signed_by.ipk),
                },
                "call_id": reply.call_id,
                "message_id": reply.message_id,
                **({} if receipt is None else {"receipt": receipt}),
                "notes": list(notes),
            }
        )
    except ConfigError as error:
        # The work is done: whoever reads of the full disk must not be told that nothing was started.
        error.call_id, error.message_id = reply.call_id, reply.message_id
        raise
