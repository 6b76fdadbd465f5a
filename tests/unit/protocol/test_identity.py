"""Cards: read strictly, signed by their identity, with keys that are fit for use."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.errors import BadSignature, RinglineError, StatementError, WeakKey
from ringline.protocol.identity import NO_NEXT, Card, SignedCard, next_commitment
from ringline.protocol.limits import CARD_LIFE_MS, INT_MAX
from ringline.protocol.signing import SigningKey
from ringline_testing.agents import NOW_MS, REALM, agent, seed
from ringline_testing.weak_keys import NEUTRAL, ORDER_8, mixed_order

ALICE = agent("alice")
CARD = ALICE.card.card

handles = st.from_regex(r"[a-z0-9][a-z0-9-]{1,30}", fullmatch=True)
realms = st.from_regex(r"[a-z0-9.-]{1,253}", fullmatch=True)
keys = st.binary(min_size=32, max_size=32)


@st.composite
def cards(draw: st.DrawFn) -> Card:
    """Any well-formed card."""
    start = draw(st.integers(0, INT_MAX - 1))
    return Card(
        realm=draw(realms),
        handle=draw(handles),
        ipk=draw(keys),
        serial=draw(st.integers(1, 2**32 - 1)),
        not_before=start,
        not_after=draw(st.integers(start + 1, INT_MAX)),
        spk=draw(keys),
        next=draw(keys),
    )


@given(card=cards())
def test_every_card_is_read_back_and_has_one_spelling(card: Card) -> None:
    data = card.encode()
    assert Card.decode(data) == card
    for damaged in (data + b"\0", data[:-1], b"\0" + data):
        with pytest.raises(StatementError):
            Card.decode(damaged)


@given(
    data=st.one_of(
        st.binary(max_size=300), st.binary(max_size=200).map(lambda tail: CARD.encode()[:25] + tail)
    )
)
def test_garbage_is_no_card_and_raises_nothing_else(data: bytes) -> None:
    with pytest.raises(StatementError):
        Card.decode(data)


@given(at=st.integers(0, len(CARD.encode()) - 1), flip=st.integers(1, 255))
def test_no_byte_of_a_signed_card_can_be_changed(at: int, flip: int) -> None:
    data = bytearray(CARD.encode())
    data[at] ^= flip
    with pytest.raises(RinglineError):
        SignedCard.parse(bytes(data), ALICE.card.signature)


@pytest.mark.parametrize(
    "change",
    [
        {"realm": ""},
        {"realm": "Relay"},
        {"realm": "a" * 254},
        {"handle": "a"},
        {"handle": "alice\n"},
        {"handle": "-alice"},
        {"serial": 0},
        {"serial": 2**32},
        {"not_before": -1},
        {"not_after": CARD.not_before},
        {"not_after": 2**53},
        {"ipk": bytes(31)},
        {"spk": bytes(33)},
        {"next": b""},
    ],
    ids=str,
)
def test_a_malformed_card_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(StatementError):
        dataclasses.replace(CARD, **change)


def test_a_name_of_a_malformed_card_is_refused_on_reading_too() -> None:
    data = CARD.encode()
    for old, new in ((b"alice", b"Alice"), (b"alice", b"al\xc3\xa9e"), (b"relay.example", b"relay_example")):
        assert old in data
        with pytest.raises(StatementError):
            Card.decode(data.replace(old, new))


def test_bytes_behind_a_card_are_refused() -> None:
    with pytest.raises(StatementError, match="behind the end"):
        Card.decode(CARD.encode() + b"\0")


def test_the_id_names_the_card_and_not_its_signature() -> None:
    assert CARD.id == dataclasses.replace(CARD).id
    assert CARD.id != dataclasses.replace(CARD, serial=2).id
    assert len(CARD.id) == 32


def test_a_card_is_signed_by_its_own_identity_key_only() -> None:
    ALICE.card.verify(realm=REALM, handle="alice", ipk=ALICE.identity.public)
    with pytest.raises(ValueError, match="own identity"):
        SignedCard.sign(CARD, ALICE.operational)
    for signer in (ALICE.operational, agent("bob").identity):
        with pytest.raises(BadSignature):
            SignedCard(CARD, signer.sign(CARD.encode())).verify()


@pytest.mark.parametrize("signature", [b"", ALICE.card.signature[:-1], ALICE.card.signature + b"\0"])
def test_a_signature_of_another_length_is_refused(signature: bytes) -> None:
    with pytest.raises(StatementError):
        SignedCard(CARD, signature).verify()


@pytest.mark.parametrize(
    "asked", [{"realm": "other.example"}, {"handle": "bob"}, {"ipk": agent("bob").identity.public}], ids=str
)
def test_another_card_than_asked_for_is_refused(asked: dict[str, Any]) -> None:
    """A relay may answer with a true card that is another's, or of another realm, or of a changed key."""
    with pytest.raises(StatementError):
        ALICE.card.verify(**asked)


def test_a_weak_identity_key_is_refused_though_the_library_would_take_its_signature() -> None:
    """Signatures under mixed-order keys verify, so nothing but the check of the key stops this card."""
    for weak in (NEUTRAL, ORDER_8, mixed_order(ALICE.identity.public)):
        with pytest.raises(WeakKey):
            SignedCard(dataclasses.replace(CARD, ipk=weak), ALICE.card.signature).verify()


def test_a_weak_operational_key_is_refused_though_the_card_is_truly_signed() -> None:
    with pytest.raises(WeakKey):
        SignedCard.sign(dataclasses.replace(CARD, spk=NEUTRAL), ALICE.identity).verify()


def test_one_key_in_both_roles_is_refused_though_the_card_is_truly_signed() -> None:
    with pytest.raises(StatementError, match="identity key"):
        SignedCard.sign(dataclasses.replace(CARD, spk=ALICE.identity.public), ALICE.identity).verify()


def test_a_card_may_hold_for_ninety_days_and_an_hour_and_not_longer() -> None:
    longest = dataclasses.replace(CARD, not_before=NOW_MS, not_after=NOW_MS + CARD_LIFE_MS)
    assert CARD_LIFE_MS == (90 * 24 + 1) * 3_600_000
    longest.check_life()
    with pytest.raises(StatementError):
        dataclasses.replace(longest, not_after=longest.not_after + 1).check_life()


def test_a_card_holds_from_its_first_to_before_its_last_millisecond() -> None:
    first, last = CARD.not_before, CARD.not_after
    assert [CARD.holds_at(t) for t in (first - 1, first, last - 1, last)] == [False, True, True, False]
    skewed = [CARD.holds_at(t, skew_ms=10) for t in (first - 11, first - 10, last + 9, last + 10)]
    assert skewed == [False, True, True, False]


def test_a_commitment_hides_and_binds_the_next_key() -> None:
    following = SigningKey(seed("alice/next")).public
    assert next_commitment(following) != next_commitment(ALICE.identity.public)
    assert len(next_commitment(following)) == len(NO_NEXT) == 32
