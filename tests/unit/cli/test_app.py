"""The command's frame: lazy commands, help pages, near names, exit codes, and streams that are not there."""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from ringline.cli.app import COMMANDS, Invocation, LazyGroup, app
from ringline.cli.page import Page
from ringline.cli.version import VERSION
from ringline_testing.checkout import ROOT

RINGLINE = Path(sys.executable).with_name("ringline")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RINGLINE, *words], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )


def pages() -> list[tuple[str, click.Command]]:
    """Return every command with the words that call it."""
    found: list[tuple[str, click.Command]] = []

    def visit(group: click.Group, words: str) -> None:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                visit(command, f"{words} {name}")
            else:
                found.append((f"{words} {name}", command))

    visit(app, "ringline")
    return found


PAGES = pages()


NAMED_BY_ID = [
    (words, command, given.name)
    for words, command in PAGES
    for given in command.params
    if isinstance(given, click.Argument) and given.name in {"call", "call_id", "invite_id", "receipt"}
]


@pytest.mark.parametrize(
    "id_", ["-AqTKrbuLdSQUC6Y8j4mzg", "--qTKrbuLdSQUC6Y8j4mzg", "-hhhhhhhhhhhhhhhhhhhhh"]
)
@pytest.mark.parametrize(
    ("words", "command", "name"), NAMED_BY_ID, ids=[f"{words} {name}" for words, _, name in NAMED_BY_ID]
)
def test_an_id_that_begins_with_a_hyphen_is_no_option(
    words: str, command: click.Command, name: str, id_: str
) -> None:
    for before, after in (([], []), (["--json"], []), ([], ["--json"]), (["--"], [])):
        if "--json" in [*before, *after] and not any("--json" in given.opts for given in command.params):
            continue
        context = click.Context(command, info_name=words)
        command.parse_args(context, [*before, id_, *after])
        assert context.params[name] == id_


def test_an_id_may_also_be_the_value_of_an_option_and_the_second_word() -> None:
    found = dict(PAGES)
    for line, expected in (
        ("ringline call bob hello --id -AqTKrbuLdSQUC6Y8j4mzg", {"message_id": "-AqTKrbuLdSQUC6Y8j4mzg"}),
        ("ringline receipt save -AqTKrbuLdSQUC6Y8j4mzg -", {"call": "-AqTKrbuLdSQUC6Y8j4mzg", "file": "-"}),
    ):
        words, command = next((words, found[words]) for words in found if line.startswith(f"{words} "))
        context = click.Context(command, info_name=words, obj=Invocation())
        command.parse_args(context, line.removeprefix(words).split())
        assert expected.items() <= context.params.items()


def test_a_mistyped_option_is_still_one() -> None:
    command = dict(PAGES)["ringline cancel"]
    for word in (
        "-AqTK",
        "--jsom",
        "-AqTKrbuLdSQUC6Y8j4mz",
        "-AqTKrbuLdSQUC6Y8j4mzgg",
        "--colour=fffffffffffff",
    ):
        with pytest.raises(click.NoSuchOption):
            command.parse_args(click.Context(command, info_name="ringline cancel"), [word])


@pytest.mark.parametrize(("words", "command"), PAGES, ids=[words for words, _ in PAGES])
def test_every_command_has_a_full_page(words: str, command: click.Command) -> None:
    assert isinstance(command, Page)
    text = command.get_help(click.Context(command, info_name=words))
    sentence = text.split("\n\n")[0]
    assert sentence.strip().endswith("."), sentence
    for part in ("Usage: ", "Examples:\n", "Options:\n", "Exit codes:\n", "\nNext: "):
        assert part in text
    assert 1 <= len(command.examples) <= 4
    assert any(line.startswith(words) or words in line for _, line in command.examples)
    assert 0 in [key if isinstance(key, int) else 0 for key, _ in command.exits]
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(("words", "command"), PAGES, ids=[words for words, _ in PAGES])
def test_every_example_parses(words: str, command: click.Command) -> None:
    options = [param for param in command.params if isinstance(param, click.Option)]
    known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert isinstance(command, Page)
    for _, line in command.examples:
        own = line.split(words, 1)[-1].split(" --run ")[0].split("|")[0]
        used = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", own)) - {"--help"}
        assert used <= known | {"--run"}, line


def test_the_list_of_commands_says_what_their_pages_say() -> None:
    for name, entry in COMMANDS.items():
        command = app.get_command(click.Context(app), name)
        assert command is not None
        assert command.name == name
        assert entry.summary.endswith(".")


def test_options_are_explained() -> None:
    silent = [
        (words, param.name)
        for words, command in PAGES
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]
    assert silent == []


def test_the_version_is_that_of_the_distribution() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert config["project"]["version"] == VERSION
    assert run("version").stdout.startswith(f"ringline {VERSION} ")
    assert run("--version").stdout == f"ringline {VERSION}\n"
    assert json.loads(run("version", "--json").stdout)["version"] == VERSION


@pytest.mark.parametrize(
    ("words", "near"),
    [(("lisen",), "listen"), (("errors", "sow"), "show"), (("call", "--taks", "x", "bob", "hi"), "--task")],
)
def test_near_names_are_suggested(words: tuple[str, ...], near: str) -> None:
    answer = run(*words)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert near in answer.stderr
    assert "exit 2" in answer.stderr


def test_without_a_command_the_page_is_shown() -> None:
    answer = run()
    assert answer.returncode == 2
    assert "First steps:" in answer.stderr


def test_a_mistake_is_one_document_with_json() -> None:
    answer = run("errors", "show", "ofline", "--json")
    assert answer.returncode == 2
    assert answer.stderr == ""
    made = json.loads(answer.stdout)
    assert made["ok"] is False
    assert made["error"]["message"] == "there is no error code 'ofline'. Did you mean 'offline'?"


LOADED = """
import sys
from ringline.cli import main
code = main(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""
HEAVY = {
    "cryptography",
    "nacl",
    "websockets",
    "starlette",
    "uvicorn",
    "rich",
    "msgspec",
    "asyncio",
    "sqlite3",
}


@pytest.mark.parametrize("words", [["version"], ["--help"], ["completion", "bash"]], ids=" ".join)
def test_quick_commands_load_nothing_heavy(words: list[str]) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, timeout=30
    )
    assert answer.returncode == 0, answer.stderr
    assert HEAVY & set(answer.stderr.split()) == set()


def test_no_page_loads_anything_heavy() -> None:
    program = "import sys\nfrom ringline.cli import main\n"
    program += "".join(f"assert main({line.split()[1:] + ['--help']}) == 0\n" for line, _ in PAGES)
    program += "print(*sorted(sys.modules), file=sys.stderr)\n"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("Exit codes:") == len(PAGES)
    assert HEAVY & set(answer.stderr.split()) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    assert "_RINGLINE_COMPLETE" in run("completion", shell).stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("ringline ", "listen"),
        ("ringline ca", "call"),
        ("ringline call --ti", "--timeout"),
        ("ringline errors s", "show"),
    ],
)
def test_words_are_completed_without_loading_anything_heavy(typed: str, expected: str) -> None:
    environment = os.environ | {
        "_RINGLINE_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
    }
    program = "import sys, atexit\natexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
    program += "from ringline.cli import main\nsys.exit(main([]))\n"
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30
    )
    assert f"plain,{expected}" in answer.stdout.splitlines()
    assert HEAVY & set(answer.stderr.split()) == set()


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    process = subprocess.Popen(
        [RINGLINE, "errors", "ls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    _, told = process.communicate(timeout=30)
    assert process.returncode == 141
    assert told == ""


@pytest.mark.parametrize(
    ("redirection", "words"),
    [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")],
)
def test_standard_output_that_takes_nothing_is_told(redirection: str, words: str) -> None:
    if "full" in redirection and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    answer = subprocess.run(
        ["/bin/sh", "-c", f'"{RINGLINE}" version {redirection}'],
        capture_output=True,
        text=True,
        timeout=30,
        # With a buffer there is something left at the end that could be written again.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "Exception" not in answer.stderr


@pytest.mark.parametrize("words", ["call bob hello", "listen --as bob --run cat", "init --as bob"])
def test_a_closed_stream_is_no_fault_of_the_program(words: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        relay = f"http://127.0.0.1:{free.getsockname()[1]}"
    answer = subprocess.run(
        ["/bin/sh", "-c", f'"{RINGLINE}" {words} <&- 2>&-'],
        env=os.environ | {"RINGLINE_HOME": str(tmp_path), "RINGLINE_RELAY": relay},
        capture_output=True,
        timeout=30,
    )
    # Nothing listens there: that far it comes.
    assert answer.returncode == 30, answer.stderr


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_other_streams_may_be_closed(closed: str) -> None:
    answer = subprocess.run(
        ["/bin/sh", "-c", f'"{RINGLINE}" version {closed}'], capture_output=True, text=True, timeout=30
    )
    assert answer.returncode == 0
    assert answer.stdout.startswith("ringline ")


def test_a_fault_shows_no_traceback_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import ringline.cli.errors as e\ne.REGISTRY = None\n"
    program += "import sys\nfrom ringline.cli import main\nsys.exit(main(['errors', 'ls']))\n"
    monkeypatch.delenv("RINGLINE_DEBUG", raising=False)
    quiet = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert quiet.returncode == 70
    assert "Traceback" not in quiet.stderr
    assert "a fault in Ringline itself: AttributeError." in quiet.stderr
    monkeypatch.setenv("RINGLINE_DEBUG", "1")
    loud = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert loud.returncode == 70
    assert "Traceback" in loud.stderr
    assert "in ls\n" in loud.stderr


def test_a_traceback_shows_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import ringline.cli.errors as e\ndef values(): return {}['seven' + ' ravens']\n"
    program += "e.REGISTRY = type('Table', (), {'values': staticmethod(values)})\n"
    program += "import sys\nfrom ringline.cli import main\nsys.exit(main(['errors', 'ls']))\n"
    monkeypatch.setenv("RINGLINE_DEBUG", "1")
    loud = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert "KeyError" in loud.stderr
    assert "seven ravens" not in loud.stderr


def test_an_error_that_cannot_be_explained_is_a_fault_without_a_traceback() -> None:
    program = "import sys\nimport ringline.cli.failure as f\nreal = f._parted\n"
    program += "f._parted = lambda text: real(text) if 'fault' in text else text[10**6]\n"
    program += "from ringline.cli import main\nsys.exit(main(['call', 'B', 'x']))\n"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert answer.returncode == 70
    assert "Traceback" not in answer.stderr
    assert "a fault in Ringline itself: IndexError." in answer.stderr


def test_a_group_without_its_command_says_so() -> None:
    group = LazyGroup("g", entries={})
    assert group.get_command(click.Context(group), "nothing") is None
