"""The JSON inside a seal, read strictly and written so that it can be read.

Unknown members are refused (RL-ENVELOPE-046), except names inside ``ext``, which are passed over
(RL-EXT-009). An absent member is `msgspec.UNSET`. A sender's own mistake is refused by the very check that
the peer would apply: sizes and the rules that tie members together when a body is made (`MessageTooLarge`,
`BodyError`), the rest when it is encoded.
"""

import json
import re
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ringline.protocol import names
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import BodyError, MessageTooLarge, RinglineError
from ringline.protocol.frames import Terminal
from ringline.protocol.jsontext import check_json
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
from ringline.protocol.transcript import digest

__all__ = [
    "Checkpoint",
    "Failure",
    "FailureCode",
    "Offer",
    "Outcome",
    "OutcomeReason",
    "Reply",
    "Request",
    "cut_detail",
    "decode_outcome",
    "decode_request",
    "encode_outcome",
    "encode_request",
    "features",
    "link",
]

TaskId: TypeAlias = Annotated[str, Meta(pattern=names.TASK_ID)]
ContextId: TypeAlias = Annotated[str, Meta(pattern=names.CONTEXT_ID)]
HashText: TypeAlias = Annotated[str, Meta(pattern=names.CARD_ID)]
Turn: TypeAlias = Annotated[int, Meta(ge=1, le=INT_MAX)]
JsonObject: TypeAlias = dict[str, Any]

FailureCode: TypeAlias = Literal[
    "busy",
    "timeout",
    "agent_error",
    "blocked",
    "task_unknown",
    "context_unknown",
    "message_too_large",
    "duplicate_conflict",
]
"""What a peer may say went wrong (RL-ERROR-004)."""

OutcomeReason: TypeAlias = Literal["completed", "failed", "indeterminate_execution"]
"""How a listener may say that a call ended (RL-ENVELOPE-053)."""


class _Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A closed object."""


class Checkpoint(_Body, frozen=True, kw_only=True):
    """The sender's latest view of the key log: ``size`` in entries, ``root`` base64url of 32 bytes."""

    size: Annotated[int, Meta(ge=0, le=INT_MAX)]
    root: HashText


class Request(_Body, frozen=True, kw_only=True):
    """What a caller asks.

    ``message``: 1 to `MESSAGE_BYTES` bytes of UTF-8; it may be empty with ``query``, or when ``task`` or
    ``args`` say what is asked. ``args``: a JSON object for the task. ``prev``: `link` of the previous outcome
    in the same context. ``traceparent``: the application's own trace, which the relay never sees; any text
    up to `TRACEPARENT_BYTES`.
    """

    message: str
    task: TaskId | UnsetType = UNSET
    args: JsonObject | UnsetType = UNSET
    query: Literal["tasks"] | UnsetType = UNSET
    context_id: ContextId | UnsetType = UNSET
    turn: Turn | UnsetType = UNSET
    prev: HashText | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET
    kt: Checkpoint | UnsetType = UNSET
    ext: JsonObject | UnsetType = UNSET

    def __post_init__(self) -> None:
        # RL-ENVELOPE-049: a message has at most 64,000 bytes of UTF-8, when it is sent and when it is read.
        _check_size("message", self.message, MESSAGE_BYTES)
        # RL-ENVELOPE-050: an empty message that has neither query nor task nor args is refused.
        if not self.message and self.query is UNSET and self.task is UNSET and self.args is UNSET:
            raise BodyError("the message is empty")
        # RL-ENVELOPE-051: more than 512 bytes are refused, and otherwise any text is taken.
        if self.traceparent is not UNSET and _utf8_size(self.traceparent) > TRACEPARENT_BYTES:
            raise BodyError(f"the traceparent has more than {TRACEPARENT_BYTES} bytes")
        _check_features(self.ext)


class Reply(_Body, frozen=True, kw_only=True):
    """What a listener answers.

    ``text``: up to `REPLY_BYTES` bytes of UTF-8, may be empty. ``value``: any JSON, null included.
    """

    text: str
    value: Any = UNSET
    task: TaskId | UnsetType = UNSET
    context_id: ContextId | UnsetType = UNSET
    turn: Turn | UnsetType = UNSET

    def __post_init__(self) -> None:
        # RL-ENVELOPE-049: a reply's text has at most 256,000 bytes of UTF-8, sent or read.
        _check_size("reply", self.text, REPLY_BYTES)


class Failure(_Body, frozen=True, kw_only=True):
    """Why there is no reply.

    ``detail``: up to `DETAIL_BYTES` bytes of UTF-8. ``offered``: up to `OFFERS` task ids.
    """

    code: FailureCode
    detail: str | UnsetType = UNSET
    offered: Annotated[tuple[TaskId, ...], Meta(max_length=OFFERS)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        # RL-ENVELOPE-052: a detail has at most 500 bytes of UTF-8, and `offered` 50 entries.
        if self.detail is not UNSET and _utf8_size(self.detail) > DETAIL_BYTES:
            raise BodyError(f"the detail has more than {DETAIL_BYTES} bytes")


class Offer(_Body, frozen=True, kw_only=True):
    """One task on offer: its id, a line for people, a JSON Schema of its arguments."""

    id: TaskId
    summary: str | UnsetType = UNSET
    args_schema: JsonObject | UnsetType = UNSET


class Outcome(_Body, frozen=True, kw_only=True):
    """How a call ended: a reply or a failure, never both, and the reason, which nobody else may state.

    ``offered`` answers a request with ``query``: up to `OFFERS` tasks.
    """

    reason: OutcomeReason
    reply: Reply | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET
    offered: Annotated[tuple[Offer, ...], Meta(max_length=OFFERS)] | UnsetType = UNSET
    kt: Checkpoint | UnsetType = UNSET
    ext: JsonObject | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.reply is UNSET) == (self.failure is UNSET):
            raise BodyError("an outcome is either a reply or a failure")
        # RL-ENVELOPE-053: completed with a reply, failed or indeterminate_execution with a failure.
        if (self.reason == "completed") != (self.failure is UNSET):
            raise BodyError("the reason does not fit the outcome")
        _check_features(self.ext)

    @property
    def terminal(self) -> Terminal:
        """The ``terminal`` of the frame that carries it, which its seal binds."""
        return "completed" if self.failure is UNSET else "failed"


_T = TypeVar("_T", Request, Outcome)

_requests: Final = msgspec.json.Decoder(Request)
_outcomes: Final = msgspec.json.Decoder(Outcome)
_FEATURE: Final = re.compile(names.FEATURE)
# The path is ours and harmless; the rest of msgspec's message may quote the peer's text.
_PATH: Final = re.compile(r" - at `(\$[.a-z_\[\]]*)`\Z")


def encode_request(request: Request) -> bytes:
    """Return the JSON of a request, UTF-8.

    Raises `BodyError` for what the peer would refuse. (A message over its limit is refused even before, by
    `Request` itself.)
    """
    return _encode(request, _requests)


def encode_outcome(outcome: Outcome) -> bytes:
    """Return the JSON of an outcome, UTF-8; the bytes are kept, since `link` and the journal are about them.

    Raises `BodyError` for what the peer would refuse.
    """
    return _encode(outcome, _outcomes)


def decode_request(data: bytes) -> Request:
    """Read the JSON of an opened request.

    Raises `MessageTooLarge` for a message over its limit, which a listener answers under a seal, and
    `BodyError` for whatever else is wrong.
    """
    return _decode(data, _requests)


def decode_outcome(data: bytes, terminal: Terminal | None = None) -> Outcome:
    """Read the JSON of an opened outcome.

    ``terminal`` is that of the frame; when it is given, the JSON must say the same.

    Raises `MessageTooLarge` for a reply over its limit, `BodyError` for whatever else is wrong.
    """
    outcome = _decode(data, _outcomes)
    # RL-ENVELOPE-041: sealed JSON that does not fit the `terminal` of its frame is refused.
    if terminal is not None and outcome.terminal != terminal:
        raise BodyError("the outcome says another end than its frame")
    return outcome


def features(ext: JsonObject | UnsetType) -> tuple[str, ...]:
    """Return the feature ids that the sender of a body understands (RL-EXT-011)."""
    return () if ext is UNSET else tuple(ext.get("features", ()))


def link(json_bytes: bytes) -> str:
    """Return the ``prev`` of the request that follows an outcome, from its JSON bytes (RL-CONVERSE-002)."""
    return b64encode(digest(json_bytes))


def cut_detail(text: str) -> str:
    """Return the longest beginning of ``text`` that fits as a failure's detail, cut between code points."""
    return text.encode("utf-8", "replace")[:DETAIL_BYTES].decode("utf-8", "ignore")


def _encode(body: _T, decoder: msgspec.json.Decoder[_T]) -> bytes:
    try:
        # Not msgspec's encoder, which writes NaN as null and a set in any order.
        text = json.dumps(body, default=_members, ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise BodyError(f"this cannot be written as JSON: {type(error).__name__}") from None
    _decode(data, decoder)
    return data


def _members(body: object) -> dict[str, object]:
    if not isinstance(body, _Body):
        raise TypeError(f"{type(body).__name__} is no JSON")
    present = ((name, getattr(body, name)) for name in body.__struct_fields__)
    return {name: value for name, value in present if value is not UNSET}


def _decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        # RL-ENVELOPE-047: a repeated name at any depth, a number that is not finite or beyond 2^53 - 1, more
        # than 64 levels are refused; msgspec refuses lone surrogates, and null (RL-ENVELOPE-048).
        check_json(data, depth=BODY_JSON_DEPTH)
        return decoder.decode(data)
    except MessageTooLarge:
        raise
    except RinglineError as error:
        raise BodyError(str(error)) from None
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        place = _PATH.search(str(error))
        where = f" (at {place[1]})" if place else ""
        raise BodyError(f"the sealed JSON breaks its rules{where}") from None


def _utf8_size(text: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise BodyError("the text has a lone surrogate") from None


def _check_size(what: str, text: str, limit: int) -> None:
    size = _utf8_size(text)
    if size > limit:
        raise MessageTooLarge(f"the {what} has {size:,} bytes of UTF-8; the limit is {limit:,}")


def _check_features(ext: JsonObject | UnsetType) -> None:
    if ext is UNSET or "features" not in ext:
        return
    # RL-EXT-010: features that are not a list of at most 16 feature ids are refused.
    listed: object = ext["features"]
    if not isinstance(listed, list):
        raise BodyError("ext.features is no list")
    items = cast(list[object], listed)
    if len(items) > EXT_FEATURES:
        raise BodyError(f"ext.features lists more than {EXT_FEATURES}")
    for item in items:
        if not isinstance(item, str) or not _FEATURE.match(item):
            raise BodyError("ext.features names no feature")
