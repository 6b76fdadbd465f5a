"""Pins: readable, kept, and never written over when damaged."""

import stat
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.client.contacts import Contacts, Pin
from ringline.client.home import Home, write_private
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError
from ringline.protocol.fingerprint import fingerprint
from ringline_testing.agents import NOW_MS, REALM, agent


def contacts(tmp_path: Path) -> Contacts:
    home = Home(tmp_path / "home")
    return Contacts(home, home.root / REALM / "contacts.toml")


def pin(handle: str = "bob", **members: Any) -> Pin:
    values: dict[str, Any] = {
        "realm": REALM,
        "handle": handle,
        "ipk": agent(handle).identity.public,
        "source": "tofu",
        "first_seen": NOW_MS,
        "card": agent(handle).card,
        "prekey_epoch": 20_717,
    }
    return Pin(**(values | members))


def put(book: Contacts, value: Pin) -> None:
    book.update(value.realm, value.handle, lambda _: value)


def test_no_file_holds_no_pins(tmp_path: Path) -> None:
    assert contacts(tmp_path).pins() == ()
    assert contacts(tmp_path).pin(REALM, "bob") is None


@pytest.mark.parametrize(
    "value",
    [
        pin(),
        pin(card=None, prekey_epoch=0, source="contact", verified_at=NOW_MS + 1),
        pin(source="succession", first_seen=NOW_MS + 999),
        pin(state="allowed", tasks=("ask", "review"), calls_per_hour=30, label='bob "at" acmé \\ 1'),
        pin(state="allowed", tasks=()),
        pin(state="blocked"),
    ],
)
def test_a_pin_is_read_back_as_it_was(tmp_path: Path, value: Pin) -> None:
    put(contacts(tmp_path), value)
    assert contacts(tmp_path).pins() == (value,)


def test_the_file_is_private_and_readable(tmp_path: Path) -> None:
    book = contacts(tmp_path)
    put(book, pin())
    text = book.path.read_text()
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert f'fingerprint = "{fingerprint(pin().ipk)}"' in text
    assert 'handle = "bob"' in text
    assert "first_seen = 2026-" in text


def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    one, two = contacts(tmp_path), contacts(tmp_path)
    put(one, pin("bob"))
    put(two, pin("carol"))
    assert [entry.handle for entry in one.pins()] == ["bob", "carol"]
    one.update(REALM, "bob", lambda _: None)
    assert [entry.handle for entry in two.pins()] == ["carol"]


def test_the_second_to_meet_a_peer_sees_the_first_ones_pin(tmp_path: Path) -> None:
    seen: list[Pin | None] = []

    def first_key(known: Pin | None) -> Pin:
        seen.append(known)
        return known or pin()

    threads = [
        threading.Thread(target=lambda: contacts(tmp_path).update(REALM, "bob", first_key)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen.count(None) == 1
    assert len(seen) == 4


def test_a_refusal_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    book = contacts(tmp_path)
    put(book, pin())
    before = book.path.read_bytes()

    def refuse(_: Pin | None) -> Pin:
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        book.update(REALM, "bob", refuse)
    assert book.path.read_bytes() == before


def test_a_pin_is_kept_under_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="own name"):
        contacts(tmp_path).update(REALM, "carol", lambda _: pin("bob"))


def _lines(**changes: str | None) -> str:
    bob = agent("bob")
    members: dict[str, str | None] = {
        "handle": '"bob"',
        "realm": f'"{REALM}"',
        "key": f'"{b64encode(bob.identity.public)}"',
        "source": '"tofu"',
        "first_seen": "2026-11-30T00:00:00Z",
        "card": f'"{b64encode(bob.card.card.encode())}"',
        "card_sig": f'"{b64encode(bob.card.signature)}"',
        "prekey_epoch": "1",
    }
    members |= changes
    lines = [f"{name} = {value}" for name, value in members.items() if value is not None]
    return "\n".join(["# a person's comment", "", "[[contact]]", *lines, ""])


def test_a_file_written_by_hand_is_read(tmp_path: Path) -> None:
    book = contacts(tmp_path)
    book._home.make(book.path.parent)
    write_private(book.path, _lines(fingerprint='"anything"'))
    assert book.pins()[0].card == agent("bob").card


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[[contact]\n", 1),
        ("# fine\n\nhandle = \n", 3),
        ("[other]\nx = 1\n", 1),
        ("contact = 3\n", 1),
        (_lines(realm=None), 3),
        (_lines(handle='"Bob"'), 3),
        (_lines(key='"AAAA"'), 3),
        (_lines(key=f'"{b64encode(bytes([1]) + bytes(31))}"'), 3),
        (_lines(key=f'"{b64encode(agent("eve").identity.public)}"'), 3),
        (_lines(card=f'"{b64encode(agent("eve").card.card.encode())}"'), 3),
        (_lines(card_sig=None), 3),
        (_lines(source='"rumour"'), 3),
        (_lines(first_seen='"yesterday"'), 3),
        (_lines(first_seen="2026-11-30T00:00:00"), 3),
        (_lines(prekey_epoch="-1"), 3),
        (_lines(prekey_epoch='"1"'), 3),
        (_lines(serial="7"), 3),
        (_lines(colour='"red"'), 3),
        (_lines() + _lines(), 14),
    ],
)
def test_a_damaged_file_is_told_with_its_line_and_never_written_over(
    tmp_path: Path, text: str, line: int
) -> None:
    book = contacts(tmp_path)
    book._home.make(book.path.parent)
    write_private(book.path, text)
    for attempt in (book.pins, lambda: book.pin(REALM, "bob"), lambda: put(book, pin("carol"))):
        with pytest.raises(ConfigError, match="damaged") as caught:
            attempt()
        assert f"line {line}:" in str(caught.value)
        assert "mv " in (caught.value.next_step or "")
    assert book.path.read_text() == text


def test_a_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    book = contacts(tmp_path)
    put(book, pin())
    book.path.chmod(0o666)
    with pytest.raises(ConfigError, match="by others"):
        contacts(tmp_path).pins()


def test_a_pin_moves_to_a_later_card(tmp_path: Path) -> None:
    later = agent("bob", serial=2)
    moved = pin().seen(later.card, 20_800)
    assert (moved.serial, moved.card_id, moved.prekey_epoch) == (2, later.card.card.id, 20_800)
    assert replace(moved, card=None).serial == 0


def test_what_was_written_before_there_were_grants_lets_nobody_in(tmp_path: Path) -> None:
    book = contacts(tmp_path)
    put(book, pin())
    text = book.path.read_text()
    write_private(book.path, text.replace('state = "pending"\n', ""))
    (entry,) = contacts(tmp_path).pins()
    assert (entry.state, entry.tasks, entry.calls_per_hour, entry.label) == ("pending", None, None, None)


@pytest.mark.parametrize(
    "line",
    [
        'state = "friend"',
        "state = 1",
        'tasks = "review"',
        'tasks = ["No Task"]',
        "tasks = [1]",
        f"tasks = {['t' + str(n) for n in range(51)]}",
        "calls_per_hour = 0",
        "calls_per_hour = -1",
        "calls_per_hour = true",
        'calls_per_hour = "many"',
        "calls_per_hour = 100001",
        'label = ""',
        'label = " bob"',
        'label = "a\\u001b[31mred"',
        'label = "a\\nb"',
        f'label = "{"x" * 61}"',
    ],
)
def test_a_grant_that_is_none_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    book = contacts(tmp_path)
    put(book, pin())
    text = book.path.read_text()
    name = line.split(" ")[0]
    kept = [one for one in text.splitlines() if not one.startswith(f"{name} = ")]
    write_private(book.path, "\n".join([*kept, line]) + "\n")
    with pytest.raises(ConfigError, match="damaged") as caught:
        contacts(tmp_path).pins()
    assert name in str(caught.value)


@settings(max_examples=50)
@given(data=st.data())
def test_whatever_became_of_the_file_it_is_a_clear_error_or_holds_what_it_says(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book = contacts(Path(folder))
        put(book, pin(state="allowed", tasks=("ask",), calls_per_hour=3, label="bob"))
        text = book.path.read_text()
        for _ in range(data.draw(st.integers(1, 3))):
            start = data.draw(st.integers(0, len(text)))
            end = data.draw(st.integers(start, min(len(text), start + 40)))
            put_in = data.draw(
                st.text(max_size=20) | st.sampled_from(["[[contact]]", "\n", '"', "= 1", "{}", "[["])
            )
            text = text[:start] + put_in + text[end:]
        book.path.write_text(text, encoding="utf-8", errors="surrogatepass")
        entries: tuple[Pin, ...] = ()
        told: ConfigError | None = None
        try:
            entries = contacts(Path(folder)).pins()
        except ConfigError as error:
            told = error
        assert all(entry.state in ("pending", "allowed", "blocked") for entry in entries)
        assert told is None or (str(book.path) in str(told) and told.next_step)
