"""Take one rule of the protocol away at a time, and see a test fail for each.

    python tests/mutants/run.py [--short] [--only WORD] [--list]

The mutants are listed in ``mutants.toml``. Each is a copy of ``ringline.protocol`` with one change, put first
on the import path of a pytest run of the tests that ought to notice. ``--short`` runs the bindings of the
envelope only. The exit code is 1 when a mutant survives, and 2 when the check itself is broken: a change
that does not apply, a run that ends in anything but passed or failed tests, or tests that fail without a
mutant.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
_PACKAGE: Final = ROOT / "protocol" / "ringline" / "protocol"
_TESTS: Final = ROOT / "tests" / "unit" / "protocol"
_LIST: Final = Path(__file__).with_name("mutants.toml")
_SHORT: Final = "binding"
_SECONDS: Final = 180
# pytest's exit codes.
_PASSED: Final = 0
_FAILED: Final = 1

Verdict: TypeAlias = Literal["killed", "SURVIVED", "BROKEN"]

# A plugin for pytest. It stops when something else than the mutant would be tested, and runs the tests by
# example before those by property, which take longer.
_PLUGIN: Final = """
import pathlib
import ringline.protocol

here = pathlib.Path(__file__).parent
found = pathlib.Path(ringline.protocol.__file__)
assert found.is_relative_to(here), f"the mutant is not what is tested, but {found}"


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: getattr(item.obj, "is_hypothesis_test", False))
"""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of ``module`` from ``old`` to ``new``, and the files of tests that ought to notice."""

    group: str
    name: str
    module: str
    old: str
    new: str = ""
    tests: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.tests:
            msgspec.structs.force_setattr(self, "tests", (f"test_{self.module}.py",))


class _Mutants(msgspec.Struct, forbid_unknown_fields=True):
    mutant: tuple[Mutant, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutant; ``note`` is the end of pytest's output where it matters."""

    mutant: Mutant
    verdict: Verdict
    seconds: float
    note: str = ""


class DoesNotApply(Exception):
    """The text to change is not there exactly once."""


def make_copy(folder: Path, mutant: Mutant | None) -> None:
    """Write the package with the change, and the plugin, into ``folder``."""
    package = folder / "ringline" / "protocol"
    shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mutant_plugin.py").write_text(_PLUGIN)
    if mutant is None:
        return
    file = package / f"{mutant.module}.py"
    text = file.read_text()
    found = text.count(mutant.old)
    if found != 1:
        raise DoesNotApply(f"{mutant.module}.py has {mutant.old!r} {found} times instead of once")
    file.write_text(text.replace(mutant.old, mutant.new))


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run files of tests with ``folder`` first on the import path, up to the first that does not pass.

    Return the last exit code of pytest, and its output.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        # The plugins take longer to load than most of these tests to run.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line"]
    command += ["-p", "mutant_plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    code, output = _PASSED, ""
    for test in tests:
        try:
            done = subprocess.run(
                [*command, str(_TESTS / test)],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, f"{test}: no end after {_SECONDS} s"
        code, output = done.returncode, done.stdout + done.stderr
        if code != _PASSED:
            break
    return code, output


def judge(mutant: Mutant) -> Result:
    """Make the mutant, run its tests, and say what became of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ringline-mutant-") as name:
        folder = Path(name)
        try:
            make_copy(folder, mutant)
        except DoesNotApply as error:
            return Result(mutant, "BROKEN", time.monotonic() - began, str(error))
        code, output = run_tests(folder, mutant.tests)
    verdicts: dict[int, Verdict] = {_PASSED: "SURVIVED", _FAILED: "killed"}
    verdict = verdicts.get(code, "BROKEN")
    note = "" if verdict == "killed" else output[-1_500:]
    return Result(mutant, verdict, time.monotonic() - began, note)


def check_unchanged(mutants: Sequence[Mutant]) -> str | None:
    """Run all tests without a mutant; return what is wrong, None when they pass."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    with tempfile.TemporaryDirectory(prefix="ringline-mutant-") as name:
        make_copy(Path(name), None)
        code, output = run_tests(Path(name), tests)
    return None if code == _PASSED else output[-3_000:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check. See the module's docstring for the arguments and exit codes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--short", action="store_true", help="the bindings of the envelope only")
    parser.add_argument("--only", default="", metavar="WORD", help="mutants with this word")
    parser.add_argument("--list", action="store_true", help="name the mutants and stop")
    chosen = parser.parse_args(arguments)
    mutants = [
        mutant
        for mutant in msgspec.convert(tomllib.loads(_LIST.read_text()), _Mutants).mutant
        if (not chosen.short or mutant.group == _SHORT)
        and chosen.only in f"{mutant.group} {mutant.module} {mutant.name}"
    ]
    if chosen.list:
        for mutant in mutants:
            print(f"{mutant.group:<11} {mutant.module:<11} {mutant.name}")
        return 0
    if not mutants:
        parser.error("no mutant has that word")
    began = time.monotonic()
    wrong = check_unchanged(mutants)
    if wrong is not None:
        print(f"tests fail without any mutant:\n{wrong}")
        return 2
    counts: dict[Verdict, int] = {"killed": 0, "SURVIVED": 0, "BROKEN": 0}
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for result in pool.map(judge, mutants):
            counts[result.verdict] += 1
            mutant = result.mutant
            what = f"{mutant.group:<11} {mutant.module:<11} {mutant.name}"
            print(f"{result.verdict:<9} {what} ({result.seconds:.1f} s)", flush=True)
            if result.note:
                print("    " + result.note.replace("\n", "\n    "))
    print(
        f"{len(mutants)} mutants in {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    )
    return 2 if counts["BROKEN"] else 1 if counts["SURVIVED"] else 0


if __name__ == "__main__":
    sys.exit(main())
