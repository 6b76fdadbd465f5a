"""Prekeys: statements, the chain behind them, and when its secrets go."""

import dataclasses
import hmac
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.protocol import prekeys
from ringline.protocol.errors import BadSignature, RinglineError, StatementError, WeakKey
from ringline.protocol.limits import INT_MAX, PREKEY_LIFE_MS
from ringline.protocol.prekeys import (
    EPOCH_MS,
    Chain,
    Prekey,
    SealingKey,
    SignedPrekey,
    delete_at,
    epoch_at,
    keep_from,
    window,
)
from ringline.protocol.suites import SUITES
from ringline.protocol.transcript import digest, label, u16
from ringline_testing.agents import NOW_MS, agent, seed

HOUR = 3_600_000
DAY = 24 * HOUR
TAIL = 72 * HOUR + 240_000
BOB = agent("bob")
CARD = BOB.card.card
EPOCH = epoch_at(NOW_MS)
CHAIN = Chain(EPOCH, seed("chain"))
LAST = (INT_MAX - PREKEY_LIFE_MS + HOUR) // EPOCH_MS
"""The last epoch whose statement ends at a time that can be written."""
STATEMENT = CHAIN.statement(CARD.id, SUITES)
SIGNED = SignedPrekey.sign(STATEMENT, BOB.operational)

unknown_keys = st.dictionaries(st.integers(3, 0xFFFF), st.binary(max_size=40), min_size=1, max_size=4).map(
    lambda found: tuple(SealingKey(suite, found[suite]) for suite in sorted(found))
)


# --- statements


def test_the_size_is_that_of_the_design() -> None:
    assert len(CHAIN.statement(CARD.id, [2]).encode()) == 1293


@given(keys=unknown_keys, epoch=st.integers(0, 2**32 - 1), start=st.integers(0, 2**52))
def test_every_statement_is_read_back_and_has_one_spelling(
    keys: tuple[SealingKey, ...], epoch: int, start: int
) -> None:
    statement = Prekey(card_id=CARD.id, epoch=epoch, not_before=start, not_after=start + 1, keys=keys)
    data = statement.encode()
    assert Prekey.decode(data) == statement
    for damaged in (data + b"\0", data[:-1], b"\0" + data):
        with pytest.raises(StatementError):
            Prekey.decode(damaged)


@given(
    data=st.one_of(
        st.binary(max_size=300), st.binary(max_size=200).map(lambda t: STATEMENT.encode()[:20] + t)
    )
)
def test_garbage_is_no_statement_and_raises_nothing_else(data: bytes) -> None:
    with pytest.raises(StatementError):
        Prekey.decode(data)


@given(at=st.integers(0, len(STATEMENT.encode()) - 1), flip=st.integers(1, 255))
@settings(max_examples=60)
def test_no_byte_of_a_signed_statement_can_be_changed(at: int, flip: int) -> None:
    data = bytearray(STATEMENT.encode())
    data[at] ^= flip
    with pytest.raises(RinglineError):
        SignedPrekey.parse(bytes(data), SIGNED.signature, CARD)


A, B = SealingKey(3, b"a"), SealingKey(4, b"b")


@pytest.mark.parametrize(
    "change",
    [
        {"card_id": bytes(31)},
        {"epoch": -1},
        {"epoch": 2**32},
        {"not_before": -1},
        {"not_after": STATEMENT.not_before},
        {"not_after": 2**53},
        {"keys": ()},
        {"keys": (A,) * 256},
        {"keys": (B, A)},
        {"keys": (A, A)},
        {"keys": (SealingKey(-1, b""),)},
        {"keys": (SealingKey(0x10000, b""),)},
        {"keys": (SealingKey(1, bytes(31)),)},
        {"keys": (SealingKey(2, bytes(32)),)},
    ],
    ids=str,
)
def test_a_malformed_statement_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(StatementError):
        dataclasses.replace(STATEMENT, **change)


def test_bytes_behind_a_statement_are_refused() -> None:
    with pytest.raises(StatementError, match="behind the end"):
        Prekey.decode(STATEMENT.encode() + b"\0")


def test_a_statement_is_signed_by_the_operational_key_of_its_card() -> None:
    SIGNED.verify(CARD)
    assert SignedPrekey.parse(STATEMENT.encode(), SIGNED.signature, CARD) == SIGNED
    for signer in (BOB.identity, agent("alice").operational):
        with pytest.raises(BadSignature):
            SignedPrekey.sign(STATEMENT, signer).verify(CARD)
    with pytest.raises(StatementError):
        SignedPrekey(STATEMENT, SIGNED.signature[:-1]).verify(CARD)


def test_a_statement_under_another_card_is_refused_though_the_same_key_signed_both() -> None:
    later = dataclasses.replace(CARD, serial=2)
    with pytest.raises(StatementError, match="another card"):
        SIGNED.verify(later)


@pytest.mark.parametrize("suite", SUITES)
def test_a_key_that_must_not_be_sealed_to_is_refused_though_truly_signed(suite: int) -> None:
    good = CHAIN.private(suite).public
    for bad in (good[:-32] + bytes(32), good[:-1] + bytes([good[-1] | 0x80])):
        statement = dataclasses.replace(STATEMENT, keys=(SealingKey(suite, bad),))
        with pytest.raises(WeakKey):
            SignedPrekey.sign(statement, BOB.operational).verify(CARD)


def test_a_statement_may_hold_for_fourteen_days_and_an_hour_and_not_longer() -> None:
    assert PREKEY_LIFE_MS == (14 * 24 + 1) * HOUR
    STATEMENT.check_life()
    assert STATEMENT.not_after - STATEMENT.not_before == PREKEY_LIFE_MS
    with pytest.raises(StatementError):
        dataclasses.replace(STATEMENT, not_after=STATEMENT.not_after + 1).check_life()


def test_a_statement_holds_from_its_first_to_before_its_last_millisecond() -> None:
    first, last = STATEMENT.not_before, STATEMENT.not_after
    assert [STATEMENT.holds_at(t) for t in (first - 1, first, last - 1, last)] == [False, True, True, False]
    skewed = [STATEMENT.holds_at(t, skew_ms=10) for t in (first - 11, first - 10, last + 9, last + 10)]
    assert skewed == [False, True, True, False]


def test_the_best_key_is_that_of_the_highest_suite_known_and_allowed() -> None:
    later = SealingKey(9, b"from the future")
    statement = dataclasses.replace(STATEMENT, keys=(*STATEMENT.keys, later))
    assert statement.best() == STATEMENT.keys[1]
    assert statement.best({1, 2, 9}) == STATEMENT.keys[1]
    assert statement.best({1}) == STATEMENT.keys[0]
    assert statement.best(()) is None
    assert dataclasses.replace(STATEMENT, keys=(later,)).best() is None


def test_a_suite_that_does_not_run_here_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prekeys, "available_suites", lambda: (1,))
    assert STATEMENT.best() == STATEMENT.keys[0]
    assert STATEMENT.best({2}) is None


def test_a_signed_statement_with_a_suite_of_the_future_verifies() -> None:
    statement = dataclasses.replace(STATEMENT, keys=(*STATEMENT.keys, SealingKey(9, b"x")))
    SignedPrekey.sign(statement, BOB.operational).verify(CARD)


# --- the chain


def test_epochs_are_days_and_a_statement_covers_fourteen_of_them_with_an_hour_before() -> None:
    assert EPOCH_MS == DAY
    assert [epoch_at(t) for t in (0, DAY - 1, DAY)] == [0, 0, 1]
    assert window(20_000) == (20_000 * DAY - HOUR, 20_014 * DAY)
    assert (STATEMENT.not_before, STATEMENT.not_after) == window(EPOCH)


def test_links_follow_from_one_another_by_the_hash_of_the_design() -> None:
    link = digest(label("chain") + CHAIN.link)
    assert CHAIN.at(EPOCH + 1).link == link
    assert CHAIN.at(EPOCH + 2).link == digest(label("chain") + link)
    assert CHAIN.at(EPOCH + 5).at(EPOCH + 9) == CHAIN.at(EPOCH + 9)
    assert CHAIN.at(EPOCH) == CHAIN


@pytest.mark.parametrize("suite", SUITES)
def test_seeds_come_from_a_link_by_hkdf_of_rfc_5869(suite: int) -> None:
    prk = hmac.digest(b"", CHAIN.link, "sha256")
    expected = hmac.digest(prk, label("seed") + u16(suite) + b"\x01", "sha256")
    assert CHAIN.private(suite).seed == expected


def test_two_hosts_with_one_chain_publish_the_same_bytes() -> None:
    other_host = Chain(EPOCH - 3, seed("shared")).at(EPOCH)
    here = Chain(EPOCH - 3, seed("shared")).at(EPOCH - 1).at(EPOCH)
    one, two = (
        chain.statement(CARD.id, suites) for chain, suites in ((other_host, [2, 1]), (here, [1, 2, 2]))
    )
    assert one.encode() == two.encode()
    assert SignedPrekey.sign(one, BOB.operational) == SignedPrekey.sign(two, BOB.operational)


def test_a_link_that_was_left_behind_is_gone() -> None:
    later = CHAIN.at(EPOCH + 4)
    with pytest.raises(ValueError, match="gone"):
        later.at(EPOCH + 3)


def test_a_chain_starts_at_random_and_shows_no_link() -> None:
    one, two = Chain.start(EPOCH), Chain.start(EPOCH)
    assert one.link != two.link
    assert one.epoch == EPOCH
    assert one.link.hex() not in repr(one)
    assert repr(one.link) not in repr(one)


def test_the_last_chain_has_a_statement() -> None:
    assert Chain(LAST, bytes(32)).statement(CARD.id, [1]).not_after <= INT_MAX


@pytest.mark.parametrize(
    ("epoch", "link"), [(0, b""), (0, bytes(33)), (-1, bytes(32)), (2**32, bytes(32)), (LAST + 1, bytes(32))]
)
def test_a_malformed_chain_is_not_made(epoch: int, link: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Chain(epoch, link)


def test_a_keyring_finds_the_key_of_every_epoch_that_is_held() -> None:
    ring = CHAIN.keyring(EPOCH + 2, [1, 2])
    assert len(ring) == 6
    for epoch in range(EPOCH, EPOCH + 3):
        for key in CHAIN.at(epoch).statement(CARD.id, [1, 2]).keys:
            assert ring[key.key_id].public == key.public
            assert ring[key.key_id].suite == key.suite
    assert CHAIN.keyring(EPOCH - 1, [1]) == {}


# --- when secrets go


def test_a_superseded_secret_goes_a_day_and_the_longest_call_after_its_successor_was_published() -> None:
    not_after = window(EPOCH)[1]
    assert delete_at(not_after, NOW_MS) == NOW_MS + 24 * HOUR + TAIL


def test_any_secret_goes_the_longest_call_after_its_statement_ran_out() -> None:
    not_after = window(EPOCH)[1]
    assert delete_at(not_after, None) == not_after + TAIL
    # A successor that comes when nobody may seal to the old one any more does not prolong its life.
    assert delete_at(not_after, not_after + DAY) == not_after + TAIL


def test_while_the_owner_publishes_daily_about_four_days_are_kept() -> None:
    published = {epoch: epoch * DAY for epoch in range(EPOCH - 20, EPOCH + 1)}
    kept = keep_from(published, EPOCH * DAY)
    assert EPOCH - kept == 5
    assert keep_from(published, EPOCH * DAY + 240_000) == EPOCH - 4


def test_an_owner_who_was_away_keeps_what_callers_may_have_sealed_to() -> None:
    published = {EPOCH - 10: (EPOCH - 10) * DAY, EPOCH: EPOCH * DAY}
    assert keep_from(published, EPOCH * DAY) == EPOCH - 10
    assert keep_from(published, EPOCH * DAY + 24 * HOUR + TAIL - 1) == EPOCH - 10
    assert keep_from(published, EPOCH * DAY + 24 * HOUR + TAIL) == EPOCH


def test_with_nothing_published_or_all_run_out_the_present_epoch_is_the_first_that_is_needed() -> None:
    assert keep_from({}, NOW_MS) == EPOCH
    assert keep_from({EPOCH - 40: (EPOCH - 40) * DAY}, NOW_MS) == EPOCH
    assert keep_from({EPOCH + 1: NOW_MS}, NOW_MS) == EPOCH
