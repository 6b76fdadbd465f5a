"""Which case of the conformance suite judges which requirement, and why some are judged by none.

The cases are read from their source and not imported, so that the pages can be made without what a case
needs to be run. A file of vectors, which the suite replays, counts as one case. What no case can judge is in
``uncovered.toml``, with the reason.
"""

import ast
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from requirements import CITATION, SECTION, Requirement

__all__ = ["ENFORCED", "Case", "citations", "explained", "faults", "page", "read_cases"]

CASES: Final = Path("conformance") / "ringline" / "conformance" / "cases"

VECTORS: Final = Path("spec") / "vectors"

ENFORCED: Final[frozenset[str]] = frozenset({"relay", "listener", "caller"})
"""The roles of which every MUST needs a case or a reason."""

_SOURCES: Final = (".py", ".md", ".toml", ".ts", ".js", ".mjs", ".pml")
_PASSED_OVER: Final = frozenset({".git", ".venv", "node_modules", "build", "dist", "__pycache__"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case of the suite, as far as the pages need it. ``level`` is empty for a file of vectors."""

    id: str
    role: str
    level: str
    requirements: tuple[str, ...]


def read_cases(root: Path) -> list[Case]:
    """Return every case below the checkout ``root``, and one for each file of vectors.

    Raises `ValueError` for a case whose requirements are not written out where it is declared.
    """
    folder = root / CASES
    found: list[Case] = []
    for file in sorted(folder.glob("*/*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and _name(decorator.func) == "case":
                        found.append(_case(file, node.name, decorator))
    return found + _vectors(root)


def _vectors(root: Path) -> list[Case]:
    found: list[Case] = []
    for file in sorted((root / VECTORS).glob("*.json")):
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        if "vectors" in content:
            ids = {name: None for vector in content["vectors"] for name in vector["requirements"]}
            found.append(Case(id=f"vectors.{file.stem}", role="vectors", level="", requirements=tuple(ids)))
    return found


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _case(file: Path, name: str, call: ast.Call) -> Case:
    given: dict[str, ast.expr] = {
        keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None
    }
    level = call.args[0] if call.args else given.get("level")
    role = file.parent.name
    identifier = f"{role}.{file.stem.partition('_')[0]}.{name}"
    try:
        ids = tuple(ast.literal_eval(given["requirements"]))
    except (KeyError, ValueError):
        raise ValueError(f"{identifier} does not name its requirements as a tuple of texts") from None
    return Case(
        id=identifier,
        role=role,
        level="MUST" if level is None else _name(level),
        requirements=ids,
    )


def explained(text: str) -> dict[str, str]:
    """Return the reasons of ``uncovered.toml`` by requirement.

    Raises `ValueError` for an entry without reason or ids, and for an id that has two reasons.
    """
    reasons: dict[str, str] = {}
    entries: list[dict[str, Any]] = tomllib.loads(text).get("explained", [])
    for entry in entries:
        reason, ids = " ".join(str(entry.get("reason", "")).split()), entry.get("ids", [])
        if not reason or not ids or set(entry) != {"reason", "ids"}:
            raise ValueError(f"an entry of uncovered.toml needs a reason and ids: {entry}")
        for name in ids:
            if name in reasons:
                raise ValueError(f"uncovered.toml explains {name} twice")
            reasons[name] = reason
    return reasons


def faults(
    requirements: Sequence[Requirement], cases: Sequence[Case], reasons: Mapping[str, str]
) -> list[str]:
    """Return what is wrong between requirements, cases and reasons, a line each."""
    known = {requirement.id: requirement for requirement in requirements}
    by_requirement = _judging(cases)
    wrong = [f"uncovered.toml: there is no {name}" for name in reasons if name not in known]
    wrong += [
        f"uncovered.toml: {name} is judged by {by_requirement[name][0].id}; remove its reason"
        for name in reasons
        if name in by_requirement
    ]
    for requirement in requirements:
        judged = requirement.id in by_requirement or requirement.id in reasons
        if requirement.is_must and not judged and ENFORCED.intersection(requirement.roles):
            wrong.append(f"{requirement.id} is judged by no case, and uncovered.toml does not say why")
    for case in cases:
        if not case.requirements:
            wrong.append(f"{case.id} judges no requirement")
        for name in case.requirements:
            cited = known.get(name)
            if cited is not None and case.level == "MUST" and not cited.is_must:
                wrong.append(f"{case.id} fails a subject by {name}, which is only {cited.level}")
    return wrong


def citations(root: Path, requirements: Sequence[Requirement]) -> list[str]:
    """Return every place in the checkout ``root`` that cites what does not exist.

    That is a requirement of which there is none, or a section: ringline.md has ids in their place.
    """
    known = {requirement.id for requirement in requirements}
    wrong: list[str] = []
    for file in _sources(root):
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
            wrong += [
                f"{file.relative_to(root)}:{number}: there is no {cited}"
                for cited in CITATION.findall(line)
                if cited not in known
            ]
            wrong += [
                f"{file.relative_to(root)}:{number}: {cited} is no id of ringline.md"
                for cited in SECTION.findall(line)
            ]
    return wrong


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - _PASSED_OVER)
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(_SOURCES))


def _judging(cases: Iterable[Case]) -> dict[str, list[Case]]:
    by_requirement: dict[str, list[Case]] = {}
    for case in cases:
        for name in case.requirements:
            by_requirement.setdefault(name, []).append(case)
    return by_requirement


def page(
    mark: str, requirements: Sequence[Requirement], cases: Sequence[Case], reasons: Mapping[str, str]
) -> str:
    """Return ``coverage.md``: each requirement with the cases that judge it, or why there is none."""
    by_requirement = _judging(cases)
    judged = sum(requirement.id in by_requirement for requirement in requirements)
    why = sum(requirement.id in reasons for requirement in requirements)
    parts = [
        "# Coverage",
        "",
        mark,
        "",
        f"{len(requirements)} requirements, {len(cases)} cases: {judged} requirements are judged by a case, "
        f"{why} have a reason why they are not, {len(requirements) - judged - why} have neither yet.",
    ]
    chapter = ""
    for requirement in requirements:
        if requirement.chapter != chapter:
            chapter = requirement.chapter
            parts += [
                "",
                f"## [{chapter}](ringline.md#{requirement.anchor})",
                "",
                "| Requirement | Level | Binds | Judged by |",
            ]
            parts.append("| --- | --- | --- | --- |")
        judges = ", ".join(f"`{case.id}`" for case in by_requirement.get(requirement.id, ()))
        parts.append(
            f'| <a id="{requirement.id.lower()}"></a>{requirement.id} '
            f"| {requirement.level} | {', '.join(requirement.roles)} "
            f"| {judges or reasons.get(requirement.id, '')} |"
        )
    return "\n".join(parts) + "\n"
