"""A program that only calls does not load a server, and a command loads only what it uses."""

import json
import subprocess
import sys

import pytest

SERVER = {"httptools", "picows", "starlette", "uvicorn", "ringline.relay"}
TERMINAL = {"click", "rich"}
NEVER = {"httpx", "mcp", "pydantic"}

CASES = {
    "ringline.protocol": SERVER
    | TERMINAL
    | NEVER
    | {"asyncio", "sqlite3", "websockets", "ringline.client", "ringline.listener", "ringline.caller"},
    "ringline.caller": SERVER | TERMINAL | NEVER | {"ringline.listener", "ringline.cli"},
    "ringline.listener": SERVER | TERMINAL | NEVER | {"ringline.caller", "ringline.cli"},
    # uvicorn itself loads click.
    "ringline.relay": (TERMINAL - {"click"})
    | NEVER
    | {"ringline.client", "ringline.listener", "ringline.caller"},
    "ringline.cli": SERVER | NEVER | {"rich", "websockets", "ringline.listener", "ringline.caller"},
}

# `from ... import *` loads what the package offers lazily as well.
PROGRAM = """
import json, sys
package = sys.argv[1]
exec(f"from {package} import *")
print(json.dumps([sorted(sys.modules), len(sys.modules[package].__all__)]))
"""


@pytest.mark.parametrize("package", CASES)
def test_an_import_stays_light(package: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, package], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    loaded, offered = json.loads(answer.stdout)
    assert offered > 0, f"{package} offers nothing, so this says nothing"
    assert CASES[package] & set(loaded) == set()
