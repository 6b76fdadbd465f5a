"""Errors as a person and a program read them.

What happened, who says so, what is still true, the exact next command, and the code of the registry. The
relay's word, the peer's signed word and this program's own are never written alike (RL-ERROR-001).
"""

import difflib
import re
import textwrap
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import click

from ringline.cli.terminal import shown_line
from ringline.cli.wording import NOT_ANEW, NOTHING_KNOWN, SAYS, WAS_SENT, WORDS, Words
from ringline.protocol.codes import ErrorCode, Family, Retry, lookup
from ringline.protocol.errors import PeerFailure, RinglineError
from ringline.protocol.limits import DAY_MS

__all__ = ["Explanation", "document", "explain", "explain_code", "lines"]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One error in parts. ``next`` holds the commands to type, or short sentences; may be empty."""

    code: str
    family: Family
    exit_code: int
    retry: Retry
    signed: bool = False
    """Whether the peer has sealed and signed it: all else is somebody's word."""
    what: str
    says: str
    still: str
    next: tuple[str, ...] = ()
    detail: str | None = None
    offered: tuple[str, ...] = ()
    call_id: str | None = None
    message_id: str | None = None
    retry_after_ms: int | None = None


_R, _P, _L, _E = Family.RELAY, Family.PEER, Family.LOCAL, Family.END

# The libraries say it too, where they know more than this table.
_STILL_TRUE: Final = re.compile(
    r"\s?((?:Nothing (?:was|more is)|The call may have run|It may have run)[^.]*\.)"
)
# What `SAYS` says once for all errors of the relay.
_RELAY_SAYS: Final = " (the relay says so)"
# Of this program's own errors, those whose words are about a call that was sent anyway.
_OF_A_CALL: Final = {"timeout", "detached", "bad_signature"}
# Where the command line knows the exact command, and the libraries can only describe it.
_OURS_FIRST: Final = {(_R, "timeout"), (_L, "timeout"), (_L, "untrusted_key")}

_OWN_ID: Final = re.compile(r" --id \S+")
_WITH_AGAIN: Final = re.compile(r"\{again\}|\{leave\}")


def explain(
    error: Exception,
    *,
    page: str = "ringline",
    peer: str | None = None,
    task: str | None = None,
    again: str | None = None,
) -> Explanation:
    """Return the parts of an error.

    ``page`` is the command that was typed, without its options. ``peer`` is the handle that was called,
    ``task`` the task that was asked for, ``again`` the command that repeats the call under the same message
    id, its text left out. Of an exception that is none of ours only the kind is told, because its text may
    hold keys or messages. The peer's own words go to ``detail`` alone, and are not neutralised yet.
    """
    if isinstance(error, click.ClickException):
        return _explain_usage(error)
    if not isinstance(error, RinglineError):
        error = RinglineError(f"a fault in Ringline itself: {type(error).__name__}")
    info = error.info
    if isinstance(error, PeerFailure) and error.reason == "indeterminate_execution":
        # The sealed reason is the authoritative one, and the code below it only the nearest word.
        info = lookup(_E, error.reason)
    words = WORDS.get((info.family, info.code), Words("{summary}", NOTHING_KNOWN))
    if info.family is _L and error.call_id is not None and info.code not in _OF_A_CALL:
        # Whatever fails here after the relay had the call, it is not true any more that nothing was sent.
        words = words._replace(still=WAS_SENT)
    # A peer's words are no sentence of ours: they go to `detail` alone.
    told = info.summary if isinstance(error, PeerFailure) else str(error)
    said, still = _parted(told.replace(_RELAY_SAYS, ""))
    still = error.still_true or still
    facts = {"peer": peer or "the peer", "summary": _sentence(said), "again": again or "", "page": page}
    # Under the id of a sync call it would be refused as another message.
    facts["leave"] = _OWN_ID.sub(" --durable", again or "", count=1)
    detail: str | None = None
    offered: tuple[str, ...] = ()
    what = _sentence(said)
    if isinstance(error, PeerFailure):
        detail, offered = error.detail, error.offered
    # An error that was given words of its own knows more than the table.
    if said == info.summary or isinstance(error, PeerFailure):
        what = words.what.format_map(facts)
    if task is not None and (near := difflib.get_close_matches(task, offered, n=1)):
        what += f" Did you mean {near[0]}?"
    ours_first = (info.family, info.code) in _OURS_FIRST and again is not None
    if info.code == "timeout" and still.startswith("Nothing"):
        ours_first = False
    # The library says to repeat it under its id, and here the command for that is known.
    same_id = _repeats(error)
    speaker = _P if isinstance(error, PeerFailure) else info.family
    if (info.family, info.code, error.call_id) == (_R, "canceled", None):
        # Withdrawn here, before the relay had heard of it.
        speaker = _L
    steps = [error.next_step] if error.next_step and not ours_first else []
    if same_id and again is not None:
        steps = [again, NOT_ANEW]
    steps += [
        template.format_map(facts)
        for template in (() if steps else words.next)
        if again is not None or not _WITH_AGAIN.search(template)
    ]
    if error.retry_after_ms:
        steps.insert(0, f"Wait {_wait(error.retry_after_ms)}; then:")
    return Explanation(
        code=info.code,
        family=info.family,
        exit_code=info.exit_code,
        retry=Retry.SAME_ID if same_id and info.retry is Retry.SAFE else info.retry,
        signed=isinstance(error, PeerFailure),
        what=what,
        says=SAYS[speaker].format_map(facts),
        still=still or words.still.format_map(facts),
        next=tuple(steps),
        detail=detail,
        offered=offered,
        call_id=error.call_id,
        message_id=error.message_id,
        retry_after_ms=error.retry_after_ms,
    )


def explain_code(row: ErrorCode) -> Explanation:
    """Return the parts of a code without an occasion, as the registry's page shows them."""
    words = WORDS.get((row.family, row.code), Words(row.summary, NOTHING_KNOWN))
    facts = {
        "peer": "the peer",
        "again": "the same command with --id MESSAGE_ID",
        "leave": "the same command with --durable",
        "summary": row.summary,
        "page": "ringline COMMAND",
    }
    return Explanation(
        code=row.code,
        family=row.family,
        exit_code=row.exit_code,
        retry=row.retry,
        signed=row.family is _P,
        what=words.what.format_map(facts),
        says=SAYS[row.family].format_map(facts),
        still=words.still.format_map(facts),
        next=tuple(step.format_map(facts) for step in words.next),
    )


def lines(explanation: Explanation) -> list[str]:
    """Return the error as it is written to standard error, ready for a terminal."""
    first, *more = explanation.what.split("\n")
    rows = [f"✗ {shown_line(first)}", *(f"  {shown_line(line)}" for line in more)]
    if explanation.detail:
        rows.append(f"    their words:  {shown_line(explanation.detail)}")
    if explanation.offered:
        rows.append(f"    offered:  {', '.join(map(shown_line, explanation.offered))}")
    rows += textwrap.wrap(
        shown_line(f"{explanation.says} {explanation.still}"), 96, initial_indent="  ", subsequent_indent="  "
    )
    for number, step in enumerate(explanation.next):
        rows.append(f"  {'Next:' if number == 0 else '     '}  {shown_line(step)}")
    rows.append(f"  [{explanation.code} · exit {explanation.exit_code} · {_RETRY[explanation.retry]}]")
    named = (("call", explanation.call_id), ("message", explanation.message_id))
    if ids := "  ".join(f"{name} {value}" for name, value in named if value):
        rows.append(f"  {ids}")
    return rows


def document(explanation: Explanation) -> dict[str, object]:
    """Return the error as the one JSON document of a failed command."""
    return {
        "v": 1,
        "ok": False,
        "error": {
            "code": explanation.code,
            "family": str(explanation.family),
            "exit": explanation.exit_code,
            "retry": explanation.retry.name.lower(),
            "retry_after_ms": explanation.retry_after_ms,
            "authenticated": explanation.signed,
            "message": explanation.what,
            "still_true": explanation.still,
            "detail": explanation.detail,
            "offered": list(explanation.offered),
            "call_id": explanation.call_id,
            "message_id": explanation.message_id,
            "next": list(explanation.next),
        },
    }


def _explain_usage(error: click.ClickException) -> Explanation:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else "ringline"
    return Explanation(
        code="config",
        family=_L,
        exit_code=lookup(_L, "config").exit_code,
        retry=Retry.NEVER,
        what=_sentence(error.format_message()),
        says=SAYS[_L],
        still="Nothing was started.",
        next=(f"{path} --help",),
    )


_RETRY: Final = {
    Retry.NEVER: "do not retry",
    Retry.SAFE: "safe to retry",
    Retry.WAIT: "retry after the wait",
    Retry.SAME_ID: "retry with the same --id only",
    Retry.NEW_CALL: "retry as a new call",
    Retry.IDEMPOTENT: "retry only if doing it twice is harmless",
    Retry.REPLAY: "the callee may replay it",
    Retry.PERSON: "a person has to decide",
    Retry.UPGRADE: "retry after an upgrade",
    Retry.REPORT: "please report it",
    Retry.CHOICE: "retry if you like",
    Retry.NONE: "nothing to retry",
}


def _repeats(error: RinglineError) -> bool:
    """Whether the next step is to make the call again under its own message id."""
    step = error.next_step or ""
    return error.message_id is not None and "message_id" in step and error.message_id in step


def _parted(message: str) -> tuple[str, str]:
    """Return a message without the sentence that says what is still true, and that sentence."""
    found = _STILL_TRUE.search(message)
    if found is None:
        return message, ""
    return message[: found.start()] + message[found.end() :], found[1]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", ":")) else text + "."


def _span(ms: int) -> str:
    seconds = -(-ms // 1_000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{-(-seconds // 60)} min" if seconds < 7_200 else f"{-(-seconds // 3_600)} h"


def _wait(ms: int) -> str:
    """Return how long, and until when if that is today or tomorrow: a relay may name any number."""
    if ms >= DAY_MS:
        return f"{-(-ms // DAY_MS):,} days"
    return f"{_span(ms)}, until {datetime.fromtimestamp(datetime.now().timestamp() + ms / 1_000):%H:%M:%S}"
