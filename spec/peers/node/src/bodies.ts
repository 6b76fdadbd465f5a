/** The JSON under the seal (ENVELOPE, "The JSON under the seal"). */
import { utf8 } from "./bytes.js";
import { isObject, type Json, type JsonObject, parseObject } from "./json.js";

export const MESSAGE_BYTES = 64_000;
export const REPLY_BYTES = 256_000;
const PEER_CODES = "busy timeout agent_error blocked task_unknown context_unknown message_too_large duplicate_conflict".split(" ");
const TASK = /^[a-z0-9][a-z0-9-]{0,63}$/;
const CONTEXT = /^ctx_[A-Za-z0-9_-]{22}$/;
const HASH = /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/;

export interface Offer {
  readonly id: string;
  readonly summary?: string;
  readonly args_schema?: JsonObject;
}
export interface Request {
  readonly message: string;
  readonly task?: string;
  readonly args?: JsonObject;
  readonly query?: "tasks";
  readonly context_id?: string;
  readonly turn?: number;
  readonly prev?: string;
  readonly traceparent?: string;
}
export interface Reply {
  readonly text: string;
  readonly value?: Json;
  readonly task?: string;
  readonly context_id?: string;
  readonly turn?: number;
}
export interface Failure {
  readonly code: string;
  readonly detail?: string;
  readonly offered?: readonly string[];
}
export interface Outcome {
  readonly reason: "completed" | "failed" | "indeterminate_execution";
  readonly reply?: Reply;
  readonly failure?: Failure;
  readonly offered?: readonly Offer[];
}

/** Thrown for a text over its limit, which has a code of its own (RL-ENVELOPE-036). */
export class TooLarge extends RangeError {}

type Check = (value: Json) => boolean;
const isText: Check = (value) => typeof value === "string";
const isCount: Check = (value) => typeof value === "number" && Number.isInteger(value) && value >= 0;
const matches = (pattern: RegExp): Check => (value) => typeof value === "string" && pattern.test(value);
const within = (limit: number): Check => (value) => typeof value === "string" && utf8(value).length <= limit;
const listOf = (item: Check, most: number): Check => (value) => Array.isArray(value) && value.length <= most && value.every(item);
const oneOf = (...words: string[]): Check => (value) => typeof value === "string" && words.includes(value);
const object: Check = (value) => isObject(value);
function shape(members: Record<string, Check>, ...required: string[]): Check {
  return (value) =>
    isObject(value) &&
    required.every((name) => name in value) &&
    Object.entries(value).every(([name, part]) => Object.hasOwn(members, name) && members[name]?.(part) === true);
}

const FEATURES = listOf(matches(/^[a-z0-9][a-z0-9-]{0,31}$/), 16);
const common = {
  kt: shape({ size: isCount, root: matches(HASH) }, "size", "root"),
  ext: (value: Json) => isObject(value) && (value["features"] === undefined || FEATURES(value["features"])),
};
const turns = { context_id: matches(CONTEXT), turn: (value: Json) => isCount(value) && value !== 0 && Number(value) <= 10 };
const REQUEST = shape(
  { message: isText, task: matches(TASK), args: object, query: oneOf("tasks"), prev: matches(HASH), traceparent: within(512), ...turns, ...common },
  "message",
);
const offer = shape({ id: matches(TASK), summary: isText, args_schema: object }, "id");
const OUTCOME = shape(
  {
    reason: oneOf("completed", "failed", "indeterminate_execution"),
    reply: shape({ text: isText, value: () => true, task: matches(TASK), ...turns }, "text"),
    failure: shape({ code: oneOf(...PEER_CODES), detail: within(500), offered: listOf(matches(TASK), 50) }, "code"),
    offered: listOf(offer, 50),
    ...common,
  },
  "reason",
);

/** Throws `TooLarge`, or another error for JSON that breaks the rules. */
export function readRequest(json: string): Request {
  const body = parseObject(json, { depth: 64 });
  if (!REQUEST(body)) throw new RangeError("sealed JSON that is no request");
  const request = body as unknown as Request;
  if (utf8(request.message).length > MESSAGE_BYTES) throw new TooLarge("a message over 64,000 bytes");
  if (request.message === "" && !("query" in body || "task" in body || "args" in body)) throw new RangeError("an empty request");
  return request;
}

/** Throws for JSON that breaks the rules or does not fit the `terminal` of its frame (RL-ENVELOPE-041). */
export function readOutcome(json: string, terminal: string): Outcome {
  const body = parseObject(json, { depth: 64 });
  if (!OUTCOME(body)) throw new RangeError("sealed JSON that is no outcome");
  const outcome = body as unknown as Outcome;
  const completed = outcome.reason === "completed";
  if ((outcome.reply === undefined) === (outcome.failure === undefined) || completed !== (outcome.reply !== undefined)) {
    throw new RangeError("an outcome that is not just one of reply and failure");
  }
  if (completed !== (terminal === "completed")) throw new RangeError("an outcome that contradicts its frame");
  if (utf8(outcome.reply?.text ?? "").length > REPLY_BYTES) throw new TooLarge("a reply over 256,000 bytes");
  return outcome;
}

export const failed = (code: string, detail?: string, reason: Outcome["reason"] = "failed"): Outcome => ({
  reason,
  failure: { code, ...(detail === undefined ? {} : { detail: cut(detail, 500) }) },
});

/** `value` in at most `limit` bytes of UTF-8, cut between characters. */
export function cut(value: string, limit: number): string {
  let kept = value.toWellFormed().slice(0, limit);
  while (utf8(kept).length > limit) kept = [...kept].slice(0, -1).join("");
  return kept;
}
