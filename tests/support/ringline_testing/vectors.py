"""Test vectors: those that the project carries, and public ones that are too large to carry."""

import gzip
import json
from typing import Any, Final

import pytest

from ringline_testing.checkout import ROOT

__all__ = ["carried", "public"]

_CARRIED: Final = ROOT / "spec" / "vectors"
_PUBLIC: Final = ROOT.parent / "shared" / "vectors"


def carried(name: str) -> Any:
    """Return the content of a JSON file in ``spec/vectors``."""
    return json.loads((_CARRIED / name).read_bytes())


def public(name: str) -> Any:
    """Return the content of a public JSON file beside the checkout, unpacked if its name ends in ``.gz``.

    Skips the test, visibly, where the folder is absent.
    """
    file = _PUBLIC / name
    if not file.is_file():
        pytest.skip(f"public vectors are not here: {name}")
    data = file.read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
