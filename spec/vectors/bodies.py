"""The JSON under a seal. ``text`` is as in the vectors of frames: a text, or pieces to be joined."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ringline.protocol.encoding import b64encode
from ringline.protocol.limits import (
    BODY_JSON_DEPTH,
    DETAIL_BYTES,
    EXT_FEATURES,
    INT_MAX,
    MESSAGE_BYTES,
    OFFERS,
    REPLY_BYTES,
    TRACEPARENT_BYTES,
)
from vectors.vector import Json, Vector, accepted, refused, seed

__all__ = ["vectors"]

_REQUEST: Json = {"message": "hello"}
_REPLY: Json = {"reason": "completed", "reply": {"text": "hello"}}
_FAILURE: Json = {"reason": "failed", "failure": {"code": "busy"}}
_CONTEXT = "ctx_" + b64encode(seed("context")[:16])
_HASH = b64encode(seed("hash"))
_PIECES = "PIECES"


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _long(value: Json, unit: str, times: int) -> list[str | Json]:
    """The text of ``value`` with `_PIECES` replaced by ``unit``, repeated."""
    before, after = _text(value).split(_PIECES)
    return [before, {"repeat": unit, "times": times}, after]


def _nested(depth: int) -> Json:
    value: Any = {}
    for _ in range(depth - 3):
        value = [value]
    return {"message": "hello", "args": {"x": value}}


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    yield from _requests()
    yield from _outcomes()


def _good(kind: str, items: Sequence[tuple[str, str, Any, str]]) -> dict[str, Vector]:
    return {
        name: accepted(
            f"body.{kind}.{name}",
            f"body.read_{kind}",
            says,
            {"text": text if isinstance(text, str | list) else _text(text)},
            {},
            rule,
        )
        for name, says, text, rule in items
    }


def _bad(kind: str, of: Vector, items: Sequence[tuple[str, str, Any, str, str]]) -> Iterator[Vector]:
    for name, says, text, layer, rule in items:
        given: Json = {"text": text if isinstance(text, str | list) else _text(text)}
        yield refused(f"body.{kind}.{name}", of, says, given, layer, rule)


def _requests() -> Iterator[Vector]:
    full: Json = {
        "message": "hello",
        "task": "translate",
        "args": {"to": "de", "nothing": None, "deep": [[1.5, True]]},
        "context_id": _CONTEXT,
        "turn": 2,
        "prev": _HASH,
        "traceparent": "anything",
        "kt": {"size": 7, "root": _HASH},
        "ext": {"features": ["made-up"], "unknown": {"x": None}},
    }
    message = {"message": _PIECES}
    trace = {"message": "hello", "traceparent": _PIECES}
    features = [f"f{number}" for number in range(EXT_FEATURES)]
    ext = "RL-EXT-009"
    good = _good(
        "request",
        (
            ("message", "a message", _REQUEST, "RL-ENVELOPE-046"),
            ("full", "every member", full, "RL-ENVELOPE-046"),
            (
                "query",
                "a question for the tasks, with no message",
                {"message": "", "query": "tasks"},
                "RL-ENVELOPE-050",
            ),
            ("task_only", "a task with no message", {"message": "", "task": "translate"}, "RL-ENVELOPE-050"),
            ("at_limit", "the longest message", _long(message, "x", MESSAGE_BYTES), "RL-ENVELOPE-049"),
            (
                "at_limit_in_bytes",
                "the longest message, in bytes",
                _long(message, "é", MESSAGE_BYTES // 2),
                "RL-ENVELOPE-049",
            ),
            ("ext_unknown", "names in `ext` that nobody knows", _REQUEST | {"ext": {"mood": [1, None]}}, ext),
            (
                "ext_features",
                "as many features as there may be",
                _REQUEST | {"ext": {"features": features}},
                "RL-EXT-010",
            ),
            ("deepest", "as many levels as there may be", _nested(BODY_JSON_DEPTH), "RL-ENVELOPE-047"),
            (
                "largest_integer",
                "the largest integer",
                _REQUEST | {"args": {"x": INT_MAX}},
                "RL-ENVELOPE-047",
            ),
            (
                "smallest_integer",
                "the smallest integer",
                _REQUEST | {"args": {"x": -INT_MAX}},
                "RL-ENVELOPE-047",
            ),
            (
                "trace_at_limit",
                "the longest traceparent",
                _long(trace, "x", TRACEPARENT_BYTES),
                "RL-ENVELOPE-051",
            ),
        ),
    )
    yield from good.values()
    plain = good["message"]
    text = _text(_REQUEST)
    shape, size, js = "shape", "size", "json"
    yield from _bad(
        "request",
        plain,
        (
            ("no_message", "no message", {}, shape, "RL-ENVELOPE-046"),
            (
                "unknown_member",
                "a member that is not there",
                _REQUEST | {"mood": "good"},
                shape,
                "RL-ENVELOPE-046",
            ),
            (
                "kt_unknown_member",
                "one in `kt`",
                _REQUEST | {"kt": full["kt"] | {"x": 1}},
                shape,
                "RL-ENVELOPE-046",
            ),
            ("member_twice", "a member twice", '{"message":"a","message":"b"}', shape, "RL-ENVELOPE-047"),
            (
                "args_member_twice",
                "one in `args`",
                '{"message":"a","args":{"x":1,"x":1}}',
                shape,
                "RL-ENVELOPE-047",
            ),
            (
                "ext_member_twice",
                "one in `ext`",
                '{"message":"a","ext":{"y":{"x":1,"x":1}}}',
                shape,
                "RL-ENVELOPE-047",
            ),
            ("not_a_number", "no number", '{"message":"a","args":{"x":NaN}}', js, "RL-ENVELOPE-047"),
            (
                "infinite",
                "a number beyond a double",
                '{"message":"a","args":{"x":1e999}}',
                shape,
                "RL-ENVELOPE-047",
            ),
            ("integer_too_large", "2^53", _REQUEST | {"args": {"x": INT_MAX + 1}}, shape, "RL-ENVELOPE-047"),
            ("too_deep", "one level too many", _nested(BODY_JSON_DEPTH + 1), shape, "RL-ENVELOPE-047"),
            ("lone_surrogate", "half of a pair", '{"message":"\\ud800"}', shape, "RL-ENVELOPE-047"),
            ("null_task", "null in an optional member", _REQUEST | {"task": None}, shape, "RL-ENVELOPE-048"),
            ("null_message", "null for a message", {"message": None}, shape, "RL-ENVELOPE-048"),
            ("empty", "an empty message", {"message": ""}, shape, "RL-ENVELOPE-050"),
            ("args_list", "a list of arguments", _REQUEST | {"args": [1]}, shape, "RL-ENVELOPE-046"),
            (
                "task_upper_case",
                "a task id with capitals",
                _REQUEST | {"task": "Translate"},
                shape,
                "RL-NAME-001",
            ),
            (
                "context_short",
                "a context id that is cut short",
                _REQUEST | {"context_id": _CONTEXT[:-1]},
                shape,
                "RL-NAME-001",
            ),
            ("turn_zero", "turn 0", _REQUEST | {"turn": 0}, shape, "RL-ENVELOPE-046"),
            ("turn_true", "true for a number", _REQUEST | {"turn": True}, shape, "RL-ENVELOPE-046"),
            (
                "turn_exponent",
                "a turn with an exponent",
                '{"message":"hello","turn":1E3}',
                shape,
                "RL-ENVELOPE-046",
            ),
            (
                "size_fraction",
                "a size with a fraction",
                _text(_REQUEST | {"kt": {"size": 7, "root": _HASH}}).replace(":7,", ":7.0,"),
                shape,
                "RL-ENVELOPE-046",
            ),
            ("other_query", "another question", _REQUEST | {"query": "weather"}, shape, "RL-ENVELOPE-046"),
            (
                "over_limit",
                "a byte too many",
                _long(message, "x", MESSAGE_BYTES + 1),
                size,
                "RL-ENVELOPE-049",
            ),
            (
                "over_limit_in_bytes",
                "too many bytes in few characters",
                _long(message, "é", MESSAGE_BYTES // 2 + 1),
                size,
                "RL-ENVELOPE-049",
            ),
            (
                "trace_over_limit",
                "a byte too many",
                _long(trace, "x", TRACEPARENT_BYTES + 1),
                shape,
                "RL-ENVELOPE-051",
            ),
            (
                "features_too_many",
                "one feature too many",
                _REQUEST | {"ext": {"features": [*features, "more"]}},
                shape,
                "RL-EXT-010",
            ),
            (
                "features_text",
                "a text for a list",
                _REQUEST | {"ext": {"features": "made-up"}},
                shape,
                "RL-EXT-010",
            ),
            (
                "features_upper_case",
                "a feature with capitals",
                _REQUEST | {"ext": {"features": ["Made-up"]}},
                shape,
                "RL-EXT-010",
            ),
            ("list", "a list", f"[{text}]", shape, "RL-ENVELOPE-046"),
            ("more_behind", "something behind the object", f"{text} 1", js, "RL-ENVELOPE-046"),
            ("byte_order_mark", "a byte order mark", f"\ufeff{text}", js, "RL-ENVELOPE-046"),
        ),
    )


def _outcomes() -> Iterator[Vector]:
    offers = [{"id": f"t{number}"} for number in range(OFFERS)]
    reply = {"reason": "completed", "reply": {"text": _PIECES}}
    detail = {"reason": "failed", "failure": {"code": "busy", "detail": _PIECES}}
    good = _good(
        "outcome",
        (
            ("reply", "a reply", _REPLY, "RL-ENVELOPE-053"),
            (
                "reply_full",
                "every member of a reply",
                {
                    "reason": "completed",
                    "reply": {"text": "", "value": None, "task": "t", "context_id": _CONTEXT, "turn": 1},
                    "offered": [{"id": "t", "summary": "s", "args_schema": {"type": "object"}}],
                    "kt": {"size": 0, "root": _HASH},
                    "ext": {},
                },
                "RL-ENVELOPE-048",
            ),
            ("failure", "a failure", _FAILURE, "RL-ENVELOPE-053"),
            (
                "failure_full",
                "every member of a failure",
                {"reason": "failed", "failure": {"code": "task_unknown", "detail": "d", "offered": ["t"]}},
                "RL-ENVELOPE-053",
            ),
            (
                "indeterminate",
                "work that may have run",
                {"reason": "indeterminate_execution", "failure": {"code": "agent_error"}},
                "RL-ENVELOPE-055",
            ),
            ("at_limit", "the longest reply", _long(reply, "x", REPLY_BYTES), "RL-ENVELOPE-049"),
            ("detail_at_limit", "the longest detail", _long(detail, "x", DETAIL_BYTES), "RL-ENVELOPE-052"),
            (
                "offered_at_limit",
                "as many tasks as there may be",
                _REPLY | {"offered": offers},
                "RL-ENVELOPE-052",
            ),
        ),
    )
    yield from good.values()
    shape, size = "shape", "size"
    yield from _bad(
        "outcome",
        good["reply"],
        (
            ("no_reason", "no reason", {"reply": {"text": "hello"}}, shape, "RL-ENVELOPE-053"),
            (
                "other_reason",
                "a reason that no listener may state",
                _REPLY | {"reason": "canceled"},
                shape,
                "RL-ENVELOPE-053",
            ),
            (
                "reply_that_failed",
                "a reply that failed",
                _REPLY | {"reason": "failed"},
                shape,
                "RL-ENVELOPE-053",
            ),
            (
                "both",
                "a reply and a failure",
                _REPLY | {"failure": {"code": "busy"}},
                shape,
                "RL-ENVELOPE-053",
            ),
            ("neither", "neither", {"reason": "completed"}, shape, "RL-ENVELOPE-053"),
            (
                "turn_fraction",
                "a turn with a fraction",
                '{"reason":"completed","reply":{"text":"hello","turn":1.0}}',
                shape,
                "RL-ENVELOPE-046",
            ),
            (
                "no_text",
                "a reply without text",
                {"reason": "completed", "reply": {}},
                shape,
                "RL-ENVELOPE-046",
            ),
            (
                "null_text",
                "null for a text",
                {"reason": "completed", "reply": {"text": None}},
                shape,
                "RL-ENVELOPE-048",
            ),
            (
                "unknown_member",
                "a member that is not there",
                _REPLY | {"mood": "good"},
                shape,
                "RL-ENVELOPE-046",
            ),
            ("over_limit", "a byte too many", _long(reply, "x", REPLY_BYTES + 1), size, "RL-ENVELOPE-049"),
            (
                "offered_over_limit",
                "a task too many",
                _REPLY | {"offered": [*offers, {"id": "more"}]},
                shape,
                "RL-ENVELOPE-052",
            ),
        ),
    )
    yield from _bad(
        "outcome",
        good["failure"],
        (
            (
                "failure_that_completed",
                "a failure that completed",
                _FAILURE | {"reason": "completed"},
                shape,
                "RL-ENVELOPE-053",
            ),
            (
                "unknown_code",
                "a code that is the relay's",
                {"reason": "failed", "failure": {"code": "offline"}},
                shape,
                "RL-ERROR-004",
            ),
            (
                "detail_over_limit",
                "a byte too many",
                _long(detail, "x", DETAIL_BYTES + 1),
                shape,
                "RL-ENVELOPE-052",
            ),
        ),
    )
