"""The process of an impostor: the reference with a piece of one module replaced as it is loaded.

Nothing of the product may be loaded here before the piece is in place, so this file knows the standard
library alone. What the product needs of others can be loaded beforehand, once for all (`PRELOADED`).
"""

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Final, final

__all__ = ["PRELOADED", "Change", "NotThere", "changed", "disguise", "masquerade"]

PRELOADED: Final = (
    "asyncio", "click", "cryptography.hazmat.primitives.asymmetric.ed25519", "logging.config", "msgspec",
    "nacl.bindings", "picows", "sqlite3", "ssl", "websockets",
)  # fmt: skip
"""What an impostor imports of others."""

Change = tuple[str, str, str]
"""A module by its full name, a piece of its source, and what stands there instead."""


class NotThere(Exception):
    """The piece to replace is not there exactly once."""


def changed(source: str, change: Change) -> str:
    """Return ``source`` with the piece replaced. Raises `NotThere`."""
    module, old, new = change
    found = source.count(old)
    if found != 1:
        raise NotThere(f"{module} has {old!r} {found} times instead of once")
    return source.replace(old, new)


@final
class _Loader(SourceFileLoader):
    """Loads a module with a change, past its cached bytecode."""

    def __init__(self, fullname: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(fullname, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path).decode()
        for change in self._changes:
            source = changed(source, change)
        return compile(source, self.path, "exec", dont_inherit=True)


@final
class _Finder(MetaPathFinder):
    """Finds the modules that are changed, before anybody else does."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        changes = [change for change in self._changes if change[0] == fullname]
        if not changes:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, changes)
        return spec


def disguise(changes: Sequence[Change]) -> None:
    """Have the product loaded with these changes from now on. Nothing of it may be loaded yet."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == "ringline"]
    assert not loaded, f"already loaded, without the change: {loaded}"
    sys.meta_path.insert(0, _Finder(changes))


def masquerade(changes: Sequence[Change], words: Sequence[str], log: str) -> None:
    """Become ``ringline`` with these words and changes; what it says goes to the file ``log``."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
    disguise(changes)
    sys.argv = ["ringline", *words]
    sys.exit(importlib.import_module("ringline.cli").main())
