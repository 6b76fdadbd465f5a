/** The frames that a client reads, as a table (frames.md). */
import type { Envelope, Mode, Terminal } from "./envelope.js";
import { isObject, type Json, parseObject } from "./json.js";
import { HANDLE } from "./keys.js";

type Check = (value: Json) => boolean;
const text = (pattern: RegExp): Check => (value) => typeof value === "string" && pattern.test(value);
const word = (...words: (string | number)[]): Check => (value) => words.includes(value as string);
const count = (most = Number.MAX_SAFE_INTEGER): Check => (value) => typeof value === "number" && value >= 0 && value <= most;

export const ID = /^(?!0{32})[0-9a-f]{32}$/;
export const CALL_ID = /^[A-Za-z0-9_-]{1,64}$/;
const callId = text(CALL_ID);
const leaseId = text(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
const id = text(ID);
const key = text(/^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/);
const ENVELOPE: Shape = [
  { v: word(1), suite: count(65_535), kid: key, sid: key, iat: count(), exp: count(), ct: text(/^[^]{1,2061515}$/) },
  ["v", "suite", "kid", "sid", "iat", "exp", "ct"],
];
const envelope: Check = (value) => fits(value, ENVELOPE);

type Shape = readonly [members: Record<string, Check>, required: readonly string[]];
const ERROR: Shape = [
  {
    origin: word("relay"),
    code: word("busy", "canceled", "message_too_large", "offline", "protocol_error", "rate_limited", "timeout", "unauthorized", "unknown_handle"),
    call_id: callId,
    correlation_id: id,
    retry_after_ms: count(),
  },
  ["origin", "code"],
];
const REASONS = ["canceled", "completed", "delivery_failed", "expired", "failed", "indeterminate_execution", "revoked"];

export const TO_CALLER: Record<string, Shape> = {
  call_status: [{ state: word("answered", "ringing", "working"), call_id: callId, correlation_id: id }, ["state", "call_id", "correlation_id"]],
  call_queued: [
    { call_id: callId, message_id: id, correlation_id: id, submitted_at: count(), expires_at: count() },
    ["call_id", "message_id", "correlation_id", "submitted_at", "expires_at"],
  ],
  call_error: ERROR,
  call_outcome: [
    { call_id: callId, terminal: word("completed", "failed"), terminal_reason: word(...REASONS), envelope, lease_id: leaseId },
    ["call_id", "terminal", "envelope"],
  ],
  call_not_cancelled: [
    { call_id: callId, reason: word("already_terminal", "too_late", "unknown"), lease_id: leaseId },
    ["call_id", "reason"],
  ],
};
export const TO_LISTENER: Record<string, Shape> = {
  incoming_call: [
    {
      ...{ call_id: callId, from: text(HANDLE), envelope, correlation_id: id, message_id: id, delivery_mode: word("durable") },
      ...{ lease_id: leaseId, execute_by: count(), traceparent: (value) => typeof value === "string" },
    },
    ["call_id", "from", "envelope", "correlation_id"],
  ],
  cancel_call: [{ call_id: callId, lease_id: leaseId }, ["call_id"]],
  call_started: [{ call_id: callId, lease_id: leaseId }, ["call_id"]],
  call_rejected: [{ call_id: callId, code: word("protocol_error"), lease_id: leaseId }, ["call_id", "code"]],
  call_error: ERROR,
};

export interface Frame {
  readonly type: string;
  readonly call_id?: string;
  readonly correlation_id?: string;
  readonly message_id?: string;
  readonly lease_id?: string;
  readonly envelope?: Envelope;
  readonly from?: string;
  readonly delivery_mode?: Mode;
  readonly execute_by?: number;
  readonly terminal?: Terminal;
  readonly terminal_reason?: string;
  readonly state?: string;
  readonly code?: string;
  readonly reason?: string;
  readonly retry_after_ms?: number;
  readonly expires_at?: number;
  readonly submitted_at?: number;
}

function fits(value: Json, [members, required]: Shape): boolean {
  if (!isObject(value) || !required.every((name) => Object.hasOwn(value, name))) return false;
  return Object.entries(value).every(([name, part]) => Object.hasOwn(members, name) && members[name]?.(part));
}

/** RL-FRAME-001 to RL-FRAME-008 and RL-FRAME-055. Throws for a frame that is to be refused. */
export function readFrame(message: string, table: Record<string, Shape>): Frame {
  const frame = parseObject(message, { depth: 8, integers: true });
  const { type, ...members } = frame;
  const shape = typeof type === "string" && Object.hasOwn(table, type) ? table[type] : undefined;
  if (shape === undefined || !fits(members, shape)) throw new RangeError("a frame that breaks its form");
  const read = frame as unknown as Frame;
  if (read.type === "incoming_call") {
    const durable = ["delivery_mode", "lease_id", "execute_by"].filter((name) => name in members).length;
    if (durable !== 0 && (durable !== 3 || read.message_id === undefined)) throw new RangeError("half a durable call");
  }
  if (read.type === "call_queued" && (read.expires_at ?? 0) <= (read.submitted_at ?? 0)) throw new RangeError("a call that ends before it begins");
  return read;
}
