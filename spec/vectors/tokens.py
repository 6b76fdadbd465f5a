"""Log-in tokens, as a relay judges them: form, signature, request, time."""

import json
from collections.abc import Iterator
from typing import Any

from ringline.protocol.encoding import b64encode
from ringline.protocol.limits import TOKEN_LIFE_S, TOKEN_SKEW_S
from ringline.protocol.signing import SigningKey
from vectors.vector import NOW, REALM, Json, Party, Vector, accepted, refused, seed

__all__ = ["vectors"]

_PATH = "/v1/call/bob"


def _token(header: object, claims: object, key: SigningKey) -> str:
    parts = [b64encode(_bytes(header)), b64encode(_bytes(claims))]
    signed = ".".join(parts)
    return f"{signed}.{b64encode(key.sign(signed.encode()))}"


def _bytes(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    alice = Party("alice")
    key, card_id = alice.operational, b64encode(alice.card().id)
    now = NOW // 1_000
    header: Json = {"alg": "EdDSA", "typ": "JWT", "kid": card_id}
    claims: Json = {
        "iss": "alice",
        "sub": card_id,
        "aud": REALM,
        "iat": now,
        "exp": now + TOKEN_LIFE_S,
        "jti": "a-fresh-jti_0001",
        "htm": "GET",
        "htu": _PATH,
    }
    context: Json = {
        "spk": key.public.hex(),
        "realm": REALM,
        "method": "GET",
        "path": _PATH,
        "now_s": now,
        "started_s": None,
    }
    output = {"iss": "alice", "sub": card_id, "jti": claims["jti"]}

    def given(**changes: Any) -> Json:
        token = _token(changes.pop("header", header), changes.pop("claims", claims), changes.pop("key", key))
        return context | {"token": token} | changes

    good = accepted(
        "token.good", "token.judge", "a token for this request", given(), output, "RL-AUTH-003", "RL-CONV-004"
    )
    yield good
    fine: tuple[tuple[str, str, Json, str], ...] = (
        ("clock_behind", "a clock that is 120 s behind", {"now_s": now + TOKEN_SKEW_S}, "RL-AUTH-014"),
        ("clock_ahead", "a clock that is 120 s ahead", {"now_s": now - TOKEN_SKEW_S}, "RL-AUTH-014"),
        ("short", "good for a second", {"claims": claims | {"exp": now + 1}}, "RL-AUTH-015"),
        (
            "start_in_its_second",
            "a relay that started in this second",
            {"started_s": now + 0.9},
            "RL-AUTH-019",
        ),
        (
            "members_in_any_order",
            "members in another order",
            {"claims": dict(reversed(claims.items()))},
            "RL-AUTH-003",
        ),
    )
    for name, says, changes, rule in fine:
        yield accepted(f"token.{name}", "token.judge", says, given(**changes), output, rule)
    form = "form"
    texts = json.dumps(claims, separators=(",", ":"))
    without = {name: value for name, value in claims.items() if name != "jti"}
    wrong: tuple[tuple[str, str, Json, str, str], ...] = (
        ("alg_none", "no algorithm", {"header": header | {"alg": "none"}}, form, "RL-AUTH-008"),
        ("alg_hs256", "another algorithm", {"header": header | {"alg": "HS256"}}, form, "RL-AUTH-008"),
        (
            "no_typ",
            "a header without `typ`",
            {"header": {"alg": "EdDSA", "kid": card_id}},
            form,
            "RL-AUTH-007",
        ),
        (
            "header_more",
            "a further member in the header",
            {"header": header | {"jku": "x"}},
            form,
            "RL-AUTH-007",
        ),
        (
            "other_kid",
            "header and claims name two cards",
            {"header": header | {"kid": b64encode(seed("x"))}},
            form,
            "RL-AUTH-009",
        ),
        ("claims_more", "a further claim", {"claims": claims | {"nbf": now}}, form, "RL-AUTH-007"),
        ("no_jti", "no `jti`", {"claims": without}, form, "RL-AUTH-007"),
        (
            "short_jti",
            "a `jti` of 15 characters",
            {"claims": claims | {"jti": "x" * 15}},
            form,
            "RL-AUTH-007",
        ),
        (
            "iat_fraction",
            "a time with a fraction",
            {"claims": texts.replace(str(now), f"{now}.0", 1)},
            form,
            "RL-AUTH-007",
        ),
        ("iat_text", "a time as text", {"claims": claims | {"iat": str(now)}}, form, "RL-AUTH-007"),
        (
            "claim_twice",
            "a claim twice",
            {"claims": texts.replace("{", '{"iss":"alice",', 1)},
            form,
            "RL-AUTH-007",
        ),
        ("aud_list", "a list of realms", {"claims": claims | {"aud": [REALM]}}, form, "RL-AUTH-007"),
        (
            "htu_with_query",
            "a path with a query",
            {"claims": claims | {"htu": f"{_PATH}?x=1"}},
            form,
            "RL-AUTH-007",
        ),
        (
            "htu_absolute",
            "a whole URL",
            {"claims": claims | {"htu": f"https://{REALM}{_PATH}"}},
            form,
            "RL-AUTH-007",
        ),
        (
            "other_signer",
            "signed by another key",
            {"key": Party("bob").operational},
            "signature",
            "RL-AUTH-011",
        ),
        (
            "signed_by_identity",
            "signed by the identity key",
            {"key": alice.identity},
            "signature",
            "RL-AUTH-011",
        ),
        ("other_realm", "for another realm", {"realm": "relay.exampl"}, "request", "RL-AUTH-013"),
        ("other_method", "for another method", {"method": "PUT"}, "request", "RL-AUTH-013"),
        ("other_path", "for another path", {"path": "/v1/call/bo"}, "request", "RL-AUTH-013"),
        ("too_old", "121 s old", {"now_s": now + TOKEN_SKEW_S + 1}, "time", "RL-AUTH-014"),
        ("from_the_future", "121 s ahead", {"now_s": now - TOKEN_SKEW_S - 1}, "time", "RL-AUTH-014"),
        ("exp_at_iat", "good for no time", {"claims": claims | {"exp": now}}, "time", "RL-AUTH-015"),
        (
            "exp_too_late",
            "good for 61 s",
            {"claims": claims | {"exp": now + TOKEN_LIFE_S + 1}},
            "time",
            "RL-AUTH-015",
        ),
        ("before_the_start", "older than the relay", {"started_s": now + 1}, "time", "RL-AUTH-019"),
    )
    for name, says, changes, layer, rule in wrong:
        yield refused(f"token.{name}", good, says, given(**changes), layer, rule)
    token: str = good.input["token"]
    head, body, signature = token.split(".")
    for name, says, text, layer in (
        ("two_segments", "no signature", f"{head}.{body}", form),
        ("four_segments", "a segment more", f"{token}.AA", form),
        ("empty_signature", "an empty signature", f"{head}.{body}.", form),
        ("padded", "padding", f"{token}==", form),
        ("line_feed", "a line feed behind", f"{token}\n", form),
        (
            "flipped_signature",
            "one character of the signature",
            f"{head}.{body}.{'AB'[signature[0] == 'A']}{signature[1:]}",
            "signature",
        ),
    ):
        yield refused(f"token.{name}", good, says, context | {"token": text}, layer, "RL-AUTH-007")
    weak = b"\x01" + bytes(31)
    yield refused(
        "token.weak_key",
        good,
        "a key under which one signature fits every token",
        given() | {"spk": weak.hex(), "token": f"{head}.{body}.{b64encode(weak + bytes(32))}"},
        "signature",
        "RL-AUTH-011",
    )
