"""The JSON under a seal: closed, bounded, and refused at the sender as at the receiver."""

import contextlib
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from ringline.protocol import bodies
from ringline.protocol.bodies import (
    Checkpoint,
    Failure,
    Offer,
    Outcome,
    Reply,
    Request,
    cut_detail,
    decode_outcome,
    decode_request,
    encode_outcome,
    encode_request,
    features,
    link,
)
from ringline.protocol.codes import Family, lookup
from ringline.protocol.context import RequestContext
from ringline.protocol.encoding import b64encode
from ringline.protocol.envelope import open_request, seal_outcome, seal_request
from ringline.protocol.errors import BodyError, MessageTooLarge, RinglineError
from ringline.protocol.limits import LISTENER_FRAME_BYTES, OUTCOME_CAP_BYTES, REQUEST_CAP_BYTES
from ringline.protocol.transcript import digest
from ringline_testing.agents import NOW_MS, REALM, agent, seed

HASH = b64encode(bytes(32))
CONTEXT = "ctx_" + "A" * 22
FULL_REQUEST = Request(
    message="Grüße ☎",
    task="review",
    args={"files": ["a.py"], "deep": {"x": [1, 2.5, None, True]}},
    context_id=CONTEXT,
    turn=2,
    prev=HASH,
    traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
    kt=Checkpoint(size=7, root=HASH),
    ext={"features": ["streaming"], "unknown": {"names": "are passed over"}},
)
FULL_REPLY = Outcome(
    reason="completed",
    reply=Reply(text="done", value={"findings": []}, task="review", context_id=CONTEXT, turn=2),
    offered=(Offer(id="review", summary="Reads code", args_schema={"type": "object"}), Offer(id="x")),
    kt=Checkpoint(size=0, root=HASH),
    ext={},
)
FULL_FAILURE = Outcome(
    reason="failed", failure=Failure(code="task_unknown", detail="no such task", offered=("review", "x"))
)


def request(**members: Any) -> bytes:
    return json.dumps({"message": "hello", **members}).encode()


def outcome(**members: Any) -> bytes:
    return json.dumps({"reason": "completed", "reply": {"text": "hi"}, **members}).encode()


def failure(**members: Any) -> bytes:
    return json.dumps({"reason": "failed", "failure": {"code": "busy", **members}}).encode()


# --- what passes


@pytest.mark.parametrize("body", [Request(message="x"), FULL_REQUEST, Request(message="", query="tasks")])
def test_a_request_comes_back(body: Request) -> None:
    assert decode_request(encode_request(body)) == body


@pytest.mark.parametrize(
    "body", [FULL_REPLY, FULL_FAILURE, Outcome(reason="completed", reply=Reply(text="", value=None))]
)
def test_an_outcome_comes_back(body: Outcome) -> None:
    assert decode_outcome(encode_outcome(body)) == body


def test_absent_members_are_not_written_and_text_is_written_as_utf_8() -> None:
    assert encode_request(Request(message="ü")) == '{"message":"ü"}'.encode()
    assert encode_outcome(FULL_FAILURE) == (
        b'{"reason":"failed","failure":'
        b'{"code":"task_unknown","detail":"no such task","offered":["review","x"]}}'
    )


@pytest.mark.parametrize(
    ("none_offered", "nothing_said"),
    [
        (
            Outcome(reason="completed", reply=Reply(text="x"), offered=()),
            Outcome(reason="completed", reply=Reply(text="x")),
        ),
        (
            Outcome(reason="failed", failure=Failure(code="task_unknown", offered=())),
            Outcome(reason="failed", failure=Failure(code="task_unknown")),
        ),
    ],
)
def test_no_tasks_offered_and_nothing_said_of_tasks_are_signed_as_two_things(
    none_offered: Outcome, nothing_said: Outcome
) -> None:
    assert encode_outcome(none_offered) != encode_outcome(nothing_said)
    for body in (none_offered, nothing_said):
        assert decode_outcome(encode_outcome(body)) == body


plain_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(
    message=st.text(min_size=1, max_size=200),
    args=st.dictionaries(st.text(max_size=5), plain_values, max_size=4),
)
def test_any_text_and_any_json_come_back(message: str, args: dict[str, Any]) -> None:
    body = Request(message=message, args=args)
    assert decode_request(encode_request(body)) == body


@given(data=st.one_of(st.binary(max_size=80), plain_values.map(json.dumps).map(str.encode)))
def test_garbage_raises_nothing_but_our_own_errors(data: bytes) -> None:
    for read in (decode_request, decode_outcome):
        with pytest.raises(RinglineError):
            read(data)


members = st.dictionaries(
    st.sampled_from([*Request.__struct_fields__, *Outcome.__struct_fields__, "x"]), plain_values, max_size=5
)


@given(found=members)
def test_objects_that_nearly_fit_raise_nothing_but_our_own_errors(found: dict[str, Any]) -> None:
    for read, base in ((decode_request, request), (decode_outcome, outcome)):
        with contextlib.suppress(BodyError):
            read(base(**found))


# --- closed objects


@pytest.mark.parametrize(
    "data",
    [
        request(x=1),
        request(kt={"size": 1, "root": HASH, "x": 1}),
        outcome(x=1),
        outcome(message="x"),
        outcome(reply={"text": "hi", "x": 1}),
        failure(x=1),
        outcome(offered=[{"id": "a", "x": 1}]),
    ],
)
def test_an_unknown_member_is_refused_at_every_level(data: bytes) -> None:
    for read in (decode_request, decode_outcome):
        with pytest.raises(BodyError):
            read(data)


def test_unknown_names_inside_ext_are_passed_over() -> None:
    assert features(decode_request(request(ext={"later": [1, {"x": None}]})).ext) == ()
    assert features(decode_outcome(outcome(ext={"features": ["a", "b-2"]})).ext) == ("a", "b-2")
    assert features(UNSET) == ()


@pytest.mark.parametrize("name", list(Request.__struct_fields__))
def test_null_is_a_wrong_type_in_a_request(name: str) -> None:
    with pytest.raises(BodyError):
        decode_request(request(**{name: None}))


@pytest.mark.parametrize("name", list(Outcome.__struct_fields__))
def test_null_is_a_wrong_type_in_an_outcome(name: str) -> None:
    with pytest.raises(BodyError):
        decode_outcome(outcome(**{name: None}))


@pytest.mark.parametrize(
    "text",
    [
        '{"message":"a","message":"b"}',
        '{"message":"a","args":{"x":{"y":1,"y":2}}}',
        '{"message":"a","ext":{"unknown":[{"y":1,"y":2}]}}',
        '{"message":"a","args":{"x":NaN}}',
        '{"message":"a","args":{"x":9007199254740992}}',
        '{"message":"a","args":{"x":1e999}}',
        '{"message":"\\ud800"}',
        '{"message":"\\udc00\\ud800"}',
        '{"message":"a","args":{"\\ud800":1}}',
        '{"message":"a","ext":{"unknown":"\\udfff"}}',
        '\ufeff{"message":"a"}',
        '{"message":"a"} x',
        '["message"]',
    ],
)
def test_text_with_more_than_one_reading_is_refused(text: str) -> None:
    with pytest.raises(BodyError):
        decode_request(text.encode())


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> bytes:
        return b'{"message":"a","args":{"x":' + b"[" * depth + b"]" * depth + b"}}"

    decode_request(nested(62))
    for depth in (63, 5_000, 100_000):
        with pytest.raises(BodyError, match="nested"):
            decode_request(nested(depth))


# --- patterns and ranges


@pytest.mark.parametrize(
    "change",
    [
        {"message": ""},
        {"message": 1},
        {"task": "Review"},
        {"task": ""},
        {"task": "a" * 65},
        {"task": "a\n"},
        {"args": []},
        {"args": "x"},
        {"query": "others"},
        {"query": True},
        {"context_id": "ctx_" + "A" * 21},
        {"context_id": "A" * 26},
        {"turn": 0},
        {"turn": True},
        {"turn": 1.0},
        {"turn": 2**53},
        {"prev": "A" * 42},
        {"prev": "A" * 42 + "B"},
        {"traceparent": 1},
        {"traceparent": "x" * 513},
        {"kt": {}},
        {"kt": {"size": 1}},
        {"kt": {"size": -1, "root": HASH}},
        {"kt": {"size": 1, "root": HASH + "="}},
        {"ext": []},
        {"ext": {"features": None}},
        {"ext": {"features": "a"}},
        {"ext": {"features": {"a": 1}}},
        {"ext": {"features": [1]}},
        {"ext": {"features": ["A"]}},
        {"ext": {"features": ["a\n"]}},
        {"ext": {"features": ["a"] * 17}},
    ],
    ids=lambda change: str(change)[:60],
)
def test_a_request_out_of_its_patterns_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BodyError):
        decode_request(request(**change))


def test_sixteen_features_and_a_traceparent_of_512_bytes_pass() -> None:
    decode_request(request(ext={"features": ["a"] * 16}, traceparent="x" * 512))


@pytest.mark.parametrize(
    "data",
    [
        b'{"reply":{"text":"hi"}}',
        outcome(reason="canceled"),
        outcome(reason="failed"),
        outcome(reason="indeterminate_execution"),
        outcome(failure={"code": "busy"}),
        b'{"reason":"completed"}',
        b'{"reason":"failed"}',
        outcome(reply={}),
        outcome(reply={"text": None}),
        outcome(reply={"text": "x", "turn": 0}),
        outcome(reply={"text": "x", "task": "-"}),
        outcome(reply={"text": "x", "context_id": "x"}),
        outcome(offered={"id": "a"}),
        outcome(offered=[{"summary": "a"}]),
        outcome(offered=[{"id": "A"}]),
        outcome(offered=[{"id": "a", "args_schema": True}]),
        outcome(offered=[{"id": "a", "summary": 1}]),
        outcome(offered=[{"id": "a"}] * 51),
        failure(code="unknown_handle"),
        failure(code=None),
        failure(detail="é" * 251),
        failure(offered=["A"]),
        failure(offered=["a"] * 51),
        b'{"reason":"completed","failure":{"code":"busy"}}',
    ],
)
def test_an_outcome_out_of_its_patterns_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        decode_outcome(data)


def test_fifty_offers_and_a_detail_of_500_bytes_pass() -> None:
    decode_outcome(outcome(offered=[{"id": "a"}] * 50))
    decode_outcome(failure(detail="é" * 250, offered=["a"] * 50))
    indeterminate = b'{"reason":"indeterminate_execution","failure":{"code":"agent_error"}}'
    assert decode_outcome(indeterminate).terminal == "failed"


def test_every_failure_code_is_in_the_registry_of_errors() -> None:
    for code in get_args(bodies.FailureCode):
        assert lookup(Family.PEER, code).code == code
        assert decode_outcome(failure(code=code)).failure.code == code  # type: ignore[union-attr]


def test_the_end_that_the_frame_states_must_be_that_of_the_json() -> None:
    assert decode_outcome(outcome(), "completed").terminal == "completed"
    assert decode_outcome(failure(), "failed").terminal == "failed"
    for data, terminal in ((outcome(), "failed"), (failure(), "completed")):
        with pytest.raises(BodyError, match="another end"):
            decode_outcome(data, terminal)  # type: ignore[arg-type]


# --- sizes: one byte more is one too many


@pytest.mark.parametrize("char", ["a", "é", "☎", "\U0001f4de", "\x01", '"'])
def test_a_message_of_64000_bytes_goes_and_one_byte_more_does_not(char: str) -> None:
    text = char * (64_000 // len(char.encode()))
    text += "a" * (64_000 - len(text.encode()))
    assert decode_request(encode_request(Request(message=text))).message == text
    with pytest.raises(MessageTooLarge, match=r"64,001 bytes of UTF-8; the limit is 64,000"):
        Request(message=text + "a")
    with pytest.raises(MessageTooLarge):
        decode_request(request(message=text + "a"))


@pytest.mark.parametrize("char", ["a", "é", "\x01"])
def test_a_reply_of_256000_bytes_goes_and_one_byte_more_does_not(char: str) -> None:
    text = char * (256_000 // len(char.encode()))
    assert decode_outcome(encode_outcome(Outcome(reason="completed", reply=Reply(text=text)))).terminal
    with pytest.raises(MessageTooLarge):
        Reply(text=text + "a")
    with pytest.raises(MessageTooLarge):
        decode_outcome(outcome(reply={"text": text + "a"}))


def test_the_worst_message_and_reply_fit_under_the_seal_and_into_a_frame() -> None:
    alice, bob = agent("alice"), agent("bob")
    from ringline.protocol.suites import HYBRID

    reply_key = HYBRID.private_from_seed(seed("reply"))
    context = RequestContext(
        realm=REALM,
        sender=alice.party,
        recipient=bob.recipient,
        mode="sync",
        message_id="1" * 32,
        correlation_id="2" * 32,
        iat=NOW_MS,
        exp=NOW_MS + 1,
    )
    worst = encode_request(
        Request(
            message="\x01" * 64_000,
            task="a" * 64,
            context_id=CONTEXT,
            turn=10,
            prev=HASH,
            ext={"features": []},
        )
    )
    assert len(worst) < REQUEST_CAP_BYTES
    sealed = seal_request(context, worst, reply_key.public, alice.operational)
    opened = open_request(sealed.envelope, bob.sealing, context, alice.operational.public)
    answer = context.answer(
        card_id=bob.card.card.id,
        reply_public=opened.reply_public,
        call_id="c" * 64,
        terminal="completed",
        digest=opened.digest,
        iat=NOW_MS,
    )
    reply = encode_outcome(
        Outcome(reason="completed", reply=Reply(text="\x1f" * 256_000, context_id=CONTEXT))
    )
    assert len(reply) < OUTCOME_CAP_BYTES
    written = msgspec.json.encode(seal_outcome(answer, reply, bob.operational))
    assert len(written) < LISTENER_FRAME_BYTES


# --- a sender's own mistakes


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        2**53,
        {1, 2},
        b"bytes",
        object(),
        "\ud800",
        {"\udc00": 1},
        {1: "a", "1": "b"},
        {(1, 2): 3},
        UNSET,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_refused_before_it_is_sealed(value: Any) -> None:
    with pytest.raises(BodyError):
        encode_request(Request(message="x", args={"value": value}))
    with pytest.raises(BodyError):
        encode_outcome(
            Outcome(reason="completed", reply=Reply(text="x", value=value if value is not UNSET else {1}))
        )


def test_a_loop_and_a_well_are_refused_before_they_are_sealed() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    well: list[Any] = []
    for _ in range(5_000):
        well = [well]
    for args in (loop, {"x": well}):
        with pytest.raises(BodyError):
            encode_request(Request(message="x", args=args))


def test_what_the_peer_would_refuse_is_refused_at_home() -> None:
    for body in (Request(message="x", task="Not An Id"), Request(message="x", turn=0)):
        with pytest.raises(BodyError):
            encode_request(body)
    with pytest.raises(BodyError):
        encode_outcome(Outcome(reason="failed", failure=Failure(code="nonsense")))  # type: ignore[arg-type]
    with pytest.raises(BodyError, match="empty"):
        Request(message="")
    with pytest.raises(BodyError, match="surrogate"):
        Request(message="\ud800")
    # A task, its arguments or a query say what is asked without one.
    for body in (Request(message="", task="status"), Request(message="", args={"a": 1})):
        assert decode_request(encode_request(body)) == body
    with pytest.raises(BodyError, match="either"):
        Outcome(reason="completed")
    with pytest.raises(BodyError, match="reason"):
        Outcome(reason="failed", reply=Reply(text=""))


def test_an_error_quotes_nothing_of_the_text() -> None:
    for data in (
        request(secret="secret"),
        request(task="SECRET"),
        request(ext={"features": ["SECRET"]}),
        b'{"message":"a","args":{"secret":1,"secret":2}}',
        b'{"message":"secret',
    ):
        with pytest.raises(BodyError) as caught:
            decode_request(data)
        assert "secret" not in str(caught.value).lower()
        assert caught.value.__cause__ is None


# --- small things that others build on


def test_prev_is_the_hash_of_the_very_bytes() -> None:
    data = encode_outcome(FULL_REPLY)
    assert link(data) == b64encode(digest(data))
    decode_request(request(context_id=CONTEXT, prev=link(data)))


@given(text=st.text(max_size=400))
def test_a_detail_is_cut_between_code_points(text: str) -> None:
    cut = cut_detail(text)
    assert len(cut.encode()) <= 500
    assert text.startswith(cut)
    if cut != text:
        assert len(cut.encode()) > 500 - 4


def test_a_detail_with_a_lone_surrogate_can_be_cut() -> None:
    assert cut_detail("a\ud800b") == "a?b"
