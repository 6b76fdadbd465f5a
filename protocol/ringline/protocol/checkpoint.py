"""What a log promises at one moment: so many entries, under this root, signed (C2SP tlog-checkpoint).

A checkpoint is a signed note: text for people and programs, and below it lines of signatures::

    relay.example/v1/log
    3
    rrq8/idLcKFPsGel+lUmTbD6m1Gp9eC6BVkVjzKeBnc=

    — relay.example/v1/log Fp2ZdC0m...

A verifier knows the key in advance and passes over the signatures of others, so that witnesses may add
theirs.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final, final

from ringline.protocol.errors import BadSignature, LogError
from ringline.protocol.identity import HASH_BYTES
from ringline.protocol.limits import INT_MAX
from ringline.protocol.signing import PUBLIC_BYTES, SIGNATURE_BYTES, SigningKey, check_public, verify
from ringline.protocol.transcript import digest

__all__ = ["CHECKPOINT_BYTES", "Checkpoint", "LogKey", "log_origin", "open_checkpoint", "sign_checkpoint"]

CHECKPOINT_BYTES: Final = 131_072
"""A checkpoint above this is not read; it leaves room for sixteen signatures of any kind."""

_ED25519: Final = b"\x01"
_ID_BYTES: Final = 4
_LINES: Final = 3
_SIGNATURES: Final = 64
_NAME_CHARS: Final = 512
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
_LINE: Final = re.compile("\u2014 ([^ ]+) ([^ ]+)")
_KEY: Final = re.compile(r"([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)", re.ASCII)


def log_origin(realm: str) -> str:
    """Return the origin line of the key log of a realm, which is also the name of its key."""
    return f"{realm}/v1/log"


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The log ``origin`` has ``size`` entries under ``root`` (32 bytes). Raises `LogError` when malformed."""

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        if not _is_name(self.origin):
            raise LogError("the checkpoint's origin is no name of a log")
        if not 0 <= self.size <= INT_MAX:
            raise LogError("the checkpoint's size is out of range")
        if len(self.root) != HASH_BYTES:
            raise LogError("the checkpoint's root has the wrong length")

    @property
    def text(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{_b64(self.root)}\n"


@final
@dataclass(frozen=True, slots=True)
class LogKey:
    """A log's public key under its name. Raises `LogError` for what is no name, `WeakKey` for a bad key."""

    name: str
    public: bytes
    """Ed25519, 32 bytes."""

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise LogError("the name of a log's key is a text without spaces and plus signs")
        check_public(self.public)

    @property
    def id(self) -> bytes:
        """The four bytes that stand for it before a signature (C2SP signed-note)."""
        return digest(self.name.encode() + b"\n" + _ED25519 + self.public)[:_ID_BYTES]

    def format(self) -> str:
        """Return the key as one word, as tools for signed notes read it."""
        return f"{self.name}+{self.id.hex()}+{_b64(_ED25519 + self.public)}"

    @classmethod
    def parse(cls, text: str) -> "LogKey":
        """Read what `format` gives. Raises `LogError` for anything else, `WeakKey`."""
        match = _KEY.fullmatch(text)
        if match is None:
            raise LogError("this is no key of a log: NAME+ID+KEY")
        name, key_id, encoded = match.groups()
        data = _unb64(encoded, 1 + PUBLIC_BYTES)
        if not data.startswith(_ED25519):
            raise LogError("the key of the log is of a kind that is not known here")
        key = cls(name, data[1:])
        if key.id.hex() != key_id:
            raise LogError("the key of the log is damaged: its id is that of another key")
        return key


def sign_checkpoint(checkpoint: Checkpoint, key: SigningKey) -> bytes:
    """Return the checkpoint as a note, signed by the log's own key. The same bytes every time."""
    text = checkpoint.text
    log_key = LogKey(checkpoint.origin, key.public)
    line = f"\u2014 {log_key.name} {_b64(log_key.id + key.sign(text.encode()))}\n"
    return f"{text}\n{line}".encode()


def open_checkpoint(note: bytes, key: LogKey) -> Checkpoint:
    """Return what a note promises, if the log with that key has signed it, whoever else has.

    Raises `LogError` for anything else: a note that is malformed, of another origin than the key's name,
    not signed by that key, or with a signature of it that does not hold.
    """
    text, signatures = _split(note)
    mine = [
        signature[_ID_BYTES:]
        for name, signature in signatures
        if name == key.name and signature[:_ID_BYTES] == key.id
    ]
    if not mine:
        raise LogError("the checkpoint is not signed by the key of the log that is known here")
    for signature in mine:
        if len(signature) != SIGNATURE_BYTES:
            raise LogError("the signature of the checkpoint has the wrong length")
        try:
            verify(key.public, text.encode(), signature)
        except BadSignature:
            raise LogError("the signature of the checkpoint does not hold") from None
    # Nothing of the text was looked at before this.
    lines = text.split("\n")[:-1]
    if lines[0] != key.name:
        raise LogError("the checkpoint is of another log")
    if len(lines) < _LINES or not all(lines) or not _SIZE.fullmatch(lines[1]):
        raise LogError("the checkpoint is malformed")
    origin, size, root = lines[:_LINES]
    return Checkpoint(origin, int(size), _unb64(root, HASH_BYTES))


def _split(note: bytes) -> tuple[str, list[tuple[str, bytes]]]:
    """The text of a note and its signatures, as name and bytes."""
    if len(note) > CHECKPOINT_BYTES:
        raise LogError("the checkpoint is too large")
    try:
        whole = note.decode("utf-8")
    except UnicodeDecodeError:
        raise LogError("the checkpoint is not UTF-8") from None
    if any(char < " " and char != "\n" for char in whole):
        raise LogError("the checkpoint holds control characters")
    text, mark, below = whole.rpartition("\n\n")
    if not mark or not below.endswith("\n"):
        raise LogError("the checkpoint is malformed")
    lines = below.split("\n")[:-1]
    if len(lines) > _SIGNATURES:
        raise LogError("the checkpoint has too many signatures")
    signatures: list[tuple[str, bytes]] = []
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or not _is_name(match[1]):
            raise LogError("a signature of the checkpoint is malformed")
        signatures.append((match[1], _unb64(match[2])))
    return f"{text}\n", signatures


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _NAME_CHARS and text.isprintable() and not re.search(r"[\s+]", text)


def _b64(data: bytes) -> str:
    """The alphabet and padding of RFC 4648 §4, which is that of notes and of nothing else here."""
    return base64.b64encode(data).decode("ascii")


def _unb64(text: str, length: int | None = None) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LogError("a text of the log is not base64") from None
    if _b64(data) != text or (length is not None and len(data) != length):
        raise LogError("a text of the log is not canonical base64 of its length")
    return data
