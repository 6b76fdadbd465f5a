"""The page that says what the impostors prove of the suite, and what they do not."""

from collections.abc import Sequence

from ringline.conformance.registry import Case, load
from ringline_testing.impostors.table import ROLES, Impostor, impostors, unproved

__all__ = ["proof_page"]


def proof_page() -> str:
    """Return the page, Markdown."""
    every = {role: load(role) for role in ROLES}
    found = {role: impostors(role) for role in ROLES}
    lines = [
        "# That the conformance suite notices\n",
        "Written by `make impostors IMPOSTORS='--page docs/impostors.md'`; do not edit. An impostor is the"
        " reference with one rule broken, and the suite has to fail it by the cases of that rule, and by no"
        " others beside them. `make impostors` lets all of them be judged.\n",
        "| Role | Impostors | Cases that say MUST, and are failed by one | Requirements that one breaks |",
        "|---|---|---|---|",
        *(_row(role, every[role], found[role]) for role in ROLES),
    ]
    for role in ROLES:
        lines += [f"\n## Requirements of a {role} that no impostor breaks\n"]
        by_reason: dict[str, list[str]] = {}
        for name, reason in unproved(role).items():
            by_reason.setdefault(reason, []).append(name)
        lines += [f"- {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return "\n".join(lines) + "\n"


def _row(role: str, every: Sequence[Case], found: Sequence[Impostor]) -> str:
    must = [case for case in every if case.is_must]
    failed = {case for impostor in found for case in impostor.cases}
    judged = {name for case in must for name in case.requirements}
    broken = {name for impostor in found for name in impostor.requirements}
    cases = f"{sum(case.id in failed for case in must)} of {len(must)}"
    return f"| {role} | {len(found)} | {cases} | {len(judged & broken)} of {len(judged)} |"
