"""Sealed requests and outcomes of both suites, opened from what the opener knows.

A seal is made with fresh randomness and comes out differently each time. So a ciphertext of the present
file is kept as long as it opens to what it is meant to hold; all else follows from the names.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

from ringline.protocol.context import OutcomeContext, Recipient, RequestContext
from ringline.protocol.context import Party as Sender
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.envelope import HEAD_BYTES, padded_size, request_digest, sign_input
from ringline.protocol.errors import CannotOpen
from ringline.protocol.limits import OUTCOME_CAP_BYTES, REQUEST_CAP_BYTES
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import SUITES, PrivateKey
from ringline.protocol.transcript import digest, label, vec
from vectors.vector import NOW, REALM, Json, Party, Vector, accepted, refused, seed

__all__ = ["vectors"]

_FILE: Final = Path(__file__).with_name("seals.json")
_ID = "0af7651916cd43dd8448eb211c80319c"
_MESSAGE = "00f067aa0ba902b74bf92f3577b34da6"
_CALL = "c7Qx-Yb_9"
_ALICE, _BOB = Party("alice"), Party("bob")
_REQUEST_JSON = '{"message":"What is the time?"}'
_OUTCOME_JSON = '{"reason":"completed","reply":{"text":"Late."}}'


@final
class _Seals:
    """The ciphertexts of the present file, by the ids of their vectors."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        if _FILE.exists():
            for test in json.loads(_FILE.read_text(encoding="utf-8"))["vectors"]:
                self._kept[test["id"]] = test["input"]["envelope"]["ct"]

    def seal(self, name: str, private: PrivateKey, info: bytes, plaintext: bytes) -> str:
        """Return the ciphertext of a vector: the one that is there, or a new one."""
        suite = SUITES[private.suite]
        kept = self._kept.get(name)
        try:
            if kept is not None and suite.open(private, info, b64decode(kept)) == plaintext:
                return kept
        except CannotOpen:
            pass
        return b64encode(suite.seal(private.public, info, plaintext))


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    seals = _Seals()
    for suite in SUITES:
        yield from _requests(suite, seals)
        yield from _outcomes(suite, seals)
    yield from _sizes(seals)


# --- what is under a seal


def _info(context: bytes) -> bytes:
    return label("hpke") + digest(context)


def _plain(context: bytes, body: bytes, cap: int, key: SigningKey, **changes: Any) -> bytes:
    """The plaintext, with what ``changes`` names done wrong."""
    signature: bytes = changes.get("signature", key.sign(sign_input(context, body)))
    length: int = changes.get("length", len(body))
    head = bytes([changes.get("version", 1)]) + signature + length.to_bytes(4, "big")
    size: int = changes.get("size", padded_size(len(body), cap))
    filled = (head + body).ljust(size, b"\0")
    last: bytes = changes.get("last", filled[-1:])
    return filled[:-1] + last


def _keys(suite: int) -> tuple[PrivateKey, PrivateKey]:
    """Bob's prekey, and the one-time key of the request."""
    kind = SUITES[suite]
    return kind.private_from_seed(seed(f"bob prekey {suite}")), kind.private_from_seed(seed(f"reply {suite}"))


def _request_context(suite: int, mode: str = "sync") -> RequestContext:
    prekey, _ = _keys(suite)
    return RequestContext(
        realm=REALM,
        sender=Sender("alice", _ALICE.identity.public, _ALICE.card().id),
        recipient=Recipient("bob", _BOB.identity.public, suite, prekey.public),
        mode="durable" if mode == "durable" else "sync",
        message_id=_MESSAGE,
        correlation_id=_ID,
        iat=NOW,
        exp=NOW + 600_000,
    )


def _outcome_context(suite: int, terminal: str = "completed") -> OutcomeContext:
    _, reply = _keys(suite)
    context = _request_context(suite)
    body = vec(reply.public) + _REQUEST_JSON.encode()
    return context.answer(
        card_id=_BOB.card().id,
        reply_public=reply.public,
        call_id=_CALL,
        terminal="completed" if terminal == "completed" else "failed",
        digest=request_digest(sign_input(context.encode(), body)),
        iat=NOW + 5_000,
    )


def _envelope(context: RequestContext | OutcomeContext, ct: str) -> Json:
    return {
        "v": 1,
        "suite": context.recipient.suite,
        "kid": b64encode(context.recipient.key_id),
        "sid": b64encode(context.sender.card_id),
        "iat": context.iat,
        "exp": context.exp,
        "ct": ct,
    }


def _known(context: RequestContext | OutcomeContext, private: PrivateKey, spk: bytes, secret: bytes) -> Json:
    """What the opener knows without the envelope."""
    known: Json = {
        "realm": context.realm,
        "from": {
            "handle": context.sender.handle,
            "ipk": context.sender.ipk.hex(),
            "card_id": b64encode(context.sender.card_id),
            "spk": spk.hex(),
        },
        "to": {"handle": context.recipient.handle, "ipk": context.recipient.ipk.hex()},
        "key": {"suite": private.suite, "seed": secret.hex()},
        "mode": context.mode,
        "message_id": context.message_id,
        "correlation_id": context.correlation_id,
    }
    if isinstance(context, OutcomeContext):
        known |= {
            "exp": context.exp,
            "call_id": context.call_id,
            "terminal": context.terminal,
            "request_digest": context.request_digest.hex(),
        }
    return known


def _changed(given: Json, path: str, value: Any) -> Json:
    """``given`` with the member at ``path`` changed."""
    copy = json.loads(json.dumps(given))
    *parents, last = path.split(".")
    node = copy
    for name in parents:
        node = node[name]
    node[last] = value
    return dict(copy)


def _ciphertexts(of: Vector, prefix: str, nenc: int) -> Iterator[Vector]:
    """The envelope and its ciphertext, changed on the way."""
    given = of.input
    text: str = given["envelope"]["ct"]
    raw = b64decode(text)

    def flipped(at: int) -> str:
        return b64encode(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])

    for name, says, path, value, layer, rule in (
        (
            "flipped_encapsulation",
            "one bit of the encapsulated key",
            "envelope.ct",
            flipped(0),
            "seal",
            "RL-ENVELOPE-031",
        ),
        (
            "flipped_ciphertext",
            "one bit of the ciphertext",
            "envelope.ct",
            flipped(nenc),
            "seal",
            "RL-ENVELOPE-031",
        ),
        (
            "flipped_tag",
            "one bit of the tag",
            "envelope.ct",
            flipped(len(raw) - 1),
            "seal",
            "RL-ENVELOPE-031",
        ),
        ("cut_short", "a byte less", "envelope.ct", b64encode(raw[:-1]), "seal", "RL-ENVELOPE-031"),
        ("byte_more", "a byte more", "envelope.ct", b64encode(raw + b"\0"), "seal", "RL-ENVELOPE-031"),
        (
            "encapsulation_alone",
            "no ciphertext",
            "envelope.ct",
            b64encode(raw[:nenc]),
            "seal",
            "RL-ENVELOPE-031",
        ),
        ("one_byte", "a single byte", "envelope.ct", "AA", "seal", "RL-ENVELOPE-031"),
        (
            "not_base64url",
            "the standard alphabet",
            "envelope.ct",
            f"+{text[1:]}",
            "encoding",
            "RL-ENVELOPE-029",
        ),
        ("padded", "padding", "envelope.ct", f"{text}=", "encoding", "RL-ENVELOPE-029"),
        (
            "other_kid",
            "the id of another key",
            "envelope.kid",
            b64encode(seed("kid")),
            "clear",
            "RL-ENVELOPE-028",
        ),
        (
            "other_sid",
            "the id of another card",
            "envelope.sid",
            b64encode(seed("sid")),
            "clear",
            "RL-ENVELOPE-028",
        ),
        (
            "other_suite",
            "the other suite",
            "envelope.suite",
            3 - given["envelope"]["suite"],
            "clear",
            "RL-ENVELOPE-028",
        ),
    ):
        yield refused(f"{prefix}.{name}", of, says, _changed(given, path, value), layer, rule)


def _requests(suite: int, seals: _Seals) -> Iterator[Vector]:
    op, prefix = "envelope.open_request", f"request.suite{suite}"
    context = _request_context(suite)
    encoded = context.encode()
    prekey, reply = _keys(suite)
    body = vec(reply.public) + _REQUEST_JSON.encode()
    known = _known(context, prekey, _ALICE.operational.public, seed(f"bob prekey {suite}"))

    def sealed(name: str, encoded: bytes, plaintext: bytes) -> Json:
        ct = seals.seal(f"{prefix}.{name}", prekey, _info(encoded), plaintext)
        return known | {"envelope": _envelope(context, ct)}

    plaintext = _plain(encoded, body, REQUEST_CAP_BYTES, _ALICE.operational)
    signed = sign_input(encoded, body)
    output = {
        "json": _REQUEST_JSON,
        "reply_public": reply.public.hex(),
        "context": encoded.hex(),
        "request_digest": request_digest(signed).hex(),
    }
    good = accepted(
        f"{prefix}.good",
        op,
        "a sealed request",
        sealed("good", encoded, plaintext),
        output,
        "RL-ENVELOPE-001",
        "RL-ENVELOPE-018",
    )
    yield good
    rule = "RL-ENVELOPE-018"
    for name, says, path, value in (
        ("other_realm", "opened in another realm", "realm", "relay.exampl"),
        ("other_from", "shown as of another handle", "from.handle", "alicf"),
        ("other_from_identity", "of another identity", "from.ipk", _BOB.identity.public.hex()),
        ("other_to", "opened by another handle", "to.handle", "boc"),
        ("other_to_identity", "opened by another identity", "to.ipk", _ALICE.identity.public.hex()),
        ("other_mode", "a sync request as a durable one", "mode", "durable"),
        ("other_message_id", "another message id", "message_id", _ID),
        ("no_message_id", "no message id", "message_id", ""),
        ("other_correlation_id", "another correlation id", "correlation_id", _MESSAGE),
        ("other_iat", "another time of sealing", "envelope.iat", NOW + 1),
        ("other_exp", "another end", "envelope.exp", NOW + 600_001),
    ):
        yield refused(f"{prefix}.{name}", good, says, _changed(good.input, path, value), "seal", rule)
    yield refused(
        f"{prefix}.other_signer_expected",
        good,
        "verified by another operational key",
        _changed(good.input, "from.spk", _BOB.operational.public.hex()),
        "signature",
        "RL-ENVELOPE-031",
    )
    yield refused(
        f"{prefix}.other_key",
        good,
        "opened with another key",
        _changed(good.input, "key.seed", seed("another key").hex()),
        "clear",
        "RL-ENVELOPE-028",
    )
    yield from _ciphertexts(good, prefix, SUITES[suite].nenc)
    other = vec(reply.public) + b'{"message":"Give me all."}'
    stranger = SigningKey(seed("mallory operational"))
    shown_to_carol = _request_context(suite)
    elsewhere = RequestContext(
        realm=shown_to_carol.realm,
        sender=shown_to_carol.sender,
        recipient=Recipient("carol", _BOB.identity.public, suite, prekey.public),
        mode="sync",
        message_id=_MESSAGE,
        correlation_id=_ID,
        iat=NOW,
        exp=NOW + 600_000,
    ).encode()
    small = vec(reply.public[:-1]) + _REQUEST_JSON.encode()
    zero = vec(reply.public[:-32] + bytes(32)) + _REQUEST_JSON.encode()
    changes: tuple[tuple[str, str, bytes, Json, str, str], ...] = (
        (
            "plaintext_version",
            "a plaintext that begins with 2",
            body,
            {"version": 2},
            "plaintext",
            "RL-ENVELOPE-030",
        ),
        (
            "body_too_long",
            "a body that is longer than the plaintext",
            body,
            {"length": 4_000},
            "plaintext",
            "RL-ENVELOPE-030",
        ),
        ("not_padded", "no padding", body, {"size": 0}, "plaintext", "RL-ENVELOPE-030"),
        (
            "padded_further",
            "a step of padding too many",
            body,
            {"size": len(plaintext) + 64},
            "plaintext",
            "RL-ENVELOPE-030",
        ),
        (
            "padding_not_zero",
            "something in the padding",
            body,
            {"last": b"\x01"},
            "plaintext",
            "RL-ENVELOPE-030",
        ),
        ("empty", "nothing under the seal", b"", {"size": 0}, "plaintext", "RL-ENVELOPE-030"),
        (
            "other_signer",
            "signed by a stranger",
            body,
            {"signature": stranger.sign(signed)},
            "signature",
            "RL-ENVELOPE-031",
        ),
        (
            "no_signature",
            "a signature of zeros",
            body,
            {"signature": bytes(64)},
            "signature",
            "RL-ENVELOPE-031",
        ),
        (
            "other_body",
            "another body than was signed",
            other,
            {"signature": _ALICE.operational.sign(signed)},
            "signature",
            "RL-ENVELOPE-031",
        ),
        (
            "forwarded",
            "what was signed for a third party",
            body,
            {"signature": _ALICE.operational.sign(sign_input(elsewhere, body))},
            "signature",
            "RL-ENVELOPE-018",
        ),
        ("reply_key_short", "a one-time key that is cut short", small, {}, "reply_key", "RL-ENVELOPE-032"),
        ("reply_key_weak", "a one-time key of small order", zero, {}, "reply_key", "RL-ENVELOPE-032"),
        ("reply_key_missing", "no one-time key", b"", {}, "reply_key", "RL-ENVELOPE-032"),
    )
    for name, says, inner, change, layer, which in changes:
        changed = _plain(encoded, inner, REQUEST_CAP_BYTES, _ALICE.operational, **change)
        if name == "empty":
            changed = b""
        yield refused(f"{prefix}.{name}", good, says, sealed(name, encoded, changed), layer, which)


def _outcomes(suite: int, seals: _Seals) -> Iterator[Vector]:
    op, prefix = "envelope.open_outcome", f"outcome.suite{suite}"
    context = _outcome_context(suite)
    encoded = context.encode()
    _, reply = _keys(suite)
    body = _OUTCOME_JSON.encode()
    known = _known(context, reply, _BOB.operational.public, seed(f"reply {suite}"))

    def sealed(name: str, plaintext: bytes) -> Json:
        ct = seals.seal(f"{prefix}.{name}", reply, _info(encoded), plaintext)
        return known | {"envelope": _envelope(context, ct)}

    good = accepted(
        f"{prefix}.good",
        op,
        "a sealed outcome",
        sealed("good", _plain(encoded, body, OUTCOME_CAP_BYTES, _BOB.operational)),
        {"json": _OUTCOME_JSON, "context": encoded.hex()},
        "RL-ENVELOPE-037",
    )
    yield good
    rule = "RL-ENVELOPE-037"
    for name, says, path, value in (
        ("flipped_terminal", "a success shown as a failure", "terminal", "failed"),
        ("other_call_id", "shown for another call", "call_id", "c8"),
        ("other_request", "shown for another request", "request_digest", seed("digest").hex()),
        ("other_realm", "opened in another realm", "realm", "relay.exampl"),
        ("other_from", "shown as of another handle", "from.handle", "boc"),
        ("other_from_identity", "of another identity", "from.ipk", _ALICE.identity.public.hex()),
        ("other_to", "opened by another handle", "to.handle", "alicf"),
        ("other_to_identity", "opened by another identity", "to.ipk", _BOB.identity.public.hex()),
        ("other_mode", "the outcome of a sync call as that of a durable one", "mode", "durable"),
        ("other_message_id", "another message id", "message_id", _ID),
        ("other_correlation_id", "another correlation id", "correlation_id", _MESSAGE),
        ("other_iat", "another time of sealing", "envelope.iat", NOW),
    ):
        yield refused(f"{prefix}.{name}", good, says, _changed(good.input, path, value), "seal", rule)
    yield refused(
        f"{prefix}.other_exp",
        good,
        "an end that is not the request's",
        _changed(good.input, "envelope.exp", context.exp + 1),
        "clear",
        "RL-ENVELOPE-042",
    )
    yield from _ciphertexts(good, prefix, SUITES[suite].nenc)
    request = _request_context(suite)
    inner = vec(reply.public) + _REQUEST_JSON.encode()
    # Sealed to the one-time key, as a relay that has it could: the request comes back as an outcome.
    reflected = _plain(request.encode(), inner, REQUEST_CAP_BYTES, _ALICE.operational)
    stranger = SigningKey(seed("mallory operational"))
    for name, says, plaintext, layer, which in (
        ("reflected", "the caller's own signature under another's name", reflected, "signature", rule),
        (
            "other_signer",
            "signed by a stranger who has the one-time key",
            _plain(encoded, body, OUTCOME_CAP_BYTES, stranger),
            "signature",
            "RL-ENVELOPE-038",
        ),
        (
            "padding_not_zero",
            "something in the padding",
            _plain(encoded, body, OUTCOME_CAP_BYTES, _BOB.operational, last=b"\x01"),
            "plaintext",
            "RL-ENVELOPE-030",
        ),
    ):
        yield refused(f"{prefix}.{name}", good, says, sealed(name, plaintext), layer, which)


def _sizes(seals: _Seals) -> Iterator[Vector]:
    """A body on the last byte of the padding floor, and one behind it."""
    context = _request_context(1)
    encoded = context.encode()
    prekey, reply = _keys(1)
    known = _known(context, prekey, _ALICE.operational.public, seed("bob prekey 1"))
    frame: Mapping[str, str] = {"message": ""}
    room = 2_048 - HEAD_BYTES - len(vec(reply.public)) - len(json.dumps(frame, separators=(",", ":")))
    for more in (0, 1):
        text = json.dumps({"message": "x" * (room + more)}, separators=(",", ":"))
        body = vec(reply.public) + text.encode()
        plaintext = _plain(encoded, body, REQUEST_CAP_BYTES, _ALICE.operational)
        name = f"request.suite1.floor_and_{more}"
        ct = seals.seal(name, prekey, _info(encoded), plaintext)
        yield accepted(
            name,
            "envelope.open_request",
            f"a plaintext of {len(plaintext)} bytes",
            known | {"envelope": _envelope(context, ct)},
            {
                "json": text,
                "reply_public": reply.public.hex(),
                "context": encoded.hex(),
                "request_digest": request_digest(sign_input(encoded, body)).hex(),
            },
            "RL-ENVELOPE-012",
        )
