"""The conformance suite: it judges a relay by its URL, and other implementations by their command.

Every case holds the subject to requirements of the normative text, by their ids, and speaks to it with
identities and sockets of its own; nothing of the reference implementation is used but its protocol part.
A case is written with `case` and judged by `run`.
"""

from ringline.conformance.registry import Case, Level, Needs, case, load, select
from ringline.conformance.runner import Plan, Run, run
from ringline.conformance.subject import Patience, Subject, Unjudgeable
from ringline.conformance.verdict import Failed, Neutral, NotTested, Result, Verdict

__all__ = [
    "Case",
    "Failed",
    "Level",
    "Needs",
    "Neutral",
    "NotTested",
    "Patience",
    "Plan",
    "Result",
    "Run",
    "Subject",
    "Unjudgeable",
    "Verdict",
    "case",
    "load",
    "run",
    "select",
]
