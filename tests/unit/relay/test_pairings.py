"""Pairings at the relay, asked directly: one claim, one answer, one reply, and an end for all of it."""

from collections.abc import Callable

import pytest

from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.protocol.limits import NAMEPLATES, PAIRINGS, PAIRINGS_PER_IDENTITY
from ringline.relay.pairings import PairingBook

NOW = Instant(1_790_000_000_000, 5_000)
LIFE = 600_000
ALICE, BOB, MALLORY = "a" * 22, "b" * 22, "m" * 22


def book(
    draw: Callable[[int], int] = lambda below: 6, is_enrolled: Callable[[str], bool] = lambda handle: True
) -> PairingBook:
    return PairingBook(LIFE, draw=draw, is_enrolled=is_enrolled)


def refused(ask: Callable[[], object]) -> str:
    with pytest.raises(HttpProblem) as caught:
        ask()
    return caught.value.code


def test_three_messages_are_handed_on() -> None:
    pairings = book()
    made = pairings.open("alice", "offer", NOW)
    assert (made.nameplate, made.state, made.expires_at) == ("7", "open", NOW.wall + LIFE)
    assert pairings.claim("7", BOB, NOW).offer == "offer"
    assert pairings.of_inviter("7", "alice", NOW).state == "claimed"
    assert pairings.answer("7", BOB, "answer", NOW).state == "answered"
    assert pairings.of_inviter("7", "alice", NOW).answer == "answer"
    assert pairings.reply("7", "alice", "reply", NOW).state == "replied"
    meeting = pairings.claimed("7", BOB, NOW)
    assert meeting.reply == "reply"
    pairings.received(meeting)
    assert pairings.of_inviter("7", "alice", NOW).state == "received"


def test_the_first_claim_is_the_only_one() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    pairings.claim("7", BOB, NOW)
    assert refused(lambda: pairings.claim("7", MALLORY, NOW)) == "not_found"
    # A lost answer is asked for again.
    assert pairings.claim("7", BOB, NOW).offer == "offer"
    pairings.answer("7", BOB, "answer", NOW)
    assert refused(lambda: pairings.claim("7", MALLORY, NOW)) == "not_found"
    assert refused(lambda: pairings.answer("7", MALLORY, "answer", NOW)) == "not_found"
    assert pairings.claim("7", BOB, NOW).state == "answered"


def test_nobody_has_a_pairing_without_the_secret_of_its_claim() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    for secret in ("", BOB):
        assert refused(lambda secret=secret: pairings.claimed("7", secret, NOW)) == "not_found"  # type: ignore[misc]
        assert refused(lambda secret=secret: pairings.answer("7", secret, "x", NOW)) == "not_found"  # type: ignore[misc]
    assert pairings.of_inviter("7", "alice", NOW).state == "open"


def test_one_answer_and_one_reply_are_taken_and_may_be_repeated() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    pairings.claim("7", BOB, NOW)
    assert refused(lambda: pairings.reply("7", "alice", "reply", NOW)) == "conflict"
    for _ in range(2):
        pairings.answer("7", BOB, "answer", NOW)
    assert refused(lambda: pairings.answer("7", BOB, "another", NOW)) == "conflict"
    for _ in range(2):
        pairings.reply("7", "alice", "reply", NOW)
    assert refused(lambda: pairings.reply("7", "alice", "another", NOW)) == "conflict"
    assert pairings.answer("7", BOB, "answer", NOW).reply == "reply"
    assert refused(lambda: pairings.answer("7", BOB, "another", NOW)) == "conflict"


def test_only_the_inviter_has_the_other_side() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    pairings.claim("7", BOB, NOW)
    pairings.answer("7", BOB, "answer", NOW)
    for ask in (
        lambda: pairings.of_inviter("7", "mallory", NOW),
        lambda: pairings.reply("7", "mallory", "reply", NOW),
        lambda: pairings.void("7", "mallory", NOW),
        lambda: pairings.of_inviter("8", "alice", NOW),
    ):
        assert refused(ask) == "not_found"
    assert pairings.of_inviter("7", "alice", NOW).state == "answered"


def test_what_was_given_up_is_claimed_and_answered_by_nobody() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    assert pairings.void("7", "alice", NOW).state == "void"
    assert refused(lambda: pairings.claim("7", BOB, NOW)) == "not_found"


def test_a_guest_is_told_that_it_was_given_up() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    pairings.claim("7", BOB, NOW)
    pairings.void("7", "alice", NOW)
    assert pairings.answer("7", BOB, "answer", NOW).state == "void"
    assert pairings.of_inviter("7", "alice", NOW).answer is None
    assert refused(lambda: pairings.reply("7", "alice", "reply", NOW)) == "conflict"


def test_a_reply_that_is_out_is_not_taken_back() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    pairings.claim("7", BOB, NOW)
    pairings.answer("7", BOB, "answer", NOW)
    pairings.reply("7", "alice", "reply", NOW)
    assert pairings.void("7", "alice", NOW).state == "replied"
    assert pairings.claimed("7", BOB, NOW).reply == "reply"


def test_a_pairing_is_kept_for_its_time_and_forgotten_then_whatever_the_wall_clock_does() -> None:
    pairings = book()
    pairings.open("alice", "offer", NOW)
    last = Instant(NOW.wall + 10 * LIFE, NOW.mono + LIFE - 1)
    assert pairings.of_inviter("7", "alice", last).state == "open"
    over = Instant(NOW.wall - 10 * LIFE, NOW.mono + LIFE)
    assert refused(lambda: pairings.of_inviter("7", "alice", over)) == "not_found"
    assert refused(lambda: pairings.claim("7", BOB, over)) == "not_found"
    assert len(pairings) == 0


def test_numbers_are_drawn_among_those_that_are_free() -> None:
    asked: list[int] = []

    def draw(below: int) -> int:
        asked.append(below)
        return below - 1

    pairings = book(draw)
    made = [pairings.open(f"a{count}", "offer", NOW).nameplate for count in range(3)]
    assert made == ["999", "998", "997"]
    assert asked == [NAMEPLATES, NAMEPLATES - 1, NAMEPLATES - 2]
    assert book(lambda below: 0).open("alice", "offer", NOW).nameplate == "1"


def test_one_identity_and_all_of_them_have_a_bound_and_are_told_when_there_is_room() -> None:
    pairings = book()
    for count in range(PAIRINGS_PER_IDENTITY):
        pairings.open("alice", "offer", NOW.later(count))
    later = NOW.later(1_000)
    with pytest.raises(HttpProblem, match="of this identity") as caught:
        pairings.open("alice", "offer", later)
    assert (caught.value.code, caught.value.retry_after_ms) == ("rate_limited", LIFE - 1_000)
    for count in range(PAIRINGS - PAIRINGS_PER_IDENTITY):
        pairings.open(f"a{count}", "offer", later)
    with pytest.raises(HttpProblem, match="at this relay") as caught:
        pairings.open("bob", "offer", later)
    assert (caught.value.code, caught.value.retry_after_ms) == ("rate_limited", LIFE - 1_000)
    assert len(pairings) == PAIRINGS
    pairings.open("bob", "offer", NOW.later(LIFE))
    assert len(pairings) == PAIRINGS


def test_nobody_meets_an_identity_that_was_removed() -> None:
    enrolled = {"alice"}
    pairings = book(is_enrolled=enrolled.__contains__)
    pairings.open("alice", "offer", NOW)
    pairings.claim("7", BOB, NOW)
    enrolled.clear()
    assert refused(lambda: pairings.answer("7", BOB, "answer", NOW)) == "not_found"
    pairings = book(is_enrolled=enrolled.__contains__)
    pairings.open("alice", "offer", NOW)
    assert refused(lambda: pairings.claim("7", BOB, NOW)) == "not_found"
