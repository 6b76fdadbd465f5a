"""`ringline errors`: the registry, readable without a network."""

import difflib

import click

from ringline.cli.failure import explain_code
from ringline.cli.options import json_option
from ringline.cli.output import write_document, write_text
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.protocol.codes import REGISTRY, ErrorCode, Family

__all__ = ["command"]

_WHO = {
    Family.RELAY: "the relay's word, unsigned",
    Family.PEER: "the peer's word, sealed and signed",
    Family.HTTP: "the relay's answer over HTTP",
    Family.LOCAL: "found on this side",
    Family.END: "how a call ended",
}


@click.group("errors", context_settings=SETTINGS)
def command() -> None:
    """Explain error and exit codes, offline."""


@page(
    "ls",
    examples=[("all codes", "ringline errors ls"), ("for a program", "ringline errors ls --json")],
    exits=[(0, "printed")],
    then="ringline errors show offline",
)
@json_option
def ls(machine: bool) -> None:
    """List every error and exit code, by who says it."""
    if machine:
        write_document({"v": 1, "ok": True, "errors": [_row(row) for row in REGISTRY.values()]})
        return
    width = max(len(row.code) for row in REGISTRY.values())
    text = "exit  code\n"
    for family in Family:
        text += f"\n{family}: {_WHO[family]}\n"
        for row in REGISTRY.values():
            if row.family is family:
                text += f"{_exit(row):>4}  {row.code:<{width}}  {row.summary}\n"
    write_text(text)


@page(
    "show",
    examples=[
        ("what `offline` means and what to do", "ringline errors show offline"),
        ("the same, for a program", "ringline errors show offline --json"),
        ("by exit code", "ringline errors show 14"),
    ],
    exits=[(0, "printed"), (Family.LOCAL, "config")],
    then="ringline errors ls",
)
@click.argument("code")
@json_option
@click.pass_context
def show(context: click.Context, code: str, machine: bool) -> None:
    """Explain one code: who says it, what is still true, and what to do next."""
    rows = [row for row in REGISTRY.values() if code in (row.code, str(row.exit_code))]
    if not rows:
        near = difflib.get_close_matches(code, {row.code for row in REGISTRY.values()}, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise click.UsageError(f"there is no error code {code!r}.{hint}", context)
    if machine:
        write_document({"v": 1, "ok": True, "errors": [_row(row) for row in rows]})
        return
    write_text("\n".join(_page(row) for row in rows))


command.add_command(ls)
command.add_command(show)


def _row(row: ErrorCode) -> dict[str, object]:
    explanation = explain_code(row)
    return {
        "code": row.code,
        "family": str(row.family),
        "exit": row.exit_code,
        "retry": row.retry.name.lower(),
        "http_status": row.http_status,
        "close_code": row.close_code,
        "source": row.source,
        "summary": row.summary,
        "still_true": explanation.still,
        "next": list(explanation.next),
    }


def _page(row: ErrorCode) -> str:
    explanation = explain_code(row)
    text = f"{row.code}  ({row.family}: {_WHO[row.family]})\n  {row.summary}\n"
    text += f"  Still true:  {explanation.still}\n"
    for step in explanation.next:
        text += f"  Next:        {step}\n"
    facts = [f"exit {_exit(row)}", f"retry: {row.retry}"]
    facts += [f"HTTP {row.http_status}"] if row.http_status else []
    facts += [f"close {row.close_code}"] if row.close_code else []
    return text + f"  {' · '.join([*facts, row.source])}\n"


def _exit(row: ErrorCode) -> str:
    return str(row.exit_code)
