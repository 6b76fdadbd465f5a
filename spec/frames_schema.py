"""The frames as a JSON Schema (draft 2020-12), made from the structs of `ringline.protocol.frames`."""

import json
from typing import Any, Final

import msgspec

from ringline.protocol import frames, lifecycle
from ringline.protocol.schema import rewritten

__all__ = ["DIRECTION_TITLES", "TIES", "frame_name", "frames_schema"]

DIRECTION_TITLES: Final[dict[frames.Direction, str]] = {
    "caller_to_relay": "Caller to relay",
    "relay_to_caller": "Relay to caller",
    "relay_to_listener": "Relay to listener",
    "listener_to_relay": "Listener to relay",
}

# Rules that tie members together are code in the structs (`__post_init__`), which no tool can turn
# into a schema. They are said here once more, in words and for the validator where it has a word for
# it; tests/unit/spec compares the schema with the codec on every combination.
_DURABLE: Final = {"properties": {"delivery_mode": {"const": "durable"}}, "required": ["delivery_mode"]}
TIES: Final[dict[str, tuple[str, dict[str, Any] | None]]] = {
    "call_request": (
        "A durable request has `message_id`.",
        {"if": _DURABLE, "then": {"required": ["message_id"]}},
    ),
    "call_queued": ("`expires_at` is after `submitted_at` (not in the schema).", None),
    "incoming_call": (
        "A durable call has `message_id`, `lease_id` and `execute_by`; a sync call has neither "
        "`delivery_mode` nor the last two.",
        {
            "if": _DURABLE,
            "then": {"required": ["message_id", "lease_id", "execute_by"]},
            "else": {"properties": {"delivery_mode": False, "lease_id": False, "execute_by": False}},
        },
    ),
    "call_outcome": (
        "A listener's `terminal`/`terminal_reason` is one of "
        + ", ".join(f"`{a}`/`{b}`" for a, b in sorted(lifecycle.ENDS))
        + "; an absent reason equals the terminal (not in the schema).",
        None,
    ),
}


def _all_frames() -> list[type[msgspec.Struct]]:
    """Every frame once, in the order in which the directions name them."""
    return list(dict.fromkeys(frame for members in frames.DIRECTIONS.values() for frame in members))


def frame_name(frame: type[msgspec.Struct]) -> str:
    """Return the ``type`` that names a frame."""
    return str(frame.__struct_config__.tag)


def frames_schema(mark: str) -> str:
    """Return the text of the schema: one definition per frame, and one per direction.

    ``mark`` says where it came from, and begins its comment.
    """
    structs = _all_frames()
    names = {frame.__name__: frame_name(frame) for frame in structs} | {"Envelope": "envelope"}
    _, components = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    definitions: dict[str, Any] = {}
    for direction, members in frames.DIRECTIONS.items():
        definitions[direction] = {
            "title": DIRECTION_TITLES[direction],
            "oneOf": [{"$ref": f"#/$defs/{frame_name(frame)}"} for frame in members],
        }
    for name in ("Envelope", *(frame.__name__ for frame in structs)):
        definition = rewritten(components[name], names, "#/$defs/")
        rule = TIES.get(names[name], ("", None))[1]
        definitions[names[name]] = definition | (rule or {})
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Frames of ringline.v1",
        "$comment": mark
        + " Validate against #/$defs/<direction>. What a validator never sees is refused too: a"
        " member name twice in one object, text that is not UTF-8, lone surrogates, a byte order"
        " mark, a fraction or an exponent in an integer.",
        "anyOf": [{"$ref": f"#/$defs/{direction}"} for direction in frames.DIRECTIONS],
        "$defs": definitions,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
