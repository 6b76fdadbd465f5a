"""The bytes of the Python implementation as a subject of the conformance suite: answers to vectors.

The operations are those of ``ringline_testing.vector_answers``, by which the tests replay the vectors too.
"""

import runpy
from pathlib import Path

ANSWERS = Path(__file__).parents[2] / "support" / "ringline_testing" / "vector_answers.py"

if __name__ == "__main__":
    runpy.run_path(str(ANSWERS), run_name="__main__")
