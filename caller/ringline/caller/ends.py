"""The error for each way a call ends without an outcome: who says so, what is still true, what to do."""

import re
from typing import Final

from ringline.caller.effects import Ended, LostRelay, OutOfTime, Refused, Unopened, Withdrawn
from ringline.protocol.errors import (
    BadSignature,
    CallTimeout,
    CannotOpen,
    ConfigError,
    HttpProblem,
    ProtocolError,
    RelayError,
    RinglineError,
    TransportError,
    TrustError,
    WeakKey,
)
from ringline.protocol.frames import RelayCode

__all__ = ["error_of", "forged", "not_taken", "out_of_time"]

_RELAY_SAYS: Final[dict[RelayCode, str]] = {
    "unknown_handle": "there is no {peer} here that you may call (the relay says so). Nothing was delivered.",
    "offline": "{peer} is offline (the relay says so). Nothing was delivered.",
    "busy": "{peer} has no free place (the relay says so). Nothing was delivered.",
    "rate_limited": "a budget of the relay is used up (the relay says so). Nothing was delivered.",
    "unauthorized": "the relay does not accept this identity any more. Nothing more is known of the call.",
    "message_too_large": "the relay finds the call too large. Nothing was delivered.",
}
_ENDED: Final[dict[RelayCode, str]] = {
    "timeout": "{peer} did not answer in time (the relay says so). The call may have run, or still run.",
    "canceled": "the call was cancelled (the relay says so).",
    "offline": "{peer} did not come back in time (the relay says so).",
    "unauthorized": "this identity was revoked while the call ran (the relay says so).",
    "protocol_error": "{peer} does not know you, or could not open the call (the relay says so).",
}
_OF_THE_LOG: Final = frozenset({"log_forked", "log_unproven"})
_SAME_ID: Final = "do not send it anew without the same message_id, {id}: it could run twice"
_REFUSED_ALREADY: Final = re.compile(r"[.\s]*Nothing was [^.]*\.?\s*\Z")
_TOLD_AS: Final = (TransportError, HttpProblem, ConfigError)


def error_of(
    end: Ended, peer: str, message_id: str, call_id: str | None, timeout_s: float, *, durable: bool = False
) -> RinglineError:
    """Return what `RunningCall.result` raises for an end, or `AsyncCaller.submit` when ``durable``."""
    match end:
        case Refused(code="offline", call_id=None) if durable:
            return RelayError(
                f"{peer} takes no calls while away (the relay says so). Nothing was delivered.",
                code="offline",
                message_id=message_id,
                next_step=f"call while {peer} listens, or ask {peer} to run: ringline listen --offline",
            )
        case Refused():
            return _relay_error(end, peer, message_id)
        case LostRelay(error, sent):
            return _lost(error, message_id, call_id, sent=sent, durable=durable)
        case OutOfTime(known_id, sent) if durable and sent:
            return CallTimeout(
                f"the relay did not confirm the call within {timeout_s:g} s. It may have it.",
                call_id=known_id,
                message_id=message_id,
                next_step="ask for its result: the same sealed bytes are sent then, and run once",
            )
        case OutOfTime(known_id, sent):
            return out_of_time(message_id, known_id, timeout_s, sent=sent)
        case Unopened(error):
            step = f"ask once more under the same message_id, {message_id}: it does not run again"
            return not_taken(
                error or CannotOpen("outcome"), peer, message_id, call_id, kept="for ten minutes", again=step
            )
        case Withdrawn():
            return RelayError(
                "the call was cancelled before the relay had it. Nothing was delivered.",
                code="canceled",
                message_id=message_id,
            )


def forged(error: RinglineError) -> bool:
    """Whether an error of opening an outcome says that it is not what the callee sealed for the call.

    Else nothing can be said against it: it could not be checked, or was signed by a key revoked since.
    """
    match error:
        case HttpProblem(code="not_found"):
            return True  # delivered by a relay that does not know the card which signed it
        case TrustError(code=code):
            # What the relay's key log does not bear out is the relay's doing, and no word of a forger.
            return code != "revoked" and code not in _OF_THE_LOG
        case _:
            return isinstance(error, CannotOpen | ProtocolError | BadSignature | WeakKey)


def not_taken(
    error: RinglineError, peer: str, message_id: str, call_id: str | None, *, kept: str, again: str
) -> RinglineError:
    """Return what to tell of an outcome that was delivered and not taken, because of ``error``.

    ``kept`` tells how long the relay keeps it, ``again`` how to have it opened once more.
    """
    may_have_run = "The call may have run."
    if forged(error):
        unopened = CannotOpen("outcome")
        unopened.call_id, unopened.message_id = call_id, message_id
        unopened.next_step = (
            f"what the relay delivered as {peer}'s answer is not what {peer} sealed for this call; "
            "the call may have run. Ask the relay's operator."
        )
        return unopened
    kept_there = f"{may_have_run} The answer is not lost: the relay keeps it {kept}."
    if isinstance(error, TrustError) and error.code in _OF_THE_LOG:
        # As it is: it may name evidence, and says what to do about the relay.
        error.call_id, error.message_id, error.still_true = call_id, message_id, kept_there
        error.args = (f"an answer of {peer} is here, and it could not be checked: {error}",)
        return error
    if isinstance(error, TrustError):
        return TrustError(
            f"the answer that the relay delivered is signed by a key that {peer} has revoked since; "
            "it was not taken.",
            code=error.code,
            call_id=call_id,
            message_id=message_id,
            still_true=may_have_run,
            next_step=f"ask {peer} by another way what came of it",
        )
    kind = next((kind for kind in _TOLD_AS if isinstance(error, kind)), RinglineError)
    why = _REFUSED_ALREADY.sub("", str(error))
    return kind(
        f"an answer of {peer} is here, and it could not be checked: {why}",
        code=error.code if kind.family is error.family else None,
        call_id=call_id,
        message_id=message_id,
        retry_after_ms=error.retry_after_ms,
        still_true=kept_there,
        next_step=again,
    )


def out_of_time(message_id: str, call_id: str | None, timeout_s: float, *, sent: bool) -> CallTimeout:
    """Return the error for a wait that is over; ``timeout_s`` is what was waited for, in seconds."""
    if not sent:
        return CallTimeout(
            f"the time of {timeout_s:g} s was over before the call could be sent. Nothing was sent.",
            message_id=message_id,
            next_step="give it more time with timeout, or look at the relay",
        )
    return CallTimeout(
        f"no answer within {timeout_s:g} s. The call may have run, or still run; "
        "a cancellation was asked for and its answer not waited for.",
        call_id=call_id,
        message_id=message_id,
        next_step=_SAME_ID.format(id=message_id),
    )


def _relay_error(end: Refused, peer: str, message_id: str) -> RelayError:
    if end.forgotten:
        text = "the relay does not know the call any more. It may have run."
    elif end.call_id is None and end.code == "timeout":
        text = "the relay has restarted since the call was first sent. It may have run."
    elif end.call_id is None:
        text = _RELAY_SAYS.get(end.code, "the relay refused the call. Nothing was delivered.")
    else:
        text = _ENDED.get(end.code, "the relay ended the call.")
    return RelayError(
        text.format(peer=peer),
        code=end.code,
        call_id=end.call_id,
        message_id=message_id,
        retry_after_ms=end.retry_after_ms,
        next_step=_SAME_ID.format(id=message_id) if end.code == "timeout" else None,
    )


def _lost(
    error: RinglineError, message_id: str, call_id: str | None, *, sent: bool, durable: bool
) -> RinglineError:
    if sent and not durable and isinstance(error, TransportError):
        return TransportError(
            f"{str(error).removesuffix('. Nothing was sent.')}, and the call was under way. It may have run; "
            "the relay asks for its cancellation half a minute after it lost sight of this caller.",
            code=error.code,
            call_id=call_id,
            message_id=message_id,
            next_step=_SAME_ID.format(id=message_id),
        )
    error.call_id, error.message_id = call_id, message_id
    if sent:
        error.still_true = "The relay may have the call." if durable else "The call may have run."
    return error
