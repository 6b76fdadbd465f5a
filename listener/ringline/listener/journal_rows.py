"""The rows of a journal: an entry is one, each of its offers another."""

import sqlite3
from typing import Any, Final

from ringline.listener.entries import End, Entry, EntryState, Offer

__all__ = ["find", "insert_offer", "load"]

_OFFER_COLUMNS: Final = (
    "call_id, handle, from_ipk, own_ipk, digest, suite, reply_public, mode, message_id, correlation_id,"
    " iat, exp, offered_at, execute_by, lease_id, granted, cancelled"
)
_ENTRY_COLUMNS: Final = "id, from_ipk, key, payload_digest, exp, state, request, outcome, terminal, reason"


def find(run: sqlite3.Connection, call_id: str) -> Entry | None:
    """Return the entry of which a call is an offer, None when there is none."""
    row = run.execute(
        f"SELECT {_ENTRY_COLUMNS} FROM entries WHERE id = (SELECT entry_id FROM offers WHERE call_id = ?)",
        (call_id,),
    ).fetchone()
    return None if row is None else _entry(run, row)


def load(run: sqlite3.Connection, entry_id: int) -> Entry:
    """Return an entry that is there."""
    row = run.execute(f"SELECT {_ENTRY_COLUMNS} FROM entries WHERE id = ?", (entry_id,)).fetchone()
    return _entry(run, row)


def insert_offer(run: sqlite3.Connection, entry_id: int, offer: Offer) -> None:
    """Add an offer to an entry; its ``call_id`` is no other's."""
    values = (entry_id, *_offer_values(offer))
    run.execute(
        f"INSERT INTO offers (entry_id, {_OFFER_COLUMNS}) VALUES ({', '.join('?' * len(values))})", values
    )


def _entry(run: sqlite3.Connection, row: tuple[Any, ...]) -> Entry:
    entry_id, from_ipk, key, payload_digest, exp, state, request, outcome, terminal, reason = row
    offers = run.execute(
        f"SELECT {_OFFER_COLUMNS} FROM offers WHERE entry_id = ? ORDER BY rowid", (entry_id,)
    ).fetchall()
    return Entry(
        id=entry_id,
        from_ipk=from_ipk,
        key=key,
        payload_digest=payload_digest,
        exp=exp,
        state=EntryState(state),
        request=request,
        end=None if terminal is None else End(outcome, terminal, reason),
        offers={values[0]: _offer(values) for values in offers},
    )


def _offer_values(offer: Offer) -> tuple[object, ...]:
    return (
        offer.call_id,
        offer.handle,
        offer.from_ipk,
        offer.own_ipk,
        offer.digest,
        offer.suite,
        offer.reply_public,
        offer.mode,
        offer.message_id,
        offer.correlation_id,
        offer.iat,
        offer.exp,
        offer.offered_at,
        offer.execute_by,
        offer.lease_id,
        offer.granted,
        offer.cancelled,
    )


def _offer(values: tuple[Any, ...]) -> Offer:
    names = _OFFER_COLUMNS.replace(" ", "").split(",")
    members = dict(zip(names, values, strict=True))
    members["granted"] = bool(members["granted"])
    return Offer(**members)
