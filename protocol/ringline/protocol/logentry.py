"""The entries of the key log: every card, succession and revocation that a relay has taken.

An entry is the signed bytes with their signatures behind them, so it proves itself to whoever reads the
log. The label with which the signed bytes begin tells which kind it is::

    card         card       || signature of the identity key
    succession   succession || signature of the new key [ || signature of the old key ]
    revocation   revocation || signature of the identity key
                 revocation || next key, 32 bytes || signature of that key
"""

from typing import TypeAlias

from ringline.protocol.errors import EncodingError, LogError, StatementError
from ringline.protocol.identity import HASH_BYTES, Card, SignedCard
from ringline.protocol.signing import PUBLIC_BYTES, SIGNATURE_BYTES
from ringline.protocol.statements import Revocation, SignedRevocation, SignedSuccession, Succession
from ringline.protocol.transcript import label

__all__ = ["LogEntry", "decode_entry", "encode_entry"]

LogEntry: TypeAlias = SignedCard | SignedSuccession | SignedRevocation
"""What one entry says. Whether its signatures hold is for `verify` of each to tell."""

_SUCCESSION_BYTES = len(label("succession")) + HASH_BYTES + PUBLIC_BYTES + 8
_REVOCATION_BYTES = len(label("revoke")) + HASH_BYTES + 1 + 8


def encode_entry(entry: LogEntry) -> bytes:
    """Return the bytes of an entry: those that are hashed as a leaf."""
    match entry:
        case SignedCard(card=card, signature=signature):
            return card.encode() + signature
        case SignedSuccession(succession=succession, signature=signature, old_signature=old):
            return succession.encode() + signature + (old or b"")
        case SignedRevocation(revocation=revocation, signature=signature, next_ipk=next_ipk):
            return revocation.encode() + (next_ipk or b"") + signature


def decode_entry(data: bytes) -> LogEntry:
    """Return what the bytes of an entry say.

    Raises `LogError` for anything that `encode_entry` would not have written (RL-LOG-017). Signatures are not
    verified: that takes the card that an entry is about.
    """
    try:
        if data.startswith(label("card")):
            return SignedCard(Card.decode(data[:-SIGNATURE_BYTES]), data[-SIGNATURE_BYTES:])
        if data.startswith(label("succession")):
            return _succession(data)
        if data.startswith(label("revoke")):
            return _revocation(data)
    except (StatementError, EncodingError) as error:
        raise LogError(f"an entry of the log is malformed: {error}") from None
    raise LogError("an entry of the log is of no known kind")


def _succession(data: bytes) -> SignedSuccession:
    body, rest = data[:_SUCCESSION_BYTES], data[_SUCCESSION_BYTES:]
    if len(rest) not in (SIGNATURE_BYTES, 2 * SIGNATURE_BYTES):
        raise LogError("a succession in the log has the wrong length")
    new, old = rest[:SIGNATURE_BYTES], rest[SIGNATURE_BYTES:]
    return SignedSuccession(Succession.decode(body), new, old or None)


def _revocation(data: bytes) -> SignedRevocation:
    body, rest = data[:_REVOCATION_BYTES], data[_REVOCATION_BYTES:]
    if len(rest) not in (SIGNATURE_BYTES, PUBLIC_BYTES + SIGNATURE_BYTES):
        raise LogError("a revocation in the log has the wrong length")
    next_ipk, signature = rest[:-SIGNATURE_BYTES], rest[-SIGNATURE_BYTES:]
    return SignedRevocation(Revocation.decode(body), signature, next_ipk or None)
