"""Judge the reference implementation by the conformance suite, as a stranger would: processes and a URL.

    python tests/conformance/run.py [--edge picows|websockets] [-- SUITE-OPTION ...]

Starts `ringline relay dev` on each edge as it is, for the cases that wait for no bound, and then with the
bounds that the others need. Each is run with `--strict`, so that no case is left out. What stands behind `--`
goes to the suite. Exits with the worst of the suite's exit codes.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

EDGES: Final = ("picows", "websockets")
_BIN: Final = Path(sys.executable).parent
_SUITE: Final = str(_BIN / "ringline-conformance")
_START_S: Final = 60
_RUN_S: Final = 900


def short_bounds() -> list[str]:
    """Return the options of a development relay on which no case is neutral."""
    told = subprocess.run(
        [_SUITE, "list", "--role", "relay", "--set"], check=True, capture_output=True, text=True, timeout=60
    )
    return told.stdout.split()


@contextlib.contextmanager
def relay(edge: str, options: Sequence[str]) -> Generator[str]:
    """Run a relay for development with a database of its own; yield its base URL."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(_BIN / "ringline"), "relay", "dev", "--port", "0", "--edge", edge, *options]
        process = subprocess.Popen(
            [*command, "--db", str(Path(folder) / "relay.db")], stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            told = ""
            for line in process.stderr:
                told += line
                if line.startswith("Next:"):
                    break
            found = re.search(r"http://[0-9.]+:[0-9]+", told)
            if found is None:
                raise SystemExit(f"the relay did not start:\n{told}")
            yield found[0]
        finally:
            process.terminate()
            try:
                process.wait(_START_S)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="The conformance suite on the reference implementation.")
    parser.add_argument("--edge", choices=EDGES, help="this edge only")
    parser.add_argument("suite", nargs="*", help="options and selectors of the suite, behind --")
    arguments = parser.parse_args()
    worst = 0
    for edge in EDGES if arguments.edge is None else (arguments.edge,):
        # A relay with short bounds on a busy machine gives calls up that others still work on: those that
        # wait for a bound are therefore by themselves, all at once, since they do little but wait.
        for options, timed in ((), ["--untimed"]), (short_bounds(), ["--timed", "--jobs", "32"]):
            with relay(edge, options) as url:
                print(f"relay, edge {edge}, {timed[0].lstrip('-')} cases", flush=True)
                command = [_SUITE, "relay", "--url", url, "--strict", *timed, *arguments.suite]
                worst = max(worst, subprocess.run(command, check=False, timeout=_RUN_S).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
