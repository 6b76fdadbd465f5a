"""Outcomes as the journal keeps them: written and checked before they are committed.

An outcome that could not be sealed must never be journalled as the end of a call: it could not be sent, and
the work is not run again. So every check that a seal or a peer would make is made here.
"""

from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace as with_members

from ringline.listener.effects import Produced
from ringline.listener.entries import End
from ringline.protocol.bodies import (
    Checkpoint,
    Failure,
    FailureCode,
    Outcome,
    Reply,
    cut_detail,
    decode_outcome,
    encode_outcome,
)
from ringline.protocol.envelope import HEAD_BYTES
from ringline.protocol.errors import BodyError, MessageTooLarge
from ringline.protocol.limits import OFFERS, OUTCOME_CAP_BYTES

__all__ = ["NO_JOURNAL", "answered", "failed", "lost", "viewed"]

NO_JOURNAL: Final = "this listener cannot keep its journal; nothing was run"
"""What a caller is told when the journal takes nothing."""


def answered(
    produced: Produced, *, task: str | None, context_id: str | None = None, turn: int | None = None
) -> End:
    """Return the end of work that came to something.

    What does not fit, or is no JSON, becomes a failure that says so (RL-ENVELOPE-013): the work has
    run, and its sender must learn that this call will not tell what came of it.
    """
    try:
        end = _end(
            Outcome(
                reason="completed",
                reply=Reply(
                    text=produced.text,
                    value=produced.value,
                    task=UNSET if task is None else task,
                    context_id=UNSET if context_id is None else context_id,
                    turn=UNSET if turn is None else turn,
                ),
                offered=produced.offered,
            )
        )
    except MessageTooLarge as error:
        return failed("message_too_large", str(error))
    except BodyError as error:
        return failed("agent_error", f"the result of the work cannot be sent: {error}")
    size = 0 if end.json is None else len(end.json)
    if size + HEAD_BYTES > OUTCOME_CAP_BYTES:
        room = OUTCOME_CAP_BYTES - HEAD_BYTES
        return failed("message_too_large", f"the outcome has {size:,} bytes of JSON; {room:,} fit")
    return end


def failed(code: FailureCode, detail: str | None = None, *, offered: tuple[str, ...] = ()) -> End:
    """Return the end of a call that was refused, or whose work failed. ``detail`` is cut to its limit."""
    return _failure("failed", code, detail, offered)


def lost(detail: str, code: FailureCode = "agent_error") -> End:
    """Return the end of work that may have run and of which nothing more is known."""
    return _failure("indeterminate_execution", code, detail, ())


def viewed(end: End, kt: Checkpoint | UnsetType) -> End:
    """Return the end with this side's view of the key log in it, for its caller to compare (RL-LOG-008).

    One that has a view keeps it: the bytes of an outcome are the same for every call that gets it. One that
    would not fit goes without.
    """
    if end.json is None or kt is UNSET:
        return end
    outcome = decode_outcome(end.json)
    if outcome.kt is not UNSET:
        return end
    json = encode_outcome(with_members(outcome, kt=kt))
    return end if len(json) + HEAD_BYTES > OUTCOME_CAP_BYTES else End(json, end.terminal, end.reason)


def _failure(reason: str, code: FailureCode, detail: str | None, offered: tuple[str, ...]) -> End:
    return _end(
        Outcome(
            reason="failed" if reason == "failed" else "indeterminate_execution",
            failure=Failure(
                code=code,
                detail=UNSET if detail is None else cut_detail(detail),
                offered=offered[:OFFERS] if offered else UNSET,
            ),
        )
    )


def _end(outcome: Outcome) -> End:
    return End(encode_outcome(outcome), outcome.terminal, outcome.reason)
