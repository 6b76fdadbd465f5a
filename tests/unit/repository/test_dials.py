"""The relay answers; it never dials. What a client names can so never make it fetch anything."""

import ast
from pathlib import Path

import pytest

from ringline_testing.checkout import ROOT

# Modules that exist to reach out, and functions that do.
REACHING_OUT = {"urllib.request", "http.client", "requests", "httpx", "aiohttp", "websockets.asyncio.client"}
DIALS = {
    "create_connection",
    "open_connection",
    "open_unix_connection",
    "ws_connect",
    "urlopen",
    "getaddrinfo",
}


def dials(source: str) -> list[str]:
    """Return what in a module could open a connection to somewhere else."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute) and node.attr in DIALS:
            found.append(node.attr)
        found += [name for name in modules if name in REACHING_OUT or name.rpartition(".")[2] in DIALS]
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "relay").rglob("*.py")), ids=lambda path: path.stem)
def test_the_relay_opens_no_connection(path: Path) -> None:
    assert dials(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    ["import http.client", "from urllib import request", "import asyncio\nasyncio.open_connection('x', 1)"],
)
def test_a_dial_is_found(source: str) -> None:
    assert dials(source)
