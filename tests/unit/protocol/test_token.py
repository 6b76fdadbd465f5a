"""The log-in token: exactly its members, bound to one request and one time."""

import dataclasses
import json
import subprocess
import sys
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import RinglineError, TokenError
from ringline.protocol.signing import SigningKey, check_public
from ringline.protocol.signing import verify as verify_signature
from ringline.protocol.token import DUMMY_SPK, TOKEN_CHARS, Claims, check, mint, parse, verify
from ringline.protocol.transcript import USES, label
from ringline_testing.agents import REALM, agent, seed
from ringline_testing.weak_keys import NEUTRAL, NEUTRAL_SIGNATURE, mixed_order, mixed_order_signature

ALICE = agent("alice")
KEY = ALICE.operational
CARD_ID = ALICE.card.card.id
NOW_S = 1_790_000_000
PATH = "/v1/call/bob"
JTI = "AbCdEf_0123456-789"
MINTED: dict[str, Any] = {
    "handle": "alice",
    "card_id": CARD_ID,
    "realm": REALM,
    "method": "GET",
    "path": PATH,
    "iat": NOW_S,
    "jti": JTI,
}
REQUEST: dict[str, Any] = {"realm": REALM, "method": "GET", "path": PATH, "now_s": NOW_S}
TOKEN = mint(KEY, **MINTED)

HEADER = {"alg": "EdDSA", "typ": "JWT", "kid": b64encode(CARD_ID)}
PAYLOAD = {
    "iss": "alice",
    "sub": b64encode(CARD_ID),
    "aud": REALM,
    "iat": NOW_S,
    "exp": NOW_S + 60,
    "jti": JTI,
    "htm": "GET",
    "htu": PATH,
}


def signed(header: Any = HEADER, payload: Any = PAYLOAD, key: SigningKey = KEY) -> str:
    """A token truly signed, whatever its parts are: an object, or the very text of one."""
    parts = [part if isinstance(part, str) else json.dumps(part) for part in (header, payload)]
    body = ".".join(b64encode(part.encode()) for part in parts)
    return f"{body}.{b64encode(key.sign(body.encode()))}"


def admit(token: str, spk: bytes = KEY.public, **request: Any) -> Claims:
    """All that a relay checks but the card and the ``jti``."""
    claims = parse(token)
    verify(claims, spk)
    check(claims, **{**REQUEST, **request})
    return claims


def test_a_minted_token_is_admitted_and_says_what_it_was_minted_for() -> None:
    claims = admit(TOKEN)
    assert claims == Claims(
        handle="alice",
        card_id=CARD_ID,
        realm=REALM,
        iat=NOW_S,
        exp=NOW_S + 60,
        jti=JTI,
        method="GET",
        path=PATH,
        token=TOKEN,
    )
    admit(signed())


def test_it_has_exactly_the_members_of_the_protocol() -> None:
    header, payload, _ = TOKEN.split(".")
    assert json.loads(b64decode(header)) == HEADER
    assert json.loads(b64decode(payload)) == PAYLOAD


def test_another_library_verifies_it() -> None:
    public = ed25519.Ed25519PublicKey.from_public_bytes(KEY.public)
    options: Any = {"verify_exp": False, "verify_iat": False}
    assert jwt.decode(TOKEN, public, algorithms=["EdDSA"], audience=REALM, options=options) == PAYLOAD


def test_one_made_by_another_library_is_admitted() -> None:
    private = ed25519.Ed25519PrivateKey.from_private_bytes(KEY.seed)
    admit(jwt.encode(PAYLOAD, private, algorithm="EdDSA", headers=HEADER))


def test_what_is_signed_can_be_no_structure_of_the_envelope() -> None:
    assert TOKEN.startswith("ey")
    assert not any(label(use).startswith(b"e") for use in USES)


# --- parse


def without(members: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in members.items() if key != name}


@pytest.mark.parametrize("name", HEADER)
def test_no_member_of_the_header_may_be_missing(name: str) -> None:
    with pytest.raises(TokenError):
        parse(signed(header=without(HEADER, name)))


@pytest.mark.parametrize("name", PAYLOAD)
def test_no_claim_may_be_missing(name: str) -> None:
    with pytest.raises(TokenError):
        parse(signed(payload=without(PAYLOAD, name)))


@pytest.mark.parametrize(
    "header",
    [
        {**HEADER, "alg": "none"},
        {**HEADER, "alg": "HS256"},
        {**HEADER, "alg": "eddsa"},
        {**HEADER, "alg": ["EdDSA"]},
        {**HEADER, "typ": "jwt"},
        {**HEADER, "typ": None},
        {**HEADER, "crit": ["b64"], "b64": False},
        {**HEADER, "jwk": {}},
        {**HEADER, "kid": b64encode(bytes(32))},
        {**HEADER, "kid": b64encode(CARD_ID)[:-1]},
        [],
        "null",
        '"text"',
        json.dumps(HEADER)[:-1] + ',"alg":"EdDSA"}',
        json.dumps(HEADER) + " x",
        "\ufeff" + json.dumps(HEADER),
    ],
    ids=str,
)
def test_another_header_is_refused(header: Any) -> None:
    with pytest.raises(TokenError):
        parse(signed(header=header))


@pytest.mark.parametrize(
    "change",
    [
        {"nbf": NOW_S},
        {"iss": "Alice"},
        {"iss": "alice\n"},
        {"iss": None},
        {"sub": b64encode(CARD_ID) + "A"},
        {"sub": b64encode(bytes(32))},
        {"aud": [REALM]},
        {"aud": "Relay"},
        {"iat": float(NOW_S)},
        {"iat": str(NOW_S)},
        {"iat": True},
        {"iat": -1},
        {"iat": 2**53},
        {"exp": True},
        {"exp": NOW_S + 0.5},
        {"exp": 10**30},
        {"jti": "short"},
        {"jti": "a" * 65},
        {"jti": "a" * 15 + "+"},
        {"jti": 1},
        {"htm": "get"},
        {"htm": ""},
        {"htu": "/"},
        {"htu": "/v1/"},
        {"htu": "v1/relay"},
        {"htu": "/v1/calls?role=caller"},
        {"htu": "/v1/calls#x"},
        {"htu": "/v1/a b"},
        {"htu": "/v1/ä"},
        {"htu": "https://relay.example/v1/relay"},
    ],
    ids=str,
)
def test_another_claim_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        parse(signed(payload={**PAYLOAD, **change}))


@pytest.mark.parametrize("name", PAYLOAD)
def test_no_claim_may_come_twice(name: str) -> None:
    doubled = json.dumps(PAYLOAD)[:-1] + f",{json.dumps({name: PAYLOAD[name]})[1:]}"
    assert json.loads(doubled) == PAYLOAD
    with pytest.raises(TokenError):
        parse(signed(payload=doubled))


@pytest.mark.parametrize(
    "token",
    [
        "",
        TOKEN + "=",
        TOKEN + ".",
        "." + TOKEN,
        TOKEN + "\n",
        " " + TOKEN,
        TOKEN.replace(".", "=.", 1),
        TOKEN.rsplit(".", 1)[0],
        TOKEN.rsplit(".", 1)[0] + ".",
        TOKEN + "A",
        TOKEN[:-1],
        TOKEN[:-1] + chr(ord(TOKEN[-1]) + 1),
        TOKEN + "." + TOKEN,
        "A" * (TOKEN_CHARS + 1),
        "Bearer " + TOKEN,
    ],
)
def test_another_spelling_is_refused(token: str) -> None:
    with pytest.raises(TokenError):
        parse(token)


@given(
    text=st.one_of(
        st.text(max_size=100),
        st.lists(st.binary(max_size=40), min_size=3, max_size=3).map(
            lambda parts: ".".join(map(b64encode, parts))
        ),
    )
)
def test_garbage_raises_nothing_but_our_own_error(text: str) -> None:
    with pytest.raises(TokenError):
        parse(text)


deep = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    header=st.dictionaries(st.sampled_from([*HEADER, "x"]), deep),
    payload=st.dictionaries(st.sampled_from([*PAYLOAD, "x"]), deep),
)
@settings(max_examples=60)
def test_truly_signed_garbage_raises_nothing_but_our_own_error(header: Any, payload: Any) -> None:
    with pytest.raises(TokenError):
        parse(signed({**HEADER, **header, "x": 1}, {**PAYLOAD, **payload}))


@given(
    handle=st.from_regex(r"[a-z0-9][a-z0-9-]{1,30}", fullmatch=True),
    card_id=st.binary(min_size=32, max_size=32),
    realm=st.from_regex(r"[a-z0-9.-]{1,253}", fullmatch=True),
    iat=st.integers(0, 2**53 - 100),
    jti=st.from_regex(r"[A-Za-z0-9_-]{16,64}", fullmatch=True),
    path=st.from_regex(r"/v1/[A-Za-z0-9/_%.~-]{1,80}", fullmatch=True),
)
@settings(max_examples=40)
def test_every_token_is_read_back(
    handle: str, card_id: bytes, realm: str, iat: int, jti: str, path: str
) -> None:
    token = mint(KEY, handle=handle, card_id=card_id, realm=realm, method="PUT", path=path, iat=iat, jti=jti)
    claims = parse(token)
    verify(claims, KEY.public)
    check(claims, realm=realm, method="PUT", path=path, now_s=iat)
    assert (claims.handle, claims.card_id, claims.jti) == (handle, card_id, jti)


@pytest.mark.parametrize(
    "change",
    [
        {"handle": "A"},
        {"card_id": b""},
        {"realm": ""},
        {"method": "get"},
        {"path": "/x"},
        {"jti": ""},
        {"iat": -1},
    ],
    ids=str,
)
def test_a_token_that_would_be_refused_is_not_minted(change: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        mint(KEY, **{**MINTED, **change})


# --- verify


def test_only_the_key_of_the_card_admits() -> None:
    for spk in (agent("bob").operational.public, ALICE.identity.public, DUMMY_SPK):
        with pytest.raises(TokenError):
            verify(parse(TOKEN), spk)


def test_a_weak_key_admits_nobody() -> None:
    body = TOKEN.rsplit(".", 1)[0]
    forged = f"{body}.{b64encode(NEUTRAL_SIGNATURE)}"
    for token, weak in (
        (forged, NEUTRAL),
        (TOKEN, mixed_order(KEY.public)),
        (TOKEN, b""),
        (TOKEN, bytes(32)),
    ):
        with pytest.raises(TokenError):
            verify(parse(token), weak)


def test_a_signature_under_a_mixed_order_key_is_refused_by_the_check_of_the_key_alone() -> None:
    """PyNaCl accepts it, so that without the check of the key this token would be admitted."""
    body = TOKEN.rsplit(".", 1)[0]
    mixed, signature = mixed_order_signature(KEY, body.encode())
    verify_signature(mixed, body.encode(), signature)
    with pytest.raises(TokenError):
        verify(parse(f"{body}.{b64encode(signature)}"), mixed)


def test_the_dummy_key_is_a_valid_key() -> None:
    check_public(DUMMY_SPK)
    assert len(DUMMY_SPK) == 32


@given(at=st.integers(0, 63), flip=st.integers(1, 255))
@settings(max_examples=40)
def test_a_changed_signature_admits_nobody(at: int, flip: int) -> None:
    body = TOKEN.rsplit(".", 1)[0]
    signature = bytearray(KEY.sign(body.encode()))
    signature[at] ^= flip
    with pytest.raises(TokenError):
        verify(parse(f"{body}.{b64encode(bytes(signature))}"), KEY.public)


@pytest.mark.parametrize(
    "change", [{"iss": "bob"}, {"iat": NOW_S + 1}, {"jti": "x" * 16}, {"htm": "PUT"}], ids=str
)
def test_a_changed_claim_admits_nobody(change: dict[str, Any]) -> None:
    header, _, signature = TOKEN.split(".")
    payload = b64encode(json.dumps({**PAYLOAD, **change}).encode())
    with pytest.raises(TokenError):
        verify(parse(f"{header}.{payload}.{signature}"), KEY.public)


# --- check


@pytest.mark.parametrize(
    "request_", [{"realm": "other.example"}, {"method": "PUT"}, {"path": "/v1/call/carol"}], ids=str
)
def test_it_is_for_one_realm_method_and_path(request_: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        admit(TOKEN, **request_)


@pytest.mark.parametrize("off", [-120, -119.5, 0, 119.5, 120])
def test_a_clock_may_be_off_by_two_minutes(off: float) -> None:
    admit(TOKEN, now_s=NOW_S + off)


@pytest.mark.parametrize("off", [-120.001, -121, 120.001, 121, 10**9, float("nan")])
def test_a_clock_may_not_be_off_by_more(off: float) -> None:
    with pytest.raises(TokenError):
        admit(TOKEN, now_s=NOW_S + off)


def test_the_expiry_is_compared_with_no_clock() -> None:
    admit(signed(payload={**PAYLOAD, "exp": NOW_S + 1}), now_s=NOW_S + 100)


@pytest.mark.parametrize(("life", "good"), [(1, True), (60, True), (61, False), (0, False), (-1, False)])
def test_it_is_good_for_one_to_sixty_seconds(life: int, good: bool) -> None:
    token = signed(payload={**PAYLOAD, "exp": NOW_S + life})
    if good:
        admit(token)
    else:
        with pytest.raises(TokenError):
            admit(token)


@pytest.mark.parametrize(("started", "good"), [(NOW_S - 1, True), (NOW_S + 0.9, True), (NOW_S + 1, False)])
def test_a_restarted_relay_refuses_what_was_issued_before_the_second_of_its_start(
    started: float, good: bool
) -> None:
    if good:
        admit(TOKEN, started_s=started)
    else:
        with pytest.raises(TokenError):
            admit(TOKEN, started_s=started)


def test_the_order_of_the_checks_is_that_of_the_protocol() -> None:
    """Each claim below is wrong together with all that is checked after it; the error names the first."""
    wrong = dataclasses.replace(parse(TOKEN), exp=NOW_S)
    faults: list[tuple[dict[str, Any], str]] = [
        ({"realm": "x", "method": "x", "now_s": 0}, "realm"),
        ({"method": "x", "now_s": 0}, "request"),
        ({"now_s": 0}, "of this time"),
        ({}, "for no time"),
    ]
    for request, word in faults:
        with pytest.raises(TokenError, match=word):
            check(wrong, **{**REQUEST, **request})


# --- what else must hold


def test_neither_a_repr_nor_an_error_shows_the_token() -> None:
    assert TOKEN not in repr(parse(TOKEN))
    for damaged in (TOKEN[:-1], signed(payload={**PAYLOAD, "jti": "secret"})):
        with pytest.raises(RinglineError) as caught:
            parse(damaged)
        assert "secret" not in str(caught.value)
        assert damaged not in str(caught.value)
        assert caught.value.__cause__ is None


def test_the_jwt_package_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, ringline.protocol.token; print('jwt' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_the_only_algorithm_is_ours() -> None:
    from ringline.protocol import token

    jws = token._jws()
    assert jws.get_algorithms() == ["EdDSA"]
    own = jws.get_algorithm_by_name("EdDSA")
    assert type(own).__module__ == "ringline.protocol.token"
    with pytest.raises(NotImplementedError):
        own.to_jwk(seed("x"))
    with pytest.raises(NotImplementedError):
        own.from_jwk({})
