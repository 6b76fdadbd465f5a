"""What is committed names no machine, and what the pages tell a reader to type works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ringline_testing.checkout import ROOT, tracked_files

# An absolute path of somebody's machine, and not the same word within a longer path or a URL.
MACHINE_PATH = re.compile(rb"(?<![\w.~$}*-])/(?:work|root|home|Users)/(?=\w)")
PAGES = ("README.md", "CONTRIBUTING.md")


def test_no_file_names_a_machine() -> None:
    named = [
        str(file.relative_to(ROOT)) for file in tracked_files() if MACHINE_PATH.search(file.read_bytes())
    ]
    assert named == []


def test_the_search_finds_a_machine_path() -> None:
    assert MACHINE_PATH.search(b"see /" + b"home/ada/notes")
    assert not MACHINE_PATH.search(b"see https://example.org/" + b"home/ada, net" + b"work/x")


def targets() -> set[str]:
    """Return the targets of the Makefile that a person may ask for."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))


def commands(page: str, program: str) -> list[list[str]]:
    """Return the commands of a page that begin with ``program``: lines of a block, and code in a line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [
        line for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M) for line in block.splitlines()
    ]
    lines += re.findall(r"`([^`\n]+)`", text)
    return [words for line in lines if (words := shlex.split(line, comments=True)) and words[0] == program]


@pytest.mark.parametrize("page", PAGES)
def test_every_make_command_of_a_page_is_a_target(page: str) -> None:
    asked = {word for words in commands(page, "make") for word in words[1:] if "=" not in word}
    assert asked, f"{page} names no target"
    assert asked <= targets()


def test_every_target_is_phony_and_explained() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## \w", makefile, re.MULTILINE))
    assert targets() == set(phony.split()) == explained


def test_the_first_screen_of_the_readme_starts_a_stranger() -> None:
    screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45])
    for command in ("make demo", "make test", "ringline relay dev", "ringline listen --as echo --run cat"):
        assert command in screen
    assert 'ringline call echo "hello"' in screen


def test_every_ringline_command_of_the_readme_exists() -> None:
    program = Path(sys.executable).with_name("ringline")
    seen = {tuple(words) for words in commands("README.md", "ringline")}
    assert len(seen) >= 3
    for words in sorted(seen):
        depth = 3 if words[1] in ("relay", "id") else 2
        answer = subprocess.run(
            [program, *words[1:depth], "--help"], capture_output=True, text=True, timeout=30
        )
        assert answer.returncode == 0, f"{words}: {answer.stderr}"
        options = [word for word in words[depth:] if word.startswith("--")]
        assert [option for option in options if option not in answer.stdout] == [], words
