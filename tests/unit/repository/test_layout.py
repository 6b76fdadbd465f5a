"""Each code folder holds one portion of the namespace `ringline`, and nothing else importable."""

import importlib
import tomllib
from pathlib import Path

import pytest

from ringline_testing.checkout import PORTIONS, ROOT, portion_folder


def test_no_portion_closes_the_namespace() -> None:
    # An __init__.py here would make `ringline` a regular package and hide every other portion.
    closing = [
        str(file.relative_to(ROOT))
        for file in ROOT.rglob("ringline/__init__.py")
        if ".venv" not in file.relative_to(ROOT).parts
    ]
    assert closing == []


@pytest.mark.parametrize("portion", PORTIONS)
def test_a_portion_is_one_typed_package(portion: str) -> None:
    importable = [
        child
        for folder in (ROOT / portion, ROOT / portion / "ringline")
        for child in folder.iterdir()
        if child.name != "__pycache__" and (child.is_dir() or child.suffix in (".py", ".so", ".pth"))
    ]
    assert importable == [ROOT / portion / "ringline", portion_folder(portion)]
    assert (portion_folder(portion) / "__init__.py").is_file()
    assert (portion_folder(portion) / "py.typed").is_file()


def test_every_code_folder_is_a_known_portion() -> None:
    found = {
        folder.parent.relative_to(ROOT).as_posix()
        for folder in ROOT.rglob("ringline/")
        if not {".venv", "build", "dist"} & set(folder.relative_to(ROOT).parts)
    }
    assert found == set(PORTIONS)


def test_the_namespace_is_spread_over_this_checkout() -> None:
    namespace = importlib.import_module("ringline")
    assert getattr(namespace, "__file__", None) is None
    assert {Path(entry) for entry in namespace.__path__} >= {ROOT / p / "ringline" for p in PORTIONS}


def test_every_tool_is_told_of_every_portion() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tool = config["tool"]
    folders = list(PORTIONS)
    packages = [f"{portion}/ringline" for portion in PORTIONS]
    modules = [f"ringline.{portion}" for portion in PORTIONS]
    assert tool["hatch"]["build"]["dev-mode-dirs"] == folders
    assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == packages
    assert set(folders) <= set(tool["hatch"]["build"]["targets"]["sdist"]["only-include"])
    assert set(folders) <= set(tool["mypy"]["files"])
    assert all(f"$MYPY_CONFIG_FILE_DIR/{folder}" in tool["mypy"]["mypy_path"] for folder in folders)
    assert set(folders) <= set(tool["pyright"]["include"])
    assert set(folders) <= set(tool["pyright"]["extraPaths"])
    assert set(folders) <= set(tool["ruff"]["src"])
    assert tool["ruff"]["namespace-packages"] == packages
    assert set(folders) == set(tool["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
    assert tool["coverage"]["run"]["source_pkgs"] == modules
    assert tool["importlinter"]["root_packages"] == modules
