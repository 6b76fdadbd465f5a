"""The process of an impostor of a listener or a caller, in place of the subject that it is made from.

    python tests/impostors/subject.py ROLE FILE

``FILE`` has the changes to the reference, JSON. What else a subject is told stands in its environment; see
``conformance/README.md``.
"""

import json
import runpy
import sys
from pathlib import Path

# Nothing of the product may be imported above the disguise.
if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(TESTS / "support"))
    from ringline_testing.impostors.masquerade import disguise

    role, changes = sys.argv[1:]
    disguise([(module, old, new) for module, old, new in json.loads(Path(changes).read_text("utf-8"))])
    runpy.run_path(str(TESTS / "conformance" / "subjects" / f"python_{role}.py"), run_name="__main__")
