"""The demonstration tells its story, proves each claim, and leaves nothing behind."""

import os
import re
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ringline_testing.commands import Running, Scene

pytestmark = pytest.mark.system


@pytest.fixture
def scene(tmp_path: Path) -> Generator[Scene]:
    """A home that the demonstration must not touch, and a place for its temporary folder."""
    (tmp_path / "temporary").mkdir()
    with Scene(tmp_path, variables={"TMPDIR": str(tmp_path / "temporary")}) as made:
        yield made


def left_of(scene: Scene, running: Running) -> list[str]:
    """Return what is left of a demonstration: its folder, and processes that knew of it."""
    left = [str(path) for path in (scene.folder / "temporary").iterdir()]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            known = str(scene.folder / "temporary").encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if known and int(entry.name) not in (running.pid, os.getpid()):
            left.append((entry / "cmdline").read_bytes().decode())
    return left


def test_the_story_is_told_to_its_end(scene: Scene) -> None:
    demo = scene.start("demo", "--headless")
    assert demo.end() == 0, demo.told
    story = demo.out.decode()
    assert "\x1b" not in story
    assert demo.told == []
    steps = [line for line in story.splitlines() if re.match(r"\d  ", line)]
    assert len(steps) == 6
    for claim in (
        "│ ✓   ",
        "reply        You wrote 8 words; the longest is 'confidential'.",
        "neither is there. (The handle bob is found.)",
        "incoming_call",
        "[key_changed · exit 22",
        "Refused before anything was sealed",
        "[protocol_error · exit 32",
        "was refused",
        "All as it should be",
    ):
        assert claim in story, story
    assert left_of(scene, demo) == []
    assert not scene.home.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_story_that_is_stopped_ends_everything(scene: Scene, number: signal.Signals) -> None:
    demo = scene.start("demo", "--headless")
    demo.prints(b"3  Somebody calls bob")
    demo.signal(number)
    assert demo.end() == 130
    assert b"All as it should be" not in demo.out
    assert left_of(scene, demo) == []


WRONG = """
import sys
from ringline.cli.demo import lies
lies.SwappedKeys.answer = lambda self, request, body: body
from ringline.cli import main
sys.exit(main(["demo", "--headless"]))
"""


def test_a_lie_that_is_not_refused_is_no_success(scene: Scene) -> None:
    demo = scene.start("-c", WRONG, program=sys.executable)
    assert demo.end() == 1
    assert "✗ not as it should be: the call ended with exit code 0 instead of 22" in demo.told
    assert "All as it should be" not in demo.out.decode()
    assert left_of(scene, demo) == []
