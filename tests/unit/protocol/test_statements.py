"""Who may take over a handle, and who may call a card back."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.errors import BadSignature, StatementError, WeakKey
from ringline.protocol.identity import NO_NEXT, Card, next_commitment
from ringline.protocol.limits import INT_MAX
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
    check_replacement,
)
from ringline_testing.agents import NOW_MS, agent, seed
from ringline_testing.weak_keys import NEUTRAL, NEUTRAL_SIGNATURE, mixed_order

OLD = agent("alice").identity
NEW = SigningKey(seed("alice/next"))
THIEF = SigningKey(seed("thief"))
OPEN_CARD = agent("alice").card.card
BOUND_CARD = agent("alice", next=next_commitment(NEW.public)).card.card

hashes = st.binary(min_size=32, max_size=32)
times = st.integers(0, INT_MAX)


def succession(card: Card, new: SigningKey = NEW) -> Succession:
    return Succession(old_card_id=card.id, new_ipk=new.public, ts=NOW_MS)


def revocation(card: Card, reason: Reason = Reason.COMPROMISED) -> Revocation:
    return Revocation(card_id=card.id, reason=reason, ts=NOW_MS)


# --- bytes


@given(old=hashes, new=hashes, ts=times)
def test_every_succession_is_read_back_and_has_one_spelling(old: bytes, new: bytes, ts: int) -> None:
    statement = Succession(old_card_id=old, new_ipk=new, ts=ts)
    data = statement.encode()
    assert Succession.decode(data) == statement
    for damaged in (data + b"\0", data[:-1], b"\0" + data):
        with pytest.raises(StatementError):
            Succession.decode(damaged)


@given(card_id=hashes, reason=st.sampled_from(Reason), ts=times)
def test_every_revocation_is_read_back_and_has_one_spelling(card_id: bytes, reason: Reason, ts: int) -> None:
    statement = Revocation(card_id=card_id, reason=reason, ts=ts)
    data = statement.encode()
    assert Revocation.decode(data) == statement
    for damaged in (data + b"\0", data[:-1], b"\0" + data):
        with pytest.raises(StatementError):
            Revocation.decode(damaged)


@given(data=st.binary(max_size=150))
def test_garbage_is_no_statement_and_raises_nothing_else(data: bytes) -> None:
    for read in (Succession.decode, Revocation.decode):
        with pytest.raises(StatementError):
            read(data)


def test_the_bytes_are_those_of_the_design() -> None:
    assert succession(OPEN_CARD).encode() == (
        b"\0\x16ringline-v1/succession" + OPEN_CARD.id + NEW.public + NOW_MS.to_bytes(8, "big")
    )
    assert revocation(OPEN_CARD).encode() == (
        b"\0\x12ringline-v1/revoke" + OPEN_CARD.id + b"\x01" + NOW_MS.to_bytes(8, "big")
    )
    assert [int(reason) for reason in Reason] == [0, 1, 2]


def test_a_reason_that_is_not_known_is_refused() -> None:
    data = bytearray(revocation(OPEN_CARD).encode())
    data[-9] = 3
    with pytest.raises(StatementError, match="reason"):
        Revocation.decode(bytes(data))


@pytest.mark.parametrize(
    "change", [{"old_card_id": b""}, {"new_ipk": bytes(33)}, {"ts": -1}, {"ts": 2**53}], ids=str
)
def test_a_malformed_succession_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(StatementError):
        dataclasses.replace(succession(OPEN_CARD), **change)


@pytest.mark.parametrize("change", [{"card_id": b""}, {"ts": -1}, {"ts": 2**53}], ids=str)
def test_a_malformed_revocation_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(StatementError):
        dataclasses.replace(revocation(OPEN_CARD), **change)


# --- succession


def test_the_committed_key_takes_over_by_its_own_word() -> None:
    SignedSuccession.sign(succession(BOUND_CARD), NEW).verify(BOUND_CARD)
    SignedSuccession.sign(succession(BOUND_CARD), NEW, OLD).verify(BOUND_CARD)


def test_a_thief_of_the_identity_key_cannot_name_a_successor_of_his_own() -> None:
    with pytest.raises(StatementError, match="committed"):
        SignedSuccession.sign(succession(BOUND_CARD, THIEF), THIEF, OLD).verify(BOUND_CARD)


def test_without_a_commitment_the_old_key_must_sign_as_well() -> None:
    SignedSuccession.sign(succession(OPEN_CARD), NEW, OLD).verify(OPEN_CARD)
    with pytest.raises(StatementError, match="not signed"):
        SignedSuccession.sign(succession(OPEN_CARD), NEW).verify(OPEN_CARD)
    with pytest.raises(BadSignature):
        SignedSuccession.sign(succession(OPEN_CARD), NEW, THIEF).verify(OPEN_CARD)


def test_an_old_signature_that_is_there_must_hold_even_where_none_is_needed() -> None:
    with pytest.raises(BadSignature):
        SignedSuccession.sign(succession(BOUND_CARD), NEW, THIEF).verify(BOUND_CARD)


def test_the_new_key_must_have_signed() -> None:
    statement = succession(BOUND_CARD)
    with pytest.raises(BadSignature):
        SignedSuccession(statement, THIEF.sign(statement.encode())).verify(BOUND_CARD)
    with pytest.raises(ValueError, match="key it names"):
        SignedSuccession.sign(statement, THIEF)


def test_a_succession_of_another_card_is_refused() -> None:
    with pytest.raises(StatementError, match="another card"):
        SignedSuccession.sign(succession(OPEN_CARD), NEW, OLD).verify(BOUND_CARD)


def test_a_succession_to_the_same_key_is_refused() -> None:
    with pytest.raises(StatementError, match="same key"):
        SignedSuccession.sign(succession(OPEN_CARD, OLD), OLD, OLD).verify(OPEN_CARD)


def test_a_weak_new_key_is_refused_though_it_is_the_committed_one() -> None:
    for weak in (NEUTRAL, mixed_order(NEW.public)):
        card = dataclasses.replace(OPEN_CARD, next=next_commitment(weak))
        statement = Succession(old_card_id=card.id, new_ipk=weak, ts=NOW_MS)
        with pytest.raises(WeakKey):
            SignedSuccession(statement, NEUTRAL_SIGNATURE).verify(card)


# --- revocation


def test_the_identity_key_or_the_committed_next_key_may_revoke() -> None:
    by_identity = SignedRevocation.sign(revocation(BOUND_CARD), OLD, by="identity")
    by_next = SignedRevocation.sign(revocation(BOUND_CARD), NEW, by="next")
    assert (by_identity.by, by_identity.next_ipk) == ("identity", None)
    assert (by_next.by, by_next.next_ipk) == ("next", NEW.public)
    by_identity.verify(BOUND_CARD)
    by_next.verify(BOUND_CARD)


def test_the_operational_key_may_not_revoke() -> None:
    signed = SignedRevocation.sign(revocation(BOUND_CARD), agent("alice").operational, by="identity")
    with pytest.raises(BadSignature):
        signed.verify(BOUND_CARD)


def test_a_next_key_that_was_not_committed_to_may_not_revoke() -> None:
    for card in (BOUND_CARD, OPEN_CARD):
        with pytest.raises(StatementError, match="committed"):
            SignedRevocation.sign(revocation(card), THIEF, by="next").verify(card)
    assert OPEN_CARD.next == NO_NEXT


def test_a_weak_next_key_is_refused_though_it_is_the_committed_one() -> None:
    for weak in (NEUTRAL, mixed_order(NEW.public)):
        card = dataclasses.replace(OPEN_CARD, next=next_commitment(weak))
        with pytest.raises(WeakKey):
            SignedRevocation(revocation(card), NEUTRAL_SIGNATURE, weak).verify(card)


def test_a_revocation_of_another_card_is_refused() -> None:
    signed = SignedRevocation.sign(revocation(OPEN_CARD), OLD, by="identity")
    signed.verify(OPEN_CARD)
    with pytest.raises(StatementError, match="another card"):
        signed.verify(BOUND_CARD)


# --- one card in the place of another


def test_a_later_card_of_the_same_identity_replaces_an_earlier_one() -> None:
    check_replacement(OPEN_CARD, dataclasses.replace(OPEN_CARD, serial=2))
    check_replacement(OPEN_CARD, dataclasses.replace(OPEN_CARD, serial=9))


@pytest.mark.parametrize("named", [NO_NEXT, next_commitment(THIEF.public)], ids=["none", "another"])
def test_within_one_identity_the_commitment_to_the_next_one_stays_once_it_was_made(named: bytes) -> None:
    following = dataclasses.replace(BOUND_CARD, serial=BOUND_CARD.serial + 1, next=named)
    with pytest.raises(StatementError, match="another successor"):
        check_replacement(BOUND_CARD, following)
    check_replacement(OPEN_CARD, dataclasses.replace(OPEN_CARD, serial=2, next=BOUND_CARD.next))


@pytest.mark.parametrize("serial", [1, 2])
def test_a_card_that_is_not_later_replaces_nothing(serial: int) -> None:
    with pytest.raises(StatementError, match="later"):
        check_replacement(
            dataclasses.replace(OPEN_CARD, serial=2), dataclasses.replace(OPEN_CARD, serial=serial)
        )


@pytest.mark.parametrize("change", [{"handle": "alicia"}, {"realm": "other.example"}], ids=str)
def test_a_card_of_another_name_replaces_nothing(change: dict[str, Any]) -> None:
    with pytest.raises(StatementError, match="handle or realm"):
        check_replacement(OPEN_CARD, dataclasses.replace(OPEN_CARD, serial=2, **change))


def test_a_handle_passes_to_another_identity_only_by_a_succession_to_that_very_key() -> None:
    following = dataclasses.replace(BOUND_CARD, serial=2, ipk=NEW.public)
    signed = SignedSuccession.sign(succession(BOUND_CARD), NEW)
    check_replacement(BOUND_CARD, following, signed)
    with pytest.raises(StatementError, match="no succession"):
        check_replacement(BOUND_CARD, following)
    with pytest.raises(StatementError, match="another key"):
        check_replacement(BOUND_CARD, dataclasses.replace(following, ipk=THIEF.public), signed)
    forged = SignedSuccession(signed.succession, THIEF.sign(signed.succession.encode()))
    with pytest.raises(BadSignature):
        check_replacement(BOUND_CARD, following, forged)
