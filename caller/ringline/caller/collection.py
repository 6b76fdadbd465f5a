"""Fetching what came of a durable call, in this process or in a later one.

In this order, each step on disk before the next: the outcome is opened and kept as a receipt, the relay is
told that it may delete it, the one-time key is deleted (RL-ENVELOPE-043, RL-DURABLE-069, RL-ENVELOPE-044). A
crash between two of them leaves a call that is collected again and comes to the same.
"""

import asyncio
import math
import time
from typing import Final

from ringline.caller.claim import claim_of
from ringline.caller.ends import not_taken
from ringline.caller.outbox import Stored
from ringline.caller.post import Post
from ringline.caller.record_ends import CallEnded, StillRunning, ended_error
from ringline.caller.sealing import Answer, read_answer
from ringline.caller.submission import Submission
from ringline.protocol.errors import ConfigError, HttpProblem, ProtocolError, RinglineError, TransportError
from ringline.protocol.frames import CallOutcome
from ringline.protocol.shapes import CallRecord

__all__ = ["collect", "settle", "settle_others", "submitted"]

_POLL_S: Final = 50
"""How long a relay holds one request at most (RL-HTTP-037)."""
_PAUSE_S: Final = 0.5
_PAUSE_MAX_S: Final = 5.0
_SUBMIT_S: Final = 30.0


async def submitted(post: Post, stored: Stored, timeout_s: float = _SUBMIT_S) -> Stored:
    """Return a kept call that the relay is known to have: the stored bytes are sent if it is not.

    Raises as `Submission.run`, and `CallEnded` when the time for sending them is over.
    """
    if stored.call_id is not None:
        return stored
    if stored.mode != "durable":
        raise ConfigError(
            "this call was not left with the relay, and never confirmed by it",
            message_id=stored.message_id,
            next_step=f"call {stored.callee} again under the same message_id: it runs once",
        )
    if not stored.resendable(post.clock.now_ms()):
        error = CallEnded(
            "the time of the call is over, and whether the relay ever had it is not known here",
            code="expired",
            message_id=stored.message_id,
        )
        error.still_true = "The work may have run, if an earlier sending arrived."
        raise error
    await Submission(post, stored, timeout_s, sent_before=True).run()
    return await _again(post, stored)


async def collect(post: Post, stored: Stored, wait_s: float) -> Answer:
    """Return what the callee said, waiting at most ``wait_s`` seconds for the end.

    Raises `PeerFailure`; the `CallEnded` of its record, `StillRunning` among them; `CannotOpen` for an
    outcome that is not the callee's; `TransportError` when the relay was not to be reached meanwhile.
    """
    until = time.monotonic() + wait_s
    pause_s = _PAUSE_S
    while stored.receipt is None:
        left_s = until - time.monotonic()
        try:
            stored = await submitted(post, stored, max(left_s, _SUBMIT_S))
            assert stored.call_id is not None
            record = await post.http.record(stored.call_id, wait_s=min(_POLL_S, max(0, math.ceil(left_s))))
        except (TransportError, HttpProblem) as error:
            if until - time.monotonic() <= pause_s or not _passes(error):
                error.call_id, error.message_id = stored.call_id, stored.message_id
                raise
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, pause_s * 2)
            continue
        stored = await _take(post, stored, record)
        if stored.receipt is None and time.monotonic() >= until:
            raise _still_running(stored, record)
    await settle(post, stored)
    return read_answer(stored.receipt, stored.message_id)


async def settle(post: Post, stored: Stored) -> bool:
    """Acknowledge an outcome that is kept, then delete its key; False when that is for later."""
    if stored.mode != "durable" or stored.acked or stored.receipt is None:
        return True
    try:
        acknowledged = await post.http.acknowledge(stored.receipt.call_id)
        if acknowledged:
            await post.stored(post.outbox.acknowledged, stored.callee, stored.message_id)
        return acknowledged
    except (TransportError, HttpProblem, ConfigError) as error:
        post.note(f"the relay could not be told that the outcome is here ({error.code}); it is told later")
        return False


async def settle_others(post: Post, stored: Stored) -> None:
    """Acknowledge what an earlier process has kept and could not acknowledge."""
    for other in await post.stored(post.outbox.unacknowledged):
        if other.message_id != stored.message_id and not await settle(post, other):
            return


async def _take(post: Post, stored: Stored, record: CallRecord | None) -> Stored:
    """Take the record of a call: open its outcome, or raise the end that it tells of."""
    receipt = claim_of(stored.callee, stored.message_id)
    if record is None:
        raise _forgotten(stored, receipt)
    if (record.call_id, record.to, record.message_id) != (stored.call_id, stored.callee, stored.message_id):
        raise ProtocolError(
            "the relay answered with another call's record",
            call_id=stored.call_id,
            message_id=stored.message_id,
        )
    if record.outcome is not None:
        frame = CallOutcome(
            call_id=record.call_id, terminal=record.outcome.terminal, envelope=record.outcome.envelope
        )
        try:
            kept = await post.keep(stored, frame)
        except RinglineError as error:
            # Another process of this identity may have opened it meanwhile.
            stored = await _again(post, stored)
            if stored.receipt is not None:
                return stored
            raise not_taken(
                error,
                stored.callee,
                stored.message_id,
                stored.call_id,
                kept="until it is acknowledged, which it was not",
                again=f"ask for the result again: the receipt {receipt} stays good",
            ) from error
        found = await _again(post, stored)
        if found.receipt is None:
            # It could not be kept; it is good all the same, and not acknowledged.
            raise ConfigError(
                "the outcome was opened and could not be kept",
                call_id=kept.call_id,
                message_id=stored.message_id,
                next_step="make room on the disk and ask for the result again; the relay still has it",
            )
        return found
    parked = record.state == "delivery_failed" and record.finished_at is None
    end = ended_error(
        record.state, receipt, call_id=stored.call_id, message_id=stored.message_id, parked=parked
    )
    if end is not None:
        if not parked:
            await post.stored(post.outbox.ended, stored.callee, stored.message_id, record.state)
        raise end
    if record.state in ("completed", "failed"):
        raise HttpProblem(
            "the relay says that the call has ended and does not send its outcome again",
            code="rate_limited",
            call_id=stored.call_id,
            message_id=stored.message_id,
            next_step=f"ask {stored.callee}; do not make the call anew: it could run twice",
        )
    return stored


async def _again(post: Post, stored: Stored) -> Stored:
    found = await post.stored(post.outbox.find, stored.callee, stored.message_id)
    if found is None:
        raise ConfigError("the outbox was changed meanwhile", next_step="ask again")
    return found


def _passes(error: TransportError | HttpProblem) -> bool:
    """Whether waiting may mend it."""
    if isinstance(error, HttpProblem):
        return error.code in ("unavailable", "rate_limited", "internal_error")
    return error.code == "relay_unreachable"


def _still_running(stored: Stored, record: CallRecord | None) -> StillRunning:
    state = record.state if record is not None else "queued"
    waits = {"queued": f"it waits for {stored.callee}", "started": f"{stored.callee} is at work"}
    where = waits.get(state, f"{stored.callee} has it and has not begun")
    asked = " A cancellation was asked for." if record is not None and record.cancel_requested else ""
    error = StillRunning(
        f"the call has not ended yet: {where}.{asked}",
        call_id=stored.call_id,
        message_id=stored.message_id,
    )
    error.receipt = claim_of(stored.callee, stored.message_id)
    error.still_true = "The relay keeps it; its outcome is kept for a day after its time."
    return error


def _forgotten(stored: Stored, receipt: str) -> CallEnded:
    known = stored.ended and ended_error(
        stored.ended, receipt, call_id=stored.call_id, message_id=stored.message_id
    )
    if known:
        return known
    error = CallEnded(
        "the relay does not know the call any more",
        code="indeterminate_execution",
        call_id=stored.call_id,
        message_id=stored.message_id,
    )
    error.receipt = receipt
    error.still_true = "It may have run; its outcome was not fetched while the relay had it."
    return error
