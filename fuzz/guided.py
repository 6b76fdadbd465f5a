"""Let coverage guide one target: `make fuzz-guided GUIDED="frame -runs=200000"`.

What stands behind the target goes to libFuzzer. Inputs that reach something new are kept for the run in a
folder of its own; what breaks a promise is written to ``fuzz/findings`` by its name.
"""

import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final, cast

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "fuzz"), str(ROOT / "tests" / "support")]

from ringline_fuzz.catalogue import NAMES, find  # noqa: E402

_RUNS: Final = "-runs=20000"
_MAX_BYTES: Final = "-max_len=65536"


def main() -> int:
    """Run libFuzzer, which ends this process. Returns 0 where atheris is not to be had."""
    name, *options = sys.argv[1:] or [""]
    if name not in NAMES:
        print(f"name a target: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    try:
        import atheris as found  # type: ignore[import-not-found,import-untyped,unused-ignore]  # pyright: ignore
    except ImportError:
        print("SKIPPED: atheris is not to be had for this Python; `make fuzz` runs without it")
        return 0
    atheris = cast("Any", found)
    with atheris.instrument_imports(include=["ringline"]):
        target = find(name)
    if not target.guided:
        print(f"SKIPPED: {name} is about another process, of which no coverage is seen")
        return 0
    pool = list(target.seeds())

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        # Half of the time in the ways of the target, which knows what its inputs are made of.
        damaged = target.mutate(random, data, pool) if seed % 2 else atheris.Mutate(data, len(data))
        return bytes(damaged[:max_size])

    def judge(data: bytes) -> None:
        target.check(data)

    findings = ROOT / "fuzz" / "findings"
    findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ringline-fuzz-corpus-") as corpus:
        for number, seed in enumerate(pool):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        usual = [_MAX_BYTES, *(() if any(word.startswith("-runs") for word in options) else (_RUNS,))]
        words = [sys.argv[0], corpus, *usual, f"-artifact_prefix={findings}/{name}-", *options]
        atheris.Setup(words, judge, custom_mutator=mutate)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
