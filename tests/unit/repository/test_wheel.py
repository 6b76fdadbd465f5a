"""The wheel carries every portion, and takes no import name but `ringline`."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ringline_testing.checkout import PORTIONS, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


def test_only_the_namespace_is_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ringline"}


def test_every_source_file_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("ringline/")}
    sources = {
        file.relative_to(ROOT / portion).as_posix()
        for portion in PORTIONS
        for pattern in ("*.py", "py.typed")
        for file in (ROOT / portion).rglob(pattern)
    }
    assert sources <= packed
    assert {f"ringline/{portion}/py.typed" for portion in PORTIONS} <= packed
    assert "ringline/__init__.py" not in packed


def test_it_carries_the_command_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = {name.split("/", 1)[1]: name for name in archive.namelist() if ".dist-info/" in name}
        assert "ringline = ringline.cli:main" in archive.read(metadata["entry_points.txt"]).decode()
        assert "licenses/LICENSE" in metadata
