"""How a call stands in the list of calls, by what is known of its end."""

import pytest

from ringline.caller.effects import Ended, LostRelay, OutOfTime, Refused, Unopened, Withdrawn
from ringline.caller.kept import KeptState, state_after
from ringline.protocol.errors import TransportError


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (Withdrawn(), "canceled"),
        (Refused("canceled", "call", None), "canceled"),
        (Refused("offline", None, None), "refused"),
        (Refused("protocol_error", None, None), "refused"),
        (Refused("protocol_error", "call", None), "delivery_failed"),
        (Refused("unauthorized", "call", None), "revoked"),
        (Refused("timeout", "call", None), "timeout"),
        # An earlier sending may have run.
        (Refused("timeout", None, None), "timeout"),
    ],
)
def test_the_relays_word_on_an_end_is_kept(end: Ended, state: KeptState) -> None:
    assert state_after(end) == state


@pytest.mark.parametrize(
    "end", [LostRelay(TransportError(), sent=True), OutOfTime("call", sent=True), Unopened()]
)
def test_what_says_nothing_of_the_call_changes_nothing(end: Ended) -> None:
    assert state_after(end) is None
