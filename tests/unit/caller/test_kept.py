"""How a call stands in the list of calls, by what is known of its end."""

import contextlib
from pathlib import Path

import pytest

from ringline.caller.effects import Ended, LostRelay, OutOfTime, Refused, Unopened, Withdrawn
from ringline.caller.kept import KeptState, kept_receipt, state_after
from ringline.caller.outbox import Outbox, Stored
from ringline.caller.receipt import Receipt
from ringline.client.address import RelayAddress
from ringline.client.home import Home
from ringline.protocol.errors import ConfigError, TransportError


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


def test_only_an_answered_call_of_the_identity_has_a_receipt(tmp_path: Path) -> None:
    home, address = Home(tmp_path), RelayAddress.parse("https://relay.example")
    with pytest.raises(ConfigError, match="no such call"):
        kept_receipt(home, address, "alice", "call")
    # Looking made no outbox.
    path = home.outbox_file(address, "alice")
    assert not path.exists()
    call = Stored(
        callee="bob",
        message_id="1" * 32,
        correlation_id="2" * 32,
        payload=b"{}",
        content=bytes(32),
        digest=bytes(32),
        from_ipk=bytes(32),
        to_ipk=bytes(32),
        suite=2,
        reply_seed=bytes(32),
        iat=1,
        exp=2,
    )
    receipt = Receipt(
        call_id="call",
        terminal="completed",
        context=b"context",
        body=b"{}",
        signature=bytes(64),
        card=b"card",
        card_signature=bytes(64),
        opened_at=3,
    )
    claim = f"rcpt_bob_{'1' * 32}"
    with contextlib.closing(Outbox(home, path)) as outbox:
        outbox.remember(call)
        with pytest.raises(ConfigError, match="bob has not answered") as caught:
            kept_receipt(home, address, "alice", claim)
        assert caught.value.next_step == f"fetch the answer first: ringline result {claim}"
        outbox.answered("bob", "1" * 32, receipt)
    assert kept_receipt(home, address, "alice", claim) == receipt
    assert kept_receipt(home, address, "alice", "call") == receipt
    with pytest.raises(ConfigError, match="no such call"):
        kept_receipt(home, address, "carol", claim)
