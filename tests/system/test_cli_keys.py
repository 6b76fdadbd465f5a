"""Keys with real processes: replaced, called back, handed on, lost and restored while calls go on."""

import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ringline_testing.commands import Running, Scene, until

pytestmark = pytest.mark.system

# Notes that it has begun; what is told to wait ends when there is a file `go`.
PROGRAM = """
import pathlib, sys, time
text = sys.stdin.read()
open("runs", "a").write(text + "\\n")
end = time.monotonic() + 60
while text.startswith("wait") and not pathlib.Path("go").exists() and time.monotonic() < end:
    time.sleep(0.02)
print(text, end="")
"""


@pytest.fixture
def bob(tmp_path: Path) -> Generator[Scene]:
    """The computer of the relay and of bob, who answers calls."""
    (tmp_path / "b").mkdir()
    with Scene(tmp_path / "b") as made:
        made.start_relay("MAILBOX_RETRY_MS=0", words=("--db", str(made.folder / "relay.db")))
        yield made


@pytest.fixture
def ann(bob: Scene) -> Generator[Scene]:
    """The computer of ann, who calls."""
    folder = bob.folder.parent / "a"
    folder.mkdir()
    with Scene(folder, bob.relay) as made:
        yield made


def elsewhere(bob: Scene, name: str) -> Scene:
    """Another computer, whose state folder is empty."""
    folder = bob.folder.parent / name
    folder.mkdir()
    return Scene(folder, bob.relay)


def listen(scene: Scene, *options: str) -> Running:
    listener = scene.start(
        "listen", "--as", "bob", "--offline", *options, "--run", sys.executable, "-c", PROGRAM
    )
    listener.says("^● ready")
    return listener


def leave(scene: Scene, message: str) -> str:
    left = scene.run("call", "bob", "--durable", "--no-wait", message)
    assert left.returncode == 0, left.stderr
    return left.stdout.decode().strip()


def collect(scene: Scene, receipt: str) -> bytes:
    got = scene.run("result", receipt, "--wait", "100")
    assert got.returncode == 0, got.stderr
    return got.stdout


def begun(scene: Scene, message: str) -> bool:
    file = scene.folder / "runs"
    return file.exists() and message in file.read_text().splitlines()


def identity(scene: Scene, name: str = "bob") -> dict[str, object]:
    shown: dict[str, object]
    (shown,) = scene.document("id", "show", "--as", name)["identities"]
    return shown


def stolen(scene: Scene, bob: Scene) -> None:
    """Give a thief what a host of bob's works with: everything but the identity key."""
    shutil.copytree(bob.home, scene.home)
    for key in scene.home.glob("*/identities/*/identity*.key"):
        key.unlink()


def test_a_stolen_operational_key_is_replaced_while_calls_run_and_wait(bob: Scene, ann: Scene) -> None:
    listener = listen(bob)
    assert ann.run("call", "bob", "first").stdout == b"first\n"
    before = identity(bob)
    running, waiting = leave(ann, "wait 1"), leave(ann, "wait 2")
    until(lambda: begun(bob, "wait 1"))
    with elsewhere(bob, "thief") as thief:
        stolen(thief, bob)
        rotated = bob.document("id", "rotate", "--as", "bob", "--revoke", "compromised")
        assert rotated["revoked"] == [before["card_id"]]
        listener.says("the keys that have replaced it are used")
        listener.says("connected again")
        (bob.folder / "go").touch()
        assert (collect(ann, running), collect(ann, waiting)) == (b"wait 1\n", b"wait 2\n")
        # The old keys open no door, whichever side they are tried from.
        refused = thief.document("call", "bob", "let me in", "--as", "bob")
        assert refused["error"]["code"] in ("unauthorized", "revoked"), refused
        assert thief.start("listen", "--as", "bob", "--run", "cat").end() != 0
        again = thief.document("id", "rotate", "--as", "bob")
        assert "identity key is not at" in again["error"]["message"]
    assert ann.run("call", "bob", "last").stdout == b"last\n"
    after = identity(bob)
    assert (after["fingerprint"], after["serial"]) == (before["fingerprint"], 2)
    assert not begun(bob, "let me in")


def test_an_identity_hands_over_while_calls_run_and_wait(bob: Scene, ann: Scene) -> None:
    listener = listen(bob)
    assert ann.run("call", "bob", "first").stdout == b"first\n"
    before = identity(bob)
    running, waiting = leave(ann, "wait 1"), leave(ann, "wait 2")
    until(lambda: begun(bob, "wait 1"))
    succeeded = bob.document("id", "succeed", "--as", "bob")
    assert succeeded["identity"]["fingerprint"] != before["fingerprint"]
    (bob.folder / "go").touch()
    # What was asked of the one identity is answered by it.
    assert (collect(ann, running), collect(ann, waiting)) == (b"wait 1\n", b"wait 2\n")
    followed = ann.run("call", "bob", "last")
    assert followed.stdout == b"last\n", followed.stderr
    note = f"bob has a new identity key, vouched for by the known one: {identity(bob)['fingerprint']}"
    assert note in followed.stderr.decode()
    pin = ann.document("contacts", "show", "bob")["contact"]
    assert (pin["fingerprint"], pin["source"]) == (identity(bob)["fingerprint"], "succession")
    assert not any("no connection" in line for line in listener.told)
    folder = Path(str(identity(bob)["folder"]))
    assert not (folder / "identity.before.key").exists()
    assert identity(bob)["recovery_export"] is False


def test_a_caller_who_replaces_keys_gets_what_was_asked_under_the_old_ones(bob: Scene, ann: Scene) -> None:
    listener = listen(bob)
    assert ann.run("call", "bob", "first").stdout == b"first\n"
    running, waiting = leave(ann, "wait 1"), leave(ann, "wait 2")
    until(lambda: begun(bob, "wait 1"))
    assert ann.document("id", "rotate")["made"]
    (bob.folder / "go").touch()
    assert (collect(ann, running), collect(ann, waiting)) == (b"wait 1\n", b"wait 2\n")
    assert ann.run("call", "bob", "last").stdout == b"last\n"
    # Called back, what runs is stopped, and what only waits is not carried out: its caller hears so.
    (bob.folder / "go").unlink()
    cut = leave(ann, "wait for ever")
    until(lambda: begun(bob, "wait for ever"))
    assert ann.document("id", "rotate", "--revoke", "compromised")["revoked"]
    stopped = ann.document("result", cut, "--wait", "100")
    assert stopped["error"]["exit"] == 24, stopped
    listener.stop()
    doomed = leave(ann, "never")
    assert ann.document("id", "rotate", "--revoke", "compromised")["revoked"]
    ended = ann.document("result", doomed, "--wait", "100")
    assert ended["error"]["exit"] == 24, ended
    listen(bob)
    assert ann.run("call", "bob", "again").stdout == b"again\n"
    assert not begun(bob, "never")


def test_a_lost_identity_key_comes_back_from_the_export_and_from_nowhere_else(bob: Scene, ann: Scene) -> None:
    listener = listen(bob)
    assert ann.run("call", "bob", "first").stdout == b"first\n"
    before = identity(bob)
    secret = bob.folder / "secret"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    unlock = ("--export-passphrase-file", str(secret))
    saved, host = str(bob.folder / "saved"), str(bob.folder / "host")
    assert bob.run("id", "export", "--recovery", saved, "--as", "bob", *unlock).returncode == 0
    assert bob.run("id", "export", "--agent", host, "--as", "bob", *unlock).returncode == 0
    # Another host of the handle answers, and has no identity key.
    listener.stop()
    with elsewhere(bob, "host") as second:
        assert second.document("id", "import", host, *unlock)["identity"]["identity_key"] is None
        listen(second)
        assert ann.run("call", "bob", "to the host").stdout == b"to the host\n"
        lost = second.document("id", "rotate", "--as", "bob")
        assert "identity key is not at" in lost["error"]["message"]
    # When all is lost, one call runs, and one waits.
    with elsewhere(bob, "doomed") as doomed:
        assert doomed.document("id", "import", host, *unlock)["ok"]
        listener = listen(doomed, "--concurrency", "1")
        running, waiting = leave(ann, "wait 1"), leave(ann, "wait 2")
        until(lambda: begun(doomed, "wait 1"))
        listener.signal(9)
        listener.end()
    # All is lost. A new identity does not get the handle; the saved one does, two cards later too.
    assert bob.document("id", "rotate", "--as", "bob")["made"]
    shutil.rmtree(bob.home)
    refused = bob.document("init", "--as", "bob")
    assert refused["error"]["code"] == "conflict", refused
    shutil.rmtree(bob.home)
    (bob.folder / "wrong").write_text("another\n")
    (bob.folder / "wrong").chmod(0o600)
    wrong = bob.document("id", "import", saved, "--export-passphrase-file", str(bob.folder / "wrong"))
    assert "passphrase is not that" in wrong["error"]["message"]
    assert bob.document("id", "import", saved, *unlock)["ok"]
    assert identity(bob)["fingerprint"] == before["fingerprint"]
    assert bob.document("id", "rotate", "--as", "bob", "--revoke", "compromised")["made"]
    (bob.folder / "go").touch()
    listen(bob)
    last = ann.run("call", "bob", "last")
    assert last.stdout == b"last\n", last.stderr
    assert collect(ann, waiting) == b"wait 2\n"
    # What may have run on a computer that is gone is not run again, and not said to have failed.
    unknown = ann.document("result", running)
    assert unknown["error"]["code"] == "still_running", unknown
    assert not begun(bob, "wait 1")


def test_a_listener_whose_keys_are_called_back_says_why_it_ends_and_what_brings_it_back(
    bob: Scene, ann: Scene
) -> None:
    listener = listen(bob, "--concurrency", "1")
    running, waiting = leave(ann, "wait 1"), leave(ann, "wait 2")
    until(lambda: begun(bob, "wait 1"))
    assert bob.document("id", "revoke", "--as", "bob", "--yes")["revoked_now"]
    listener.says("there will be no connection any more")
    # What ran is finished; a second Ctrl-C would cut it off.
    (bob.folder / "go").touch()
    assert listener.end() == 24
    assert "the keys of bob were revoked" in listener.err.decode()
    assert "ringline id rotate --as bob" in listener.err.decode()
    # Neither the same card nor a call to it is taken; nothing is lost meanwhile.
    again = bob.start("listen", "--as", "bob", "--run", "cat")
    assert again.end() == 20
    assert "ringline id rotate --as bob" in again.err.decode()
    assert ann.document("call", "bob", "never")["error"]["code"] == "revoked"
    rotated = bob.document("id", "rotate", "--as", "bob")
    assert rotated["made"]
    # The card before is called back already: nobody can use it for two more days.
    assert len(rotated["revoked"]) == 1
    listener = listen(bob)
    # Nothing is lost: neither what ran at that moment, nor what waited, and neither runs twice.
    assert (collect(ann, running), collect(ann, waiting)) == (b"wait 1\n", b"wait 2\n")
    assert (bob.folder / "runs").read_text().splitlines() == ["wait 1", "wait 2"]
    assert ann.run("call", "bob", "last").stdout == b"last\n"
    assert bob.document("relay", "remove", "bob", "--as", "bob", "--yes")["ok"]
    assert listener.end() == 24
    assert "the identity of bob was removed" in listener.err.decode()


def test_two_processes_that_rotate_at_once_end_with_one_new_key(bob: Scene) -> None:
    assert bob.run("init", "--as", "bob").returncode == 0
    both = [bob.start("id", "rotate", "--as", "bob", "--json") for _ in range(2)]
    assert [one.end() for one in both] == [0, 0], [one.err for one in both]
    assert sorted(b'"made": true' in one.out for one in both) == [False, True]
    assert all(b'"serial": 2' in one.out for one in both)
    assert identity(bob)["serial"] == 2
