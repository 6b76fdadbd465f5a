"""The generated pages of `spec/` say what the code says, and the check notices when they do not."""

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringline_testing.checkout import ROOT, portion_folder

PAGES = ("errors.md", "frames.md", "frames.schema.json", "lifecycle.md", "limits.md", "openapi.json")


def check(spec: Path, import_root: Path = ROOT / "protocol") -> "subprocess.CompletedProcess[str]":
    """Run the check of the folder ``spec`` against the protocol package below ``import_root``."""
    command = [sys.executable, str(spec / "build.py"), "--check"]
    environment = {"PYTHONPATH": str(import_root), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def build() -> Iterator[Any]:
    """Yield the generator, which is no package: its files find one another in their folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "spec"), *sys.path])
        yield importlib.import_module("build")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Return a copy of the generator and of what it generated."""
    folder = tmp_path / "spec"
    folder.mkdir()
    for name in (
        "build.py",
        "frames_schema.py",
        "requirement_coverage.py",
        "requirements.py",
        "ringline.md",
        *PAGES,
    ):
        shutil.copy(ROOT / "spec" / name, folder)
    shutil.copytree(
        ROOT / "spec" / "vectors", folder / "vectors", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


def stale_pages(build: Any, folder: Path) -> dict[str, str]:
    """Return what differs from the code; coverage.md, which follows from the suite, is for `make spec`."""
    stale: dict[str, str] = build.stale(folder)
    return {page: difference for page, difference in stale.items() if page in PAGES}


def test_the_pages_are_what_the_code_says(build: Any) -> None:
    assert stale_pages(build, ROOT / "spec") == {}
    assert {*PAGES, "coverage.md"} == set(build.PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_edited_by_hand_is_stale(spec: Path, build: Any, page: str) -> None:
    with (spec / page).open("a", encoding="utf-8") as file:
        file.write("one more line\n")
    stale = stale_pages(build, spec)
    assert list(stale) == [page]
    assert "-one more line" in stale[page]


def test_a_missing_page_is_stale(spec: Path, build: Any) -> None:
    (spec / "limits.md").unlink()
    assert list(stale_pages(build, spec)) == ["limits.md"]


@pytest.mark.parametrize(
    ("module", "old", "new", "pages"),
    [
        (
            "frames.py",
            "    phase: Phase\n",
            "    phase: Phase\n    mood: Phase | UnsetType = UNSET\n",
            {"frames.md", "frames.schema.json"},
        ),
        ("limits.py", "RING_BOUND_MS: Final = 30_000", "RING_BOUND_MS: Final = 31_000", {"limits.md"}),
        ("codes.py", '"the peer\'s program failed"', '"the program of the peer failed"', {"errors.md"}),
        (
            "lifecycle.py",
            "    (_S, State.ACCEPTED, Event.REJECT): _rejected,\n",
            "",
            {"lifecycle.md"},
        ),
    ],
)
def test_changed_code_makes_its_pages_stale(
    spec: Path, tmp_path: Path, module: str, old: str, new: str, pages: set[str]
) -> None:
    copy = tmp_path / "changed" / "ringline" / "protocol"
    shutil.copytree(portion_folder("protocol"), copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = (copy / module).read_text(encoding="utf-8")
    assert source.count(old) == 1, "the line that this test changes is gone"
    (copy / module).write_text(source.replace(old, new), encoding="utf-8")
    answer = check(spec, tmp_path / "changed")
    assert answer.returncode == 1, answer.stderr
    assert "make spec-write" in answer.stderr
    assert {name for name in PAGES if f"stale: {name}" in answer.stderr} == pages
