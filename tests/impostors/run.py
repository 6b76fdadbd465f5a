"""Let impostors that break one rule each be judged by the conformance suite: exactly their cases may fail.

    python tests/impostors/run.py [--role ROLE] [--short [--seed N]] [--only TEXT] [--wide] [--list]
                                  [--jobs 4] [--page FILE]

The impostors are in ``<role>/<chapter>.toml``: what each breaks, the piece of the reference that is replaced,
and the cases that have to fail. Some others of the chapter are run beside and have to pass. Requirements
that have a case and no impostor are in ``<role>-unproved.toml``, with the reason. ``--page`` writes how
much is proved. Exits 1 when an impostor is not caught.
"""

import sys
from pathlib import Path

# An impostor imports this file before it is one, so nothing of the product may be imported above this line.
if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    from ringline_testing.impostors.judgement import main

    sys.exit(main())
