"""Each end says who says so, what is still true, and what to do next."""

import pytest

from ringline.caller.effects import Ended, LostRelay, OutOfTime, Refused, Unopened, Withdrawn
from ringline.caller.ends import error_of, forged, not_taken
from ringline.protocol.errors import (
    CallTimeout,
    CannotOpen,
    LogForked,
    RelayError,
    RinglineError,
    TransportError,
    TrustError,
)

ID = "1" * 32
LOST = TransportError("the connection broke. Nothing was sent.")


def error(end: Ended) -> RinglineError:
    return error_of(end, "bob", ID, "call", 12.0)


@pytest.mark.parametrize(
    ("end", "kind", "exit_code", "says"),
    [
        (Refused("unknown_handle", None, None), RelayError, 10, "Nothing was delivered"),
        (Refused("offline", None, None), RelayError, 11, "bob is offline (the relay says so)"),
        (Refused("busy", None, 5), RelayError, 12, "Nothing was delivered"),
        (Refused("rate_limited", None, 5), RelayError, 13, "Nothing was delivered"),
        (Refused("timeout", "call", None), RelayError, 14, "may have run, or still run"),
        (Refused("timeout", None, None), RelayError, 14, "It may have run"),
        (Refused("timeout", "call", None, forgotten=True), RelayError, 14, "does not know the call any more"),
        (Refused("canceled", "call", None), RelayError, 15, "cancelled (the relay says so)"),
        (Refused("unauthorized", None, None), RelayError, 20, "does not accept this identity"),
        (Refused("protocol_error", "call", None), RelayError, 32, "does not know you"),
        (Refused("protocol_error", None, None), RelayError, 32, "Nothing was delivered"),
        (Refused("message_too_large", None, None), RelayError, 33, "Nothing was delivered"),
        (LostRelay(LOST, sent=False), TransportError, 30, "Nothing was sent"),
        (LostRelay(LOST, sent=True), TransportError, 30, "It may have run"),
        (LostRelay(TrustError(code="revoked"), sent=True), TrustError, 24, "revoked"),
        (OutOfTime(None, sent=False), CallTimeout, 14, "Nothing was sent"),
        (OutOfTime("call", sent=True), CallTimeout, 14, "no answer within 12 s. The call may have run"),
        (Unopened(), CannotOpen, 23, "does not hold"),
        (Withdrawn(), RelayError, 15, "Nothing was delivered"),
    ],
)
def test_an_end_becomes_an_error(end: Ended, kind: type[RinglineError], exit_code: int, says: str) -> None:
    raised = error(end)
    assert type(raised) is kind
    assert raised.exit_code == exit_code
    assert says in str(raised)
    assert raised.message_id == ID


def test_what_may_have_run_is_not_said_to_be_undelivered() -> None:
    for end in (
        Refused("timeout", "call", None),
        LostRelay(LOST, sent=True),
        OutOfTime("call", sent=True),
        Unopened(),
    ):
        assert "Nothing was" not in str(error(end))
        assert ID in (error(end).next_step or "") or isinstance(end, Unopened)


@pytest.mark.parametrize(
    "fault", [LogForked("the key log is not what it was", evidence="/e"), TrustError(code="log_unproven")]
)
def test_an_answer_that_the_key_log_does_not_bear_out_is_not_lost_and_nobody_is_accused(
    fault: TrustError,
) -> None:
    assert not forged(fault)
    raised = not_taken(fault, "bob", ID, "call", kept="for a day", again="ask again")
    assert type(raised) is type(fault)
    assert (raised.code, raised.call_id, raised.message_id) == (fault.code, "call", ID)
    assert str(raised).startswith("an answer of bob is here, and it could not be checked: ")
    assert raised.still_true == "The call may have run. The answer is not lost: the relay keeps it for a day."


def test_the_relays_time_to_wait_is_handed_on() -> None:
    assert error(Refused("busy", None, 1_500)).retry_after_ms == 1_500
