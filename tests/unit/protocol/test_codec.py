"""Strict frames: what is accepted, and each kind of damage that is not."""

import contextlib
import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol import frames
from ringline.protocol.codec import decode, encode
from ringline.protocol.errors import FrameError
from ringline.protocol.frames import DIRECTIONS, Direction

HEX = "4bf92f3577b34da6a3ce929d0e0e4736"
LEASE = "8f14e45f-ceea-4e7a-9bd4-3c59f3a5a1f0"
ENVELOPE: dict[str, Any] = {
    "v": 1,
    "suite": 2,
    "kid": "A" * 43,
    "sid": "A" * 43,
    "iat": 1_790_000_000_000,
    "exp": 1_790_000_300_000,
    "ct": "AAAA",
}
REQUEST: dict[str, Any] = {"type": "call_request", "envelope": ENVELOPE, "correlation_id": HEX}
# Each frame with its required members alone, then with all of them.
SMALLEST: dict[str, dict[str, Any]] = {
    "call_request": REQUEST,
    "call_status": {"type": "call_status", "state": "ringing", "call_id": "c1", "correlation_id": HEX},
    "call_queued": {
        "type": "call_queued",
        "call_id": "c1",
        "message_id": HEX,
        "correlation_id": HEX,
        "submitted_at": 1,
        "expires_at": 2,
    },
    "call_error": {"type": "call_error", "origin": "relay", "code": "busy"},
    "call_outcome": {"type": "call_outcome", "call_id": "c1", "terminal": "failed", "envelope": ENVELOPE},
    "incoming_call": {
        "type": "incoming_call",
        "call_id": "c1",
        "from": "ken",
        "envelope": ENVELOPE,
        "correlation_id": HEX,
    },
    "cancel_call": {"type": "cancel_call", "call_id": "c1"},
    "call_accepted": {"type": "call_accepted", "call_id": "c1"},
    "call_started": {"type": "call_started", "call_id": "c1"},
    "call_rejected": {"type": "call_rejected", "call_id": "c1", "code": "protocol_error"},
    "call_cancelled": {"type": "call_cancelled", "call_id": "c1", "phase": "pending"},
    "call_not_cancelled": {"type": "call_not_cancelled", "call_id": "c1", "reason": "too_late"},
}
MORE: dict[str, dict[str, Any]] = {
    "call_request": {"message_id": HEX, "delivery_mode": "durable", "traceparent": "any text: at all"},
    "call_error": {"call_id": "c1", "correlation_id": HEX, "retry_after_ms": 5},
    "call_outcome": {"terminal_reason": "indeterminate_execution", "lease_id": LEASE},
    "incoming_call": {
        "message_id": HEX,
        "delivery_mode": "durable",
        "lease_id": LEASE,
        "execute_by": 3,
        "traceparent": "x",
    },
}
LEASED = (
    "cancel_call",
    "call_accepted",
    "call_started",
    "call_rejected",
    "call_cancelled",
    "call_not_cancelled",
)
FULL = {
    name: smallest | MORE.get(name, {}) | ({"lease_id": LEASE} if name in LEASED else {})
    for name, smallest in SMALLEST.items()
}


def tag(member: type[msgspec.Struct]) -> str:
    return cast(str, member.__struct_config__.tag)


ALLOWED: list[tuple[Direction, str]] = [
    (direction, tag(member)) for direction, members in DIRECTIONS.items() for member in members
]
FORBIDDEN: list[tuple[Direction, str]] = [
    (d, name) for d in DIRECTIONS for name in SMALLEST if (d, name) not in ALLOWED
]


def read(value: object, direction: Direction = "caller_to_relay") -> frames.Frame:
    return decode(json.dumps(value).encode(), direction)


def refuse(payload: bytes, direction: Direction = "caller_to_relay") -> FrameError:
    with pytest.raises(FrameError) as caught:
        decode(payload, direction)
    return caught.value


def test_there_are_twelve_frames() -> None:
    assert len(SMALLEST) == 12
    assert {name for _, name in ALLOWED} == set(SMALLEST)


@pytest.mark.parametrize(("direction", "name"), ALLOWED)
@pytest.mark.parametrize("corpus", [SMALLEST, FULL], ids=["smallest", "full"])
def test_a_frame_survives_the_round_trip(
    direction: Direction, name: str, corpus: dict[str, dict[str, Any]]
) -> None:
    frame = read(corpus[name], direction)
    assert json.loads(encode(frame)) == corpus[name]
    assert encode(frame).startswith(b'{"type":')


@pytest.mark.parametrize(("direction", "name"), FORBIDDEN)
def test_a_frame_of_another_direction_is_refused(direction: Direction, name: str) -> None:
    refuse(json.dumps(SMALLEST[name]).encode(), direction)


@pytest.mark.parametrize(("direction", "name"), ALLOWED)
def test_each_required_member_is_required(direction: Direction, name: str) -> None:
    for member in SMALLEST[name]:
        refuse(json.dumps({k: v for k, v in SMALLEST[name].items() if k != member}).encode(), direction)


@pytest.mark.parametrize(("direction", "name"), ALLOWED)
def test_null_an_unknown_member_and_a_wrong_type_are_refused_everywhere(
    direction: Direction, name: str
) -> None:
    full = FULL[name]
    refuse(json.dumps(full | {"surplus": 1}).encode(), direction)
    for member in full:
        wrongs: tuple[object, ...] = (None, [], {}, 1.5, True, -1, 2**53)
        for wrong in wrongs if member == "traceparent" else (*wrongs, "\n"):
            refuse(json.dumps(full | {member: wrong}).encode(), direction)


@pytest.mark.parametrize(("direction", "name"), [pair for pair in ALLOWED if "envelope" in SMALLEST[pair[1]]])
def test_the_envelope_has_exactly_its_members(direction: Direction, name: str) -> None:
    for damaged in (
        {k: v for k, v in ENVELOPE.items() if k != "sid"},
        ENVELOPE | {"extra": 1},
        ENVELOPE | {"v": 2},
        ENVELOPE | {"kid": "A" * 42},
        ENVELOPE | {"kid": "A" * 42 + "B"},
        ENVELOPE | {"iat": 1.0},
        ENVELOPE | {"exp": 2**53},
        ENVELOPE | {"ct": ""},
        ENVELOPE | {"suite": 65_536},
    ):
        refuse(json.dumps(SMALLEST[name] | {"envelope": damaged}).encode(), direction)


@pytest.mark.parametrize(
    "frame",
    [
        REQUEST | {"delivery_mode": "durable"},
        SMALLEST["call_queued"] | {"expires_at": 1},
        SMALLEST["incoming_call"] | {"delivery_mode": "durable", "message_id": HEX, "lease_id": LEASE},
        SMALLEST["incoming_call"] | {"delivery_mode": "durable", "message_id": HEX, "execute_by": 3},
        SMALLEST["incoming_call"] | {"delivery_mode": "durable", "lease_id": LEASE, "execute_by": 3},
        SMALLEST["incoming_call"] | {"delivery_mode": "sync"},
        SMALLEST["incoming_call"] | {"lease_id": LEASE},
        SMALLEST["incoming_call"] | {"execute_by": 3},
        SMALLEST["call_error"] | {"origin": "peer"},
        SMALLEST["call_error"] | {"code": "blocked"},
    ],
)
def test_members_that_belong_together_come_together(frame: dict[str, Any]) -> None:
    directions: list[Direction] = [direction for direction, name in ALLOWED if name == frame["type"]]
    for direction in directions:
        refuse(json.dumps(frame).encode(), direction)


TEXT = json.dumps(REQUEST)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("utf-16"),
        TEXT.encode() + b" {}",
        TEXT.encode()[:-1],
        TEXT.replace("AAAA", "AA\\ud800").encode(),
        TEXT.replace("AAAA", "AA\xff").encode("latin-1"),
        TEXT.replace("1790000000000", "NaN").encode(),
        TEXT.replace("1790000000000", "1e3").encode(),
        TEXT.replace("1790000000000", "9" * 4_000).encode(),
        TEXT.replace('"AAAA"', '"AA\x00"').encode(),
        b"[" * 200_000,
        b'{"type":' * 200_000,
        b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b"null",
        b'"call_request"',
    ],
    ids=lambda payload: repr(payload[:24]),
)
def test_text_that_is_no_strict_json_is_refused(payload: bytes) -> None:
    refuse(payload)


@pytest.mark.parametrize(
    "payload",
    [
        TEXT[:-1] + f', "correlation_id": "{"b" * 32}"}}',
        TEXT[:-1] + ', "type": "call_request"}',
        TEXT.replace('"v": 1', '"v": 1, "v": 1'),
        TEXT.replace('"ct"', '"\\u0063t": "AAAA", "ct"'),
        # The same where free text holds colons, which takes the other way.
        TEXT.replace("AAAA", "A:A")[:-1] + f', "correlation_id": "{HEX}"}}',
        TEXT[:-1] + ', "traceparent": "a:b", "traceparent": "c"}',
        TEXT[:-1] + ', "traceparent": "c", "traceparent": "a:b"}',
        TEXT[:-1] + ', "traceparent": "c", "traceparent": "a\\u003ab"}',
    ],
)
def test_a_member_name_that_occurs_twice_is_refused(payload: str) -> None:
    refuse(payload.encode())


def test_colons_in_free_text_are_no_members() -> None:
    frame = read(REQUEST | {"traceparent": "::", "envelope": ENVELOPE | {"ct": ":"}})
    assert isinstance(frame, frames.CallRequest)
    assert frame.traceparent == "::"


def test_white_space_and_escapes_are_the_writers_choice() -> None:
    plain = read(REQUEST)
    assert decode(b" \t\r\n" + json.dumps(REQUEST, indent=4).encode() + b"\n", "caller_to_relay") == plain
    assert decode(TEXT.replace("type", "\\u0074ype").encode(), "caller_to_relay") == plain


def test_the_refusal_names_a_correlation_id_only_of_something_meant_as_a_call_request() -> None:
    assert refuse(json.dumps(REQUEST | {"surplus": 1}).encode()).correlation_id == HEX
    assert refuse(json.dumps(REQUEST | {"correlation_id": "0" * 32}).encode()).correlation_id is None
    assert refuse(json.dumps(SMALLEST["call_status"]).encode()).correlation_id is None
    assert (
        refuse(json.dumps(SMALLEST["cancel_call"] | {"correlation_id": HEX}).encode()).correlation_id is None
    )
    assert refuse(b"{").correlation_id is None


def test_the_refusal_quotes_nothing_of_the_peers_text() -> None:
    for frame in (
        REQUEST | {"type": "s3cret"},
        REQUEST | {"s3cret": 1},
        REQUEST | {"delivery_mode": "s3cret"},
    ):
        error = refuse(json.dumps(frame).encode())
        assert "s3cret" not in str(error)
        assert error.__cause__ is None


@given(st.binary(max_size=300))
def test_any_bytes_give_a_frame_or_a_frame_error(payload: bytes) -> None:
    for direction in DIRECTIONS:
        with contextlib.suppress(FrameError):
            decode(payload, direction)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(ALLOWED), st.data())
def test_a_mutated_frame_is_either_the_same_json_or_refused(
    pair: tuple[Direction, str], data: st.DataObject
) -> None:
    direction, name = pair
    frame = dict(FULL[name])
    member = data.draw(st.sampled_from(sorted(frame)) | st.text(max_size=6))
    frame[member] = data.draw(json_values)
    payload = json.dumps(frame).encode()
    try:
        decoded = decode(payload, direction)
    except FrameError:
        return
    assert json.loads(encode(decoded)) == frame
