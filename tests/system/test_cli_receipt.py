"""Receipts at the command line: what one person saves, another checks who has no identity and no relay."""

import json
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ringline_testing.commands import Scene

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Generator[Scene]:
    """A caller who has asked twice, a listener who answered, and no relay any more."""
    with Scene(tmp_path_factory.mktemp("receipts")) as made:
        relay = made.start_relay()
        made.start_listener("bob", "cat", options=("--offline",))
        for words in (("call", "bob", "canary"), ("call", "bob", "--durable", "one\x1b[2J\ntwo")):
            answer = made.run(*words)
            assert answer.returncode == 0, answer.stderr
        relay.stop()
        yield made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Generator[Scene]:
    """Somebody who has nothing but the file."""
    with Scene(tmp_path_factory.mktemp("stranger")) as made:
        yield made


def calls(scene: Scene, mode: str) -> str:
    """Return the receipt string of the call of that mode, from the outbox's file name alone."""
    # `calls ls` greets the relay; here it is gone, so the outbox is read as it is.
    import sqlite3

    (path,) = (path for path in scene.home.rglob("outbox.db"))
    with sqlite3.connect(path) as outbox:
        (found,) = outbox.execute("SELECT callee, message_id FROM calls WHERE mode = ?", (mode,)).fetchall()
    return f"rcpt_{found[0]}_{found[1]}"


@pytest.fixture(scope="module")
def saved(scene: Scene) -> Path:
    file = scene.folder / "answer.json"
    done = scene.run("receipt", "save", calls(scene, "durable"), str(file))
    assert (done.returncode, done.stderr) == (0, b""), done
    assert b"what bob answered" in done.stdout
    return file


@pytest.mark.parametrize("mode", ["sync", "durable"])
def test_a_stranger_checks_an_answer_without_relay_identity_or_key(
    scene: Scene, stranger: Scene, mode: str
) -> None:
    out = scene.run("receipt", "save", calls(scene, mode))
    assert out.returncode == 0, out.stderr
    checked = stranger.document("receipt", "verify", "-", given=out.stdout)
    shown: dict[str, Any] = checked["receipt"]
    answer = json.loads(shown["answer"])
    assert answer["reply"]["text"] == ("canary" if mode == "sync" else "one\x1b[2J\ntwo")
    assert (shown["answered_by"]["handle"], shown["mode"], shown["reason"]) == ("bob", mode, "completed")
    assert shown["asked_by"]["handle"].startswith("caller-")
    assert shown["card_held"] is True
    assert "revoked" in " ".join(checked["not_proved"])
    # The check has made nothing, not even a folder.
    assert list(stranger.folder.iterdir()) == []


def test_what_is_shown_says_what_is_proved_and_what_is_not(stranger: Scene, saved: Path) -> None:
    shown = stranger.run("receipt", "verify", str(saved))
    assert (shown.returncode, shown.stderr) == (0, b"")
    text = shown.stdout.decode()
    assert text.startswith("✓ bob has signed this answer to caller-")
    for part in ("proved ", "not proved ", "relay's times are not signed", "by bob's own clock", "hash "):
        assert part in text
    assert text.endswith("answer:\n  > one\\x1b[2J\n  > two\n")


def test_a_changed_file_is_refused_by_name(stranger: Scene, saved: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.json"
    changed.write_text(saved.read_text().replace("one", "two"))
    refused = stranger.document("receipt", "verify", str(changed))
    assert (refused["error"]["code"], refused["error"]["exit"]) == ("bad_signature", 23)
    assert "bob has not signed this answer" in refused["error"]["message"]
    assert refused["error"]["still_true"] == "Nothing is proved by this file."
    changed.write_bytes(os.urandom(1_000))
    told = stranger.run("receipt", "verify", str(changed))
    assert (told.returncode, told.stdout) == (2, b"")
    assert b"no receipt that can be checked" in told.stderr
    assert b"Traceback" not in told.stderr


def test_the_file_is_private_and_none_is_overwritten(scene: Scene, saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    before = saved.read_bytes()
    refused = scene.document("receipt", "save", calls(scene, "sync"), str(saved))
    assert refused["error"]["exit"] == 2
    assert "exists already" in refused["error"]["message"]
    assert saved.read_bytes() == before


def test_a_call_that_is_not_there_has_no_receipt(scene: Scene) -> None:
    unknown = scene.document("receipt", "save", f"rcpt_bob_{'a' * 32}", "x.json")
    assert "no such call" in unknown["error"]["message"]
    assert not (scene.folder / "x.json").exists()
