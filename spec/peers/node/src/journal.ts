/**
 * The listener's memory (IDEM, "The listener's memory"): lines appended to one file, each on disk before anything is
 * said that presumes it. The name of the journal, `instance`, lives in its first line and nowhere else.
 */
import { randomUUID } from "node:crypto";
import { createServer } from "node:net";
import { closeSync, existsSync, fstatSync, fsyncSync, openSync, readFileSync, realpathSync, renameSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { hex, sha256, utf8 } from "./bytes.js";
import type { Mode } from "./envelope.js";
import { LocalError } from "./errors.js";

/** One call under which a message was offered: what its outcome is sealed with. */
export interface Offered {
  readonly callId: string;
  readonly key: string;
  readonly from: string;
  readonly ipk: string;
  readonly messageId: string;
  readonly correlationId: string;
  readonly mode: Mode;
  readonly suite: number;
  readonly iat: number;
  readonly exp: number;
  readonly digest: string;
  readonly replyKey: string;
  granted?: boolean;
}
export interface Row {
  readonly key: string;
  readonly payload: string;
  readonly request: string;
  state: "taken" | "begun" | "finished" | "cancelled";
  exp: number;
  outcome?: string;
  /** The call whose cancellation removed the work, and in which phase. */
  cancelled?: { callId: string; phase: "pending" | "running" };
  at: number;
}
/** Where a conversation stands after its last turn. */
export interface Context { readonly ipk: string; readonly task: string; readonly turn: number; readonly prev: string; readonly used: number }
export type Entry =
  | { kind: "head"; instance: string; place: string }
  | { kind: "try"; callId: string }
  | { kind: "take"; row: Row }
  | { kind: "call"; call: Offered }
  | { kind: "change"; key: string; set: Partial<Row>; granted?: string }
  | { kind: "turn"; id: string; context: Context }
  | { kind: "leave"; id: string };

export class Journal {
  readonly rows = new Map<string, Row>();
  readonly calls = new Map<string, Offered>();
  /** The conversations, the one that was used last at the end. */
  readonly contexts = new Map<string, Context>();
  readonly #tries = new Map<string, number>();
  #file = -1;
  instance = randomUUID() as string;
  private constructor(private readonly path: string) {}

  /** RL-TRANSPORT-015 to RL-TRANSPORT-017. The lock is an abstract socket: the kernel drops it with the process. */
  static async open(folder: string): Promise<Journal> {
    const name = `\0ringline-${hex(sha256(utf8(realpathSync(folder))))}`;
    await new Promise<void>((resolve, reject) => {
      const lock = createServer().on("error", () => reject(new LocalError("config", `another process has the journal in ${folder}`)));
      lock.listen({ path: name }, () => resolve(void lock.unref()));
    });
    const journal = new Journal(join(folder, "journal.jsonl"));
    if (existsSync(journal.path)) journal.#load();
    journal.#rewrite();
    return journal;
  }

  #place(stat: { dev: number; ino: number }): string {
    const machine = existsSync("/etc/machine-id") ? readFileSync("/etc/machine-id", "utf8").trim() : "";
    return `${stat.dev}:${stat.ino}:${machine}`;
  }

  #load(): void {
    const lines = readFileSync(this.path, "utf8").split("\n");
    const here = this.#place(statSync(this.path));
    for (const line of lines.slice(0, -1)) this.#apply(JSON.parse(line) as Entry, here);
    // RL-CONVERSE-012: whatever a turn had done when its process died, nobody knows.
    for (const { state, request } of this.rows.values()) {
      if (state === "begun") this.contexts.delete((JSON.parse(request) as { context_id?: string }).context_id ?? "");
    }
  }

  #apply(entry: Entry, here: string): void {
    if (entry.kind === "head" && entry.place === here) this.instance = entry.instance;
    else if (entry.kind === "try") this.#tries.set(entry.callId, (this.#tries.get(entry.callId) ?? 0) + 1);
    else if (entry.kind === "take") this.rows.set(entry.row.key, entry.row);
    else if (entry.kind === "call") this.calls.set(entry.call.callId, entry.call);
    else if (entry.kind === "leave") this.contexts.delete(entry.id);
    else if (entry.kind === "turn") {
      this.contexts.delete(entry.id);
      this.contexts.set(entry.id, entry.context);
    } else if (entry.kind === "change") {
      const row = this.rows.get(entry.key);
      if (row !== undefined) Object.assign(row, entry.set);
      const call = this.calls.get(entry.granted ?? "");
      if (call !== undefined) call.granted = true;
    }
  }

  /** Writes what still counts to a new file (RL-IDEM-021, RL-IDEM-023), whose first line names the journal. */
  #rewrite(): void {
    const now = Date.now();
    for (const row of this.rows.values()) if (now > Math.max(row.exp + 240_000, row.at + 600_000)) this.rows.delete(row.key);
    for (const call of this.calls.values()) if (!this.rows.has(call.key)) this.calls.delete(call.callId);
    const file = openSync(`${this.path}.new`, "w", 0o600);
    const entries: Entry[] = [{ kind: "head", instance: this.instance, place: this.#place(fstatSync(file)) }];
    for (const row of this.rows.values()) entries.push({ kind: "take", row });
    for (const call of this.calls.values()) entries.push({ kind: "call", call });
    for (const [id, context] of this.contexts) if (now - context.used < 1_800_000) entries.push({ kind: "turn", id, context });
    for (const [callId, count] of this.#tries) {
      if (this.#unbegun(callId)) for (let at = 0; at < count; at++) entries.push({ kind: "try", callId });
    }
    writeSync(file, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
    fsyncSync(file);
    renameSync(`${this.path}.new`, this.path);
    if (this.#file >= 0) closeSync(this.#file);
    this.#file = file;
  }

  #unbegun(callId: string): boolean {
    const call = this.calls.get(callId);
    return call === undefined || this.rows.get(call.key)?.state === "taken";
  }

  /** Commits all of `entries` or throws; a `try` need not survive more than its process. */
  commit(...entries: Entry[]): void {
    writeSync(this.#file, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
    if (entries.some((entry) => entry.kind !== "try")) fsyncSync(this.#file);
    for (const entry of entries) this.#apply(entry, "");
  }

  /** Notes that a call is about to be opened; false after three processes that did not get past it (RL-IDEM-027). */
  venture(callId: string): boolean {
    if (this.#unbegun(callId) && (this.#tries.get(callId) ?? 0) >= 3) return false;
    this.commit({ kind: "try", callId });
    return true;
  }
  survived(callId: string): void {
    this.#tries.delete(callId);
  }

  /** RL-IDEM-022: whether one identity has its share of the memory already. */
  isFullFor(ipk: string): boolean {
    const held = [...this.rows.keys()].filter((key) => key.startsWith(`${ipk}:`)).length;
    return held >= 2_500 || this.rows.size >= 10_000;
  }
}
