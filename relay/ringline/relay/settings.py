"""The bounds and budgets that an operator may change: one table, and a frozen value made from it.

Settings come from the command line of a relay, never from the wire (RL-DEPLOY-002). `TABLE` is the only
place that knows a setting's default, unit and range.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, final

from ringline.protocol import limits
from ringline.protocol.errors import ConfigError

__all__ = ["TABLE", "Kind", "Setting", "Settings"]

_GIB: Final = 1_073_741_824


class Kind(StrEnum):
    """What a setting is; ``GET /v1/relay`` shows bounds among its limits, and budgets apart."""

    BOUND = "bound"
    BUDGET = "budget"  # 0 turns it off
    PROCESS = "process"  # concerns this process only and is not shown


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One row. ``unit`` is for people; every value is an integer, ``least <= value <= most``."""

    kind: Kind
    default: int
    unit: str
    least: int
    most: int
    help: str


_B, _Q, _P = Kind.BOUND, Kind.BUDGET, Kind.PROCESS

# A table is read by its rows.
# fmt: off
TABLE: Final[Mapping[str, Setting]] = {
    # --- budgets
    "CALLS_PER_HOUR": Setting(_Q, limits.CALLS_PER_HOUR, "requests", 0, 100_000,
        "of one caller within BUDGET_WINDOW_MS"),
    "CALLS_PER_PAIR_PER_HOUR": Setting(_Q, limits.CALLS_PER_PAIR_PER_HOUR, "requests", 0, 100_000,
        "of one caller to one callee within BUDGET_WINDOW_MS"),
    "TURNS": Setting(_Q, limits.TURNS, "calls", 0, 100_000,
        "admitted with one correlation_id within TURN_WINDOW_MS of the first"),
    "CALLER_PLACES_PERCENT": Setting(_Q, 50, "percent", 0, 100,
        "of a handle's places that one caller may hold, but at least one place"),
    "OUTCOME_RESENDS": Setting(_Q, 10, "sendings", 0, 1_000,
        "of one stored outcome after its first, HTTP reads included"),
    "FRAMES_PER_SECOND": Setting(_Q, 2_000, "frames", 0, 1_000_000,
        "read from one connection; twice as many close it"),
    "CONNECTIONS_PER_IDENTITY": Setting(_Q, 100, "connections", 0, 100_000,
        "open at once for one handle, both roles together"),
    "KEY_FETCHES_PER_MINUTE": Setting(_Q, limits.KEY_FETCHES_PER_MINUTE, "requests", 0, 1_000_000,
        "for keys by one identity"),
    "LOG_FETCHES_PER_MINUTE": Setting(_Q, limits.LOG_FETCHES_PER_MINUTE, "requests", 0, 1_000_000,
        "to the key log by one identity"),
    "INVITES": Setting(_Q, 200, "invites", 0, 100_000,
        "of one identity kept that have brought nobody new, those that are over included"),
    "CLAIMS_PER_MINUTE": Setting(_Q, 20, "requests", 0, 1_000_000,
        "for a handle from one IPv4 address or IPv6 /64, by whoever is not its owner"),
    "PAIRING_CLAIMS_PER_MINUTE": Setting(_Q, 10, "requests", 0, 1_000_000,
        "for the other side of a spoken code from one IPv4 address or IPv6 /64"),
    "FAILED_LOGINS_PER_MINUTE": Setting(_Q, 60, "requests", 0, 1_000_000,
        "and handshakes without a right log-in from one IPv4 address or IPv6 /64"),
    "STORED_CALLS": Setting(_Q, limits.STORED_CALLS, "calls", 0, 10_000_000,
        "durable and unfinished, to one callee"),
    "STORED_REQUEST_BYTES": Setting(_Q, limits.STORED_REQUEST_BYTES, "bytes", 0, 64 * _GIB,
        "of request ciphertext stored for one callee"),
    "STORED_OUTCOME_BYTES": Setting(_Q, limits.STORED_OUTCOME_BYTES, "bytes", 0, 64 * _GIB,
        "of outcomes stored of one callee's calls; more stops admission, not outcomes"),
    "STORED_CALLS_PER_PAIR": Setting(_Q, limits.STORED_CALLS_PER_PAIR, "calls", 0, 10_000_000,
        "durable and unfinished, of one caller to one callee"),
    "STORED_PAIR_PERCENT": Setting(_Q, limits.STORED_PAIR_PERCENT, "percent", 0, 100,
        "of a callee's bytes that one caller may take"),
    "STORED_UNLISTED_PERCENT": Setting(_Q, limits.STORED_UNLISTED_PERCENT, "percent", 0, 100,
        "of a callee's quotas that callers not on its list may take together"),
    "STARTS": Setting(_Q, limits.STARTS, "starts", 0, 1_000_000,
        "of durable calls of one caller to one callee within STARTS_WINDOW_MS; later ones wait"),
    # --- bounds of budgets
    "STARTS_WINDOW_MS": Setting(_B, limits.DAY_MS, "ms", 1, limits.DAY_MS,
        "over which starts of durable calls are counted"),
    "BUDGET_WINDOW_MS": Setting(_B, limits.HOUR_MS, "ms", 1, limits.DAY_MS,
        "over which the hourly budgets are counted"),
    "TURN_WINDOW_MS": Setting(_B, limits.TURN_WINDOW_MS, "ms", 1, limits.DAY_MS,
        "that the turns of a conversation may take"),
    "AFFINITY_MS": Setting(_B, limits.CONTEXT_IDLE_MS, "ms", 1, limits.DAY_MS,
        "for which a conversation stays with the instance that took it"),
    # --- sync calls
    "RING_BOUND_MS": Setting(_B, limits.RING_BOUND_MS, "ms", 1, limits.DAY_MS,
        "from hand-out to acceptance"),
    "CALL_BOUND_MS": Setting(_B, limits.CALL_BOUND_MS, "ms", 1, limits.DAY_MS,
        "from hand-out to the end"),
    "GRACE_MS": Setting(_B, limits.GRACE_MS, "ms", 0, limits.DAY_MS,
        "for a lost listener instance to return"),
    "HOLD_MS": Setting(_B, limits.HOLD_MS, "ms", 0, limits.DAY_MS,
        "for a caller without a connection to return"),
    "RECORD_LIFE_MS": Setting(_B, limits.RECORD_LIFE_MS, "ms", 1, limits.DAY_MS,
        "for which the record of an ended call answers repeats"),
    "RECORDS": Setting(_B, limits.RECORDS, "records", 1, 10_000_000,
        "of ended calls kept at most, oldest out"),
    "RECORD_OUTCOME_BYTES": Setting(_B, limits.RECORD_OUTCOME_BYTES, "bytes", 0, 64 * _GIB,
        "of outcomes kept with records at most, oldest out"),
    "PARTY_LIFE_MS": Setting(_B, limits.CARD_GRACE_MS, "ms", 1, 30 * limits.DAY_MS,
        "for which the two sides of a call may see each other's keys"),
    # --- durable calls
    "DURABLE_LIFE_MS": Setting(_B, limits.DURABLE_LIFE_MS, "ms", 1, limits.DURABLE_LIFE_MS,
        "from admission to execute_by at most"),
    "LEASE_MS": Setting(_B, limits.LEASE_MS, "ms", 1, limits.DAY_MS,
        "from hand-out to acceptance"),
    "REBIND_MS": Setting(_B, limits.REBIND_MS, "ms", 0, limits.DURABLE_LIFE_MS,
        "for an instance to return to what it has begun"),
    "ATTEMPTS": Setting(_B, limits.ATTEMPTS, "attempts", 1, 1_000,
        "counted, the last of which parks a durable call"),
    "UNCOUNTED_ATTEMPTS": Setting(_B, limits.UNCOUNTED_ATTEMPTS, "attempts", 1, 1_000,
        "not counted, the last of which parks a durable call"),
    "BACK_OFF_MS": Setting(_B, limits.BACK_OFF_MS, "ms", 1, limits.DAY_MS,
        "that a durable call rests after an attempt that is not counted; doubled each time"),
    "BACK_OFF_MOST_MS": Setting(_B, limits.BACK_OFF_MOST_MS, "ms", 1, limits.DAY_MS,
        "that a durable call rests at most"),
    "MIN_REMAINING_MS": Setting(_B, 0, "ms", 0, limits.DURABLE_LIFE_MS,
        "until execute_by with which a durable call is still handed out"),
    "STOP_WAIT_MS": Setting(_B, limits.CANCEL_WAIT_MS, "ms", 0, limits.DAY_MS,
        "for a listener to stop a begun durable call whose time is over"),
    "STORED_RECORD_LIFE_MS": Setting(_B, limits.STORED_RECORD_LIFE_MS, "ms", 1, 30 * limits.DAY_MS,
        "from execute_by until the record of a durable call and its outcome are deleted"),
    # --- cancellation
    "CANCEL_WAIT_MS": Setting(_B, limits.CANCEL_WAIT_MS, "ms", 0, limits.DAY_MS,
        "that an HTTP cancel waits for the listener"),
    # --- spoken codes
    "PAIRING_LIFE_MS": Setting(_B, limits.PAIRING_LIFE_MS, "ms", 1, limits.HOUR_MS,
        "from the making of a spoken code until it is forgotten"),
    # --- connections
    "PING_INTERVAL_MS": Setting(_B, limits.PING_INTERVAL_MS, "ms", 1, limits.DAY_MS,
        "between pings"),
    "PING_TIMEOUT_MS": Setting(_B, limits.PING_TIMEOUT_MS, "ms", 1, limits.DAY_MS,
        "of silence after a ping"),
    "UNDECODABLE_FRAMES": Setting(_B, limits.UNDECODABLE_FRAMES, "frames", 1, 1_000_000,
        "refused within UNDECODABLE_WINDOW_MS; one more closes the connection"),
    "UNDECODABLE_WINDOW_MS": Setting(_B, limits.UNDECODABLE_WINDOW_MS, "ms", 1, limits.DAY_MS,
        "over which refused frames are counted"),
    # --- this process
    "UNKNOWN_HANDLE_RELEASE_MS": Setting(_P, limits.UNKNOWN_HANDLE_RELEASE_MS, "ms", 0, 60_000,
        "from the receipt to an unknown_handle, 401, 403 or 404"),
    "MAILBOX_RETRY_MS": Setting(_P, 60_000, "ms", 0, limits.DAY_MS,
        "after which a caller is told to try a full mailbox again"),
    "STORE_RETRY_MS": Setting(_P, 2_000, "ms", 1, limits.DAY_MS,
        "after which a store that failed is tried again"),
    "PARTIES": Setting(_P, 1_000_000, "pairs", 1, 100_000_000,
        "of parties remembered at most, oldest out"),
    "MAX_BUFFERED_BYTES": Setting(_P, 16 * 1_048_576, "bytes", limits.LISTENER_FRAME_BYTES, 16 * _GIB,
        "that wait for one slow reader before it is dropped"),
    "DRAIN_BOUND_MS": Setting(_P, 25_000, "ms", 0, limits.DAY_MS,
        "that running calls get when the relay stops"),
    "DRAIN_RETRY_MS": Setting(_P, 2_000, "ms", 0, limits.DAY_MS,
        "after which clients of a stopping relay are told to come back"),
}
# fmt: on

_NUMBER: Final = re.compile(r"\A[0-9]{1,15}\Z", re.ASCII)

# What no relay may change, shown beside the bounds.
_FIXED: Final[Mapping[str, int]] = {
    "message_bytes": limits.MESSAGE_BYTES,
    "reply_bytes": limits.REPLY_BYTES,
    "caller_frame_bytes": limits.CALLER_FRAME_BYTES,
    "listener_frame_bytes": limits.LISTENER_FRAME_BYTES,
    "request_ct_chars": limits.REQUEST_CT_CHARS,
    "outcome_ct_chars": limits.OUTCOME_CT_CHARS,
}


def _of(name: str) -> int:
    default: int = field(default=TABLE[name].default)
    return default


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value for each row of `TABLE`, under its name in lower case. Units are in the names."""

    calls_per_hour: int = _of("CALLS_PER_HOUR")
    calls_per_pair_per_hour: int = _of("CALLS_PER_PAIR_PER_HOUR")
    turns: int = _of("TURNS")
    caller_places_percent: int = _of("CALLER_PLACES_PERCENT")
    outcome_resends: int = _of("OUTCOME_RESENDS")
    frames_per_second: int = _of("FRAMES_PER_SECOND")
    connections_per_identity: int = _of("CONNECTIONS_PER_IDENTITY")
    key_fetches_per_minute: int = _of("KEY_FETCHES_PER_MINUTE")
    log_fetches_per_minute: int = _of("LOG_FETCHES_PER_MINUTE")
    invites: int = _of("INVITES")
    claims_per_minute: int = _of("CLAIMS_PER_MINUTE")
    pairing_claims_per_minute: int = _of("PAIRING_CLAIMS_PER_MINUTE")
    failed_logins_per_minute: int = _of("FAILED_LOGINS_PER_MINUTE")
    stored_calls: int = _of("STORED_CALLS")
    stored_request_bytes: int = _of("STORED_REQUEST_BYTES")
    stored_outcome_bytes: int = _of("STORED_OUTCOME_BYTES")
    stored_calls_per_pair: int = _of("STORED_CALLS_PER_PAIR")
    stored_pair_percent: int = _of("STORED_PAIR_PERCENT")
    stored_unlisted_percent: int = _of("STORED_UNLISTED_PERCENT")
    starts: int = _of("STARTS")
    starts_window_ms: int = _of("STARTS_WINDOW_MS")
    budget_window_ms: int = _of("BUDGET_WINDOW_MS")
    turn_window_ms: int = _of("TURN_WINDOW_MS")
    affinity_ms: int = _of("AFFINITY_MS")
    ring_bound_ms: int = _of("RING_BOUND_MS")
    call_bound_ms: int = _of("CALL_BOUND_MS")
    grace_ms: int = _of("GRACE_MS")
    hold_ms: int = _of("HOLD_MS")
    record_life_ms: int = _of("RECORD_LIFE_MS")
    records: int = _of("RECORDS")
    record_outcome_bytes: int = _of("RECORD_OUTCOME_BYTES")
    party_life_ms: int = _of("PARTY_LIFE_MS")
    durable_life_ms: int = _of("DURABLE_LIFE_MS")
    lease_ms: int = _of("LEASE_MS")
    rebind_ms: int = _of("REBIND_MS")
    attempts: int = _of("ATTEMPTS")
    uncounted_attempts: int = _of("UNCOUNTED_ATTEMPTS")
    back_off_ms: int = _of("BACK_OFF_MS")
    back_off_most_ms: int = _of("BACK_OFF_MOST_MS")
    min_remaining_ms: int = _of("MIN_REMAINING_MS")
    stop_wait_ms: int = _of("STOP_WAIT_MS")
    stored_record_life_ms: int = _of("STORED_RECORD_LIFE_MS")
    cancel_wait_ms: int = _of("CANCEL_WAIT_MS")
    pairing_life_ms: int = _of("PAIRING_LIFE_MS")
    ping_interval_ms: int = _of("PING_INTERVAL_MS")
    ping_timeout_ms: int = _of("PING_TIMEOUT_MS")
    undecodable_frames: int = _of("UNDECODABLE_FRAMES")
    undecodable_window_ms: int = _of("UNDECODABLE_WINDOW_MS")
    unknown_handle_release_ms: int = _of("UNKNOWN_HANDLE_RELEASE_MS")
    mailbox_retry_ms: int = _of("MAILBOX_RETRY_MS")
    store_retry_ms: int = _of("STORE_RETRY_MS")
    parties: int = _of("PARTIES")
    max_buffered_bytes: int = _of("MAX_BUFFERED_BYTES")
    drain_bound_ms: int = _of("DRAIN_BOUND_MS")
    drain_retry_ms: int = _of("DRAIN_RETRY_MS")

    def with_values(self, values: Mapping[str, str]) -> "Settings":
        """Return these settings with some replaced, by the names of `TABLE` and as decimal text.

        Raises:
            ConfigError: a name that is no setting, or a value that is no number of its range; the
                message names the setting, `ConfigError.next_step` what may be written instead.
        """
        return replace(self, **{name.lower(): _number(name, text) for name, text in values.items()})

    def limits(self) -> dict[str, int]:
        """The ``limits`` of ``GET /v1/relay``: what is fixed, and the bounds of this relay."""
        return dict(_FIXED) | self._of_kind(Kind.BOUND)

    def budgets(self) -> dict[str, int]:
        """The ``budgets`` of ``GET /v1/relay``; 0 says that one is off."""
        return self._of_kind(Kind.BUDGET)

    def _of_kind(self, kind: Kind) -> dict[str, int]:
        names = (name.lower() for name, row in TABLE.items() if row.kind is kind)
        return {name: getattr(self, name) for name in names}


def _number(name: str, text: str) -> int:
    row = TABLE.get(name)
    if row is None:
        near = difflib.get_close_matches(name.upper(), TABLE, n=3, cutoff=0.4)
        advice = f"did you mean {' or '.join(near)}?" if near else f"the settings are {', '.join(TABLE)}"
        raise ConfigError(f"{name!r} is no setting of the relay", next_step=advice)
    if _NUMBER.match(text) is None or not row.least <= int(text) <= row.most:
        off = ", 0 turns it off" if row.kind is Kind.BUDGET else ""
        raise ConfigError(
            f"the setting {name} cannot be {text!r}",
            next_step=f"give a whole number of {row.unit} from {row.least} to {row.most}{off}: {row.help}",
        )
    return int(text)
