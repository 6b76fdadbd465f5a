"""Kill relay, listener and caller at every step that they store, and see that all agree afterwards.

    python tests/crash/run.py [--rounds 20] [--seed N] [--short] [--only TEXT] [--jobs 3]

The cells are in ``matrix.toml``. Exits 1 when anybody disagrees, and says how to run that cell again.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    from ringline_testing.crash.rounds import main

    sys.exit(main())
