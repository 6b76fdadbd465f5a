"""The checkout as files: where the portions lie, and which modules they hold."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

__all__ = ["PORTIONS", "ROOT", "module_file", "module_names", "portion_folder", "tracked_files"]

ROOT: Final = Path(__file__).resolve().parents[3]

# One import root per portion of the namespace `ringline`, by the name of its folder.
PORTIONS: Final = ("protocol", "relay", "client", "listener", "caller", "cli", "conformance")


def portion_folder(portion: str) -> Path:
    """Return the folder of the package ``ringline.<portion>``."""
    return ROOT / portion / "ringline" / portion


def module_names(portion: str) -> list[str]:
    """Return the dotted names of every module of a portion, its package first, ``__main__`` left out."""
    names: list[str] = []
    for file in sorted(portion_folder(portion).rglob("*.py")):
        parts = file.relative_to(ROOT / portion).with_suffix("").parts
        if parts[-1] == "__main__":
            continue
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def module_file(name: str) -> Path | None:
    """Return the source file of the module ``ringline.<portion>...``, None when there is no such module."""
    base = ROOT.joinpath(name.split(".")[1], *name.split("."))
    for file in (base / "__init__.py", base.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def tracked_files() -> list[Path]:
    """Return the files under version control. Skips the test where there is no git checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, timeout=30
    ).stdout
    files = [ROOT / name for name in listing.decode().split("\0") if name]
    return [file for file in files if file.is_file()]
