"""Requests are closed, responses open."""

from typing import Any

import msgspec
import pytest

from ringline.protocol import shapes

CARD_ID = "A" * 43


def convert(value: dict[str, Any], shape: type[msgspec.Struct]) -> msgspec.Struct:
    return msgspec.json.decode(msgspec.json.encode(value), type=shape)


POLICY: dict[str, Any] = {"offline": False, "accept": "listed", "allow": ["ken"], "block": []}
REVOCATION: dict[str, Any] = {"card_id": CARD_ID, "reason": 1, "ts": 1, "by": "identity", "sig": "AA"}


@pytest.mark.parametrize(
    ("shape", "good"),
    [
        (shapes.Policy, POLICY),
        (shapes.RevocationStatement, REVOCATION),
        (shapes.PrekeyPublication, {"prekey": "AA", "prekey_sig": "AA"}),
        (shapes.KeysPublication, {"card": "AA", "card_sig": "AA", "prekey": "AA", "prekey_sig": "AA"}),
        (shapes.TicketRequest, {"htu": "/v1/call/bob"}),
    ],
)
def test_a_request_refuses_unknown_missing_and_null_members(
    shape: type[msgspec.Struct], good: dict[str, Any]
) -> None:
    assert isinstance(convert(good, shape), shape)
    for damaged in (good | {"surplus": 1}, *({k: v for k, v in good.items() if k != name} for name in good)):
        with pytest.raises(msgspec.ValidationError):
            convert(damaged, shape)
    for name in good:
        with pytest.raises(msgspec.ValidationError):
            convert(good | {name: None}, shape)


@pytest.mark.parametrize(
    "damaged",
    [
        POLICY | {"allow": ["K"]},
        POLICY | {"accept": "some"},
        POLICY | {"block": ["ken\n"]},
    ],
)
def test_a_policy_lists_handles(damaged: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        convert(damaged, shapes.Policy)


def test_next_ipk_goes_with_a_revocation_by_the_next_key_and_only_with_it() -> None:
    by_next = convert(REVOCATION | {"by": "next", "next_ipk": "AA"}, shapes.RevocationStatement)
    assert isinstance(by_next, shapes.RevocationStatement)
    for damaged in (REVOCATION | {"by": "next"}, REVOCATION | {"next_ipk": "AA"}):
        with pytest.raises(msgspec.ValidationError):
            convert(damaged, shapes.RevocationStatement)


def test_a_response_may_have_members_that_came_later() -> None:
    later = convert({"ticket": "t", "expires_at": 1, "later": {}}, shapes.Ticket)
    assert later == shapes.Ticket(ticket="t", expires_at=1)


def test_a_record_always_shows_all_members() -> None:
    record = shapes.CallRecord(
        call_id="c",
        from_="ken",
        to="bob",
        mode="sync",
        state="ringing",
        terminal_reason=None,
        message_id=None,
        correlation_id="a" * 32,
        submitted_at=1,
        expires_at=None,
        started_at=None,
        finished_at=None,
        attempts=0,
        deferred_until=None,
        cancel_requested=False,
        outcome=None,
    )
    assert set(msgspec.to_builtins(record)) == {
        "call_id",
        "from",
        "to",
        "mode",
        "state",
        "terminal_reason",
        "message_id",
        "correlation_id",
        "submitted_at",
        "expires_at",
        "started_at",
        "finished_at",
        "attempts",
        "deferred_until",
        "cancel_requested",
        "outcome",
    }
