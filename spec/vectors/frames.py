"""Frames of every direction, as texts: what a reader takes, and what it refuses.

``text`` is the message, or a list of pieces to be joined; a piece is a text, or
``{"repeat": text, "times": n}``. ``hex`` stands in its place where the bytes are no UTF-8.
"""

import json
from collections.abc import Iterator
from typing import Any

from ringline.protocol.encoding import b64encode
from ringline.protocol.limits import INT_MAX, OUTCOME_CT_CHARS
from vectors.vector import NOW, Json, Vector, accepted, refused, seed

__all__ = ["vectors"]

_OP = "frame.read"
_ID = "0af7651916cd43dd8448eb211c80319c"
_MESSAGE = "00f067aa0ba902b74bf92f3577b34da6"
_CALL = "c7Qx-Yb_9"
_LEASE = "6f1f2a9e-6a53-4c5b-9d0c-2f8c1d1e7a55"
_ENVELOPE: Json = {
    "v": 1,
    "suite": 2,
    "kid": b64encode(seed("kid")),
    "sid": b64encode(seed("sid")),
    "iat": NOW,
    "exp": NOW + 600_000,
    "ct": b64encode(seed("ct")),
}
_REQUEST: Json = {"type": "call_request", "envelope": _ENVELOPE, "correlation_id": _ID}
_INCOMING: Json = {
    "type": "incoming_call",
    "call_id": _CALL,
    "from": "alice",
    "envelope": _ENVELOPE,
    "correlation_id": _ID,
}
_DURABLE: Json = {"message_id": _MESSAGE, "delivery_mode": "durable"}
_LEASED: Json = {"lease_id": _LEASE, "execute_by": NOW + 1}
_OUTCOME: Json = {"type": "call_outcome", "call_id": _CALL, "terminal": "failed", "envelope": _ENVELOPE}

_C, _K = "caller_to_relay", "relay_to_caller"
_L, _I = "listener_to_relay", "relay_to_listener"
_TRACE = f"00-{_ID}-b7ad6b7169203331-01"

_GOOD: tuple[tuple[str, str, Json], ...] = (
    (_C, "call_request", _REQUEST),
    (_C, "call_request_full", _REQUEST | {"message_id": _MESSAGE, "traceparent": _TRACE}),
    (_C, "call_request_sync", _REQUEST | {"delivery_mode": "sync"}),
    (_C, "call_request_durable", _REQUEST | _DURABLE),
    (_C, "call_request_any_traceparent", _REQUEST | {"traceparent": "anything"}),
    (_C, "cancel_call", {"type": "cancel_call", "call_id": _CALL}),
    (_K, "call_status", {"type": "call_status", "state": "ringing", "call_id": _CALL, "correlation_id": _ID}),
    (
        _K,
        "call_queued",
        {
            "type": "call_queued",
            "call_id": "c" * 64,
            "message_id": _MESSAGE,
            "correlation_id": _ID,
            "submitted_at": INT_MAX - 1,
            "expires_at": INT_MAX,
        },
    ),
    (_K, "call_error", {"type": "call_error", "origin": "relay", "code": "protocol_error"}),
    (
        _K,
        "call_error_full",
        {
            "type": "call_error",
            "origin": "relay",
            "code": "rate_limited",
            "call_id": _CALL,
            "correlation_id": _ID,
            "retry_after_ms": 0,
        },
    ),
    (_K, "call_outcome", _OUTCOME),
    (_K, "call_outcome_with_lease", _OUTCOME | {"lease_id": _LEASE, "terminal_reason": "revoked"}),
    (_K, "call_not_cancelled", {"type": "call_not_cancelled", "call_id": _CALL, "reason": "unknown"}),
    (_I, "incoming_call", _INCOMING),
    (_I, "incoming_call_with_message_id", _INCOMING | {"message_id": _MESSAGE, "traceparent": _TRACE}),
    (_I, "incoming_call_durable", _INCOMING | _DURABLE | _LEASED),
    (_I, "cancel_call_leased", {"type": "cancel_call", "call_id": _CALL, "lease_id": _LEASE}),
    (_I, "call_started_grant", {"type": "call_started", "call_id": _CALL, "lease_id": _LEASE}),
    (
        _I,
        "call_rejected_stale",
        {"type": "call_rejected", "call_id": _CALL, "code": "protocol_error", "lease_id": _LEASE},
    ),
    (_I, "call_error", {"type": "call_error", "origin": "relay", "code": "protocol_error"}),
    (_L, "call_accepted", {"type": "call_accepted", "call_id": _CALL}),
    (_L, "call_started", {"type": "call_started", "call_id": _CALL}),
    (_L, "call_outcome", _OUTCOME | {"terminal_reason": "indeterminate_execution", "lease_id": _LEASE}),
    (_L, "call_rejected", {"type": "call_rejected", "call_id": _CALL, "code": "protocol_error"}),
    (_L, "call_cancelled", {"type": "call_cancelled", "call_id": _CALL, "phase": "running"}),
    (_L, "call_not_cancelled", {"type": "call_not_cancelled", "call_id": _CALL, "reason": "too_late"}),
)


def _text(frame: object) -> str:
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False)


def _without(frame: Json, name: str) -> Json:
    return {key: value for key, value in frame.items() if key != name}


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    good: dict[tuple[str, str], Vector] = {}
    for direction, name, frame in _GOOD:
        vector = accepted(
            f"frame.{direction}.{name}",
            _OP,
            "a frame of this direction",
            {"direction": direction, "text": _text(frame)},
            {"type": frame["type"]},
        )
        good[direction, name] = vector
        yield vector
    yield from _missing(good)
    yield from _directions(good)
    yield from _members(good[_C, "call_request_full"])
    yield from _texts(good[_C, "call_request_full"])
    yield from _envelopes(good[_C, "call_request"])
    yield from _ties(good)


def _missing(good: dict[tuple[str, str], Vector]) -> Iterator[Vector]:
    """Each frame without each of the members that it must have."""
    optional = {"message_id", "delivery_mode", "traceparent", "lease_id", "execute_by", "terminal_reason"}
    optional |= {"retry_after_ms"}
    for direction, name, frame in _GOOD:
        if name.endswith(("_full", "_durable", "_sync", "_traceparent", "_with_lease", "_with_message_id")):
            continue
        for member in sorted(frame.keys() - optional - {"type"}):
            yield refused(
                f"frame.{direction}.{name}.without_{member}",
                good[direction, name],
                f"`{member}` is missing",
                {"direction": direction, "text": _text(_without(frame, member))},
                "shape",
                "RL-FRAME-004",
            )


def _directions(good: dict[tuple[str, str], Vector]) -> Iterator[Vector]:
    """Each type where it does not belong."""
    types: dict[str, set[str]] = {}
    for direction, _, frame in _GOOD:
        types.setdefault(frame["type"], set()).add(direction)
    done: set[str] = set()
    for direction, name, frame in _GOOD:
        if name != frame["type"] or name in done:
            continue
        done.add(name)
        for other in (_C, _K, _L, _I):
            if other not in types[frame["type"]]:
                yield refused(
                    f"frame.{other}.no_{name}",
                    good[direction, name],
                    f"`{frame['type']}` is no frame of this direction",
                    {"direction": other, "text": _text(frame)},
                    "shape",
                    "RL-FRAME-001",
                )


def _members(of: Vector) -> Iterator[Vector]:
    """One member of a request at a time that is not what it must be."""
    full = json.loads(of.input["text"])
    traces = "RL-TRACE-005"
    changes: tuple[tuple[str, str, Json, str], ...] = (
        ("unknown_type", "a type that is not there", {"type": "call_requests"}, "RL-FRAME-001"),
        ("unknown_member", "a member that is not there", {"mood": "good"}, "RL-FRAME-002"),
        ("null_optional", "null in an optional member", {"message_id": None}, "RL-FRAME-005"),
        ("null_envelope", "null in a required member", {"envelope": None}, "RL-FRAME-005"),
        ("number_for_text", "a number for a text", {"correlation_id": 7}, "RL-FRAME-005"),
        ("list_for_object", "a list for an object", {"envelope": []}, "RL-FRAME-005"),
        ("traceparent_number", "a number for a traceparent", {"traceparent": 1}, traces),
        ("traceparent_list", "a list for a traceparent", {"traceparent": [_TRACE]}, traces),
        ("upper_case_id", "upper-case digits", {"correlation_id": _ID.upper()}, "RL-FRAME-006"),
        ("short_id", "31 digits", {"correlation_id": _ID[1:]}, "RL-FRAME-006"),
        ("long_id", "33 digits", {"correlation_id": f"{_ID}0"}, "RL-FRAME-006"),
        ("zero_id", "an id of zeros", {"correlation_id": "0" * 32}, "RL-FRAME-006"),
        ("zero_message_id", "an id of zeros", {"message_id": "0" * 32}, "RL-FRAME-006"),
        ("empty_message_id", "an empty id", {"message_id": ""}, "RL-FRAME-006"),
        ("id_with_line_feed", "a line feed behind an id", {"correlation_id": f"{_ID}\n"}, "RL-CONV-001"),
        (
            "full_width_digit",
            "a digit that is none of ASCII",
            {"correlation_id": f"\uff10{_ID[1:]}"},
            "RL-CONV-001",
        ),
        ("unknown_mode", "a mode that is not there", {"delivery_mode": "later"}, "RL-FRAME-005"),
    )
    for name, says, change, rule in changes:
        given = {"direction": _C, "text": _text(full | change)}
        yield refused(f"frame.{_C}.{name}", of, says, given, "shape", rule)


def _texts(of: Vector) -> Iterator[Vector]:
    """The text itself is not that of one frame."""
    text: str = of.input["text"]
    twice = text.replace(f'"message_id":"{_MESSAGE}"', f'"message_id":"{_MESSAGE}","message_id":"{_MESSAGE}"')
    inner = text.replace('"v":1', '"v":1,"v":1')
    escaped = text.replace('"message_id"', '"message_id":"' + _ID + '","message\\u005fid"')
    for name, says, changed, layer, rule in (
        ("member_twice", "a member twice", twice, "shape", "RL-FRAME-003"),
        ("member_twice_escaped", "a member twice, once with an escape", escaped, "shape", "RL-FRAME-003"),
        ("envelope_member_twice", "a member twice in the envelope", inner, "shape", "RL-FRAME-003"),
        ("list", "a list of one frame", f"[{text}]", "shape", "RL-FRAME-008"),
        ("text", "a text", '"call_request"', "shape", "RL-FRAME-008"),
        ("number", "a number", "1", "shape", "RL-FRAME-008"),
        ("nothing", "nothing", "", "json", "RL-FRAME-008"),
        ("two", "two frames", text + text, "json", "RL-FRAME-008"),
        ("cut_short", "a frame that is cut short", text[:-1], "json", "RL-FRAME-008"),
        ("trailing_comma", "a comma behind the last member", f"{text[:-1]},}}", "json", "RL-FRAME-008"),
        ("single_quotes", "other quotes", text.replace('"', "'"), "json", "RL-FRAME-008"),
        ("byte_order_mark", "a byte order mark", f"\ufeff{text}", "json", "RL-FRAME-008"),
        (
            "lone_surrogate",
            "half of a pair",
            text.replace(_TRACE, "\\ud800"),
            "shape",
            "RL-FRAME-011",
        ),
    ):
        given = {"direction": _C, "text": changed}
        yield refused(f"frame.{_C}.{name}", of, says, given, layer, rule)
    broken = text.encode().replace(_TRACE.encode(), b"\xff\xfe")
    yield refused(
        f"frame.{_C}.not_utf8",
        of,
        "bytes that are no UTF-8",
        {"direction": _C, "hex": broken.hex()},
        "json",
        "RL-FRAME-010",
    )


def _envelopes(of: Vector) -> Iterator[Vector]:
    """One member of the envelope at a time that is not what it must be."""
    text: str = of.input["text"]
    for member in _ENVELOPE:
        given = {"direction": _C, "text": _text(_REQUEST | {"envelope": _without(_ENVELOPE, member)})}
        yield refused(
            f"frame.{_C}.envelope_without_{member}",
            of,
            f"`{member}` is missing",
            given,
            "shape",
            "RL-FRAME-004",
        )
    changes: tuple[tuple[str, str, str, Any, str], ...] = (
        ("v_2", "another version", "v", 2, "RL-FRAME-005"),
        ("v_text", "a text for a number", "v", "1", "RL-FRAME-005"),
        ("v_true", "true for a number", "v", True, "RL-FRAME-005"),
        ("suite_negative", "a negative suite", "suite", -1, "RL-FRAME-007"),
        ("suite_too_large", "a suite of more than two bytes", "suite", 65_536, "RL-FRAME-007"),
        ("iat_negative", "a time before 1970", "iat", -1, "RL-FRAME-007"),
        ("exp_too_large", "2^53", "exp", INT_MAX + 1, "RL-FRAME-007"),
        ("kid_short", "a hash that is cut short", "kid", _ENVELOPE["kid"][:-1], "RL-FRAME-006"),
        ("kid_padded", "a hash with padding", "kid", _ENVELOPE["kid"] + "=", "RL-FRAME-006"),
        ("sid_trailing_bits", "a hash with a stray bit", "sid", "A" * 42 + "B", "RL-FRAME-006"),
        ("ct_empty", "no ciphertext", "ct", "", "RL-FRAME-006"),
        ("ct_null", "null for a text", "ct", None, "RL-FRAME-005"),
        ("member_more", "a member that is not there", "aad", "", "RL-FRAME-002"),
    )
    for name, says, member, value, rule in changes:
        given = {"direction": _C, "text": _text(_REQUEST | {"envelope": _ENVELOPE | {member: value}})}
        yield refused(f"frame.{_C}.envelope_{name}", of, says, given, "shape", rule)
    for name, says, number in (
        ("fraction", "a time with a fraction", f"{NOW}.0"),
        ("exponent", "a time with an exponent", "1790e9"),
        ("leading_zero", "a time with a zero in front", f"0{NOW}"),
        ("plus", "a time with a sign", f"+{NOW}"),
    ):
        given = {"direction": _C, "text": text.replace(f'"iat":{NOW}', f'"iat":{number}')}
        layer = "shape" if name in ("fraction", "exponent") else "json"
        yield refused(f"frame.{_C}.envelope_iat_{name}", of, says, given, layer, "RL-FRAME-007")
    before, after = text.split(f'"ct":"{_ENVELOPE["ct"]}"')
    for times in (OUTCOME_CT_CHARS, OUTCOME_CT_CHARS + 1):
        pieces = [f'{before}"ct":"', {"repeat": "A", "times": times}, f'"{after}']
        long: Json = {"direction": _C, "text": pieces}
        if times > OUTCOME_CT_CHARS:
            yield refused(
                f"frame.{_C}.ct_over_limit",
                of,
                "a ciphertext that no frame can carry",
                long,
                "shape",
                "RL-FRAME-006",
            )
        else:
            yield accepted(
                f"frame.{_C}.ct_at_limit",
                _OP,
                "the longest ciphertext that any frame may carry; admission has a limit of its own",
                long,
                {"type": "call_request"},
            )


def _ties(good: dict[tuple[str, str], Vector]) -> Iterator[Vector]:
    """Members that do not go together."""
    durable = good[_I, "incoming_call_durable"]
    request = good[_C, "call_request_durable"]
    yield refused(
        f"frame.{_C}.durable_without_message_id",
        request,
        "a durable request without `message_id`",
        {"direction": _C, "text": _text(_REQUEST | {"delivery_mode": "durable"})},
        "shape",
        "RL-FRAME-022",
    )
    whole = _INCOMING | _DURABLE | _LEASED
    for member in ("message_id", "delivery_mode", "lease_id", "execute_by"):
        yield refused(
            f"frame.{_I}.durable_without_{member}",
            durable,
            f"a durable call without `{member}`",
            {"direction": _I, "text": _text(_without(whole, member))},
            "shape",
            "RL-FRAME-055",
        )
    yield refused(
        f"frame.{_I}.explicit_sync",
        good[_I, "incoming_call"],
        "a sync call that says so",
        {"direction": _I, "text": _text(_INCOMING | {"delivery_mode": "sync"})},
        "shape",
        "RL-FRAME-055",
    )
    queued = json.loads(good[_K, "call_queued"].input["text"])
    yield refused(
        f"frame.{_K}.queued_expired",
        good[_K, "call_queued"],
        "a call that expires when it is submitted",
        {"direction": _K, "text": _text(queued | {"expires_at": queued["submitted_at"]})},
        "shape",
        "RL-FRAME-030",
    )
