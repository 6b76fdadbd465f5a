"""One registry of everything that can go wrong: each word, who says it, and what every surface makes of it.

The registry is data: exit codes, HTTP statuses, close codes, retry rules and the pages of the
documentation are read from it. A word is unique only within its family, because a relay's ``busy``
and a peer's ``busy`` are different statements made by different parties (RL-ERROR-001).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["REGISTRY", "ErrorCode", "Family", "Retry", "lookup"]


class Family(StrEnum):
    """Who makes the statement."""

    RELAY = "relay"  # unauthenticated, in a call_error
    PEER = "peer"  # sealed and signed by the other side
    HTTP = "http"  # the relay, over HTTP, as application/problem+json
    LOCAL = "local"  # this program, before or after anything was sent
    END = "end"  # how a call ended, as its record and the exit code say it


class Retry(StrEnum):
    """What may be done after it (RL-IDEM-011 to RL-IDEM-014)."""

    NEVER = "never"
    SAFE = "safe"  # nothing ran; the library itself retries once, with the same message_id
    WAIT = "after retry_after_ms"
    SAME_ID = "with the same message_id only"
    NEW_CALL = "as a new call"
    IDEMPOTENT = "only if the task is idempotent"
    REPLAY = "by the callee's replay"
    PERSON = "after a person acted"
    UPGRADE = "after an upgrade"
    REPORT = "report it"
    CHOICE = "your choice"
    NONE = "nothing to retry"


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row: the word, who says it, and what each surface makes of it.

    ``exit_code`` is the command line's, ``http_status`` that of a problem document, ``close_code``
    that of a WebSocket close; None where the surface never shows it. ``source`` is who
    says so: ids of requirements, or what else it comes from.
    """

    code: str
    family: Family
    retry: Retry
    exit_code: int
    http_status: int | None
    close_code: int | None
    source: str
    summary: str


_R, _P, _H, _L, _E = Family.RELAY, Family.PEER, Family.HTTP, Family.LOCAL, Family.END

# A table is read by its rows: one line each.
# fmt: off
_ROWS: Final = (
    # --- call_error: the relay's word
    ErrorCode("unknown_handle", _R, Retry.NEVER, 10, 404, None, "RL-ADMIT-015, RL-ADMIT-016", "no such handle, or this caller may not reach it; the relay does not say which"),
    ErrorCode("offline", _R, Retry.SAFE, 11, None, None, "RL-ADMIT-019, RL-ADMIT-021", "no listener of the handle is connected; nothing was delivered"),
    ErrorCode("busy", _R, Retry.SAFE, 12, None, None, "RL-ADMIT-020, RL-ADMIT-022", "no free place with the handle's listeners; nothing was delivered"),
    ErrorCode("rate_limited", _R, Retry.WAIT, 13, 429, None, "RL-ADMIT-013, RL-ADMIT-023", "a budget of the relay is used up; nothing was delivered"),
    ErrorCode("timeout", _R, Retry.SAME_ID, 14, None, None, "RL-SYNC-012, RL-SYNC-013", "a bound passed without an answer; the work may have run or still run"),
    ErrorCode("canceled", _R, Retry.CHOICE, 15, None, None, "RL-CANCEL-004, RL-CANCEL-023", "the cancellation is confirmed: the work was removed, or was seen to stop"),
    ErrorCode("unauthorized", _R, Retry.NEVER, 20, 401, None, "RL-DURABLE-063", "the relay does not accept the log-in"),
    ErrorCode("message_too_large", _R, Retry.NEVER, 33, 413, None, "RL-TRANSPORT-025", "the frame is over the limit of its connection; nothing was delivered"),
    ErrorCode("protocol_error", _R, Retry.NEVER, 32, 400, None, "RL-FRAME-012, RL-SYNC-008", "the relay or the listener refused the frame"),
    # --- failures under a seal: the peer's word
    ErrorCode("busy", _P, Retry.CHOICE, 1, None, None, "RL-ENVELOPE-059", "the peer has no room for this call"),
    ErrorCode("timeout", _P, Retry.CHOICE, 1, None, None, "RL-SYNC-016", "the peer stopped the work at its own bound"),
    ErrorCode("agent_error", _P, Retry.CHOICE, 1, None, None, "RL-ENVELOPE-036, RL-ENVELOPE-055", "the peer's program failed"),
    ErrorCode("blocked", _P, Retry.NEVER, 25, None, None, "RL-ENVELOPE-058", "the peer does not accept this call from you"),
    ErrorCode("task_unknown", _P, Retry.NEVER, 25, None, None, "RL-ENVELOPE-057", "the peer offers no such task to you, or not with these arguments"),
    ErrorCode("context_unknown", _P, Retry.NEW_CALL, 1, None, None, "RL-CONVERSE-005", "the conversation is over or was never yours; nothing ran"),
    ErrorCode("message_too_large", _P, Retry.NEVER, 33, None, None, "RL-ENVELOPE-013, RL-ENVELOPE-036", "the message or the reply does not fit"),
    ErrorCode("duplicate_conflict", _P, Retry.NEVER, 32, None, None, "RL-IDEM-020", "the message_id was used before for another message; nothing ran"),
    # --- problem documents of the HTTP interface
    ErrorCode("malformed", _H, Retry.NEVER, 32, 400, None, "RL-HTTP-002, RL-HTTP-004", "the request breaks the interface's rules"),
    ErrorCode("unauthorized", _H, Retry.NEVER, 20, 401, None, "RL-AUTH-021", "the relay does not accept the log-in"),
    ErrorCode("forbidden", _H, Retry.NEVER, 20, 403, None, "RL-HTTP-010, RL-AUTH-035, RL-AUTH-037", "not for this identity, origin or host"),
    ErrorCode("not_found", _H, Retry.NEVER, 10, 404, None, "RL-HTTP-007, RL-HTTP-027", "nothing there that this identity may see"),
    ErrorCode("conflict", _H, Retry.NEVER, 2, 409, None, "RL-HTTP-021, RL-HTTP-023", "it contradicts what the relay holds"),
    ErrorCode("already_terminal", _H, Retry.NONE, 2, 409, None, "RL-CANCEL-003", "the call has ended; there is nothing to cancel"),
    ErrorCode("too_late", _H, Retry.CHOICE, 2, 409, None, "RL-CANCEL-012, RL-CANCEL-019", "the listener could not stop the work any more"),
    ErrorCode("unknown", _H, Retry.NEVER, 10, 404, None, "RL-CANCEL-002", "no such call of this caller"),
    ErrorCode("too_large", _H, Retry.NEVER, 33, 413, None, "RL-HTTP-008", "the request body is over the limit"),
    ErrorCode("rate_limited", _H, Retry.WAIT, 13, 429, None, "RL-HTTP-029, RL-ERROR-006", "a budget of the relay is used up"),
    ErrorCode("upgrade_required", _H, Retry.NEVER, 31, 426, None, "RL-TRANSPORT-014", "this route speaks WebSocket version 13 only"),
    ErrorCode("internal_error", _H, Retry.REPORT, 70, 500, 1011, "RL-ERROR-008", "a fault of the relay; it is logged there"),
    ErrorCode("unavailable", _H, Retry.SAFE, 30, 503, 1001, "RL-TRANSPORT-013", "the relay is not ready or is stopping"),
    # --- this program's own
    ErrorCode("config", _L, Retry.NEVER, 2, None, None, "command line", "the command or the configuration cannot work"),
    ErrorCode("untrusted_key", _L, Retry.PERSON, 21, None, None, "RL-KEYS-040", "no pinned key for this peer; nothing was sealed"),
    ErrorCode("key_changed", _L, Retry.PERSON, 22, None, None, "RL-KEYS-033", "the peer's key is not the pinned one; nothing was sealed"),
    ErrorCode("bad_signature", _L, Retry.NEVER, 23, None, None, "RL-ENVELOPE-031, RL-KEYS-004", "a sealed or signed text does not hold"),
    ErrorCode("revoked", _L, Retry.NEVER, 24, None, 4001, "RL-KEYS-037", "the key was revoked by its owner"),
    ErrorCode("log_forked", _L, Retry.PERSON, 26, None, None, "RL-LOG-005, RL-LOG-009", "the relay's key log contradicts what it showed before, or shows to somebody else"),
    ErrorCode("log_unproven", _L, Retry.PERSON, 27, None, None, "RL-LOG-006", "the relay shows a key that its key log does not bear out; nothing was sealed"),
    ErrorCode("code_failed", _L, Retry.PERSON, 28, None, None, "RL-KEYS-058, RL-KEYS-059", "a spoken code came to nothing, and is used up; no invite was handed over"),
    ErrorCode("timeout", _L, Retry.SAME_ID, 14, None, None, "RL-ERROR-009", "stopped waiting; the work may have run or still run"),
    ErrorCode("relay_unreachable", _L, Retry.SAFE, 30, None, None, "command line", "the relay did not answer"),
    ErrorCode("version_unsupported", _L, Retry.UPGRADE, 31, None, None, "RL-TRANSPORT-005", "no common protocol version"),
    ErrorCode("protocol_error", _L, Retry.NEVER, 32, None, 1008, "RL-FRAME-018", "what was received breaks the protocol"),
    ErrorCode("message_too_large", _L, Retry.NEVER, 33, None, 1009, "RL-ENVELOPE-013, RL-TRANSPORT-027", "over the limit; nothing was sealed or sent"),
    ErrorCode("internal_error", _L, Retry.REPORT, 70, None, 1011, "command line", "a fault of this program"),
    ErrorCode("detached", _L, Retry.CHOICE, 130, None, None, "RL-ERROR-009", "stopped waiting; what became of the call is not known here"),
    # --- how calls end
    ErrorCode("completed", _E, Retry.NONE, 0, None, None, "RL-ENVELOPE-053", "answered"),
    ErrorCode("failed", _E, Retry.CHOICE, 1, None, None, "RL-ENVELOPE-053", "the peer's signed failure"),
    ErrorCode("canceled", _E, Retry.CHOICE, 15, None, None, "RL-CANCEL-004, RL-CANCEL-023", "confirmed: the work never began, or was seen to stop"),
    ErrorCode("expired", _E, Retry.NEW_CALL, 16, None, None, "RL-SYNC-014, RL-DURABLE-056", "the time was over before the work began"),
    ErrorCode("delivery_failed", _E, Retry.REPLAY, 17, None, None, "RL-SYNC-008, RL-DURABLE-057", "no listener took the call"),
    ErrorCode("indeterminate_execution", _E, Retry.IDEMPOTENT, 18, None, None, "RL-SYNC-014, RL-DURABLE-045", "the work may have run; its outcome is lost"),
    ErrorCode("still_running", _E, Retry.SAFE, 19, None, None, "RL-HTTP-037", "no end yet; ask again"),
    ErrorCode("revoked", _E, Retry.NEVER, 24, None, None, "RL-DURABLE-060", "one side lost its authority"),
)
# fmt: on

REGISTRY: Final[dict[tuple[Family, str], ErrorCode]] = {(row.family, row.code): row for row in _ROWS}


def lookup(family: Family, code: str) -> ErrorCode:
    """Return the row of ``code`` within ``family``.

    Raises:
        KeyError: the registry has no such word in that family.
    """
    return REGISTRY[family, code]
