"""Every target by its name. A target's module is imported when the target is used."""

import importlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from ringline_fuzz.target import Target

__all__ = ["KEPT", "NAMES", "find", "kept", "together"]

KEPT: Final = Path(__file__).parents[2] / "tests" / "fuzz" / "inputs"
"""Inputs that once broke a promise, in a folder for each target; the tests replay them."""

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "wire": (
        *("frame", "body", "name", "base64url", "address", "contact-string", "invite", "invite-fields"),
        *("trace", "token"),
    ),
    "statements": (
        *("card", "prekey", "succession", "revocation", "log-entry", "checkpoint", "log-key", "tile-path"),
        *("bundle", "tile", "proof"),
    ),
    "sealed": ("envelope", "plaintext", "padding", "receipt", "key-file", "key-file-content"),
    "words": ("command", "relay-setting", "relay-option"),
    "state": ("state-text", "state-database"),
    "databases": ("journal", "outbox", "keylog", "relay-database"),
    "relay_http": ("http",),
    "relay_websocket": ("websocket",),
    "relay_answers": ("relay-answer",),
    "processes": ("process",),
    "second": ("second-implementation",),
}

NAMES: Final = tuple(name for names in _MODULES.values() for name in names)
"""The names of all targets."""


def together(names: Collection[str]) -> list[list[str]]:
    """Return these names in groups that belong into one process: those of one module."""
    groups = ([name for name in group if name in names] for group in _MODULES.values())
    return [group for group in groups if group]


def kept(name: str) -> list[bytes]:
    """Return the inputs that once broke the promise of that target."""
    return [path.read_bytes() for path in sorted((KEPT / name).glob("*"))]


def find(name: str) -> Target:
    """Return the target of that name. Raises `KeyError` for a name that is none."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise KeyError(name)
    targets: tuple[Target, ...] = importlib.import_module(f"ringline_fuzz.{module}").TARGETS
    return next(target for target in targets if target.name == name)
