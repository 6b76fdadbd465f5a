/** The JSON under the seal (ENVELOPE, "The JSON under the seal"). */
import { text as decode, utf8 } from "./bytes.js";
import type { Terminal } from "./envelope.js";
import { ajv } from "./frames.js";
import { type Json, type JsonObject, parseObject } from "./json.js";

export const MESSAGE_BYTES = 64_000;
export const REPLY_BYTES = 256_000;
const PEER_CODES = "busy timeout agent_error blocked task_unknown context_unknown message_too_large duplicate_conflict".split(" ");

export type Offer = Readonly<{ id: string; summary?: string; args_schema?: JsonObject }>;
/** A turn of a conversation and its number. */
type Turn = Readonly<{ context_id?: string; turn?: number }>;
/** `prev` is the hash of the answer before. */
export type Request = Turn & Readonly<{ message: string; task?: string; args?: JsonObject; query?: "tasks"; prev?: string; traceparent?: string }>;
export type Reply = Turn & Readonly<{ text: string; value?: Json; task?: string }>;
export type Failure = Readonly<{ code: string; detail?: string; offered?: readonly string[] }>;
type Reason = "completed" | "failed" | "indeterminate_execution";
export type Outcome = Readonly<{ reason: Reason; reply?: Reply; failure?: Failure; offered?: readonly Offer[] }>;

/** Thrown for a text over its limit, which has a code of its own (RL-ENVELOPE-036). */
export class TooLarge extends RangeError {}

const hash = { type: "string", pattern: "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$" };
const task = { type: "string", pattern: "^[a-z0-9][a-z0-9-]{0,63}$" };
const features = { type: "array", maxItems: 16, items: { type: "string", pattern: "^[a-z0-9][a-z0-9-]{0,31}$" } };
const closed = (required: string[], properties: object) => ({ type: "object", additionalProperties: false, required, properties });
const common = {
  kt: closed(["size", "root"], { size: { type: "integer", minimum: 0 }, root: hash }),
  ext: { type: "object", properties: { features } },
};
const turns = { context_id: { type: "string", pattern: "^ctx_[A-Za-z0-9_-]{22}$" }, turn: { type: "integer", minimum: 1, maximum: Number.MAX_SAFE_INTEGER } };
const text = { type: "string" };
const isRequest = ajv.compile(
  closed(["message"], { message: text, task, args: { type: "object" }, query: { const: "tasks" }, prev: hash, traceparent: text, ...turns, ...common }),
);
const isOutcome = ajv.compile({
  ...closed(["reason"], {
    reason: { enum: ["completed", "failed", "indeterminate_execution"] },
    reply: closed(["text"], { text, value: {}, task, ...turns }),
    failure: closed(["code"], { code: { enum: PEER_CODES }, detail: text, offered: { type: "array", maxItems: 50, items: task } }),
    offered: { type: "array", maxItems: 50, items: closed(["id"], { id: task, summary: text, args_schema: { type: "object" } }) },
    ...common,
  }),
  if: { properties: { reason: { const: "completed" } } },
  then: { required: ["reply"], not: { required: ["failure"] } },
  else: { required: ["failure"], not: { required: ["reply"] } },
});

/** Throws `TooLarge`, or another error for JSON that breaks the rules. */
export function readRequest(json: Uint8Array): Request {
  const body = parseObject(decode(json), 64, /^\/(turn|kt\/size)$/);
  if (!isRequest(body) || utf8(String(body["traceparent"] ?? "")).length > 512) throw new RangeError("sealed JSON that is no request");
  const request = body as unknown as Request;
  if (utf8(request.message).length > MESSAGE_BYTES) throw new TooLarge("a message over 64,000 bytes");
  if (request.message === "" && !("query" in body || "task" in body || "args" in body)) throw new RangeError("an empty request");
  return request;
}

/** Throws for JSON that breaks the rules or does not fit the `terminal` of its frame (RL-ENVELOPE-041). */
export function readOutcome(json: Uint8Array, terminal: Terminal): Outcome {
  const body = parseObject(decode(json), 64, /^\/(reply\/turn|kt\/size)$/);
  if (!isOutcome(body)) throw new RangeError("sealed JSON that is no outcome");
  const outcome = body as unknown as Outcome;
  if (utf8(outcome.failure?.detail ?? "").length > 500) throw new RangeError("a detail over 500 bytes");
  if ((outcome.reason === "completed") !== (terminal === "completed")) throw new RangeError("an outcome that contradicts its frame");
  if (utf8(outcome.reply?.text ?? "").length > REPLY_BYTES) throw new TooLarge("a reply over 256,000 bytes");
  return outcome;
}

export const failed = (code: string, detail?: string, reason: Reason = "failed"): Outcome => ({
  reason,
  failure: detail === undefined ? { code } : { code, detail: cut(detail, 500) },
});

/** `value` in at most `limit` bytes of UTF-8, cut between characters. */
export const cut = (value: string, limit: number): string => new TextDecoder().decode(utf8(value).subarray(0, limit)).replace(/\ufffd+$/, "");
