"""Conversations at the listener."""

from ringline.listener.entries import ContextClaim, ContextTurn, End, Verdict
from ringline.listener.journal import Journal
from ringline.protocol.bodies import link
from ringline.protocol.limits import (
    CONTEXT_IDLE_MS,
    CONTEXT_TURNS,
    CONTEXTS_PER_CALLER,
    CONTEXTS_PER_LISTENER,
)
from ringline_testing.journals import ALICE, BOB, DONE, NOW, Shelf, take

FIRST = "ctx_" + "A" * 22
PREV = link(DONE.json or b"")
LOST = End(b"{}", "failed", "indeterminate_execution")
FAILED = End(b"{}", "failed", "failed")

_calls = iter(range(1, 10_000))


def new_entry(journal: Journal, ipk: bytes = ALICE) -> int:
    number = next(_calls)
    taking = take(journal, f"call-{number}", message_id=f"{number:032x}", from_ipk=ipk)
    assert taking.verdict is Verdict.FRESH
    assert taking.entry is not None
    return taking.entry.id


def claim_of(
    turn: int | None = 2,
    prev: str | None = PREV,
    context_id: str = FIRST,
    ipk: bytes = ALICE,
    task: str = "review",
) -> ContextClaim:
    return ContextClaim(context_id=context_id, ipk=ipk, task=task, turn=turn, prev=prev)


def converse(
    journal: Journal, context_id: str = FIRST, ipk: bytes = ALICE, now: int = NOW, end: End = DONE
) -> bool:
    """Have the first turn of a context; True when there was room for it."""
    entry_id = new_entry(journal, ipk)
    mint = claim_of(None, None, context_id, ipk)
    room = journal.begin(entry_id, granted=None, mint=mint, now=now)
    turn = ContextTurn(context_id, 1, PREV) if end is DONE else None
    journal.finish(entry_id, end, turn=turn, now=now)
    return room


def fits(journal: Journal, claim: ContextClaim, now: int = NOW) -> bool:
    """Whether a new message may be that turn; if so, its turn fails, so that the next may try."""
    entry_id = new_entry(journal, claim.ipk)
    held = journal.claim(entry_id, claim, now)
    journal.finish(entry_id, FAILED, turn=None, now=now)
    return held


def test_the_next_turn_is_claimed_by_number_and_previous_outcome(journal: Journal) -> None:
    converse(journal)
    assert fits(journal, claim_of())
    assert not fits(journal, claim_of(turn=1))
    assert not fits(journal, claim_of(turn=3))
    assert not fits(journal, claim_of(turn=None))
    assert not fits(journal, claim_of(prev=link(b"another outcome")))
    assert not fits(journal, claim_of(prev=None))
    assert fits(journal, claim_of())


def test_a_context_is_bound_to_caller_and_task(journal: Journal) -> None:
    converse(journal)
    assert not fits(journal, claim_of(ipk=BOB))
    assert not fits(journal, claim_of(task="other"))
    assert not fits(journal, claim_of(context_id="ctx_" + "B" * 22))


def test_a_turn_moves_on_with_its_outcome(journal: Journal) -> None:
    converse(journal)
    entry_id = new_entry(journal)
    assert journal.claim(entry_id, claim_of(), NOW)
    journal.begin(entry_id, granted=None, mint=None, now=NOW)
    journal.finish(entry_id, DONE, turn=ContextTurn(FIRST, 2, link(b"second")), now=NOW)
    assert not fits(journal, claim_of())
    assert fits(journal, claim_of(turn=3, prev=link(b"second")))


def test_two_claims_at_once_have_one_winner(journal: Journal) -> None:
    converse(journal)
    first, second = new_entry(journal), new_entry(journal)
    assert journal.claim(first, claim_of(), NOW)
    assert not journal.claim(second, claim_of(), NOW)
    # The loser ends; it must not let go of what the winner holds.
    journal.finish(second, FAILED, turn=None, now=NOW)
    assert not fits(journal, claim_of())


def test_a_failed_turn_may_be_tried_again(journal: Journal) -> None:
    converse(journal)
    entry_id = new_entry(journal)
    assert journal.claim(entry_id, claim_of(), NOW)
    journal.begin(entry_id, granted=None, mint=None, now=NOW)
    journal.cancel(entry_id, {}, now=NOW)
    assert fits(journal, claim_of())


def test_an_indeterminate_turn_ends_the_context(journal: Journal) -> None:
    converse(journal)
    entry_id = new_entry(journal)
    assert journal.claim(entry_id, claim_of(), NOW)
    journal.begin(entry_id, granted=None, mint=None, now=NOW)
    journal.finish(entry_id, LOST, turn=None, now=NOW)
    assert not fits(journal, claim_of())


def test_a_crash_in_the_middle_of_a_turn_ends_the_context(shelf: Shelf) -> None:
    converse(shelf.journal())
    entry_id = new_entry(shelf.journal())
    assert shelf.journal().claim(entry_id, claim_of(), NOW)
    shelf.journal().begin(entry_id, granted=None, mint=None, now=NOW)
    journal = shelf.crash()
    assert not fits(journal, claim_of())
    # Nor does it come back when the entry that held it is forgotten.
    journal.purge(NOW + 900_000, active=())
    assert not fits(journal, claim_of(), NOW + 900_000)


def test_a_crash_before_the_turn_began_lets_the_same_entry_claim_again(shelf: Shelf) -> None:
    converse(shelf.journal())
    entry_id = new_entry(shelf.journal())
    assert shelf.journal().claim(entry_id, claim_of(), NOW)
    journal = shelf.crash()
    assert not fits(journal, claim_of())
    assert journal.claim(entry_id, claim_of(), NOW)


def test_a_context_survives_its_process(shelf: Shelf) -> None:
    converse(shelf.journal())
    assert fits(shelf.crash(), claim_of())


def test_a_first_turn_that_fails_leaves_no_context(journal: Journal) -> None:
    converse(journal, end=FAILED)
    assert not fits(journal, claim_of(turn=1, prev=None))
    assert not fits(journal, claim_of())


def test_a_context_is_gone_after_its_last_turn(journal: Journal) -> None:
    converse(journal)
    for turn in range(2, CONTEXT_TURNS + 1):
        entry_id = new_entry(journal)
        assert journal.claim(entry_id, claim_of(turn), NOW)
        journal.finish(entry_id, DONE, turn=ContextTurn(FIRST, turn, PREV), now=NOW)
    assert not fits(journal, claim_of(CONTEXT_TURNS + 1))


def test_a_context_is_gone_after_half_an_hour_without_a_turn(journal: Journal) -> None:
    converse(journal)
    assert fits(journal, claim_of(), NOW + CONTEXT_IDLE_MS - 1)
    # That attempt was a use of it.
    assert fits(journal, claim_of(), NOW + 2 * CONTEXT_IDLE_MS - 2)
    assert not fits(journal, claim_of(), NOW + 4 * CONTEXT_IDLE_MS)


def test_a_turn_at_work_does_not_idle(journal: Journal) -> None:
    converse(journal)
    entry_id = new_entry(journal)
    assert journal.claim(entry_id, claim_of(), NOW)
    later = NOW + 2 * CONTEXT_IDLE_MS
    journal.purge(later, active={entry_id})
    journal.finish(entry_id, DONE, turn=ContextTurn(FIRST, 2, PREV), now=later)
    assert fits(journal, claim_of(turn=3), later)


def test_a_caller_who_has_his_number_gives_up_his_own_oldest(journal: Journal) -> None:
    converse(journal, "ctx_" + "O" * 22, BOB, NOW - 5)
    names = [f"ctx_{n:022d}" for n in range(CONTEXTS_PER_CALLER + 1)]
    for at, name in enumerate(names):
        assert converse(journal, name, now=NOW + at)
    assert not fits(journal, claim_of(context_id=names[0]), NOW + 50)
    assert fits(journal, claim_of(context_id=names[1]), NOW + 50)
    assert fits(journal, claim_of(context_id="ctx_" + "O" * 22, ipk=BOB), NOW + 50)


def test_a_first_turn_that_failed_takes_no_room(journal: Journal) -> None:
    names = [f"ctx_{n:022d}" for n in range(CONTEXTS_PER_CALLER)]
    for name in names[:-1]:
        converse(journal, name)
    for number in range(3):
        converse(journal, f"ctx_{100 + number:022d}", end=FAILED)
    converse(journal, names[-1])
    assert all(fits(journal, claim_of(context_id=name)) for name in names)


def test_a_full_listener_gives_up_the_oldest_of_all(journal: Journal) -> None:
    names = [f"ctx_{n:022d}" for n in range(CONTEXTS_PER_LISTENER + 1)]
    callers = [bytes([n // (CONTEXTS_PER_CALLER - 1)]) * 32 for n in range(len(names))]
    for at, (name, ipk) in enumerate(zip(names, callers, strict=True)):
        assert converse(journal, name, ipk, NOW + at)
    assert not fits(journal, claim_of(context_id=names[0], ipk=callers[0]), NOW + 500)
    assert fits(journal, claim_of(context_id=names[1], ipk=callers[1]), NOW + 500)


def test_what_is_in_use_is_never_given_up(journal: Journal) -> None:
    held = [f"ctx_{n:022d}" for n in range(CONTEXTS_PER_CALLER)]
    for name in held:
        assert journal.begin(new_entry(journal), granted=None, mint=claim_of(None, None, name), now=NOW)
    assert not journal.begin(new_entry(journal), granted=None, mint=claim_of(None, None), now=NOW)
    assert converse(journal, ipk=BOB)


def test_an_entry_that_is_purged_lets_go(journal: Journal) -> None:
    converse(journal)
    entry_id = new_entry(journal)
    assert journal.claim(entry_id, claim_of(), NOW)
    journal.purge(NOW + 900_000, active=())
    assert fits(journal, claim_of(), NOW + 900_000)
