"""Every number of the protocol. Derived ones are computed here from the ones they follow from.

Units are in the names: ``_BYTES``, ``_MS``, ``_S``, ``_CHARS``; plain names are counts.
What an operator may change is in `TABLE` of the relay's settings, whose defaults start from these.
"""

from typing import Final

__all__ = [
    "ATTEMPTS",
    "BACK_OFF_MOST_MS",
    "BACK_OFF_MS",
    "BODY_JSON_DEPTH",
    "CALLER_FRAME_BYTES",
    "CALLS_PER_HOUR",
    "CALLS_PER_PAIR_PER_HOUR",
    "CALL_BOUND_MS",
    "CANCEL_WAIT_MS",
    "CARD_GRACE_MS",
    "CARD_LIFE_MS",
    "CARD_LOGIN_GRACE_MS",
    "CLOCK_SLACK_MS",
    "CONTEXTS_PER_CALLER",
    "CONTEXTS_PER_LISTENER",
    "CONTEXT_IDLE_MS",
    "CONTEXT_TURNS",
    "DAY_MS",
    "DETAIL_BYTES",
    "DURABLE_LIFE_MS",
    "ENVELOPE_SKEW_MS",
    "EXT_FEATURES",
    "FRAME_JSON_BYTES",
    "FRAME_VERSION",
    "GRACE_MS",
    "HOLD_MS",
    "HOUR_MS",
    "HPKE_OVERHEAD_BYTES",
    "INT_MAX",
    "INVITE_CLAIMS_FAILED",
    "INVITE_KEPT_MS",
    "INVITE_LIFE_MAX_S",
    "INVITE_LIFE_MIN_S",
    "INVITE_LIFE_S",
    "INVITE_USES",
    "JSON_ESCAPE_FACTOR",
    "JSON_OVERHEAD_BYTES",
    "KEY_FETCHES_PER_MINUTE",
    "LEASE_MS",
    "LISTENER_FRAME_BYTES",
    "LOG_FETCHES_PER_MINUTE",
    "MESSAGE_BYTES",
    "NAMEPLATES",
    "OFFERS",
    "OUTCOME_CAP_BYTES",
    "OUTCOME_CT_CHARS",
    "PAD_FLOOR_BYTES",
    "PAIRINGS",
    "PAIRINGS_PER_IDENTITY",
    "PAIRING_LIFE_MS",
    "PAIRING_MESSAGE_BYTES",
    "PING_INTERVAL_MS",
    "PING_TIMEOUT_MS",
    "PREKEY_LIFE_MS",
    "PREKEY_ROTATION_MS",
    "PREKEY_SECRET_TAIL_MS",
    "PROGRAM_OUTPUT_BYTES",
    "REBIND_MS",
    "RECORDS",
    "RECORD_LIFE_MS",
    "RECORD_OUTCOME_BYTES",
    "REPLY_BYTES",
    "REQUEST_CAP_BYTES",
    "REQUEST_CT_CHARS",
    "RING_BOUND_MS",
    "STARTS",
    "STORED_CALLS",
    "STORED_CALLS_PER_PAIR",
    "STORED_OUTCOME_BYTES",
    "STORED_PAIR_PERCENT",
    "STORED_RECORD_LIFE_MS",
    "STORED_REQUEST_BYTES",
    "STORED_UNLISTED_PERCENT",
    "SUBPROTOCOL",
    "SYNC_LIFE_MS",
    "TICKETS",
    "TICKET_LIFE_MS",
    "TOKENS_LIVE",
    "TOKEN_LIFE_S",
    "TOKEN_MEMORY_S",
    "TOKEN_SKEW_S",
    "TRACEPARENT_BYTES",
    "TURNS",
    "TURN_WINDOW_MS",
    "UNCOUNTED_ATTEMPTS",
    "UNDECODABLE_FRAMES",
    "UNDECODABLE_WINDOW_MS",
    "UNKNOWN_HANDLE_RELEASE_MS",
    "WORK_BOUND_MAX_MS",
    "WORK_BOUND_MS",
]

SUBPROTOCOL: Final = "ringline.v1"
FRAME_VERSION: Final = 1

# --- numbers in JSON: what every language holds exactly
INT_MAX: Final = 2**53 - 1  # RL-FRAME-007, RL-ENVELOPE-047

# --- sizes
MESSAGE_BYTES: Final = 64_000  # RL-ENVELOPE-049
REPLY_BYTES: Final = 256_000  # RL-ENVELOPE-049
DETAIL_BYTES: Final = 500  # RL-ENVELOPE-052
JSON_ESCAPE_FACTOR: Final = 6  # the worst UTF-8 byte is a control character, written \u00XX
JSON_OVERHEAD_BYTES: Final = 8_192  # the rest of a sealed body, padding steps and tags
FRAME_JSON_BYTES: Final = 4_096  # a frame around its ciphertext


def _base64_chars(size: int) -> int:
    """Characters of unpadded base64 for ``size`` bytes: ceil(size * 4 / 3)."""
    return -(-size * 4 // 3)


CALLER_FRAME_BYTES: Final = (
    _base64_chars(MESSAGE_BYTES * JSON_ESCAPE_FACTOR + JSON_OVERHEAD_BYTES) + FRAME_JSON_BYTES
)  # RL-TRANSPORT-028, RL-TRANSPORT-029
LISTENER_FRAME_BYTES: Final = (
    _base64_chars(REPLY_BYTES * JSON_ESCAPE_FACTOR + JSON_OVERHEAD_BYTES) + FRAME_JSON_BYTES
)  # RL-TRANSPORT-027, RL-TRANSPORT-028, RL-TRANSPORT-030
HPKE_OVERHEAD_BYTES: Final = 1_136  # the hybrid's encapsulated key and tag, the larger of the suites
PAD_FLOOR_BYTES: Final = 2_048  # RL-ENVELOPE-012
REQUEST_CAP_BYTES: Final = 393_000  # RL-ENVELOPE-012, RL-ENVELOPE-013
OUTCOME_CAP_BYTES: Final = 1_545_000  # RL-ENVELOPE-012, RL-ENVELOPE-013
REQUEST_CT_CHARS: Final = _base64_chars(REQUEST_CAP_BYTES + HPKE_OVERHEAD_BYTES)  # RL-ADMIT-004
OUTCOME_CT_CHARS: Final = _base64_chars(OUTCOME_CAP_BYTES + HPKE_OVERHEAD_BYTES)
TRACEPARENT_BYTES: Final = 512  # RL-TRACE-004, RL-ENVELOPE-051
PROGRAM_OUTPUT_BYTES: Final = 10_000_000  # what a listener reads from a program it runs
OFFERS: Final = 50  # RL-ENVELOPE-052
EXT_FEATURES: Final = 16  # RL-EXT-010
BODY_JSON_DEPTH: Final = 64  # RL-ENVELOPE-047

# --- refused frames
UNDECODABLE_FRAMES: Final = 20  # RL-FRAME-016, RL-FRAME-018
UNDECODABLE_WINDOW_MS: Final = 60_000  # RL-FRAME-016

# --- keep-alive
PING_INTERVAL_MS: Final = 20_000  # RL-TRANSPORT-031
PING_TIMEOUT_MS: Final = 20_000  # RL-TRANSPORT-032, RL-TRANSPORT-035

# --- log-in
TOKEN_SKEW_S: Final = 120  # RL-AUTH-014
TOKEN_LIFE_S: Final = 60  # RL-AUTH-015
TOKEN_MEMORY_S: Final = 180  # RL-AUTH-017
TOKENS_LIVE: Final = 1_000  # RL-AUTH-018
TICKET_LIFE_MS: Final = 30_000  # RL-AUTH-030
TICKETS: Final = 10  # RL-AUTH-031

# --- envelope times
ENVELOPE_SKEW_MS: Final = 120_000  # RL-ENVELOPE-022, RL-ENVELOPE-026, RL-ENVELOPE-027, RL-KEYS-025
SYNC_LIFE_MS: Final = 600_000  # RL-ENVELOPE-015
DURABLE_LIFE_MS: Final = 72 * 3_600_000  # RL-ENVELOPE-015, RL-DURABLE-004

# --- keys
CLOCK_SLACK_MS: Final = 3_600_000  # RL-KEYS-006
CARD_LIFE_MS: Final = 90 * 86_400_000 + CLOCK_SLACK_MS  # RL-KEYS-005
PREKEY_LIFE_MS: Final = 14 * 86_400_000 + CLOCK_SLACK_MS  # RL-KEYS-016
PREKEY_ROTATION_MS: Final = 86_400_000  # owners replace, callers ask anew (RL-KEYS-021, RL-KEYS-026)
# After the last moment at which a caller may seal to a prekey: the longest call, and the skew of two clocks.
PREKEY_SECRET_TAIL_MS: Final = DURABLE_LIFE_MS + 2 * ENVELOPE_SKEW_MS  # RL-KEYS-022
CARD_GRACE_MS: Final = 96 * 3_600_000  # a replaced card still counts (RL-ADMIT-009, RL-ENVELOPE-021)
CARD_LOGIN_GRACE_MS: Final = 48 * 3_600_000  # a replaced card still logs in (RL-KEYS-011)
KEY_FETCHES_PER_MINUTE: Final = 60  # RL-HTTP-029
# To read a long log takes less log-ins than one identity may have live.
LOG_FETCHES_PER_MINUTE: Final = 300  # RL-LOG-015

# --- invites
INVITE_USES: Final = 8  # handles that one invite may be for
INVITE_LIFE_MIN_S: Final = 60
INVITE_LIFE_S: Final = 86_400  # by default
INVITE_LIFE_MAX_S: Final = 14 * 86_400
INVITE_CLAIMS_FAILED: Final = 5  # and it is void: whoever holds it must not try out names (RL-HTTP-046)
INVITE_KEPT_MS: Final = 30 * 86_400_000  # its record, after its end, if nobody took it up

# --- pairings
NAMEPLATES: Final = 999  # RL-HTTP-058
PAIRING_LIFE_MS: Final = 600_000  # RL-HTTP-066
PAIRING_MESSAGE_BYTES: Final = 3_072  # RL-HTTP-059
PAIRINGS: Final = 500  # of all at once: half of the numbers stay free (RL-HTTP-067)
PAIRINGS_PER_IDENTITY: Final = 10  # RL-HTTP-067

# --- budgets
HOUR_MS: Final = 3_600_000  # RL-ADMIT-029
CALLS_PER_HOUR: Final = 30  # RL-ADMIT-013
CALLS_PER_PAIR_PER_HOUR: Final = 30  # RL-ADMIT-013
TURNS: Final = 10  # RL-ADMIT-030
TURN_WINDOW_MS: Final = 1_800_000  # RL-ADMIT-030
UNKNOWN_HANDLE_RELEASE_MS: Final = 10  # RL-ADMIT-017, RL-HTTP-009

# --- sync calls
RING_BOUND_MS: Final = 30_000  # RL-SYNC-012
CALL_BOUND_MS: Final = 360_000  # RL-SYNC-013
WORK_BOUND_MS: Final = 300_000  # RL-SYNC-016
WORK_BOUND_MAX_MS: Final = 350_000  # RL-SYNC-015
GRACE_MS: Final = 15_000  # a lost listener instance may return (RL-SYNC-020)
HOLD_MS: Final = 30_000  # a caller without an attached connection may return (RL-SYNC-027)
RECORD_LIFE_MS: Final = 600_000  # RL-SYNC-033
RECORDS: Final = 1_000_000  # RL-SYNC-033
RECORD_OUTCOME_BYTES: Final = 256 * 1_048_576  # RL-SYNC-034

# --- durable calls
LEASE_MS: Final = 30_000  # RL-DURABLE-010
REBIND_MS: Final = 3_600_000  # an instance may return to what it has begun (RL-DURABLE-045)
ATTEMPTS: Final = 3  # RL-DURABLE-051
UNCOUNTED_ATTEMPTS: Final = 20  # RL-DURABLE-055
BACK_OFF_MS: Final = 1_000  # RL-DURABLE-054
BACK_OFF_MOST_MS: Final = 60_000  # RL-DURABLE-054
STORED_RECORD_LIFE_MS: Final = 86_400_000  # after execute_by (RL-DURABLE-066, RL-DURABLE-067)
STORED_CALLS: Final = 100  # RL-ADMIT-034
STORED_REQUEST_BYTES: Final = 32 * 1_048_576  # RL-ADMIT-034
STORED_OUTCOME_BYTES: Final = 64 * 1_048_576  # RL-ADMIT-034
STORED_CALLS_PER_PAIR: Final = 10  # RL-ADMIT-036
STORED_PAIR_PERCENT: Final = 25  # RL-ADMIT-036
STORED_UNLISTED_PERCENT: Final = 50  # RL-ADMIT-037
STARTS: Final = 30  # a day, of one caller to one callee (RL-DURABLE-016)
DAY_MS: Final = 86_400_000  # RL-DURABLE-016

# --- cancellation
CANCEL_WAIT_MS: Final = 10_000  # RL-CANCEL-011

# --- conversations
CONTEXT_IDLE_MS: Final = 1_800_000  # RL-CONVERSE-009
CONTEXT_TURNS: Final = 10  # RL-CONVERSE-009
CONTEXTS_PER_LISTENER: Final = 100  # RL-CONVERSE-010
CONTEXTS_PER_CALLER: Final = 10  # RL-CONVERSE-010
