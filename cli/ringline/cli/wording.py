"""What the command line says of each code of the registry: what happened, what is still true, what to type.

One place for the words, so that an error reads the same wherever it comes from.
"""

from typing import Final, NamedTuple

from ringline.protocol.codes import Family

__all__ = ["NOTHING_KNOWN", "NOT_ANEW", "SAYS", "WAS_SENT", "WORDS", "Words"]

_R, _P, _H, _L, _E = Family.RELAY, Family.PEER, Family.HTTP, Family.LOCAL, Family.END


class Words(NamedTuple):
    """What is said of one code. ``next``: commands to type, or short sentences."""

    what: str  # in place of the registry's own summary
    still: str
    next: tuple[str, ...] = ()


SAYS: Final = {
    _R: "The relay says so; nobody has signed it.",
    _P: "{peer} says so, sealed and signed.",
    _H: "The relay says so, in answer to an HTTP request.",
    _L: "Found on this side, by this program.",
    _E: "The relay's record of the call says so; nobody has signed it.",
}
_NOTHING_RAN: Final = "Nothing was delivered, and nothing has run."
NOTHING_KNOWN: Final = "Nothing more is known."
_NOTHING_SEALED: Final = "Nothing was sealed and nothing was sent."
NOT_ANEW: Final = "Do not send it anew without that --id: it could run twice."
WAS_SENT: Final = "The call was sent, and its work may have run."

# One row per code: {peer}, {again}, and {leave}, which is {again} as a durable call, are filled in; a line
# with a command that is not known is left out.
WORDS: Final[dict[tuple[Family, str], Words]] = {
    (_R, "unknown_handle"): Words(
        "There is no handle {peer} here that you may call.",
        _NOTHING_RAN + " A relay does not tell whether a handle exists.",
        ("Check the name, or ask its owner for the contact string that `ringline id show` prints.",),
    ),
    (_R, "offline"): Words(
        "{peer} is offline.",
        _NOTHING_RAN,
        ("{again}", "Or leave it with the relay until {peer} listens:  {leave}"),
    ),
    (_R, "busy"): Words("{peer} is busy: no free place for one more call.", _NOTHING_RAN, ("{again}",)),
    (_R, "rate_limited"): Words("A budget of the relay is used up.", _NOTHING_RAN, ("{again}",)),
    (_R, "timeout"): Words(
        "No answer within the relay's bound.",
        "The work may have run or may still run on {peer}'s side.",
        ("{again}", NOT_ANEW),
    ),
    (_R, "canceled"): Words(
        "Canceled: {peer}'s listener confirmed it.",
        "The work was removed before it began, or was seen to stop.",
    ),
    (_R, "unauthorized"): Words(
        "The relay does not accept this identity.",
        _NOTHING_RAN,
        ("Look at it:  ringline id show",),
    ),
    (_R, "message_too_large"): Words("The message is over the limit of the relay.", _NOTHING_RAN),
    (_R, "protocol_error"): Words(
        "{peer} does not know you, or could not open the call.",
        "Nothing has run.",
        ("If {peer} admits only known callers, send the contact string that `ringline id show` prints.",),
    ),
    (_P, "busy"): Words("{peer} has no room for this call.", "Nothing has run.", ("{again}",)),
    (_P, "timeout"): Words("{peer} stopped the work at its own bound.", "The work was ended."),
    (_P, "agent_error"): Words(
        "{peer}'s program failed.",
        "The call has ended; what the program did before it failed is not known here.",
    ),
    (_P, "blocked"): Words("{peer} does not accept this call from you.", "Nothing has run."),
    (_P, "task_unknown"): Words(
        "{peer} offers you no such task, or not with these arguments.", "Nothing has run."
    ),
    (_P, "context_unknown"): Words(
        "The conversation is over, or was never yours.",
        "Nothing has run.",
        ("Begin a new conversation.",),
    ),
    (_P, "message_too_large"): Words("The message or the reply does not fit.", "The call has ended."),
    (_P, "duplicate_conflict"): Words(
        "{peer} has seen this message id with another message.",
        "Nothing has run under it now.",
        ("Leave --id out to send a new message.",),
    ),
    (_H, "unauthorized"): Words(
        "The relay does not accept the log-in of this identity.",
        "Nothing was sent.",
        ("Look at it:  ringline id show",),
    ),
    (_H, "not_found"): Words(
        "The relay has nothing there that you may see.",
        "Nothing was sent.",
        ("Check the name, or ask its owner for the contact string that `ringline id show` prints.",),
    ),
    (_H, "conflict"): Words("The relay holds something else under that name.", "Nothing was changed."),
    (_H, "rate_limited"): Words("A budget of the relay is used up.", "Nothing was sent."),
    (_H, "internal_error"): Words("The relay met a fault of its own.", "Nothing is known of what it did."),
    (_H, "unavailable"): Words("The relay is not ready, or is stopping.", "Nothing was sent.", ("{again}",)),
    (_H, "already_terminal"): Words("The call has ended; there is nothing to cancel.", "Its end stands."),
    (_H, "too_late"): Words("The listener could not stop the work any more.", "The work runs on."),
    (_H, "unknown"): Words("No such call of this identity.", "Nothing was changed."),
    (_L, "config"): Words("{summary}", "Nothing was started.", ("{page} --help",)),
    (_L, "untrusted_key"): Words(
        "No key is known for {peer}.",
        _NOTHING_SEALED,
        (
            "Best, with the contact string from {peer}:  ringline call 'ringline://…' …",
            "Or pin what the relay shows:  {again} --trust-new",
        ),
    ),
    (_L, "key_changed"): Words(
        "{peer}'s key is not the one you know.",
        _NOTHING_SEALED,
        ("Ask {peer} by another channel whether the key changed, before anything else.",),
    ),
    (_L, "bad_signature"): Words(
        "What arrived does not open under the keys that it names.",
        "It was thrown away; nothing of it is shown.",
    ),
    (_L, "revoked"): Words("The key was revoked by its owner.", _NOTHING_SEALED),
    (_L, "log_forked"): Words(
        "The relay's key log contradicts what it showed before, or shows to somebody else.",
        _NOTHING_SEALED + " What was seen is kept as evidence.",
        ("Ask the relay's operator by another channel; look at what was seen:  ringline log verify",),
    ),
    (_L, "log_unproven"): Words(
        "The relay shows a key of {peer} that its key log does not bear out.",
        _NOTHING_SEALED,
        ("Ask {peer} by another channel which key is right, and ask the relay's operator why.",),
    ),
    (_L, "code_failed"): Words(
        "The spoken code came to nothing.",
        "It is used up. No invite was handed over, and nobody was let in.",
        ("Make a new one, and say it again:  ringline invite --code",),
    ),
    (_L, "relay_unreachable"): Words(
        "The relay did not answer.",
        "Whether anything has reached the relay is not known.",
        ("{again}",),
    ),
    (_L, "version_unsupported"): Words("No protocol version in common with the relay.", "Nothing was sent."),
    (_L, "protocol_error"): Words("What was received breaks the protocol.", "It was thrown away."),
    (_L, "message_too_large"): Words("The message is over the limit.", _NOTHING_SEALED),
    (_L, "internal_error"): Words(
        "A fault in Ringline itself.",
        "What it was doing has stopped; nothing more is known.",
        ("Run it again with RINGLINE_DEBUG=1 and report what it prints.",),
    ),
    (_L, "timeout"): Words(
        "No answer in time.",
        "The work may have run or may still run on {peer}'s side.",
        ("{again}", NOT_ANEW),
    ),
    (_L, "detached"): Words(
        "Stopped waiting, without a confirmation.",
        "Whether the work runs, has ended or was stopped is not known here.",
        ("{again}",),
    ),
    (_E, "canceled"): Words(
        "Canceled, and confirmed.", "The work was removed before it began, or was seen to stop."
    ),
    (_E, "expired"): Words("The time was over before the work began.", "Nothing has run."),
    (_E, "delivery_failed"): Words("No listener took the call.", "Nothing has run."),
    (_E, "indeterminate_execution"): Words(
        "The work may have run, but its outcome is lost.",
        "It is not repeated by itself. Repeat it only if doing it twice is harmless.",
    ),
    (_E, "still_running"): Words(
        "Asked for, and not confirmed yet.",
        "The work may still run; the request stands.",
    ),
    (_E, "revoked"): Words("One side has lost its authority.", "The call has ended."),
}
