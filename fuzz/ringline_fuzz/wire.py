"""What arrives as text: frames, sealed JSON, names, encodings, invites, trace headers, log-in tokens."""

import functools
import json
import re
from collections.abc import Callable
from typing import Any, Final, Never, Union, cast

import msgspec

from ringline.client.address import RelayAddress
from ringline.protocol import bodies, codec, names, token, trace
from ringline.protocol.contact import Contact
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import (
    BodyError,
    ConfigError,
    ContactError,
    EncodingError,
    FrameError,
    InviteError,
    MessageTooLarge,
    TokenError,
    WeakKey,
)
from ringline.protocol.frames import DIRECTIONS, Direction
from ringline.protocol.invite import Invite
from ringline.protocol.limits import INT_MAX
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import ALICE, BOB, NOW, REALM, seed_of, vector_inputs
from ringline_fuzz.mutation import mutate_lines
from ringline_fuzz.target import Broken, Target, outcome_of

__all__ = ["CANARY", "TARGETS"]

CANARY: Final = "canary-of-the-plaintext"
"""Stands in every seed that would be plaintext. No error may repeat it."""


def _text_of(given: dict[str, Any]) -> bytes:
    """The bytes of a vector's text, which may be given in pieces."""
    if "hex" in given:
        return bytes.fromhex(given["hex"])
    pieces = [given["text"]] if isinstance(given["text"], str) else given["text"]
    return "".join(
        piece if isinstance(piece, str) else piece["repeat"] * piece["times"] for piece in pieces
    ).encode("utf-8", "surrogatepass")


def _texts(op: str, limit: int = 8_192) -> list[bytes]:
    """The texts of the vectors of one operation, without the few that are there for their size."""
    return [text for given in vector_inputs(op) if len(text := _text_of(given)) <= limit]


# --- frames


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _whole(digits: str) -> int:
    if len(digits) > 17 or not 0 <= int(digits) <= INT_MAX:
        raise ValueError("an integer out of range")
    return int(digits)


def _refuse(text: str) -> Never:
    raise ValueError(text)


def _by_the_book(payload: bytes, direction: Direction) -> object | None:
    """The frame as a reader finds it that takes no short cut; None for what he refuses."""
    try:
        text = payload.decode("utf-8")
        tree = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_refuse,
            parse_int=_whole,
        )
        json.dumps(tree, ensure_ascii=False).encode("utf-8")  # a lone surrogate has no UTF-8
        # A union made from a tuple at run time has no `X | Y` spelling.
        union: Any = Union[cast("Any", DIRECTIONS[direction])]  # noqa: UP007
        return cast("object", msgspec.convert(tree, union))
    except (ValueError, RecursionError):
        return None


def _frame(payload: bytes) -> str:
    accepted: list[str] = []
    refusal = ""
    for direction in DIRECTIONS:
        expected = _by_the_book(payload, direction)
        try:
            frame = codec.decode(payload, direction)
        except FrameError as error:
            if expected is not None:
                raise Broken(f"a frame of {direction} is refused: {error}") from error
            if CANARY in str(error):
                raise Broken("the refusal repeats what it refuses") from error
            refusal = outcome_of(error)
            continue
        if frame != expected:
            raise Broken(f"read as {frame!r}, and slowly as {expected!r}")
        again = codec.encode(frame)
        if codec.decode(again, direction) != frame:
            raise Broken("written again it is another frame")
        accepted.append(f"{direction} {type(frame).__name__}")
    return " ".join(accepted) or refusal


# --- sealed JSON


_BODIES: Final[tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...]] = (
    (cast("Any", bodies.decode_request), cast("Any", bodies.encode_request)),
    (cast("Any", bodies.decode_outcome), cast("Any", bodies.encode_outcome)),
)


def _body(data: bytes) -> str:
    outcomes: list[str] = []
    for read, write in _BODIES:
        try:
            body = read(data)
        except (BodyError, MessageTooLarge) as error:
            if CANARY in str(error):
                raise Broken("the refusal repeats what it refuses") from error
            outcomes.append(outcome_of(error))
            continue
        if read(write(body)) != body:
            raise Broken("written again it says something else")
        outcomes.append(type(body).__name__)
    return " ".join(outcomes)


def _body_seeds() -> list[bytes]:
    found = _texts("body.read_request") + _texts("body.read_outcome")
    made = {"message": CANARY, "args": {CANARY: [CANARY, 1.5]}, "ext": {"features": ["a"]}, "turn": 3}
    reply = {"reason": "completed", "reply": {"text": CANARY, "value": {"a": [None, CANARY]}}}
    return [*found, json.dumps(made).encode(), json.dumps(reply).encode()]


# --- names, places and encodings


_PATTERNS: Final = (
    (names.is_handle, re.compile(r"[a-z0-9][a-z0-9-]{1,30}")),
    (names.is_realm, re.compile(r"[a-z0-9.-]{1,253}")),
    (names.is_call_id, re.compile(r"[A-Za-z0-9_-]{1,64}")),
    (names.is_message_id, re.compile(r"(?!0{32})[0-9a-f]{32}")),
    (names.is_task_id, re.compile(r"[a-z0-9][a-z0-9-]{0,63}")),
    (names.is_context_id, re.compile(r"ctx_[A-Za-z0-9_-]{22}")),
    (names.is_invite, re.compile(r"[A-Za-z0-9._~-]{16,128}")),
    (names.is_invite_id, re.compile(r"[A-Za-z0-9_-]{1,64}")),
)


def _name(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    said: list[str] = []
    for check, pattern in _PATTERNS:
        if check(text) != (pattern.fullmatch(text) is not None):
            raise Broken(f"{check.__name__} and its rule disagree about {text!r}")
        said.append("y" if check(text) else "n")
    names.is_loopback(text)
    names.is_uuid4(text)
    return "".join(said)


def _base64url(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = b64decode(text)
    except EncodingError as error:
        return outcome_of(error)
    if b64encode(found) != text:
        raise Broken("two texts for the same bytes")
    return f"bytes {len(found) % 3}"


def _place(data: bytes) -> str:
    """One line: the URL; a second one: the realm."""
    url, _, realm = data.decode("utf-8", "surrogateescape").partition("\n")
    return _address(url, realm or None)


def _address(url: str, realm: str | None) -> str:
    try:
        address = RelayAddress.parse(url, realm)
    except ConfigError as error:
        # It quotes the URL, and why it is none comes last.
        return f"ConfigError: {str(error).rpartition(': ')[2] if ': ' in str(error) else 'realm'}"[:60]
    if RelayAddress.parse(address.base_url, address.realm) != address:
        raise Broken(f"{address} is another address when it is read again")
    key = address.state_key
    if "/" in key or "\0" in key or key in ("", ".", ".."):
        raise Broken(f"{key!r} leads out of the state folder")
    if not 0 < address.port < 65_536 or not address.host or not address.prefix.isprintable():
        raise Broken(f"{address} cannot be dialled")
    return "address" + "s" * address.is_secure + "l" * address.is_local


def _contact(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    try:
        contact = Contact.parse(text)
    except (ContactError, WeakKey) as error:
        return outcome_of(error)
    if Contact.parse(contact.format()) != contact:
        raise Broken("written again it is another contact")
    return f"contact {_address(contact.base_url, contact.realm)}"


def _invite(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    try:
        invite = Invite.parse(text)
    except (InviteError, WeakKey) as error:
        if text and len(text) > 8 and text[4:] in str(error):
            raise Broken("the refusal repeats the invite") from error
        return outcome_of(error)
    if invite.format() != text:
        raise Broken("one invite has two texts")
    invite.prove("bob", BOB.identity.public)
    return f"invite {_address(invite.base_url, invite.realm)}"


def _damaged_invite(data: bytes) -> str:
    """The fields of an invite, mended by a checksum: what lies behind the check is read too."""
    from ringline.protocol import invite

    body = data[:1_000]
    checksum = invite._checksum(body)
    text = invite._to_text(body + checksum)
    return _invite((invite.INVITE_PREFIX + text).encode())


def _invites() -> list[Invite]:
    secret = "s" * 32
    return [
        Invite(realm=REALM, secret=secret),
        Invite(realm="localhost", secret=secret, at="http://127.0.0.1:7575", handle="bob"),
        Invite(
            realm=REALM,
            secret=secret,
            inviter="alice",
            ipk=ALICE.identity.public,
            pairing=seed_of("pairing")[:16],
        ),
    ]


def _invite_bodies() -> list[bytes]:
    from ringline.protocol import invite

    texts = [each.format()[len(invite.INVITE_PREFIX) :] for each in _invites()]
    return [invite._from_text(text)[:-4] for text in texts]


def _contacts() -> list[bytes]:
    made = [
        Contact(handle="bob", realm=REALM, ipk=BOB.identity.public),
        Contact(handle="bob", realm="localhost", ipk=BOB.identity.public, at="http://127.0.0.1:7575/a"),
        Contact(handle="bob", realm=REALM, ipk=BOB.identity.public, log=ALICE.identity.public),
        Contact(handle="bob", realm=REALM, ipk=BOB.identity.public, at="https://[::1]:8443"),
    ]
    return [each.format().encode() for each in made] + _texts("contact.read")


# --- trace headers


def _trace(data: bytes) -> str:
    try:
        given = msgspec.json.decode(data, type=tuple[str, str])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "no case"
    header, correlation_id = given
    passed = trace.normalise(header, correlation_id)
    if passed is None:
        return "dropped"
    form = rf"00-{re.escape(correlation_id)}-[0-9a-f]{{16}}-0[01]"
    if not re.fullmatch(form, passed) or not names.is_correlation_id(correlation_id):
        # The frame's own check of the id comes before; only a right one reaches the rule.
        if names.is_correlation_id(correlation_id):
            raise Broken(f"{passed!r} was let through")
        return "id"
    if trace.normalise(passed, correlation_id) != passed:
        raise Broken("what was let through once is changed the second time")
    return "passed"


def _traces() -> list[bytes]:
    inputs = vector_inputs("trace.forward")
    return [json.dumps([given["traceparent"], given["correlation_id"]]).encode() for given in inputs]


# --- log-in tokens


@functools.cache
def _tokens() -> list[bytes]:
    made = [
        token.mint(
            ALICE.operational,
            handle="alice",
            card_id=ALICE.card.card.id,
            realm=REALM,
            method=method,
            path=path,
            iat=NOW // 1_000,
            jti=f"fuzz-{number:016d}",
        )
        for number, (method, path) in enumerate((("GET", "/v1/relay"), ("PUT", "/v1/handles/alice")))
    ]
    return [text.encode() for text in made] + [
        each["token"].encode() for each in vector_inputs("token.judge")
    ]


def _token(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    try:
        claims = token.parse(text)
        token.verify(claims, ALICE.operational.public)
    except TokenError as error:
        if len(text) > 20 and text[-20:] in str(error):
            raise Broken("the refusal repeats the token") from error
        return outcome_of(error)
    if data not in _tokens():
        raise Broken("a token holds that nobody has signed")
    token.check(claims, realm=REALM, method=claims.method, path=claims.path, now_s=NOW / 1_000)
    return "token"


TARGETS: Final = (
    Target(
        name="frame",
        promise="bytes are a frame that reads as by the book and re-encodes to an equal one, or a FrameError",
        seeds=lambda: _texts("frame.read"),
        check=_frame,
        mutate=mutate_json,
        short=1000,
    ),
    Target(
        name="body",
        promise="sealed JSON re-encodes to the same, or is a BodyError or MessageTooLarge without its text",
        seeds=_body_seeds,
        check=_body,
        mutate=mutate_json,
        short=800,
    ),
    Target(
        name="name",
        promise="each name is judged by its pattern in full, and nothing is raised",
        seeds=lambda: [b"alice", REALM.encode(), b"ctx_" + b"a" * 22, b"0" * 31 + b"1", b"127.0.0.1", b"::1"],
        check=_name,
        mutate=mutate_lines,
        short=500,
    ),
    Target(
        name="base64url",
        promise="one byte string has one text, everything else is an EncodingError",
        seeds=lambda: [*_texts("base64url.decode"), b64encode(seed_of("a")).encode(), b"AA"],
        check=_base64url,
        mutate=mutate_lines,
        short=500,
    ),
    Target(
        name="address",
        promise="a relay's URL is an address that reads back as itself and can be dialled, or a ConfigError",
        seeds=lambda: [
            b"http://127.0.0.1:7575",
            b"wss://relay.example/ringline",
            b"https://[2001:db8::1]:8443/a/b",
            b"https://relay.example\nrelay.example",
            b"http://localhost:1\nlocalhost",
        ],
        check=_place,
        mutate=mutate_lines,
    ),
    Target(
        name="contact-string",
        promise="a contact string reads back as itself, or is a ContactError or WeakKey",
        seeds=_contacts,
        check=_contact,
        mutate=mutate_lines,
    ),
    Target(
        name="invite",
        promise="an invite has one text, everything else is a refusal that repeats none of it",
        seeds=lambda: [each.format().encode() for each in _invites()] + _texts("invite.read"),
        check=_invite,
        mutate=mutate_lines,
    ),
    Target(
        name="invite-fields",
        promise="the same behind a right checksum",
        seeds=_invite_bodies,
        check=_damaged_invite,
    ),
    Target(
        name="trace",
        promise="a trace header is dropped, or let through in one form that is let through unchanged",
        seeds=_traces,
        check=_trace,
        mutate=mutate_json,
        short=300,
    ),
    Target(
        name="token",
        promise="a log-in token holds as it was signed, all else is a TokenError that repeats none of it",
        seeds=_tokens,
        check=_token,
        mutate=mutate_lines,
    ),
)
