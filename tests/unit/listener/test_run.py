"""`Listener.run`, as a small program uses it."""

import traceback
from pathlib import Path

import pytest

from ringline.client import Home
from ringline.listener import ConfigError, Listener
from ringline.listener.journal import Journal


def test_what_stops_a_program_at_its_start_is_one_short_traceback(tmp_path: Path) -> None:
    listener = Listener("bob", home=tmp_path)
    path = Home(tmp_path).journal_file(listener.address, "bob")
    path.parent.mkdir(parents=True)
    with (
        Journal(path),
        pytest.raises(ConfigError, match="another process is listening") as caught,
    ):
        listener.run()
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1
    # The line that asked for it, and the one that said no.
    assert shown.count('  File "') == 2
