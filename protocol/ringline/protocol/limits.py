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
    "OFFERS",
    "OUTCOME_CAP_BYTES",
    "OUTCOME_CT_CHARS",
    "PAD_FLOOR_BYTES",
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

# --- numbers in JSON (protocol §1): what every language holds exactly
INT_MAX: Final = 2**53 - 1

# --- sizes (protocol §2, envelope §3.5)
MESSAGE_BYTES: Final = 64_000
REPLY_BYTES: Final = 256_000
DETAIL_BYTES: Final = 500
JSON_ESCAPE_FACTOR: Final = 6  # the worst UTF-8 byte is a control character, written \u00XX
JSON_OVERHEAD_BYTES: Final = 8_192  # the rest of a sealed body, padding steps and tags
FRAME_JSON_BYTES: Final = 4_096  # a frame around its ciphertext


def _base64_chars(size: int) -> int:
    """Characters of unpadded base64 for ``size`` bytes: ceil(size * 4 / 3)."""
    return -(-size * 4 // 3)


CALLER_FRAME_BYTES: Final = (
    _base64_chars(MESSAGE_BYTES * JSON_ESCAPE_FACTOR + JSON_OVERHEAD_BYTES) + FRAME_JSON_BYTES
)
LISTENER_FRAME_BYTES: Final = (
    _base64_chars(REPLY_BYTES * JSON_ESCAPE_FACTOR + JSON_OVERHEAD_BYTES) + FRAME_JSON_BYTES
)
HPKE_OVERHEAD_BYTES: Final = 1_136  # the hybrid's encapsulated key and tag, the larger of the suites
PAD_FLOOR_BYTES: Final = 2_048
REQUEST_CAP_BYTES: Final = 393_000
OUTCOME_CAP_BYTES: Final = 1_545_000
REQUEST_CT_CHARS: Final = _base64_chars(REQUEST_CAP_BYTES + HPKE_OVERHEAD_BYTES)
OUTCOME_CT_CHARS: Final = _base64_chars(OUTCOME_CAP_BYTES + HPKE_OVERHEAD_BYTES)
TRACEPARENT_BYTES: Final = 512
PROGRAM_OUTPUT_BYTES: Final = 10_000_000  # what a listener reads from a program it runs
OFFERS: Final = 50
EXT_FEATURES: Final = 16
BODY_JSON_DEPTH: Final = 64

# --- refused frames (protocol §2)
UNDECODABLE_FRAMES: Final = 20
UNDECODABLE_WINDOW_MS: Final = 60_000

# --- keep-alive (protocol §2)
PING_INTERVAL_MS: Final = 20_000
PING_TIMEOUT_MS: Final = 20_000

# --- log-in (protocol §2)
TOKEN_SKEW_S: Final = 120
TOKEN_LIFE_S: Final = 60
TOKEN_MEMORY_S: Final = 180
TOKENS_LIVE: Final = 1_000
TICKET_LIFE_MS: Final = 30_000
TICKETS: Final = 10

# --- envelope times (envelope §3.7, §3.9; protocol §4)
ENVELOPE_SKEW_MS: Final = 120_000
SYNC_LIFE_MS: Final = 600_000
DURABLE_LIFE_MS: Final = 72 * 3_600_000

# --- keys (envelope §3.3, §3.4; protocol §4, §10)
CLOCK_SLACK_MS: Final = 3_600_000
CARD_LIFE_MS: Final = 90 * 86_400_000 + CLOCK_SLACK_MS
PREKEY_LIFE_MS: Final = 14 * 86_400_000 + CLOCK_SLACK_MS
PREKEY_ROTATION_MS: Final = 86_400_000  # owners replace a prekey, callers ask for it anew, this often
# After the last moment at which a caller may seal to a prekey: the longest call, and the skew of two clocks.
PREKEY_SECRET_TAIL_MS: Final = DURABLE_LIFE_MS + 2 * ENVELOPE_SKEW_MS
CARD_GRACE_MS: Final = 96 * 3_600_000  # a replaced card still counts for sealed calls
CARD_LOGIN_GRACE_MS: Final = 48 * 3_600_000  # a replaced card still logs in
KEY_FETCHES_PER_MINUTE: Final = 60
LOG_FETCHES_PER_MINUTE: Final = 300  # to read a long log takes less log-ins than one identity may have live

# --- invites (protocol §9)
INVITE_USES: Final = 8  # handles that one invite may be for
INVITE_LIFE_MIN_S: Final = 60
INVITE_LIFE_S: Final = 86_400  # by default
INVITE_LIFE_MAX_S: Final = 14 * 86_400
INVITE_CLAIMS_FAILED: Final = 5  # and it is void: whoever holds it must not try out names for ever
INVITE_KEPT_MS: Final = 30 * 86_400_000  # its record, after its end, if nobody took it up

# --- budgets (protocol §4)
HOUR_MS: Final = 3_600_000
CALLS_PER_HOUR: Final = 30
CALLS_PER_PAIR_PER_HOUR: Final = 30
TURNS: Final = 10
TURN_WINDOW_MS: Final = 1_800_000
UNKNOWN_HANDLE_RELEASE_MS: Final = 10

# --- sync calls (protocol §5)
RING_BOUND_MS: Final = 30_000
CALL_BOUND_MS: Final = 360_000
WORK_BOUND_MS: Final = 300_000
WORK_BOUND_MAX_MS: Final = 350_000
GRACE_MS: Final = 15_000  # a lost listener instance may return
HOLD_MS: Final = 30_000  # a caller without an attached connection may return
RECORD_LIFE_MS: Final = 600_000
RECORDS: Final = 1_000_000
RECORD_OUTCOME_BYTES: Final = 256 * 1_048_576

# --- durable calls (protocol §6)
LEASE_MS: Final = 30_000
REBIND_MS: Final = 3_600_000  # an instance may return to what it has begun
ATTEMPTS: Final = 3
UNCOUNTED_ATTEMPTS: Final = 20
BACK_OFF_MS: Final = 1_000
BACK_OFF_MOST_MS: Final = 60_000
STORED_RECORD_LIFE_MS: Final = 86_400_000  # after execute_by
STORED_CALLS: Final = 100
STORED_REQUEST_BYTES: Final = 32 * 1_048_576
STORED_OUTCOME_BYTES: Final = 64 * 1_048_576
STORED_CALLS_PER_PAIR: Final = 10
STORED_PAIR_PERCENT: Final = 25
STORED_UNLISTED_PERCENT: Final = 50
STARTS: Final = 30  # a day, of one caller to one callee
DAY_MS: Final = 86_400_000

# --- cancellation (protocol §7)
CANCEL_WAIT_MS: Final = 10_000

# --- conversations (protocol §11)
CONTEXT_IDLE_MS: Final = 1_800_000
CONTEXT_TURNS: Final = 10
CONTEXTS_PER_LISTENER: Final = 100
CONTEXTS_PER_CALLER: Final = 10
