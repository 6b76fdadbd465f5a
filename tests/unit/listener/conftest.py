"""A journal on disk for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringline.listener.journal import Journal
from ringline_testing.journals import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """A journal file in a folder of its own."""
    shelf = Shelf(tmp_path / "journal.db")
    yield shelf
    shelf.close()


@pytest.fixture
def journal(shelf: Shelf) -> Journal:
    """A new journal on disk."""
    return shelf.journal()
