"""Three terminals, as the README has them, and what the caller's terminal gets."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ringline_testing.commands import BOUND_S, RINGLINE, Scene, processes_with

pytestmark = pytest.mark.system

# JSON needs six bytes for each of these, the most there is.
WORST = "\x01"
REPLY = "import sys; sys.stdout.write('\\x01' * int(sys.stdin.read()))"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Generator[Scene]:
    """A relay and two listeners: ``echo`` gives back, ``worst`` answers with as many bytes as asked for."""
    with Scene(tmp_path_factory.mktemp("three")) as made:
        made.start_relay()
        made.start_listener("echo", "cat")
        made.start_listener("worst", sys.executable, "-c", REPLY)
        yield made


def test_the_third_terminal_prints_the_reply_and_nothing_else(scene: Scene) -> None:
    answer = scene.run("call", "echo", "hello")
    assert (answer.returncode, answer.stdout) == (0, b"hello\n")
    told = answer.stderr.decode()
    for state in ("ringing", "answered", "working"):
        assert any(state in line and line.endswith("relay says") for line in told.splitlines()), told
    assert "completed" in told
    assert "signed by echo " in told


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("-",), b"two\nlines\n"),
        (("--file", "message"), None),
        (("--file", "-"), b"two\nlines\n"),
    ],
)
def test_the_message_may_come_from_elsewhere_and_stays_as_it_is(
    scene: Scene, words: tuple[str, ...], given: bytes | None
) -> None:
    (scene.folder / "message").write_bytes(b"two\nlines\n")
    answer = scene.run("call", "echo", *words, given=given)
    # It ends with a line feed already, so that none is added.
    assert (answer.returncode, answer.stdout) == (0, b"two\nlines\n")


def test_the_longest_message_of_the_worst_characters_arrives(scene: Scene) -> None:
    message = WORST.encode() * 64_000
    answer = scene.run("call", "echo", "-", given=message)
    assert (answer.returncode, answer.stdout) == (0, message + b"\n")


def test_one_byte_more_is_refused_before_anything_is_sealed(scene: Scene) -> None:
    answer = scene.run("call", "echo", "-", given=WORST.encode() * 64_001)
    assert (answer.returncode, answer.stdout) == (33, b"")
    told = answer.stderr.decode()
    assert "64,000 bytes" in told
    assert "Nothing was sealed" in told
    assert "sealed for" not in told


def test_the_longest_reply_of_the_worst_characters_arrives(scene: Scene) -> None:
    answer = scene.run("call", "worst", "256000")
    assert (answer.returncode, answer.stdout) == (0, WORST.encode() * 256_000 + b"\n")


def test_a_reply_of_one_byte_more_is_a_signed_failure(scene: Scene) -> None:
    answer = scene.run("call", "worst", "256001")
    assert (answer.returncode, answer.stdout) == (33, b""), answer.stderr
    assert "worst says so, sealed and signed." in answer.stderr.decode()


def test_a_failing_program_is_a_signed_failure_without_its_text(scene: Scene) -> None:
    document = scene.document("call", "worst", "not a number")
    assert document["error"]["code"] == "agent_error"
    assert document["error"]["family"] == "peer"
    assert document["error"]["exit"] == 1
    assert document["error"]["authenticated"] is True
    assert "ValueError" not in json.dumps(document)


def test_the_document_of_a_call_holds_the_reply_and_who_signed_it(scene: Scene) -> None:
    document = scene.document("call", "echo", "-", given="naïve \x1b[2J\u202e".encode())
    assert set(document) == {
        "v",
        "ok",
        "authenticated",
        "reply",
        "signed_by",
        "call_id",
        "message_id",
        "notes",
    }
    assert document["reply"] == {
        "text": "naïve \x1b[2J\u202e",
        "value": None,
        "task": "default",
        "context_id": document["reply"]["context_id"],
    }
    shown = json.loads(scene.run("id", "show", "--as", "echo", "--json").stdout)["identities"][0]
    assert document["signed_by"] == {name: shown[name] for name in ("handle", "fingerprint", "public_key")}


def test_the_same_id_gives_the_same_reply_and_another_message_is_refused(scene: Scene) -> None:
    name = "0" * 31 + "7"
    first = scene.document("call", "echo", "once", "--id", name)
    again = scene.document("call", "echo", "once", "--id", name)
    assert first["call_id"] == again["call_id"]
    other = scene.document("call", "echo", "twice", "--id", name)
    assert other["error"]["exit"] == 2
    assert "used before for another message" in other["error"]["message"]


def test_ten_calls_at_once_use_one_identity(scene: Scene) -> None:
    callers = [scene.start("call", "echo", f"call {number}", "--as", "crowd") for number in range(5)]
    for number, caller in enumerate(callers):
        assert caller.end() == 0, caller.told
        assert caller.out == f"call {number}\n".encode()


def on_a_terminal(scene: Scene, *words: str, given: bytes | None = None, output: bool = True) -> str:
    """Run a command on a terminal and return all that the terminal got."""
    ours, theirs = pty.openpty()
    got = b""
    try:
        process = subprocess.Popen(
            [RINGLINE, *words],
            env=scene.environment | {"TERM": "xterm-256color", "COLUMNS": "120"},
            stdin=subprocess.PIPE if given is not None else theirs,
            stdout=theirs if output else subprocess.DEVNULL,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        if given is not None:
            assert process.stdin is not None
            process.stdin.write(given)
            process.stdin.close()
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # Linux: nobody holds the other end any more
                break
            if not piece:
                break
            got += piece
        process.wait(BOUND_S)
    finally:
        os.close(ours)
    return got.decode()


def test_a_hostile_reply_cannot_act_on_the_terminal(scene: Scene) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\x9b31mred\u202ereversed\u200bhidden\U000e0041\u2028line\ttab\nnext"
    got = on_a_terminal(scene, "call", "echo", "-", given=hostile.encode())
    reply = got[got.rindex("signed by echo") :]
    assert r"\x1b[2J\x1b]0;owned\x07\x9b31mred\u202ereversed\u200bhidden\U000e0041\u2028line" in reply
    for character in "\x07\x9b\u202e\u200b\U000e0041\u2028":
        assert character not in got
    assert "\x1b[2J" not in got
    assert "\x1b]0;" not in got
    assert reply.rstrip("\r\n").endswith("\r\nnext")


def test_a_terminal_without_a_message_is_told_so_and_not_asked(scene: Scene) -> None:
    got = on_a_terminal(scene, "call", "echo")
    assert "there is no message" in got
    assert "exit 2" in got


@pytest.mark.parametrize(
    "words", [("call", "echo"), ("call", "echo", "-"), ("listen",), ("init", "--as"), ("cancel",)]
)
def test_no_command_waits_for_standard_input(scene: Scene, words: tuple[str, ...]) -> None:
    answer = scene.run(*words)
    assert answer.returncode == 2
    assert answer.stdout == b""


def test_an_open_pipe_without_a_message_is_not_waited_for(scene: Scene) -> None:
    caller = scene.start("call", "echo", "hello", stdin=subprocess.PIPE)
    assert caller.end() == 0
    silent = scene.start("call", "echo", stdin=subprocess.PIPE)
    assert silent.end() == 2


def test_no_command_line_carries_a_message_or_a_secret(scene: Scene, tmp_path: Path) -> None:
    canary = "canary-in-the-message"
    (tmp_path / "message").write_text(canary)
    (tmp_path / "passphrase").write_text("canary-passphrase\n")
    (tmp_path / "passphrase").chmod(0o600)
    words = ("--as", "locked", "--passphrase-file", str(tmp_path / "passphrase"))
    looker = "import sys, pathlib; sys.stdin.read(); print(*(" + (
        "p.read_bytes() for p in pathlib.Path('/proc').glob('[0-9]*/cmdline')), sep='\\n')"
    )
    listener = scene.start_listener("looker", sys.executable, "-c", looker)
    answer = scene.run("call", "looker", "--file", str(tmp_path / "message"), *words)
    assert answer.returncode == 0, answer.stderr
    # The program looked around while the call ran.
    assert b"ringline" in answer.stdout
    assert b"canary-" not in answer.stdout
    assert processes_with(canary) == []
    key = (scene.home).rglob("identities/locked/*.key")
    texts = [path.read_text() for path in key]
    assert texts
    assert all("argon2id" in text for text in texts)
    listener.stop()


def test_a_reply_that_cannot_be_written_is_told(scene: Scene) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    answer = subprocess.run(
        ["/bin/sh", "-c", f"{RINGLINE} call echo hello > /dev/full"],
        env=scene.environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=BOUND_S,
    )
    assert answer.returncode == 2
    assert b"standard output cannot be written" in answer.stderr


def test_a_program_may_be_offered_as_a_task(scene: Scene) -> None:
    listener = scene.start_listener("clerk", "wc", "-c", options=("--task", "count"))
    counted = scene.document("call", "clerk", "12345", "--task", "count")
    assert (counted["reply"]["text"].strip(), counted["reply"]["task"]) == ("5", "count")
    refused = scene.document("call", "clerk", "12345", "--task", "cuont")
    assert (refused["error"]["code"], refused["error"]["exit"]) == ("task_unknown", 25)
    assert refused["error"]["offered"] == ["count"]
    assert refused["error"]["authenticated"] is True
    assert refused["error"]["message"].endswith("Did you mean count?")
    listener.stop()
