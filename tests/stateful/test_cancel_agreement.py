"""Cancel against completion, judged by all three: relay, caller and listener have one word for each call.

The cores are the real ones; the connections between them break, and what happens next is drawn by chance,
from a seed that a failure names. ``RINGLINE_INTERLEAVINGS=20000`` makes a long run of it.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ringline.caller.effects import Refused, Withdrawn
from ringline.listener.entries import EntryState
from ringline.protocol.encoding import b64decode
from ringline_testing.journals import Shelf
from ringline_testing.three import Three

INTERLEAVINGS = int(os.environ.get("RINGLINE_INTERLEAVINGS", "1000"))


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        shelf = Shelf(Path(folder) / "journal.db")
        yield shelf
        shelf.close()


def interleave(three: Three) -> None:
    """Let this and that happen, a request to cancel among it, then let everything come to its end."""
    chance = three.chance
    steps = chance.randrange(5, 40)
    cancels = {chance.randrange(steps) for _ in range(chance.choice((1, 1, 2, 3)))}
    for step in range(steps):
        if step in cancels:
            three.happen("cancel", three.cancel)
        able = three.can_happen()
        if able and chance.random() < 0.8:
            three.happen(*chance.choice(able))
        else:
            disturb(three)
    three.happen("cancel", three.cancel)
    three.settle()


def disturb(three: Three) -> None:
    chance = three.chance
    what = chance.randrange(10)
    if what < 4:
        ms = chance.choice((1, 300, 2_000))
        three.happen(f"{ms} ms pass", lambda: three.pass_time(ms))
    elif what < 8:
        whole = [wire for wire in three.wires if not wire.broken]
        if whole:
            wire = chance.choice(whole)
            three.happen(f"{wire.role}'s {wire.number} breaks", wire.cut)
    elif what == 8:
        three.happen("the listener is killed", three.kill_listener)
    elif three.durable:
        three.happen("the relay is killed", three.restart_relay)


def judge(three: Three) -> str:
    """Return how the call ended, in a word, once all three agree on it."""
    state, entry = three.state(), three.entry()
    outcome = three.fetched() if three.call_id is not None and state is not None else None
    sealed = None if outcome is None else b64decode(outcome.envelope.ct)
    assert three.runs <= 1, "it ran twice"
    assert three.retired <= 1, "the relay ended it twice"
    told = three.words
    assert len(told) <= 1, "two ends were told"
    if state is None:
        # Sync, and never admitted: every party has nothing.
        (end,) = three.ends
        assert isinstance(end, Withdrawn) or (isinstance(end, Refused) and end.call_id is None)
        assert (three.runs, entry, told) == (0, None, set())
        return "never admitted"
    if sealed is not None:
        assert entry is not None
        assert entry.state is EntryState.FINISHED
        assert entry.end is not None
        assert entry.end.json == sealed
        assert entry.end.reason == state
        assert told <= {entry.end.terminal}
        assert "canceled" not in three.answers
        if not three.durable:
            assert three.ends == [sealed.decode()]
    else:
        # A listener that died over it three times refuses it unopened.
        word = {"canceled": "canceled", "delivery_failed": "protocol_error"}.get(state, "timeout")
        assert word != "timeout" or state in ("expired", "indeterminate_execution"), state
        assert state != "delivery_failed" or (three.runs, entry) == (0, None)
        # Whoever has finished in time is heard.
        assert entry is None or entry.state is not EntryState.FINISHED, "a finished result was lost"
        assert told <= {word}
        if not three.durable:
            (end,) = three.ends
            assert isinstance(end, Refused)
            assert (end.code, end.call_id) == (word, three.call_id)
    assert state != "completed" or three.runs == 1
    if state == "canceled":
        assert three.runs == 0 or three.seen_to_stop, "canceled, and it may still run"
        assert entry is None or entry.state in (EntryState.TAKEN, EntryState.CANCELLED)
    if "canceled" in three.answers:
        assert state == "canceled"
    return state


def test_a_cancel_against_a_completion_has_one_end_on_which_relay_caller_and_listener_agree(
    shelf: Shelf,
) -> None:
    seen: Counter[tuple[bool, str]] = Counter()
    for seed in range(INTERLEAVINGS):
        three = Three(random.Random(seed), shelf, seed + 1, durable=bool(seed % 2))
        try:
            interleave(three)
            seen[three.durable, judge(three)] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{three.story()}") from error
    # An interleaving that always ends in the same way would prove nothing.
    for durable in (False, True):
        assert min(seen[durable, "canceled"], seen[durable, "completed"]) > INTERLEAVINGS // 40, seen
