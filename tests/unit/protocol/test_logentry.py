"""An entry of the key log is signed bytes and signatures, and is read in one way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.errors import LogError
from ringline.protocol.identity import SignedCard, next_commitment
from ringline.protocol.logentry import LogEntry, decode_entry, encode_entry
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
)
from ringline_testing.agents import NOW_MS, agent, seed

OLD = agent("alice").identity
NEW = SigningKey(seed("alice/next"))
CARD = agent("alice", next=next_commitment(NEW.public)).card
_SUCCESSION = Succession(old_card_id=CARD.card.id, new_ipk=NEW.public, ts=NOW_MS)
_REVOCATION = Revocation(card_id=CARD.card.id, reason=Reason.COMPROMISED, ts=NOW_MS)

ENTRIES: dict[str, LogEntry] = {
    "card": CARD,
    "succession": SignedSuccession.sign(_SUCCESSION, NEW),
    "succession that both keys signed": SignedSuccession.sign(_SUCCESSION, NEW, OLD),
    "revocation": SignedRevocation.sign(_REVOCATION, OLD, by="identity"),
    "revocation by the next key": SignedRevocation.sign(_REVOCATION, NEW, by="next"),
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_is_read_back_and_still_proves_itself(entry: LogEntry) -> None:
    found = decode_entry(encode_entry(entry))
    assert found == entry
    if isinstance(found, SignedCard):
        found.verify(handle="alice")
    else:
        found.verify(CARD.card)


def test_an_entry_is_the_signed_bytes_and_the_signatures_and_nothing_else() -> None:
    assert encode_entry(CARD) == CARD.card.encode() + CARD.signature
    succession = ENTRIES["succession that both keys signed"]
    assert isinstance(succession, SignedSuccession)
    assert succession.old_signature is not None
    assert encode_entry(succession) == (
        succession.succession.encode() + succession.signature + succession.old_signature
    )
    revocation = ENTRIES["revocation by the next key"]
    assert isinstance(revocation, SignedRevocation)
    assert encode_entry(revocation) == revocation.revocation.encode() + NEW.public + revocation.signature


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_of_any_other_length_is_refused(entry: LogEntry) -> None:
    data = encode_entry(entry)
    for damaged in (data[:-1], data + b"\0", b"\0" + data, data[1:], data + bytes(64), data[:-64]):
        try:
            found = decode_entry(damaged)
        except LogError:
            continue
        # With 64 bytes more or less, a succession is one with or without the old key's signature.
        assert isinstance(found, SignedSuccession)
        assert encode_entry(found) == damaged


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x10ringline-v1/card", b"\x00\x12ringline-v1/prekey" + bytes(200)]
)
def test_what_is_none_of_the_three_statements_is_no_entry(data: bytes) -> None:
    with pytest.raises(LogError):
        decode_entry(data)


def test_a_reason_that_is_not_known_is_refused() -> None:
    data = bytearray(encode_entry(ENTRIES["revocation"]))
    data[2 + len("ringline-v1/revoke") + 32] = 9
    with pytest.raises(LogError, match="reason"):
        decode_entry(bytes(data))


@given(st.sampled_from(list(ENTRIES.values())), st.integers(0, 400), st.integers(0, 7), st.integers(0, 400))
def test_damaged_bytes_are_refused_or_are_the_one_spelling_of_another_entry(
    entry: LogEntry, place: int, bit: int, length: int
) -> None:
    damaged = bytearray(encode_entry(entry))
    damaged[place % len(damaged)] ^= 1 << bit
    for data in (bytes(damaged), bytes(damaged[:length])):
        try:
            found = decode_entry(data)
        except LogError:
            continue
        assert encode_entry(found) == data
