"""The pure modules do no input or output, and ask neither the clock nor chance."""

import ast
from collections.abc import Iterator

import pytest

from ringline_testing.checkout import module_file

# A module on this list must exist: a pure module that is renamed keeps its promise.
PURE = (
    "ringline.protocol.bodies",
    "ringline.protocol.checkpoint",
    "ringline.protocol.codewords",
    "ringline.protocol.codec",
    "ringline.protocol.codes",
    "ringline.protocol.contact",
    "ringline.protocol.context",
    "ringline.protocol.dates",
    "ringline.protocol.encoding",
    "ringline.protocol.envelope",
    "ringline.protocol.errors",
    "ringline.protocol.fingerprint",
    "ringline.protocol.frames",
    "ringline.protocol.identity",
    "ringline.protocol.instant",
    "ringline.protocol.invite",
    "ringline.protocol.jsontext",
    "ringline.protocol.keyfile",
    "ringline.protocol.lifecycle",
    "ringline.protocol.limits",
    "ringline.protocol.logentry",
    "ringline.protocol.merkle",
    "ringline.protocol.names",
    "ringline.protocol.pairing",
    "ringline.protocol.prekeys",
    "ringline.protocol.receipt",
    "ringline.protocol.shapes",
    "ringline.protocol.signing",
    "ringline.protocol.spokencode",
    "ringline.protocol.statements",
    "ringline.protocol.suites",
    "ringline.protocol.tiles",
    "ringline.protocol.token",
    "ringline.protocol.trace",
    "ringline.protocol.transcript",
    "ringline.protocol.whereabouts",
    "ringline.relay.auth",
    "ringline.relay.budget",
    "ringline.relay.call_store",
    "ringline.relay.call_turn",
    "ringline.relay.directory",
    "ringline.relay.entrance",
    "ringline.relay.enrolment",
    "ringline.relay.alarms",
    "ringline.relay.hub",
    "ringline.relay.reception",
    "ringline.relay.keylog",
    "ringline.relay.invites",
    "ringline.relay.memory_calls",
    "ringline.relay.pairings",
    "ringline.relay.problem",
    "ringline.relay.publication",
    "ringline.relay.session",
    "ringline.relay.strangers",
    "ringline.relay.tenure",
    "ringline.relay.tickets",
    "ringline.listener.session",
    "ringline.caller.session",
)

IMPURE = {
    "aiosqlite",
    "asyncio",
    "concurrent",
    "httptools",
    "multiprocessing",
    "os",
    "pathlib",
    "picows",
    "random",
    "selectors",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "starlette",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib3",
    "uvicorn",
    "uvloop",
    "websockets",
}
# Keys and salts are drawn in the protocol package; everywhere else ids are handed in.
CHANCE = {"secrets", "uuid"}


def banned_in(module: str) -> set[str]:
    """Return the top-level names that this module must not import."""
    return IMPURE if module.startswith("ringline.protocol.") else IMPURE | CHANCE


def imports(source: str) -> Iterator[str]:
    """Yield the dotted name of everything a module imports, within functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached(name: str) -> Iterator[tuple[str, str]]:
    """Yield (module, import) for a module and for every module of ours that it stands on.

    The ``__init__`` of a package is passed over: it re-exports pure and impure modules alike.
    """
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        file = module_file(current)
        if current in seen or file is None or (file.name == "__init__.py" and current != name):
            continue
        seen.add(current)
        for imported in imports(file.read_text(encoding="utf-8")):
            yield current, imported
            if imported.startswith("ringline."):
                waiting.append(imported)


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_stands_on_pure_modules(name: str) -> None:
    assert module_file(name) is not None, f"{name} does not exist"
    found = [(module, entry) for module, entry in reached(name) if entry.split(".")[0] in banned_in(module)]
    assert found == []


def test_the_search_sees_imports_within_functions() -> None:
    source = "import a.b\nfrom c import d\ndef f():\n    from time import time\n"
    assert list(imports(source)) == ["a.b", "c", "c.d", "time", "time.time"]
