"""Conversations: which request may be the next turn of which.

A context is minted here and named only under seals. It is bound to the caller's identity and the task
(RL-CONVERSE-004), and goes on turn by turn: a request claims the next turn by its number and by the digest of
the outcome before it, so a relay can neither splice, repeat nor roll back a conversation. One entry holds a
context at a time; a second claim meanwhile is refused like any other that does not fit.

The functions run inside the journal's transactions, so that a turn and the outcome that made it are on
disk together or not at all.
"""

import sqlite3
from typing import Final

from ringline.listener.entries import ContextClaim, ContextTurn
from ringline.protocol.limits import (
    CONTEXT_IDLE_MS,
    CONTEXT_TURNS,
    CONTEXTS_PER_CALLER,
    CONTEXTS_PER_LISTENER,
)

__all__ = ["advance", "claim", "drop_held", "expire", "mint", "release"]

_NO_PREV: Final = ""


def claim(run: sqlite3.Connection, entry_id: int, wanted: ContextClaim, now: int) -> bool:
    """Hold the context for the entry if the claim is its next turn. ``now`` is Unix ms.

    A claim that this entry holds already is granted again: the process may have died in between.
    """
    expire(run, now)
    row = run.execute(
        "SELECT ipk, task, turn, prev, holder FROM contexts WHERE context_id = ?", (wanted.context_id,)
    ).fetchone()
    if row is None:
        return False
    ipk, task, turn, prev, holder = row
    # RL-CONVERSE-005: one that is unknown, another identity's or another task's, or whose turn or prev do not
    # follow is refused. RL-CONVERSE-007: at most one request at a time holds the next turn.
    fits = (
        (ipk, task) == (wanted.ipk, wanted.task)
        and (turn + 1, prev) == (wanted.turn, wanted.prev)
        and turn < CONTEXT_TURNS
        and holder in (None, entry_id)
    )
    if fits:
        run.execute(
            "UPDATE contexts SET holder = ?, used_at = ? WHERE context_id = ?",
            (entry_id, now, wanted.context_id),
        )
    return fits


def mint(run: sqlite3.Connection, entry_id: int, wanted: ContextClaim, now: int) -> bool:
    """Make a context, held by the entry, for its first turn. False when there is no room.

    A caller who has his number gives up his own oldest; with the listener's number reached, the oldest of
    all goes (RL-CONVERSE-010). One that is in use is never taken away.
    """
    expire(run, now)
    (own,) = run.execute("SELECT count(*) FROM contexts WHERE ipk = ?", (wanted.ipk,)).fetchone()
    (total,) = run.execute("SELECT count(*) FROM contexts").fetchone()
    if own >= CONTEXTS_PER_CALLER:
        room = _evict(run, "AND ipk = ?", (wanted.ipk,))
    elif total >= CONTEXTS_PER_LISTENER:
        room = _evict(run, "", ())
    else:
        room = True
    if room:
        run.execute(
            "INSERT INTO contexts VALUES (?, ?, ?, 0, ?, ?, ?)",
            (wanted.context_id, wanted.ipk, wanted.task, _NO_PREV, now, entry_id),
        )
    return room


def advance(run: sqlite3.Connection, entry_id: int, turn: ContextTurn, now: int) -> None:
    """Note an answered turn of the context that the entry holds, and let go of it.

    After the last turn that a context allows, it is gone (RL-CONVERSE-009).
    """
    if turn.turn >= CONTEXT_TURNS:
        run.execute("DELETE FROM contexts WHERE context_id = ? AND holder = ?", (turn.context_id, entry_id))
        return
    run.execute(
        "UPDATE contexts SET turn = ?, prev = ?, used_at = ?, holder = NULL"
        " WHERE context_id = ? AND holder = ?",
        (turn.turn, turn.prev, now, turn.context_id, entry_id),
    )


def release(run: sqlite3.Connection, entry_id: int) -> None:
    """Let go of what the entry holds; a context without a turn is gone.

    RL-CONVERSE-008: a turn whose request failed may be asked again.
    """
    run.execute("DELETE FROM contexts WHERE holder = ? AND turn = 0", (entry_id,))
    run.execute("UPDATE contexts SET holder = NULL WHERE holder = ?", (entry_id,))


def drop_held(run: sqlite3.Connection, entry_id: int) -> None:
    """End the context that the entry holds: nobody knows how far its work came (RL-CONVERSE-012)."""
    run.execute("DELETE FROM contexts WHERE holder = ?", (entry_id,))


def expire(run: sqlite3.Connection, now: int) -> None:
    """Forget contexts that were idle too long (RL-CONVERSE-009)."""
    run.execute("DELETE FROM contexts WHERE holder IS NULL AND used_at <= ?", (now - CONTEXT_IDLE_MS,))


def _evict(run: sqlite3.Connection, condition: str, values: tuple[object, ...]) -> bool:
    oldest = run.execute(
        f"SELECT context_id FROM contexts WHERE holder IS NULL {condition} ORDER BY used_at, rowid LIMIT 1",
        values,
    ).fetchone()
    if oldest is None:
        return False
    run.execute("DELETE FROM contexts WHERE context_id = ?", oldest)
    return True
