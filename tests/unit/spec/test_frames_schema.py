"""The JSON Schema and the codec accept and refuse the same frames."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, cast

import jsonschema
import pytest

from ringline.protocol import codec, frames, names
from ringline.protocol.errors import FrameError
from ringline_testing.checkout import ROOT

SCHEMA: dict[str, Any] = json.loads((ROOT / "spec" / "frames.schema.json").read_text(encoding="utf-8"))

Members = dict[str, Any]

ID = "0af7651916cd43dd8448eb211c80319c"
LEASE = "6f1f2a9e-6a53-4c5b-9d0c-2f8c1d1e7a55"
ENVELOPE: Members = {
    "v": 1,
    "suite": 2,
    "kid": "A" * 43,
    "sid": "b" * 42 + "Q",
    "iat": 1_790_000_000_000,
    "exp": 1_790_000_600_000,
    "ct": "AAAA",
}

# Each frame with all that it may carry, but for what the members of a durable call exclude.
FULL: dict[str, Members] = {
    "call_request": {
        "envelope": ENVELOPE,
        "correlation_id": ID,
        "message_id": ID,
        "delivery_mode": "durable",
        "traceparent": f"00-{ID}-b7ad6b7169203331-01",
    },
    "cancel_call": {"call_id": "c_1-A", "lease_id": LEASE},
    "call_status": {"state": "ringing", "call_id": "c", "correlation_id": ID},
    "call_queued": {
        "call_id": "c" * 64,
        "message_id": ID,
        "correlation_id": ID,
        "submitted_at": 0,
        "expires_at": 2**53 - 1,
    },
    "call_error": {
        "origin": "relay",
        "code": "busy",
        "call_id": "c",
        "correlation_id": ID,
        "retry_after_ms": 0,
    },
    "call_outcome": {
        "call_id": "c",
        "terminal": "failed",
        "terminal_reason": "indeterminate_execution",
        "envelope": ENVELOPE,
        "lease_id": LEASE,
    },
    "incoming_call": {
        "call_id": "c",
        "from": "alice",
        "envelope": ENVELOPE,
        "correlation_id": ID,
        "message_id": ID,
        "delivery_mode": "durable",
        "lease_id": LEASE,
        "execute_by": 1,
        "traceparent": "",
    },
    "call_accepted": {"call_id": "c", "lease_id": LEASE},
    "call_started": {"call_id": "c", "lease_id": LEASE},
    "call_rejected": {"call_id": "c", "code": "protocol_error", "lease_id": LEASE},
    "call_cancelled": {"call_id": "c", "phase": "running", "lease_id": LEASE},
    "call_not_cancelled": {"call_id": "c", "reason": "too_late", "lease_id": LEASE},
}

# Of every wrong type, at every edge, and what a careless pattern would let pass.
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    1.5,
    65_536,
    2**53 - 1,
    2**53,
    "",
    "a",
    "ab",
    "x" * 31,
    "x" * 32,
    "c" * 65,
    "0" * 32,
    "f" * 32,
    "F" * 32,
    f"{ID}\n",
    f"\n{ID}",
    f"{LEASE}\n",
    LEASE.upper(),
    "alice\n",
    "Alice",
    "-alice",
    "álice",
    "c\n",
    "A" * 42 + "B",
    "A" * 43 + "\n",
    "sync",
    "durable",
    "ringing",
    "completed",
    "canceled",
    "pending",
    "unknown",
    "protocol_error",
    [],
    {},
    [ID],
    ENVELOPE,
    ENVELOPE | {"alg": "none"},
)

UNORDERED = ((2**53 - 1, 2**53 - 1), (0, 0))

DIRECTIONS = list(frames.DIRECTIONS)


def schema_accepts(direction: frames.Direction, members: Members) -> bool:
    validator: Any = jsonschema.Draft202012Validator(SCHEMA | {"anyOf": [{"$ref": f"#/$defs/{direction}"}]})
    accepted: bool = validator.is_valid(members)
    return accepted


def codec_accepts(direction: frames.Direction, members: Members) -> bool:
    try:
        codec.decode(json.dumps(members).encode(), direction)
    except FrameError:
        return False
    return True


def frames_of(direction: frames.Direction) -> list[Members]:
    tags = [str(frame.__struct_config__.tag) for frame in frames.DIRECTIONS[direction]]
    return [{"type": tag, **FULL[tag]} for tag in tags]


def damaged(frame: Members) -> Iterator[Members]:
    """Yield the frame with one member replaced, missing or added, and so its envelope."""
    for name in frame:
        yield {key: value for key, value in frame.items() if key != name}
        for odd in ODD:
            yield {**frame, name: odd}
    yield {**frame, "extra": 1}
    yield {**frame, "Type": frame["type"]}
    if "envelope" in frame:
        for envelope in damaged_envelopes():
            yield {**frame, "envelope": envelope}


def damaged_envelopes() -> Iterator[Members]:
    for name in ENVELOPE:
        yield {key: value for key, value in ENVELOPE.items() if key != name}
        for odd in ODD:
            yield {**ENVELOPE, name: odd}
    yield {**ENVELOPE, "extra": 1}


def only_the_codec_can_refuse(frame: Members) -> bool:
    """True for the one rule that no schema can express: a durable call expires after its submission."""
    times = (frame.get("submitted_at"), frame.get("expires_at"))
    return frame.get("type") == "call_queued" and None not in times and times in UNORDERED


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(FULL) == {str(f.__struct_config__.tag) for group in frames.DIRECTIONS.values() for f in group}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_both_accept_every_frame_of_a_direction(direction: frames.Direction) -> None:
    for frame in frames_of(direction):
        assert schema_accepts(direction, frame), frame
        assert codec_accepts(direction, frame), frame


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_both_refuse_the_frames_of_other_directions(direction: frames.Direction) -> None:
    own = {frame["type"] for frame in frames_of(direction)}
    for tag in FULL.keys() - own:
        frame = {"type": tag, **FULL[tag]}
        assert not schema_accepts(direction, frame), frame
        assert not codec_accepts(direction, frame), frame


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_both_judge_every_damaged_frame_alike(direction: frames.Direction) -> None:
    refused = 0
    for frame in frames_of(direction):
        for change in damaged(frame):
            verdict = codec_accepts(direction, change)
            if only_the_codec_can_refuse(change):
                assert not verdict, change
            else:
                assert schema_accepts(direction, change) == verdict, change
            refused += not verdict
    assert refused > 100


@pytest.mark.parametrize("tag", ["call_request", "incoming_call"])
def test_both_judge_every_combination_of_optional_members_alike(tag: str) -> None:
    direction: frames.Direction = "caller_to_relay" if tag == "call_request" else "relay_to_listener"
    optional = ("message_id", "delivery_mode", "lease_id", "execute_by", "traceparent")
    verdicts: set[bool] = set()
    for kept in itertools.product((True, False), repeat=len(optional)):
        left_out = {name for name, keep in zip(optional, kept, strict=True) if not keep}
        for mode in ("durable", "sync"):
            frame = {"type": tag, **FULL[tag]}
            frame["delivery_mode"] = mode
            frame = {name: value for name, value in frame.items() if name not in left_out}
            verdict = codec_accepts(direction, frame)
            assert schema_accepts(direction, frame) == verdict, frame
            verdicts.add(verdict)
    assert verdicts == {True, False}


def test_every_pattern_of_the_schema_is_portable() -> None:
    # RE2 has no look-around and JSON Schema no \A or \Z; the source patterns have all of them.
    def patterns(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            members = cast(Members, node)
            if isinstance(members.get("pattern"), str):
                yield members["pattern"]
            for value in members.values():
                yield from patterns(value)
        elif isinstance(node, list):
            for item in cast("list[object]", node):
                yield from patterns(item)

    found = set(patterns(SCHEMA))
    assert len(found) > 4
    assert [pattern for pattern in found if "(?" in pattern or "\\A" in pattern or "\\Z" in pattern] == []
    assert names.HANDLE.startswith("\\A")
