"""What may be read from one connection, and what that brings about."""

import msgspec
import pytest

from ringline.protocol import codec
from ringline.protocol.limits import CALLER_FRAME_BYTES, REQUEST_CT_CHARS
from ringline.relay.effects import Close, Send
from ringline_testing.exchange import (
    LEASE,
    START,
    Exchange,
    accepted,
    call_error,
    cancel,
    envelope,
    incoming,
    number,
    outcome,
    request,
    sent_to,
    status,
)

PROTOCOL_ERROR = call_error("protocol_error")


def padded(size: int) -> str:
    """Return text of ``size`` bytes that is no frame."""
    return "x" * size


DAMAGED = {
    "no JSON": "hello",
    "empty": "",
    "no object": "[]",
    "null": "null",
    "no type": "{}",
    "unknown type": '{"type":"call_cancel","call_id":"a"}',
    "wrong direction": '{"type":"call_status","state":"ringing","call_id":"a","correlation_id":"0a"}',
    "unknown member": '{"type":"cancel_call","call_id":"a","x":1}',
    "duplicate member": '{"type":"cancel_call","call_id":"a","call_id":"a"}',
    "wrong type": '{"type":"cancel_call","call_id":1}',
    "null member": '{"type":"cancel_call","call_id":"a","lease_id":null}',
    "bad pattern": '{"type":"cancel_call","call_id":"a b"}',
    "trailing line feed in a name": '{"type":"cancel_call","call_id":"a\\n"}',
    "lone surrogate": '{"type":"cancel_call","call_id":"\\ud800"}',
    "nested": '{"type":"cancel_call","call_id":' + "[" * 100_000,
    "two objects": '{"type":"cancel_call","call_id":"a"}{}',
    "byte order mark": '\ufeff{"type":"cancel_call","call_id":"a"}',
    "NaN": '{"type":"cancel_call","call_id":NaN}',
    "a lease from a caller": '{"type":"cancel_call","call_id":"a","lease_id":"' + LEASE + '"}',
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_frame_is_answered_without_ids_and_the_connection_lives(kind: str) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    assert x.text(alice, DAMAGED[kind]) == [Send(alice, PROTOCOL_ERROR)]
    assert x.send(alice, request()) == [
        Send(bob, incoming("call-1", request())),
        Send(alice, status("call-1", request(), "ringing")),
    ]


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_frame_of_a_listener_is_answered_alike_and_changes_no_call(kind: str) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    assert x.text(bob, DAMAGED[kind]) == [Send(bob, PROTOCOL_ERROR)]
    assert x.send(bob, accepted(call)) == [Send(alice, status(call, request(), "answered"))]


@pytest.mark.parametrize("payload", [b"\xff", b'{"type":"cancel_call","call_id":"\xff"}', b"\x00"])
def test_bytes_that_are_no_utf_8_are_refused(payload: bytes) -> None:
    x = Exchange()
    alice = x.caller()
    assert x.hub.receive(alice, payload, x.now) == [Send(alice, PROTOCOL_ERROR)]


def test_integers_beyond_two_to_the_53_are_refused() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    text = codec.encode(request()).decode().replace(str(request().envelope.exp), str(2**53))
    assert x.text(alice, text) == [Send(alice, call_error("protocol_error", request()))]


def test_a_binary_message_is_refused_and_counted() -> None:
    x = Exchange()
    alice = x.caller()
    for _ in range(20):
        assert x.hub.binary(alice, x.now) == [Send(alice, PROTOCOL_ERROR)]
    assert x.hub.binary(alice, x.now) == [Send(alice, PROTOCOL_ERROR), Close(alice, 1008, "frames")]


def test_a_damaged_request_is_answered_with_its_correlation_id_and_nothing_else_is() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    text = '{"type":"call_request","correlation_id":"' + number(7) + '","message":"plain"}'
    assert x.text(alice, text) == [Send(alice, call_error("protocol_error", request(7)))]
    text = '{"type":"cancel_call","correlation_id":"' + number(7) + '"}'
    assert x.text(alice, text) == [Send(alice, PROTOCOL_ERROR)]


UNSOUND = {
    "unknown suite": envelope(suite=9),
    "ends when it begins": envelope(life=0),
    "ends before it begins": envelope(life=-1),
    "ciphertext over the cap of requests": envelope(ct="A" * (REQUEST_CT_CHARS + 1)),
}


@pytest.mark.parametrize("kind", UNSOUND)
def test_a_request_with_an_unsound_envelope_is_refused_with_its_correlation_id(kind: str) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    bad = request(sealed=UNSOUND[kind])
    assert x.send(alice, bad) == [Send(alice, call_error("protocol_error", bad))]
    assert sent_to(bob, x.send(alice, request())) == [incoming("call-1", request())]


def test_the_largest_ciphertext_of_a_request_passes_unread() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    largest = request(sealed=envelope(ct="A" * REQUEST_CT_CHARS))
    assert len(codec.encode(largest)) <= CALLER_FRAME_BYTES
    assert sent_to(bob, x.send(alice, largest)) == [incoming("call-1", largest)]
    # Not base64 at all, and none of the relay's business.
    odd = request(2, 2, sealed=envelope(ct="no: {base64} äöü"))
    assert sent_to(bob, x.send(alice, odd)) == [incoming("call-2", odd)]


@pytest.mark.parametrize("suite", [1, 2])
def test_both_suites_are_known(suite: int) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    assert len(sent_to(bob, x.send(alice, request(sealed=envelope(suite=suite))))) == 1


def test_the_times_of_an_outcome_are_never_compared() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    odd = msgspec.structs.replace(outcome(call), envelope=envelope(life=-5, suite=77))
    assert sent_to(alice, x.send(bob, odd)) == [odd]


def test_the_twenty_first_undecodable_frame_in_a_minute_is_answered_and_is_the_last() -> None:
    x = Exchange()
    alice = x.caller()
    for _ in range(20):
        assert x.text(alice, "x") == [Send(alice, PROTOCOL_ERROR)]
    assert x.text(alice, "x") == [Send(alice, PROTOCOL_ERROR), Close(alice, 1008, "frames")]
    assert x.text(alice, "x") == []
    assert x.send(alice, request()) == []
    assert x.lose(alice) == []


def test_undecodable_frames_are_counted_in_a_sliding_minute() -> None:
    x = Exchange()
    alice = x.caller()
    for _ in range(20):
        x.text(alice, "x")
    x.wait(59_999)
    late = x.text(alice, "x")
    assert late[-1] == Close(alice, 1008, "frames")
    y = Exchange()
    alice = y.caller()
    for _ in range(20):
        y.text(alice, "x")
    y.wait(60_000)
    for _ in range(20):
        assert y.text(alice, "x") == [Send(alice, PROTOCOL_ERROR)]
    assert len(y.text(alice, "x")) == 2


def test_undecodable_frames_of_one_connection_are_not_counted_for_another() -> None:
    x = Exchange()
    first, second = x.caller(), x.caller()
    for _ in range(20):
        x.text(first, "x")
        x.text(second, "x")
    assert x.text(first, "x")[-1] == Close(first, 1008, "frames")
    assert x.text(second, "x")[-1] == Close(second, 1008, "frames")


def test_unsound_envelopes_count_as_refused_frames() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    bad = request(sealed=envelope(suite=9))
    for _ in range(20):
        x.send(alice, bad)
    assert x.send(alice, bad) == [
        Send(alice, call_error("protocol_error", bad)),
        Close(alice, 1008, "frames"),
    ]


def test_stale_leases_late_frames_unknown_calls_and_illegal_ends_are_not_counted() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    for _ in range(30):
        assert len(x.send(bob, outcome("no-such-call"))) == 1
        assert len(x.send(bob, accepted("no-such-call", LEASE))) == 1
        assert len(x.send(bob, accepted(call, LEASE))) == 1
        assert len(x.send(bob, outcome(call, "completed", "failed"))) == 1
        assert len(x.send(bob, outcome(call))) == 1  # completed before started
        assert len(x.send(alice, cancel("no-such-call"))) == 1
    assert x.send(bob, accepted(call)) == [Send(alice, status(call, request(), "answered"))]


def test_a_frame_over_its_connections_limit_is_too_large_without_being_read() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    frame = codec.encode(request()).decode()
    assert x.text(alice, frame + " " * (CALLER_FRAME_BYTES + 1 - len(frame))) == [
        Send(alice, call_error("message_too_large"))
    ]
    exact = frame + " " * (CALLER_FRAME_BYTES - len(frame))
    assert sent_to(bob, x.text(alice, exact)) == [incoming("call-1", request())]


def test_a_listener_may_send_larger_frames_than_a_caller() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    large = outcome(call, ct="A" * 2_000_000)
    assert sent_to(alice, x.send(bob, large)) == [large]


def test_a_frame_that_is_too_large_costs_one_hourly_unit_and_is_no_undecodable_one() -> None:
    x = Exchange({"CALLS_PER_HOUR": 3})
    x.listener()
    alice = x.caller()
    large = padded(CALLER_FRAME_BYTES + 1)
    for _ in range(2):
        x.text(alice, large)
    assert len(x.send(alice, request(1, 1))) == 2
    assert x.send(alice, request(2, 2)) == [
        Send(alice, call_error("rate_limited", request(2, 2), retry=3_600_000))
    ]
    for _ in range(40):
        assert x.text(alice, large) == [Send(alice, call_error("message_too_large"))]
    # The budget is used up, and not overdrawn: it comes back when it did before.
    x.wait(3_600_000)
    assert len(x.send(alice, request(3, 3, sealed=envelope(iat=x.now.wall)))) == 2


def test_a_listener_pays_nothing_for_a_frame_that_is_too_large() -> None:
    x = Exchange({"CALLS_PER_HOUR": 1})
    bob = x.listener()
    assert x.text(bob, padded(2_063_020)) == [Send(bob, call_error("message_too_large"))]
    calling = x.caller("bob", "bob")
    assert len(x.send(calling, request())) == 2


def test_frames_beyond_the_rate_are_refused_unread_and_twice_as_many_close() -> None:
    x = Exchange({"FRAMES_PER_SECOND": 3})
    bob, alice = x.listener(), x.caller()
    for n in range(3):
        assert x.send(alice, cancel("nothing")) != [], n
        x.wait(100)
    limited = [x.send(alice, request()) for _ in range(3)]
    assert limited[0] == [Send(alice, call_error("rate_limited", retry=800))]
    assert all(isinstance(answer[0], Send) and len(answer) == 1 for answer in limited)
    assert x.send(alice, request()) == [Close(alice, 1008, "frames")]
    assert sent_to(bob, x.send(x.caller(), request())) == [incoming("call-1", request())]


def test_the_rate_is_over_a_sliding_second_and_counts_binary_messages() -> None:
    x = Exchange({"FRAMES_PER_SECOND": 2})
    alice = x.caller()
    x.hub.binary(alice, x.now)
    x.wait(999)
    x.hub.binary(alice, x.now)
    assert x.hub.binary(alice, x.now) == [Send(alice, call_error("rate_limited", retry=1_000))]
    x.wait(1_000)
    assert x.hub.binary(alice, x.now) == [Send(alice, PROTOCOL_ERROR)]


def test_a_rate_of_zero_is_none() -> None:
    x = Exchange({"FRAMES_PER_SECOND": 0})
    alice = x.caller()
    assert all(len(x.send(alice, cancel("nothing"))) == 1 for _ in range(10_000))


def test_a_connection_that_the_hub_does_not_know_has_no_effect() -> None:
    x = Exchange()
    x.listener()
    assert x.text(99, "x") == []
    assert x.hub.binary(99, x.now) == []
    assert x.send(99, request()) == []
    assert x.lose(99) == []


def test_a_connection_number_is_never_used_twice() -> None:
    x = Exchange()
    alice = x.caller()
    with pytest.raises(ValueError, match="open already"):
        x.hub.connect_caller(alice, "cyd", "bob", "A" * 43, START)
