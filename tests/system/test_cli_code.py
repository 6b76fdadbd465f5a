"""From nothing to an allowed call by a code that one person says to the other: two computers, one relay."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ringline.protocol.spokencode import completions
from ringline_testing.commands import BOUND_S, RINGLINE, Running, Scene, until

pytestmark = pytest.mark.system

CODE = re.compile(rb"[1-9][0-9]{0,2}-[a-z]+-[a-z]+\n")


@pytest.fixture
def ada(tmp_path: Path) -> Generator[Scene]:
    """The computer of whoever invites, where the relay runs too."""
    (tmp_path / "a").mkdir()
    with Scene(tmp_path / "a") as made:
        made.start_relay()
        yield made


@pytest.fixture
def bob(tmp_path: Path) -> Generator[Scene]:
    """The computer of whoever is invited. It is told of no relay."""
    (tmp_path / "b").mkdir()
    with Scene(tmp_path / "b") as made:
        yield made


def said(inviting: Running) -> str:
    """Wait for the code that is shown, and return it."""
    inviting.prints(b"\n")
    assert CODE.fullmatch(inviting.out), inviting.out
    return inviting.out.decode().strip()


def test_two_computers_two_commands_each_and_a_code_that_is_typed(ada: Scene, bob: Scene) -> None:
    listener = ada.start_listener("ada", "cat")
    inviting = ada.start("invite", "bob", "--code", "--task", "default")
    code = said(inviting)
    told = inviting.says(r"He types +ringline (accept --code --relay http://127\.0\.0\.1:\d+)$")[1]
    leader, follower = os.openpty()
    try:
        process = subprocess.Popen(
            [RINGLINE, *told.split(), "--as", "bob"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=bob.environment,
            cwd=bob.folder,
            start_new_session=True,
        )
        os.close(follower)
        screen = Screen(leader)
        until(lambda: "The code" in screen.text)
        # A word but for its end, and the key that completes it where Python has a way to.
        completes = find_spec("readline") is not None and completions(code[:-1]) == [code]
        typed = f"{code[:-1]}\t" if completes else code
        os.write(leader, f"{typed}\n".encode())
        assert process.wait(BOUND_S) == 0, screen.text
        until(lambda: "ada has invited you" in screen.text)
    finally:
        os.close(leader)
    assert inviting.end() == 0
    inviting.says("the other side has the same words")
    inviting.says("bob has taken your invite up")
    call = bob.run("call", "ada", "hello")
    assert (call.returncode, call.stdout) == (0, b"hello\n"), call.stderr
    listener.says(r"answered bob: completed")
    mine = ada.document("contacts", "show", "bob", "--as", "ada")["contact"]
    his = bob.document("contacts", "show", "ada")["contact"]
    assert mine["safety_number"] == his["safety_number"]
    assert (mine["label"], mine["state"], mine["tasks"]) == ("bob", "allowed", ["default"])


def test_the_same_without_a_terminal(ada: Scene, bob: Scene) -> None:
    ada.start_listener("ada", "cat")
    inviting = ada.start("invite", "bob", "--code", "--json")
    code = inviting.says(r"^code  (\S+)$")[1]
    (bob.folder / "code").write_text(f" {code.replace('-', ' ').upper()}\n")
    accepted = bob.document(
        "accept", "--code", "--relay", ada.relay, "--code-file", "code", "--as", "bob", "--allow"
    )
    assert (accepted["inviter"]["handle"], accepted["inviter"]["state"]) == ("ada", "allowed")
    assert inviting.end() == 0
    assert inviting.out.count(b"\n") == 1
    assert b'"handle":"bob"' in inviting.out.replace(b" ", b"")
    assert b"rli1" not in inviting.out + inviting.err
    assert bob.document("call", "ada", "hello")["reply"]["text"] == "hello"
    # The relay and the identity are the usual ones from now on.
    assert (bob.home / "usual-relay").read_text().splitlines()[0] == ada.relay


def test_a_wrong_word_and_a_code_that_was_given_up_are_told_on_both_sides(ada: Scene, bob: Scene) -> None:
    assert ada.run("init", "--as", "ada").returncode == 0
    inviting = ada.start("invite", "--code")
    number, first, second = said(inviting).split("-")
    words = ("accept", "--code", "--relay", ada.relay, "-")
    slip = bob.document(*words, given=f"{number}-{second}-{first}".encode())
    assert (slip["error"]["code"], slip["error"]["exit"]) == ("config", 2)
    # That was no guess yet; this is.
    other = "cobra" if second != "cobra" else "clockwork"
    guess = bob.document(*words, given=f"{number}-{first}-{other}".encode())
    assert (guess["error"]["code"], guess["error"]["exit"]) == ("code_failed", 28)
    assert inviting.end() == 28
    inviting.says("somebody has taken the code")
    inviting.says("No invite was handed over")
    assert ada.document("invite", "ls")["invites"] == []
    assert not bob.home.exists() or not list(bob.home.rglob("*.key"))
    # Ctrl-C gives it up at once.
    inviting = ada.start("invite", "--code")
    code = said(inviting)
    inviting.says("Ctrl-C gives the code up")
    inviting.signal(signal.SIGINT)
    assert inviting.end() == 130
    late = bob.run(*words, given=code.encode())
    assert late.returncode == 28
    assert b"given up" in late.stderr
    assert code.encode() not in late.stderr


def test_a_code_is_no_argument_and_no_invite(bob: Scene) -> None:
    code = "7-crossover-clockwork"
    argument = bob.run("accept", "--code", code)
    assert (argument.returncode, code.encode() in argument.stderr) == (2, False)
    line = bob.run("accept", "-", given=code.encode())
    assert line.returncode == 2
    assert b"ringline accept --code" in line.stderr


class Screen:
    """What is written to a terminal, read as it comes."""

    def __init__(self, leader: int) -> None:
        self.text = ""
        self._leader = leader
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._leader, 65_536):
                self.text += piece.decode(errors="replace")
        except OSError:
            return
