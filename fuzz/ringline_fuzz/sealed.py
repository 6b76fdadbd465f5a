"""What is under a seal or behind a passphrase: envelopes, padding, receipts, key files."""

import contextlib
import functools
import hashlib
from collections.abc import Generator, Sequence
from random import Random
from typing import Any, Final

import msgspec

from ringline.protocol import bodies, envelope, keyfile
from ringline.protocol.context import OutcomeContext, Party, Recipient, RequestContext
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import BadSignature, CannotOpen, KeyFileError, ReceiptError, WeakKey
from ringline.protocol.frames import Envelope
from ringline.protocol.limits import OUTCOME_CAP_BYTES, PAD_FLOOR_BYTES, REQUEST_CAP_BYTES
from ringline.protocol.receipt import SignedOutcome
from ringline.protocol.suites import SUITES
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import ALICE, BOB, NOW, REALM, seed_of, vector_inputs
from ringline_fuzz.mutation import mutate_lines
from ringline_fuzz.target import Broken, Target, outcome_of
from ringline_fuzz.wire import CANARY

__all__ = ["TARGETS", "cheap_locks", "genuine_receipts"]

_SUITE: Final = SUITES[1]
_PREKEY: Final = _SUITE.private_from_seed(seed_of("bob prekey"))
_REPLY: Final = _SUITE.private_from_seed(seed_of("alice reply"))
_CALL_ID: Final = "fuzzed-call"
_REASONS: Final = {
    "key",
    "clear members",
    "clear ids",
    "ciphertext encoding",
    "seal",
    "plaintext version",
    "plaintext length",
    "padding",
    "signature",
    "reply key",
}


def _context(iat: int = NOW, exp: int = NOW + 600_000) -> RequestContext:
    return RequestContext(
        realm=REALM,
        sender=Party("alice", ALICE.identity.public, ALICE.card.card.id),
        recipient=Recipient("bob", BOB.identity.public, 1, _PREKEY.public),
        mode="durable",
        message_id="1" * 32,
        correlation_id="2" * 32,
        iat=iat,
        exp=exp,
    )


@functools.cache
def _request() -> envelope.SealedRequest:
    body = bodies.encode_request(bodies.Request(message=CANARY))
    return envelope.seal_request(_context(), body, _REPLY.public, ALICE.operational)


def _answer_context(iat: int = NOW + 5) -> OutcomeContext:
    return _context().answer(
        card_id=BOB.card.card.id,
        reply_public=_REPLY.public,
        call_id=_CALL_ID,
        terminal="completed",
        digest=_request().digest,
        iat=iat,
    )


@functools.cache
def _answer() -> Envelope:
    outcome = bodies.Outcome(reason="completed", reply=bodies.Reply(text=CANARY))
    return envelope.seal_outcome(_answer_context(), bodies.encode_outcome(outcome), BOB.operational)


def _refusal(error: CannotOpen) -> str:
    if error.reason not in _REASONS or CANARY in f"{error} {error!r} {error.__cause__!r}":
        raise Broken("a refusal that has no name, or that repeats the plaintext") from error
    return error.reason


# --- envelopes


def _opened(data: bytes) -> str:
    """Open what a relay hands on, as a request and as an outcome: iat and exp are the envelope's own."""
    try:
        sealed = msgspec.json.decode(data, type=Envelope)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "no envelope"
    said: list[str] = []
    try:
        opened = envelope.open_request(
            sealed, _PREKEY, _context(sealed.iat, sealed.exp), ALICE.operational.public
        )
        if sealed != _request().envelope or opened.digest != _request().digest:
            raise Broken("another envelope than the sealed one opens")
        said.append("request")
    except CannotOpen as error:
        said.append(_refusal(error))
    try:
        envelope.open_outcome(sealed, _REPLY, _answer_context(sealed.iat), BOB.operational.public)
        if sealed != _answer():
            raise Broken("another envelope than the sealed one opens")
        said.append("outcome")
    except CannotOpen as error:
        said.append(_refusal(error))
    return " ".join(said)


def _envelopes() -> list[bytes]:
    return [msgspec.json.encode(_request().envelope), msgspec.json.encode(_answer())]


def _plaintext(data: bytes) -> str:
    """Seal any plaintext to bob as a thief of no signing key could, and open it."""
    context = _context()
    sealed = _SUITE.seal(_PREKEY.public, envelope._info(context.encode()), data)
    whole = _request().envelope
    handed = Envelope(
        v=1,
        suite=1,
        kid=whole.kid,
        sid=whole.sid,
        iat=whole.iat,
        exp=whole.exp,
        ct=b64encode(sealed),
    )
    try:
        envelope.open_request(handed, _PREKEY, context, ALICE.operational.public)
    except CannotOpen as error:
        return _refusal(error)
    if data not in _plaintexts():
        raise Broken("a plaintext that was never signed, or was padded otherwise, is taken")
    return "request"


@functools.cache
def _plaintexts() -> list[bytes]:
    info = envelope._info(_context().encode())
    found: list[bytes] = []
    for text in (CANARY, CANARY * 40):
        body = bodies.encode_request(bodies.Request(message=text))
        sealed = envelope.seal_request(_context(), body, _REPLY.public, ALICE.operational).envelope
        found.append(_SUITE.open(_PREKEY, info, b64decode(sealed.ct)))
    return found


def _padding(data: bytes) -> str:
    """Two sizes, of three bytes each."""
    one, other = int.from_bytes(data[:3], "big"), int.from_bytes(data[3:6], "big")
    for cap in (REQUEST_CAP_BYTES, OUTCOME_CAP_BYTES):
        fitting = sorted(size for size in (one, other) if size + envelope.HEAD_BYTES <= cap)
        padded = [envelope.padded_size(size, cap) for size in fitting]
        if padded != sorted(padded):
            raise Broken("the longer one is padded to less")
        for size, whole in zip(fitting, padded, strict=True):
            least = envelope.HEAD_BYTES + size
            if not least <= whole <= cap or whole > max(least * 1.13, PAD_FLOOR_BYTES):
                raise Broken(f"{size} bytes are padded to {whole}")
            if envelope.padded_size(whole - envelope.HEAD_BYTES, cap) != whole:
                raise Broken(f"{whole} bytes are padded again")
    return f"{one.bit_length()}"


# --- receipts


@functools.cache
def genuine_receipts() -> list[bytes]:
    found: list[bytes] = []
    context = _answer_context()
    for outcome in (
        bodies.Outcome(reason="completed", reply=bodies.Reply(text=CANARY, value={"a": [1, None]})),
        bodies.Outcome(reason="completed", reply=bodies.Reply(text="é\u2028\x7f")),
    ):
        answer = bodies.encode_outcome(outcome)
        signature = BOB.operational.sign(envelope.sign_input(context.encode(), answer))
        receipt = SignedOutcome(
            context=context.encode(),
            answer=answer,
            signature=signature,
            card=BOB.card.card.encode(),
            card_signature=BOB.card.signature,
        )
        found.append(receipt.format().encode())
    return found


@functools.cache
def _proofs() -> list[SignedOutcome]:
    return [SignedOutcome.parse(each) for each in genuine_receipts()]


def _receipt(data: bytes) -> str:
    try:
        receipt = SignedOutcome.parse(data)
        proof = receipt.verify()
    except (ReceiptError, BadSignature, WeakKey) as error:
        if CANARY in str(error):
            raise Broken("the refusal repeats the answer") from error
        return outcome_of(error)
    if receipt not in _proofs():
        raise Broken("a receipt holds that nobody has signed")
    if SignedOutcome.parse(receipt.format().encode()) != receipt or not receipt.format().isascii():
        raise Broken("written again it is another receipt")
    return f"receipt {proof.in_time}"


# --- key files

_PASSPHRASE: Final = "correct horse"


@contextlib.contextmanager
def cheap_locks() -> Generator[None]:
    """Let a passphrase cost nothing: what is asked for is still part of the key."""

    def stretch(passphrase: str, salt: bytes, passes: int, memory_kib: int) -> bytes:
        asked = f"{passphrase} {passes} {memory_kib}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(asked + salt).digest()

    real, keyfile._stretch = keyfile._stretch, stretch
    try:
        yield
    finally:
        keyfile._stretch = real


def _secrets() -> tuple[str, ...]:
    return tuple(
        line.split(" ")[-1]
        for keys in (ALICE.identity_keys, ALICE.agent_keys)
        for line in keyfile._write(keys).splitlines()
        if not line.startswith("card")
    )


def _keyfile(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    said: list[str] = []
    with cheap_locks():
        for passphrase in (None, _PASSPHRASE, "another"):
            try:
                keyfile.is_sealed(text)
                keys = keyfile.parse(text, passphrase)
            except KeyFileError as error:
                if any(secret in f"{error} {error.next_step}" for secret in _secrets()):
                    raise Broken("the refusal repeats a key") from error
                said.append(outcome_of(error)[:40])
                continue
            if passphrase == "another" and keyfile.is_sealed(text):
                raise Broken("it opens with another passphrase")
            again = keyfile.format_plain(keys, handle="alice", realm=REALM, created_ms=NOW)
            if keyfile.parse(again) != keys or any(secret in repr(keys) for secret in _secrets()):
                raise Broken("written again it holds other keys, or its repr shows them")
            said.append(type(keys).__name__)
    return " ".join(said)


@functools.cache
def keyfile_seeds() -> Sequence[bytes]:
    """Return key files of both kinds, open and locked."""
    named: dict[str, Any] = {"handle": "alice", "realm": REALM, "created_ms": NOW}
    kinds = (ALICE.identity_keys, ALICE.agent_keys)
    found = [keyfile.format_plain(keys, **named) for keys in kinds]
    with cheap_locks():
        found += [
            keyfile.format_sealed(keys, _PASSPHRASE, passes=1, memory_kib=8_192, **named) for keys in kinds
        ]
    found += [given["text"] for given in vector_inputs("keyfile.read") if len(given["text"]) < 4_096]
    return [text.encode("utf-8", "surrogatepass") for text in found]


def _locked_content(data: bytes) -> str:
    """Any content under the right passphrase: what lies behind the lock is read as strictly."""
    import nacl.bindings

    with cheap_locks():
        sealed = keyfile.format_sealed(
            ALICE.identity_keys,
            _PASSPHRASE,
            handle="alice",
            realm=REALM,
            created_ms=NOW,
            passes=1,
            memory_kib=8_192,
        )
        header = next(line for line in sealed.split("\n") if line.startswith("ringline-key"))
        words = dict(word.split("=", 1) for word in header.split(" ") if "=" in word)
        salt, nonce = b64decode(words["salt"]), b64decode(words["nonce"])
        key = keyfile._stretch(_PASSPHRASE, salt, 1, 8_192)
    locked = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        data, f"{header}\n".encode(), nonce, key
    )
    return _keyfile(f"{header}\n{b64encode(locked)}\n".encode())


def _contents() -> list[bytes]:
    return [keyfile._write(keys).encode() for keys in (ALICE.identity_keys, ALICE.agent_keys)]


def _two_sizes(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    del others
    base = int.from_bytes(data[:3], "big")
    near = base + random.choice((-1, 0, 1, random.randrange(2**20)))
    return (max(near, 0) % 2**24).to_bytes(3, "big") + random.randrange(2**21).to_bytes(3, "big")


TARGETS: Final = (
    Target(
        name="envelope",
        promise="only what was sealed opens; all else is refused by one named reason without plaintext",
        seeds=_envelopes,
        check=_opened,
        mutate=mutate_json,
        short=300,
        full=20_000,
    ),
    Target(
        name="plaintext",
        promise="under a right seal only the signed body with its one padding opens",
        seeds=_plaintexts,
        check=_plaintext,
        short=300,
        full=20_000,
    ),
    Target(
        name="padding",
        promise="padding grows with the body, by 12 % at most, within the cap, and is its own padding",
        seeds=lambda: [b"\0\0\0\0\0\1", b"\0\4\0\0\0\0", b"\1\0\0\0\0\0"],
        check=_padding,
        mutate=_two_sizes,
    ),
    Target(
        name="receipt",
        promise="a receipt holds as it was signed, else an error without its text",
        seeds=genuine_receipts,
        check=_receipt,
        mutate=mutate_json,
    ),
    Target(
        name="key-file",
        promise="a key file reads back as itself, else a KeyFileError that repeats no key",
        seeds=keyfile_seeds,
        check=_keyfile,
        mutate=mutate_lines,
        full=20_000,
    ),
    Target(
        name="key-file-content",
        promise="the same of what a passphrase has locked",
        seeds=_contents,
        check=_locked_content,
        mutate=mutate_lines,
        short=300,
        full=20_000,
    ),
)
