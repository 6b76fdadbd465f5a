"""Errors as a person and a program read them.

What happened, who says so, what is still true, the exact next command, and the code of the registry. The
relay's word, the peer's signed word and this program's own are never written alike (RL-ERROR-001).
"""

import difflib
import re
import textwrap
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import click

from ringline.cli.terminal import shown_line
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


class _Words(NamedTuple):
    what: str  # in place of the registry's own summary
    still: str
    next: tuple[str, ...] = ()


_R, _P, _H, _L, _E = Family.RELAY, Family.PEER, Family.HTTP, Family.LOCAL, Family.END

_SAYS: Final = {
    _R: "The relay says so; nobody has signed it.",
    _P: "{peer} says so, sealed and signed.",
    _H: "The relay says so, in answer to an HTTP request.",
    _L: "Found on this side, by this program.",
    _E: "The relay's record of the call says so; nobody has signed it.",
}
_NOTHING_RAN: Final = "Nothing was delivered, and nothing has run."
_NOTHING_KNOWN: Final = "Nothing more is known."
_NOTHING_SEALED: Final = "Nothing was sealed and nothing was sent."
_NOT_ANEW: Final = "Do not send it anew without that --id: it could run twice."
_WAS_SENT: Final = "The call was sent, and its work may have run."

# The libraries say it too, where they know more than this table.
_STILL_TRUE: Final = re.compile(
    r"\s?((?:Nothing (?:was|more is)|The call may have run|It may have run)[^.]*\.)"
)
# What `_SAYS` says once for all errors of the relay.
_RELAY_SAYS: Final = " (the relay says so)"
# Of this program's own errors, those whose words are about a call that was sent anyway.
_OF_A_CALL: Final = {"timeout", "detached", "bad_signature"}
# Where the command line knows the exact command, and the libraries can only describe it.
_OURS_FIRST: Final = {(_R, "timeout"), (_L, "timeout"), (_L, "untrusted_key")}

_OWN_ID: Final = re.compile(r" --id \S+")
_WITH_AGAIN: Final = re.compile(r"\{again\}|\{leave\}")

# One row per code: {peer}, {again}, and {leave}, which is {again} as a durable call, are filled in; a line
# with a command that is not known is left out.
_WORDS: Final[dict[tuple[Family, str], _Words]] = {
    (_R, "unknown_handle"): _Words(
        "There is no handle {peer} here that you may call.",
        _NOTHING_RAN + " A relay does not tell whether a handle exists.",
        ("Check the name, or ask its owner for the contact string that `ringline id show` prints.",),
    ),
    (_R, "offline"): _Words(
        "{peer} is offline.",
        _NOTHING_RAN,
        ("{again}", "Or leave it with the relay until {peer} listens:  {leave}"),
    ),
    (_R, "busy"): _Words("{peer} is busy: no free place for one more call.", _NOTHING_RAN, ("{again}",)),
    (_R, "rate_limited"): _Words("A budget of the relay is used up.", _NOTHING_RAN, ("{again}",)),
    (_R, "timeout"): _Words(
        "No answer within the relay's bound.",
        "The work may have run or may still run on {peer}'s side.",
        ("{again}", _NOT_ANEW),
    ),
    (_R, "canceled"): _Words(
        "Canceled: {peer}'s listener confirmed it.",
        "The work was removed before it began, or was seen to stop.",
    ),
    (_R, "unauthorized"): _Words(
        "The relay does not accept this identity.",
        _NOTHING_RAN,
        ("Look at it:  ringline id show",),
    ),
    (_R, "message_too_large"): _Words("The message is over the limit of the relay.", _NOTHING_RAN),
    (_R, "protocol_error"): _Words(
        "{peer} does not know you, or could not open the call.",
        "Nothing has run.",
        ("If {peer} admits only known callers, send the contact string that `ringline id show` prints.",),
    ),
    (_P, "busy"): _Words("{peer} has no room for this call.", "Nothing has run.", ("{again}",)),
    (_P, "timeout"): _Words("{peer} stopped the work at its own bound.", "The work was ended."),
    (_P, "agent_error"): _Words(
        "{peer}'s program failed.",
        "The call has ended; what the program did before it failed is not known here.",
    ),
    (_P, "blocked"): _Words("{peer} does not accept this call from you.", "Nothing has run."),
    (_P, "task_unknown"): _Words(
        "{peer} offers you no such task, or not with these arguments.", "Nothing has run."
    ),
    (_P, "context_unknown"): _Words(
        "The conversation is over, or was never yours.",
        "Nothing has run.",
        ("Begin a new conversation.",),
    ),
    (_P, "message_too_large"): _Words("The message or the reply does not fit.", "The call has ended."),
    (_P, "duplicate_conflict"): _Words(
        "{peer} has seen this message id with another message.",
        "Nothing has run under it now.",
        ("Leave --id out to send a new message.",),
    ),
    (_H, "unauthorized"): _Words(
        "The relay does not accept the log-in of this identity.",
        "Nothing was sent.",
        ("Look at it:  ringline id show",),
    ),
    (_H, "not_found"): _Words(
        "The relay has nothing there that you may see.",
        "Nothing was sent.",
        ("Check the name, or ask its owner for the contact string that `ringline id show` prints.",),
    ),
    (_H, "conflict"): _Words("The relay holds something else under that name.", "Nothing was changed."),
    (_H, "rate_limited"): _Words("A budget of the relay is used up.", "Nothing was sent."),
    (_H, "internal_error"): _Words("The relay met a fault of its own.", "Nothing is known of what it did."),
    (_H, "unavailable"): _Words("The relay is not ready, or is stopping.", "Nothing was sent.", ("{again}",)),
    (_H, "already_terminal"): _Words("The call has ended; there is nothing to cancel.", "Its end stands."),
    (_H, "too_late"): _Words("The listener could not stop the work any more.", "The work runs on."),
    (_H, "unknown"): _Words("No such call of this identity.", "Nothing was changed."),
    (_L, "config"): _Words("{summary}", "Nothing was started.", ("{page} --help",)),
    (_L, "untrusted_key"): _Words(
        "No key is known for {peer}.",
        _NOTHING_SEALED,
        (
            "Best, with the contact string from {peer}:  ringline call 'ringline://…' …",
            "Or pin what the relay shows:  {again} --trust-new",
        ),
    ),
    (_L, "key_changed"): _Words(
        "{peer}'s key is not the one you know.",
        _NOTHING_SEALED,
        ("Ask {peer} by another channel whether the key changed, before anything else.",),
    ),
    (_L, "bad_signature"): _Words(
        "What arrived does not open under the keys that it names.",
        "It was thrown away; nothing of it is shown.",
    ),
    (_L, "revoked"): _Words("The key was revoked by its owner.", _NOTHING_SEALED),
    (_L, "log_forked"): _Words(
        "The relay's key log contradicts what it showed before, or shows to somebody else.",
        _NOTHING_SEALED + " What was seen is kept as evidence.",
        ("Ask the relay's operator by another channel; look at what was seen:  ringline log verify",),
    ),
    (_L, "log_unproven"): _Words(
        "The relay shows a key of {peer} that its key log does not bear out.",
        _NOTHING_SEALED,
        ("Ask {peer} by another channel which key is right, and ask the relay's operator why.",),
    ),
    (_L, "code_failed"): _Words(
        "The spoken code came to nothing.",
        "It is used up. No invite was handed over, and nobody was let in.",
        ("Make a new one, and say it again:  ringline invite --code",),
    ),
    (_L, "relay_unreachable"): _Words(
        "The relay did not answer.",
        "Whether anything has reached the relay is not known.",
        ("{again}",),
    ),
    (_L, "version_unsupported"): _Words("No protocol version in common with the relay.", "Nothing was sent."),
    (_L, "protocol_error"): _Words("What was received breaks the protocol.", "It was thrown away."),
    (_L, "message_too_large"): _Words("The message is over the limit.", _NOTHING_SEALED),
    (_L, "internal_error"): _Words(
        "A fault in Ringline itself.",
        "What it was doing has stopped; nothing more is known.",
        ("Run it again with RINGLINE_DEBUG=1 and report what it prints.",),
    ),
    (_L, "timeout"): _Words(
        "No answer in time.",
        "The work may have run or may still run on {peer}'s side.",
        ("{again}", _NOT_ANEW),
    ),
    (_L, "detached"): _Words(
        "Stopped waiting, without a confirmation.",
        "Whether the work runs, has ended or was stopped is not known here.",
        ("{again}",),
    ),
    (_E, "canceled"): _Words(
        "Canceled, and confirmed.", "The work was removed before it began, or was seen to stop."
    ),
    (_E, "expired"): _Words("The time was over before the work began.", "Nothing has run."),
    (_E, "delivery_failed"): _Words("No listener took the call.", "Nothing has run."),
    (_E, "indeterminate_execution"): _Words(
        "The work may have run, but its outcome is lost.",
        "It is not repeated by itself. Repeat it only if doing it twice is harmless.",
    ),
    (_E, "still_running"): _Words(
        "Asked for, and not confirmed yet.",
        "The work may still run; the request stands.",
    ),
    (_E, "revoked"): _Words("One side has lost its authority.", "The call has ended."),
}


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
    words = _WORDS.get((info.family, info.code), _Words("{summary}", _NOTHING_KNOWN))
    if info.family is _L and error.call_id is not None and info.code not in _OF_A_CALL:
        # Whatever fails here after the relay had the call, it is not true any more that nothing was sent.
        words = words._replace(still=_WAS_SENT)
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
        steps = [again, _NOT_ANEW]
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
        says=_SAYS[speaker].format_map(facts),
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
    words = _WORDS.get((row.family, row.code), _Words(row.summary, _NOTHING_KNOWN))
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
        says=_SAYS[row.family].format_map(facts),
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
        says=_SAYS[_L],
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
