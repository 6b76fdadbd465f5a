"""Damage that SQLite opens without a word, or tells in words that are no text: it is refused by name."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ringline.caller.outbox import Outbox, Stored
from ringline.client.home import Home
from ringline.client.logstate import LogState, SeenCard
from ringline.listener.journal import Journal
from ringline.protocol.errors import ConfigError
from ringline.protocol.merkle import Frontier
from ringline.relay.sqlite import SqliteStore
from ringline.relay.sqlite_calls import SqliteCalls
from ringline.relay.store import CardPublished
from ringline_testing.journals import take
from ringline_testing.signed import Owner


def _journal(path: Path) -> None:
    with Journal(path) as journal:
        if journal.find("call-1") is None:
            take(journal)


def _outbox(path: Path) -> None:
    outbox = Outbox(Home(path.parent), path)
    with closing(outbox):
        outbox.remember(
            Stored(
                callee="bob",
                message_id="1" * 32,
                correlation_id="2" * 32,
                payload=b"{}",
                content=bytes(32),
                digest=bytes(32),
                from_ipk=bytes(32),
                to_ipk=bytes(32),
                suite=1,
                reply_seed=bytes(32),
                iat=1,
                exp=2,
            )
        )


def _keylog(path: Path) -> None:
    with closing(LogState(path)) as state:
        frontier = Frontier()
        frontier.append(bytes(32))
        state.note_entries(0, frontier, [SeenCard(0, b"c" * 32, "bob", 1, bytes(32))], [])


def _relay(path: Path) -> None:
    card = Owner(handle="bob", port=0).card
    with closing(SqliteStore(str(path), realm="localhost")) as store:
        if not store.load():
            store.write(
                [
                    CardPublished(
                        handle="bob",
                        card_id="bob-1",
                        serial=1,
                        card=card.card.encode(),
                        card_sig=card.signature,
                        succession=None,
                        at=1,
                    )
                ]
            )


def _calls(path: Path) -> None:
    SqliteCalls(str(path)).close()


STORES = {"journal": _journal, "outbox": _outbox, "keylog": _keylog, "relay": _relay}


@pytest.fixture(params=STORES)
def use(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return STORES[request.param]


@pytest.fixture
def path(tmp_path: Path, use: Callable[[Path], None]) -> Path:
    place = tmp_path / "damaged.db"
    use(place)
    use(place)
    return place


def refuse(use: Callable[[Path], None], path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        use(path)
    assert str(path) in str(caught.value)
    assert caught.value.next_step
    assert path.exists()


def test_a_schema_that_is_no_text_is_damage(use: Callable[[Path], None], path: Path) -> None:
    """SQLite quotes it, and Python cannot read what SQLite says."""
    content = bytearray(path.read_bytes())
    at = content.index(b" NOT NULL") + 1
    content[at + 5 : at + 8] = b"\xacLL"
    refuse(use, path, bytes(content))
    if use is _relay:
        refuse(_calls, path, bytes(content))


def test_a_journal_whose_columns_have_other_names_is_refused_before_a_call_is_taken(tmp_path: Path) -> None:
    place = tmp_path / "journal.db"
    _journal(place)
    refuse(_journal, place, place.read_bytes().replace(b"underway", b"underwaz"))


def test_a_negative_version_is_damage(use: Callable[[Path], None], path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60:64] = b"\x80\0\0\1"
    refuse(use, path, bytes(content))


def test_a_row_that_an_index_has_lost_is_damage(use: Callable[[Path], None], path: Path) -> None:
    """Whoever looks it up there does not find it, and would take it for never there."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        roots = connection.execute("SELECT rootpage FROM sqlite_schema WHERE type = 'index'").fetchall()
    content = bytearray(path.read_bytes())
    pages = {root: content[(root - 1) * size : root * size] for (root,) in roots}
    filled = [root for root, page in pages.items() if int.from_bytes(page[3:5], "big")]
    assert filled
    # The first row of an index stands at the end of its page.
    content[filled[0] * size - 1] ^= 0x01
    refuse(use, path, bytes(content))
