"""What the product answers to a test vector: the operations of ``spec/vectors``, one function each.

Run as a program it answers JSON lines: ``{"op": …, "input": …}`` on standard input, one line with
``{"result": "accepted", "output": …}`` or ``{"result": "refused", "layer": …}`` for each on standard output.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from ringline.protocol import bodies, codec, envelope, keyfile, token, trace
from ringline.protocol.checkpoint import LogKey, open_checkpoint
from ringline.protocol.contact import Contact
from ringline.protocol.context import OutcomeContext, Party, Recipient, RequestContext
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import (
    BadSignature,
    BodyError,
    CannotOpen,
    ContactError,
    EncodingError,
    FrameError,
    InviteError,
    KeyFileError,
    LogError,
    MessageTooLarge,
    StatementError,
    TokenError,
    WeakKey,
)
from ringline.protocol.fingerprint import fingerprint, safety_number
from ringline.protocol.frames import Direction, Envelope
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.invite import Invite
from ringline.protocol.limits import OUTCOME_CAP_BYTES, REQUEST_CAP_BYTES
from ringline.protocol.logentry import decode_entry
from ringline.protocol.merkle import Tree, leaf_hash, verify_consistency, verify_inclusion
from ringline.protocol.prekeys import Chain, SignedPrekey
from ringline.protocol.signing import SIGNATURE_BYTES
from ringline.protocol.statements import (
    Reason,
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
)
from ringline.protocol.suites import SUITES
from ringline.protocol.tiles import Tile, decode_bundle

__all__ = ["OPERATIONS", "answer"]

Json: TypeAlias = dict[str, Any]


class _Refused(Exception):
    """The input is refused; the argument is the layer."""


def answer(op: str, given: Json) -> Json:
    """Return the answer to one vector. Raises `KeyError` for an operation that is not there."""
    try:
        return {"result": "accepted", "output": OPERATIONS[op](given)}
    except _Refused as refusal:
        return {"result": "refused", "layer": refusal.args[0]}


def _payload(given: Json) -> bytes:
    """The bytes of a text that may be given as pieces, or as hexadecimal."""
    if "hex" in given:
        return bytes.fromhex(given["hex"])
    text: str | list[str | Json] = given["text"]
    pieces = [text] if isinstance(text, str) else text
    whole = "".join(piece if isinstance(piece, str) else piece["repeat"] * piece["times"] for piece in pieces)
    return whole.encode()


def _json_layer(payload: bytes) -> str:
    """Whether a text that was refused is JSON at all."""

    def constant(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(payload.decode("utf-8"), parse_constant=constant)
    except ValueError:
        return "json"
    except RecursionError:
        return "shape"  # so far as anybody can tell
    return "shape"


def _decode(given: Json) -> Json:
    try:
        return {"hex": b64decode(given["text"]).hex()}
    except EncodingError:
        raise _Refused("encoding") from None


def _frame(given: Json) -> Json:
    payload = _payload(given)
    try:
        frame: msgspec.Struct = codec.decode(payload, cast("Direction", given["direction"]))
    except FrameError:
        raise _Refused(_json_layer(payload)) from None
    return {"type": frame.__struct_config__.tag}


def _body(read: Callable[[bytes], object]) -> Callable[[Json], Json]:
    def run(given: Json) -> Json:
        payload = _payload(given)
        try:
            read(payload)
        except MessageTooLarge:
            raise _Refused("size") from None
        except BodyError:
            raise _Refused(_json_layer(payload)) from None
        return {}

    return run


def _trace(given: Json) -> Json:
    return {"traceparent": trace.normalise(given["traceparent"], given["correlation_id"])}


def _padding(given: Json) -> Json:
    cap = REQUEST_CAP_BYTES if given["direction"] == "request" else OUTCOME_CAP_BYTES
    if given["body_bytes"] + envelope.HEAD_BYTES > cap:
        raise _Refused("size")
    return {"plaintext_bytes": envelope.padded_size(given["body_bytes"], cap)}


# --- statements


def _stated(read: Callable[[Json], Json]) -> Callable[[Json], Json]:
    """Turn what is raised about a statement into its layer."""

    def run(given: Json) -> Json:
        try:
            return read(given)
        except (StatementError, EncodingError):
            raise _Refused("structure") from None
        except WeakKey:
            raise _Refused("key") from None
        except BadSignature:
            raise _Refused("signature") from None

    return run


def _shown_card(given: Json) -> Card:
    signed = SignedCard.parse(b64decode(given["card"]), b64decode(given["card_sig"], length=SIGNATURE_BYTES))
    signed.card.check_life()
    return signed.card


@_stated
def _card(given: Json) -> Json:
    signature = b64decode(given["card_sig"], length=SIGNATURE_BYTES)
    signed = SignedCard(Card.decode(b64decode(given["card"])), signature)
    signed.verify(realm=given["realm"], handle=given["handle"])
    signed.card.check_life()
    card = signed.card
    return {
        "card_id": b64encode(card.id),
        "ipk": card.ipk.hex(),
        "spk": card.spk.hex(),
        "serial": card.serial,
        "not_before": card.not_before,
        "not_after": card.not_after,
        "next": card.next.hex(),
    }


@_stated
def _prekey(given: Json) -> Json:
    signature = b64decode(given["prekey_sig"], length=SIGNATURE_BYTES)
    prekey = SignedPrekey.parse(b64decode(given["prekey"]), signature, _shown_card(given)).prekey
    prekey.check_life()
    return {
        "epoch": prekey.epoch,
        "not_before": prekey.not_before,
        "not_after": prekey.not_after,
        "keys": [
            {"suite": key.suite, "public": key.public.hex(), "key_id": b64encode(key.key_id)}
            for key in prekey.keys
        ],
    }


@_stated
def _succession(given: Json) -> Json:
    shown: Json = given["succession"]
    statement = Succession(
        old_card_id=b64decode(shown["old_card_id"]), new_ipk=b64decode(shown["new_ipk"]), ts=shown["ts"]
    )
    old = b64decode(shown["old_sig"]) if "old_sig" in shown else None
    SignedSuccession(statement, b64decode(shown["sig"]), old).verify(_shown_card(given))
    return {"new_ipk": statement.new_ipk.hex(), "signed": statement.encode().hex()}


@_stated
def _revocation(given: Json) -> Json:
    shown: Json = given["revocation"]
    try:
        reason = Reason(shown["reason"])
    except ValueError:
        raise _Refused("structure") from None
    statement = Revocation(card_id=b64decode(shown["card_id"]), reason=reason, ts=shown["ts"])
    following = b64decode(shown["next_ipk"]) if "next_ipk" in shown else None
    SignedRevocation(statement, b64decode(shown["sig"]), following).verify(_shown_card(given))
    return {"signed": statement.encode().hex()}


# --- keys


def _derive(given: Json) -> Json:
    private = SUITES[given["suite"]].private_from_seed(bytes.fromhex(given["seed"]))
    return {"public": private.public.hex(), "key_id": b64encode(private.key_id)}


def _chain(given: Json) -> Json:
    link = Chain(given["epoch"], bytes.fromhex(given["link"])).at(given["of_epoch"])
    statement = link.statement(bytes.fromhex(given["card_id"]), given["suites"])
    return {"link": link.link.hex(), "statement": b64encode(statement.encode())}


def _fingerprint(given: Json) -> Json:
    return {"text": fingerprint(bytes.fromhex(given["ipk"]))}


def _safety_number(given: Json) -> Json:
    number = safety_number(
        given["handle"],
        bytes.fromhex(given["ipk"]),
        given["peer_handle"],
        bytes.fromhex(given["peer_ipk"]),
    )
    return {"text": number}


def _contact(given: Json) -> Json:
    try:
        contact = Contact.parse(given["text"])
    except WeakKey:
        raise _Refused("key") from None
    except ContactError as error:
        said = str(error)
        raise _Refused("key" if "key" in said else "name" if "contact's" in said else "form") from None
    return {
        "handle": contact.handle,
        "realm": contact.realm,
        "ipk": contact.ipk.hex(),
        "base_url": contact.base_url,
        "log": None if contact.log is None else contact.log.hex(),
    }


def _invite(given: Json) -> Json:
    try:
        invite = Invite.parse(given["text"])
    except WeakKey:
        raise _Refused("key") from None
    except InviteError:
        raise _Refused("form") from None
    return {
        "realm": invite.realm,
        "base_url": invite.base_url,
        "secret": invite.secret,
        "handle": invite.handle,
        "inviter": invite.inviter,
        "ipk": None if invite.ipk is None else invite.ipk.hex(),
        "pairing": None if invite.pairing is None else invite.pairing.hex(),
        "log": None if invite.log is None else invite.log.hex(),
    }


def _prove(given: Json) -> Json:
    return {"proof": Invite.parse(given["text"]).prove(given["handle"], bytes.fromhex(given["ipk"]))}


def _keyfile(given: Json) -> Json:
    try:
        keys = keyfile.parse(given["text"], given.get("passphrase"))
    except KeyFileError as error:
        said = str(error)
        raise _Refused("cost" if "cost" in said else "lock" if "passphrase" in said else "form") from None
    if isinstance(keys, keyfile.IdentityKeys):
        following = None if keys.next_seed is None else keys.next_seed.hex()
        return {"kind": "identity", "identity": keys.seed.hex(), "next": following}
    return {
        "kind": "agent",
        "operational": keys.seed.hex(),
        "card": b64encode(keys.card.card.encode()),
        "card_sig": b64encode(keys.card.signature),
        "epoch": keys.chain.epoch,
        "link": keys.chain.link.hex(),
    }


def _token(given: Json) -> Json:
    try:
        claims = token.parse(given["token"])
    except TokenError:
        raise _Refused("form") from None
    try:
        token.verify(claims, bytes.fromhex(given["spk"]))
    except TokenError:
        raise _Refused("signature") from None
    try:
        token.check(
            claims,
            realm=given["realm"],
            method=given["method"],
            path=given["path"],
            now_s=given["now_s"],
            started_s=given["started_s"],
        )
    except TokenError as error:
        raise _Refused("request" if "another" in str(error) else "time") from None
    return {"iss": claims.handle, "sub": b64encode(claims.card_id), "jti": claims.jti}


# --- envelopes

_LAYERS: Final[Mapping[str, str]] = {
    "key": "clear",
    "clear members": "clear",
    "clear ids": "clear",
    "ciphertext encoding": "encoding",
    "seal": "seal",
    "plaintext version": "plaintext",
    "plaintext length": "plaintext",
    "padding": "plaintext",
    "signature": "signature",
    "reply key": "reply_key",
}


def _request_context(given: Json, public: bytes, suite: int) -> RequestContext:
    sender, recipient, sealed = given["from"], given["to"], given["envelope"]
    return RequestContext(
        realm=given["realm"],
        sender=Party(sender["handle"], bytes.fromhex(sender["ipk"]), b64decode(sender["card_id"])),
        recipient=Recipient(recipient["handle"], bytes.fromhex(recipient["ipk"]), suite, public),
        mode=given["mode"],
        message_id=given["message_id"],
        correlation_id=given["correlation_id"],
        iat=sealed["iat"],
        exp=given.get("exp", sealed["exp"]),
    )


def _open(given: Json, *, outcome: bool) -> Json:
    private = SUITES[given["key"]["suite"]].private_from_seed(bytes.fromhex(given["key"]["seed"]))
    context = _request_context(given, private.public, private.suite)
    sealed, spk = Envelope(**given["envelope"]), bytes.fromhex(given["from"]["spk"])
    try:
        if outcome:
            ended = OutcomeContext(
                **{name: getattr(context, name) for name in context.__slots__},
                call_id=given["call_id"],
                terminal=given["terminal"],
                request_digest=bytes.fromhex(given["request_digest"]),
            )
            answered = envelope.open_outcome(sealed, private, ended, spk)
            return {"json": answered.json_bytes.decode(), "context": answered.context.hex()}
        opened = envelope.open_request(sealed, private, context, spk)
    except CannotOpen as error:
        raise _Refused(_LAYERS[error.reason]) from None
    return {
        "json": opened.json_bytes.decode(),
        "reply_public": opened.reply_public.hex(),
        "context": opened.context.hex(),
        "request_digest": opened.digest.hex(),
    }


# --- the key log


def _logged(layer: str, read: Callable[[Json], Json]) -> Callable[[Json], Json]:
    """Turn what is raised about the log into one layer."""

    def run(given: Json) -> Json:
        try:
            return read(given)
        except LogError:
            raise _Refused(layer) from None

    return run


def _log_entry(given: Json) -> Json:
    data = bytes.fromhex(given["hex"])
    match decode_entry(data):
        case SignedCard(card=card):
            kind, card_id = "card", card.id
        case SignedSuccession(succession=succession):
            kind, card_id = "succession", succession.old_card_id
        case SignedRevocation(revocation=revocation):
            kind, card_id = "revocation", revocation.card_id
    return {"kind": kind, "card_id": b64encode(card_id), "leaf": leaf_hash(data).hex()}


def _log_root(given: Json) -> Json:
    tree = Tree()
    for entry in given["entries"]:
        tree.append(leaf_hash(bytes.fromhex(entry)))
    return {"root": tree.root().hex()}


def _hashes(given: Json, *names: str) -> list[bytes]:
    return [bytes.fromhex(given[name]) for name in names]


def _log_inclusion(given: Json) -> Json:
    leaf, root = _hashes(given, "leaf", "root")
    verify_inclusion(
        leaf, given["index"], given["size"], [bytes.fromhex(part) for part in given["proof"]], root
    )
    return {}


def _log_consistency(given: Json) -> Json:
    old, new = _hashes(given, "old_root", "new_root")
    proof = [bytes.fromhex(part) for part in given["proof"]]
    verify_consistency(given["old_size"], old, given["new_size"], new, proof)
    return {}


def _log_tile(given: Json) -> Json:
    tile = Tile.parse(given["path"])
    return {"level": tile.level, "number": tile.number, "width": tile.width}


def _log_bundle(given: Json) -> Json:
    entries = decode_bundle(bytes.fromhex(given["hex"]), given["width"])
    return {"entries": [entry.hex() for entry in entries]}


def _log_checkpoint(given: Json) -> Json:
    try:
        head = open_checkpoint(given["text"].encode(), LogKey.parse(given["key"]))
    except LogError as error:
        raise _Refused("signature" if "sign" in str(error) else "form") from None
    return {"size": head.size, "root": head.root.hex()}


OPERATIONS: Final[Mapping[str, Callable[[Json], Json]]] = {
    "base64url.decode": _decode,
    "body.read_outcome": _body(bodies.decode_outcome),
    "body.read_request": _body(bodies.decode_request),
    "card.read": _card,
    "chain.statement": _chain,
    "contact.read": _contact,
    "envelope.open_outcome": lambda given: _open(given, outcome=True),
    "envelope.open_request": lambda given: _open(given, outcome=False),
    "fingerprint": _fingerprint,
    "frame.read": _frame,
    "invite.prove": _prove,
    "invite.read": _invite,
    "key.derive": _derive,
    "keyfile.read": _keyfile,
    "log.bundle": _logged("form", _log_bundle),
    "log.checkpoint": _log_checkpoint,
    "log.consistency": _logged("proof", _log_consistency),
    "log.entry": _logged("form", _log_entry),
    "log.inclusion": _logged("proof", _log_inclusion),
    "log.root": _log_root,
    "log.tile": _logged("form", _log_tile),
    "padding.size": _padding,
    "prekey.read": _prekey,
    "revocation.read": _revocation,
    "safety_number": _safety_number,
    "succession.read": _succession,
    "token.judge": _token,
    "trace.forward": _trace,
}


def _main() -> None:
    for line in sys.stdin:
        asked = cast("Json", json.loads(line))
        sys.stdout.write(json.dumps(answer(asked["op"], asked["input"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
