"""Names on the wire: the pattern of each, and one check for each.

Every pattern is ASCII and written to be matched in full: ``\\A`` and ``\\Z`` stand in the text itself,
because ``$`` would accept a trailing line feed, and the same text is handed to msgspec and to the
generated JSON Schema. Nothing is normalised: a name either matches or is refused
(RL-CONV-001, RL-CONV-002, RL-NAME-001).
"""

import ipaddress
import re
from typing import Final

__all__ = [
    "CALL_ID",
    "CARD_ID",
    "CONTEXT_ID",
    "CORRELATION_ID",
    "FEATURE",
    "HANDLE",
    "HANDLE_RULE",
    "INVITE",
    "INVITE_ID",
    "JTI",
    "LEASE_ID",
    "MESSAGE_ID",
    "NAMEPLATE",
    "PATTERNS",
    "REALM",
    "TASK_ID",
    "is_call_id",
    "is_context_id",
    "is_correlation_id",
    "is_handle",
    "is_invite",
    "is_invite_id",
    "is_loopback",
    "is_message_id",
    "is_nameplate",
    "is_realm",
    "is_task_id",
    "is_uuid4",
]

# msgspec compiles `pattern` with `re` and searches, so the anchors are part of the text. `\Z` is
# Python's spelling; spec/build.py rewrites the anchors to `^…$` for JSON Schema, where `$` is strict.
HANDLE: Final = r"\A[a-z0-9][a-z0-9-]{1,30}\Z"
HANDLE_RULE: Final = "2 to 31 of a-z, 0-9 and hyphen, the first no hyphen"
"""What a handle is, for people."""
REALM: Final = r"\A[a-z0-9.-]{1,253}\Z"
CALL_ID: Final = r"\A[A-Za-z0-9_-]{1,64}\Z"
LEASE_ID: Final = r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z"
# 32 lower-case hex digits, not all zero (W3C Trace Context: an all-zero trace-id is invalid).
MESSAGE_ID: Final = r"\A(?!0{32})[0-9a-f]{32}\Z"
CORRELATION_ID: Final = MESSAGE_ID
TASK_ID: Final = r"\A[a-z0-9][a-z0-9-]{0,63}\Z"
CONTEXT_ID: Final = r"\Actx_[A-Za-z0-9_-]{22}\Z"
FEATURE: Final = r"\A[a-z0-9][a-z0-9-]{0,31}\Z"
JTI: Final = r"\A[A-Za-z0-9_-]{16,64}\Z"
# base64url of a SHA-256: 43 characters, and the last one carries only four bits.
CARD_ID: Final = r"\A[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]\Z"
# What a relay makes for one invite: to everybody else a word without parts (RL-HTTP-051).
INVITE: Final = r"\A[A-Za-z0-9._~-]{16,128}\Z"
INVITE_ID: Final = r"\A[A-Za-z0-9_-]{1,64}\Z"
NAMEPLATE: Final = r"\A[1-9][0-9]{0,2}\Z"
_UUID4: Final = r"\A[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z"

PATTERNS: Final[dict[str, str]] = {
    "handle": HANDLE,
    "realm": REALM,
    "call_id": CALL_ID,
    "lease_id": LEASE_ID,
    "message_id": MESSAGE_ID,
    "correlation_id": CORRELATION_ID,
    "task_id": TASK_ID,
    "context_id": CONTEXT_ID,
    "feature": FEATURE,
    "jti": JTI,
    "card_id": CARD_ID,
    "invite": INVITE,
    "invite_id": INVITE_ID,
    "nameplate": NAMEPLATE,
}

_handle = re.compile(HANDLE)
_realm = re.compile(REALM)
_call_id = re.compile(CALL_ID)
_hex32 = re.compile(MESSAGE_ID)
_task_id = re.compile(TASK_ID)
_context_id = re.compile(CONTEXT_ID)
_invite = re.compile(INVITE)
_invite_id = re.compile(INVITE_ID)
_nameplate = re.compile(NAMEPLATE)
_uuid4 = re.compile(_UUID4)


def is_handle(text: str) -> bool:
    """True for a handle: 2-31 of ``[a-z0-9-]``, the first no hyphen (RL-NAME-001)."""
    return _handle.match(text) is not None


def is_realm(text: str) -> bool:
    """True for a realm: a name of 1-253 ``[a-z0-9.-]``, never a location (RL-NAME-001)."""
    return _realm.match(text) is not None


def is_call_id(text: str) -> bool:
    """True for a relay-minted call id: 1-64 of ``[A-Za-z0-9_-]`` (RL-NAME-001)."""
    return _call_id.match(text) is not None


def is_loopback(host: str) -> bool:
    """Whether a host is this computer alone: ``localhost``, or a literal loopback address.

    Other names are not looked up: whoever answers for them could answer differently the next time.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_message_id(text: str) -> bool:
    """True for a caller-minted message id: 32 lower-case hex digits, not all zero (RL-NAME-001)."""
    return _hex32.match(text) is not None


def is_correlation_id(text: str) -> bool:
    """True for a correlation id, which is a W3C trace-id: the pattern of a message id (RL-NAME-001)."""
    return _hex32.match(text) is not None


def is_task_id(text: str) -> bool:
    """True for a task id: 1-64 of ``[a-z0-9-]``, the first no hyphen (RL-NAME-001)."""
    return _task_id.match(text) is not None


def is_context_id(text: str) -> bool:
    """True for a callee-minted context id: ``ctx_`` and 22 base64url characters (RL-NAME-001)."""
    return _context_id.match(text) is not None


def is_invite(text: str) -> bool:
    """True for what a relay tells an inviter, to be handed over (RL-HTTP-051)."""
    return _invite.match(text) is not None


def is_invite_id(text: str) -> bool:
    """True for the id of an invite (RL-HTTP-051)."""
    return _invite_id.match(text) is not None


def is_nameplate(text: str) -> bool:
    """True for the number of a pairing: 1 to 999, without zeros in front (RL-HTTP-058)."""
    return _nameplate.match(text) is not None


def is_uuid4(text: str) -> bool:
    """True for a lower-case random UUID, as ``instance`` and ``boot`` are (RL-TRANSPORT-008)."""
    return _uuid4.match(text) is not None
