"""Mistakes on the command line: one screen each, with what to type next, before anything is started."""

import contextlib
import io
import sys
from pathlib import Path

import pytest

from ringline.cli import main
from ringline.cli.message import read_message


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command of these tests may find anything, and none may wait for anybody."""
    monkeypatch.setenv("RINGLINE_HOME", str(tmp_path / "home"))
    for name in ("RINGLINE_RELAY", "RINGLINE_REALM", "RINGLINE_AS", "RINGLINE_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must not start, and return its error message."""
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert lines[0].startswith("✗ ")
    assert len(lines) <= 12
    assert lines[-1].startswith("  [config · exit 2 · ")
    assert "Found on this side" in told.err
    assert "Next:" in told.err
    assert list(Path("home").rglob("*.key")) == []
    return told.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("call", "echo"), "there is no message"),
        (("call", "echo", "hello", "--file", "x"), "two messages"),
        (("call", "echo", "--file", "not-there"), "not-there"),
        (("call", "echo", "-"), "the message is empty: standard input"),
        (("call", "echo", ""), "the message is empty: the text"),
        (("call", "echo", "a\udcffb"), "the text is not UTF-8 text: byte 2"),
        (("call", "Bob", "hello"), "not a handle"),
        (("call", "ringline://bob@localhost/#k=short", "hello"), "key is damaged"),
        (("call", "ringline://bob", "hello"), "no contact string"),
        (("call", "echo", "hello", "--contact", "bob"), "no contact string"),
        (("call", "echo", "hello", "--id", "7"), "not a message_id"),
        (("call", "echo", "hello", "--timeout", "0"), "--timeout"),
        (("call", "echo", "hello", "--no-wait"), "give --durable"),
        (("call", "echo", "hello", "--expires", "2d"), "give --durable"),
        (("call", "echo", "hello", "--durable", "--expires", "4d"), "at most 3d"),
        (("call", "echo", "hello", "--durable", "--expires", "0s"), "at most 3d"),
        (("call", "echo", "hello", "--durable", "--expires", "tomorrow"), "such as 30m"),
        (("call", "echo", "hello", "--durable", "--no-wait", "--timeout", "5"), "--timeout means nothing"),
        (("result", "rcpt_bob_1", "--wait", "-1"), "--wait"),
        (("calls", "ls", "--limit", "0"), "--limit"),
        (("call", "echo", "hello", "--timeout", "soon"), "--timeout"),
        (("call", "echo", "hello", "--arg", "x"), "NAME=TEXT"),
        (("call", "echo", "hello", "--arg", "x:=nonsense"), "no JSON"),
        (("call", "echo", "hello", "--arg", "x=1", "--arg", "x=2"), "twice"),
        (("call", "echo", "hello", "--task", "No Task"), "not the id of a task"),
        (("call", "echo", "hello", "--relay", "ftp://127.0.0.1"), "http://"),
        (("call", "echo", "hello", "--relay", "http://relay.example"), "TLS"),
        (("call", "echo", "hello", "--relay", "http://127.0.0.1:99999"), "99999"),
        (("call", "echo", "hello", "--relay", "127.0.0.1:7575"), "127.0.0.1:7575"),
        (("call", "echo", "hello", "--realm", "no realm"), "not a realm"),
        (("call", "echo", "hello", "--plain", "--passphrase-file", "x"), "exclude"),
        (("cancel", "no such call"), "no call id"),
        (("cancel",), "CALL_ID"),
        (("init", "--as"), "--as"),
        (("init", "--as", "Me"), "not a handle"),
        (("init", "--as", "me", "--relay", "https://relay.example"), "passphrase"),
        (("id", "show"), "no identity"),
        (("errors", "show", "ofline"), "offline"),
        (("completion", "tcsh"), "tcsh"),
        (("listen", "--as", "bob"), "--run"),
        (("listen", "--run", "cat"), "--as"),
        (("listen", "--run", "cat", "--as", "bob"), "before it"),
        (("listen", "--as", "bob", "--run", "no-such-program-here"), "no-such-program-here"),
        (("listen", "--as", "bob", "--timeout", "351", "--run", "cat"), "350"),
        (("listen", "--as", "bob", "--concurrency", "0", "--run", "cat"), "concurrency"),
        (("listen", "--as", "bob", "--workdir", "/no/such/folder", "--run", "cat"), "/no/such/folder"),
        (("listen", "--as", "Bob", "--run", "cat"), "not a handle"),
        (("listen", "--as", "bob", "--task", "No Task", "--run", "cat"), "No Task"),
        (("relay", "dev", "--set", "RING_BOUND=5"), "RING_BOUND_MS"),
        (("relay", "dev", "--set", "RING_BOUND_MS=soon"), "RING_BOUND_MS"),
        (("relay", "dev", "--set", "RING_BOUND_MS"), "NAME=VALUE"),
        (("relay", "dev", "--host", "0.0.0.0"), "loopback"),
        (("relay", "dev", "--edge", "other"), "picows"),
        (("relay", "dev", "--port", "70000"), "--port"),
        (("relay", "dve"), "dev"),
    ],
)
def test_a_mistake_is_told_with_what_to_type_next(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert told in refused(capsys, *words)


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"\xff\xfe", "standard input is not UTF-8 text: byte 1"), (b"ok\xc3", "byte 3"), (b"", "is empty")],
)
def test_standard_input_that_is_no_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: bytes, told: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert told in refused(capsys, "call", "echo", "-")


def test_a_task_needs_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_message(None, None, needed=False) == ""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert read_message("-", None, needed=False) == ""


@pytest.mark.parametrize("source", ["text", "file", "-"])
def test_a_message_that_is_too_long_is_not_even_read_to_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    # 21,334 characters of three bytes are two bytes more than 64,000.
    message = "☎" * 21_334
    stream = io.BytesIO(message.encode() * 100)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    Path("long").write_text(message)
    words = {"text": (message,), "file": ("--file", "long"), "-": ("-",)}[source]
    assert main(("call", "echo", *words)) == 33
    told = capsys.readouterr().err
    assert "64,000 bytes" in told
    assert "Nothing was sealed and nothing was sent." in told
    assert stream.tell() <= 2 * 64_000


def test_the_document_of_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(("call", "echo", "--json")) == 2
    told = capsys.readouterr()
    assert told.err == ""
    document = json.loads(told.out)
    assert document["error"]["code"] == "config"
    assert document["error"]["next"] == ["ringline call --help"]


def test_nothing_is_sent_whose_answer_could_not_be_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens where it would call: trying would be told otherwise.
    monkeypatch.setattr(sys, "stdout", None)
    assert main(("call", "echo", "hello", "--relay", "http://127.0.0.1:9")) == 2
    assert "standard output is closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("errors", "show", "--", "--json"), ("listen", "--as", "Bob", "--run", "cat", "--json")],
    ids=" ".join,
)
def test_what_belongs_to_somebody_else_does_not_ask_for_a_document(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    refused(capsys, *words)


def test_the_numbers_of_the_pages_are_those_of_the_libraries() -> None:
    # What a help page says is not imported from where it is used, so that the page comes at once.
    from ringline.caller import DEFAULT_TIMEOUT_S
    from ringline.cli.options import DEFAULT_RELAY as page
    from ringline.client import DEFAULT_RELAY
    from ringline.relay.options import DEFAULT_PORT

    assert page == DEFAULT_RELAY == f"http://127.0.0.1:{DEFAULT_PORT}"
    for words, number in (
        (("call", "--help"), f"[default: {DEFAULT_TIMEOUT_S:g}]"),
        (("relay", "dev", "--help"), f"[default: {DEFAULT_PORT}"),
        (("listen", "--help"), "at most 350"),
    ):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            main(words)
        assert number in " ".join(shown.getvalue().split()), words


@pytest.mark.parametrize(
    "words",
    [
        ("calls", "ls"),
        ("calls", "show", "rcpt_bob_189224a35c9a03ae2289fd2832c647b2"),
        ("result", "rcpt_bob_189224a35c9a03ae2289fd2832c647b2"),
        ("cancel", "AqTKrbuLdSQUC6Y8j4mzgg"),
        ("cancel", "AqTKrbuLdSQUC6Y8j4mzgg", "--as", "bob"),
    ],
)
def test_to_ask_about_calls_makes_no_identity(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert "no call was made from here" in refused(capsys, *words)
    assert not Path("home").exists()
