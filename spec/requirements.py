"""The requirements of ``ringline.md``, read from its text and checked for their form.

A requirement is a list item: an id, one sentence with one level word whose subject says whom it binds,
and perhaps a remark in italics that names what it prevents.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

__all__ = ["CITATION", "SECTION", "Requirement", "faults", "read"]

CITATION: Final = re.compile(r"\bRL-[A-Z]+-[0-9]+\b")
"""What names a requirement, wherever it stands."""

SECTION: Final = re.compile(r"\b(?:protocol|envelope) §[0-9.]*[0-9]")
"""What names a place in a text that no reader has; other texts, such as an RFC, are cited by section."""

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "relay": ("relay",),
    "listener": ("listener",),
    "caller": ("caller",),
    "client": ("listener", "caller"),
    "owner": ("listener", "caller"),
    "implementation": ("relay", "listener", "caller"),
}
"""The roles that a sentence binds, by its subject."""

_CHAPTER: Final = re.compile(r"## (.+) \(([A-Z]+)\)")
_ITEM: Final = re.compile(r"- \*\*(?P<id>[^*]*)\*\* (?P<rest>.*)")
_REST: Final = re.compile(r"(?P<sentence>[^*]*[^ *])(?: \*(?P<prevents>Prevents [^*]+\.)\*)?")
_ID: Final = re.compile(r"RL-([A-Z]+)-([0-9]{3})")
_LEVEL: Final = re.compile(r"\b(MUST NOT|MUST|SHOULD NOT|SHOULD|MAY)\b")
_SUBJECT: Final = re.compile(rf"An? ({'|'.join(ROLES)})\b")
_CODE: Final = re.compile(r"`[^`]*`")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One requirement, and where it stands."""

    id: str
    chapter: str
    anchor: str
    """Where its chapter begins, as the part of a link behind ``#``."""
    level: str
    """``MUST``, ``MUST NOT``, ``SHOULD``, ``SHOULD NOT`` or ``MAY``."""
    subject: str
    sentence: str
    prevents: str
    """What the remark behind it says; empty without one."""
    line: int

    @property
    def roles(self) -> tuple[str, ...]:
        """Who is bound: ``relay``, ``listener``, ``caller``."""
        return ROLES[self.subject]

    @property
    def is_must(self) -> bool:
        """True for MUST and MUST NOT."""
        return self.level.startswith("MUST")


def read(text: str) -> list[Requirement]:
    """Return the requirements of a text, in its order. What `faults` would object to is left out."""
    return [found for found in _items(text) if isinstance(found, Requirement)]


def faults(text: str) -> list[str]:
    """Return what is wrong with the form of the requirements, a line each; nothing when all is right."""
    wrong = [found for found in _items(text) if isinstance(found, str)]
    numbers: dict[str, list[int]] = {}
    seen: dict[str, int] = {}
    for requirement in read(text):
        if requirement.id in seen:
            wrong.append(
                f"line {requirement.line}: {requirement.id} stands in line {seen[requirement.id]} already"
            )
        if "MUST refuse" in requirement.sentence and not requirement.prevents:
            wrong.append(
                f"line {requirement.line}: {requirement.id} has a reader refuse something and does not say "
                "what that prevents"
            )
        seen[requirement.id] = requirement.line
        numbers.setdefault(requirement.chapter, []).append(int(requirement.id.rpartition("-")[2]))
    for chapter, given in numbers.items():
        missing = set(range(1, max(given) + 1)) - set(given)
        wrong += [f"RL-{chapter}-{number:03} is missing: no number is left out" for number in sorted(missing)]
    for number, line in enumerate(text.split("\n"), 1):
        for cited in CITATION.findall(line):
            if cited not in seen:
                wrong.append(f"line {number}: there is no {cited}")
    return wrong


def _items(text: str) -> Iterator[Requirement | str]:
    """Yield each requirement, or what is wrong with it."""
    chapter = anchor = ""
    for number, line in enumerate(text.split("\n"), 1):
        heading = _CHAPTER.fullmatch(line)
        if heading is not None:
            chapter = heading[2]
            anchor = f"{heading[1]} {chapter}".lower().replace(" ", "-")
        elif line.startswith("- **"):
            yield _item(line, number, chapter, anchor)


def _item(line: str, number: int, chapter: str, anchor: str) -> Requirement | str:
    item = _ITEM.fullmatch(line)
    name = "" if item is None else item["id"]
    identifier = _ID.fullmatch(name)
    # A number that is written with an asterisk stands in code, which is looked at apart.
    rest = None if item is None else _REST.fullmatch(_CODE.sub(lambda code: "`" * len(code[0]), item["rest"]))
    if item is None or identifier is None or rest is None:
        return f"line {number}: not `- **RL-<CHAPTER>-<NNN>** <sentence>`, perhaps with `*Prevents ….*`"
    if identifier[1] != chapter:
        return f"line {number}: {name} stands in chapter {chapter}"
    sentence = item["rest"][: rest.end("sentence")]
    bare = rest["sentence"]
    levels = _LEVEL.findall(bare)
    subject = _SUBJECT.match(bare)
    if len(levels) != 1:
        return f"line {number}: {name} has {len(levels)} level words, not one"
    if subject is None:
        return f"line {number}: {name} does not begin with whom it binds: {', '.join(ROLES)}"
    if not bare.endswith(".") or re.search(r"[.!?] ", bare):
        return f"line {number}: {name} is not one sentence"
    return Requirement(
        id=name,
        chapter=chapter,
        anchor=anchor,
        level=levels[0],
        subject=subject[1],
        sentence=sentence,
        prevents=item["rest"][rest.end("sentence") :].strip(" *"),
        line=number,
    )
