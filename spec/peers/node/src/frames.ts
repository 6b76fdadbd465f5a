/** The frames that a client reads: frames.schema.json of the specification, and what a schema cannot say. */
import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { text } from "./bytes.js";
import type { Envelope, Mode, Terminal } from "./envelope.js";
import { parseObject } from "./json.js";

const schema = JSON.parse(readFileSync(new URL("../frames.schema.json", import.meta.url), "utf8")) as object;
export const ajv = new Ajv2020({ strict: false }).addSchema(schema, "frames");

export type Direction = "relay_to_caller" | "relay_to_listener";
type Words = "call_id" | "correlation_id" | "message_id" | "lease_id" | "from" | "terminal_reason" | "state" | "code" | "reason";
type Numbers = "execute_by" | "retry_after_ms" | "submitted_at" | "expires_at";
export type Frame = { readonly type: string; readonly envelope?: Envelope; readonly delivery_mode?: Mode; readonly terminal?: Terminal } & {
  readonly [name in Words]?: string;
} & { readonly [name in Numbers]?: number };

/** RL-FRAME-001 to RL-FRAME-008 and RL-FRAME-055. Throws for a frame that is to be refused. */
export function readFrame(data: Uint8Array, binary: boolean, direction: Direction): Frame {
  const frame = parseObject(text(data), 8, /^/);
  if (binary || !ajv.validate(`frames#/$defs/${direction}`, frame)) throw new RangeError("a frame that breaks its form");
  const read = frame as unknown as Frame;
  if (read.type === "call_queued" && (read.expires_at ?? 0) <= (read.submitted_at ?? 0)) throw new RangeError("a call that ends before it begins");
  return read;
}
