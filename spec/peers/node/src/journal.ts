/**
 * The listener's memory (IDEM, "The listener's memory"): lines appended to one file, each on disk before anything is
 * said that presumes it. The name of the journal, `instance`, lives in its first line and nowhere else.
 */
import { randomUUID } from "node:crypto";
import { createServer } from "node:net";
import { closeSync, existsSync, fstatSync, fsyncSync, openSync, readFileSync, realpathSync, renameSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { hex, sha256, utf8 } from "./bytes.js";
import type { Exchange } from "./envelope.js";
import { LocalError } from "./errors.js";

/** One call under which a message was offered: what its outcome is sealed with. */
export interface Offered extends Readonly<{ callId: string; exchange: Exchange; digest: string; replyKey: string; granted?: boolean }> {
  /** Of the row that holds the message. */
  readonly key: string;
}
/** One message, by its sender's key and its id, whatever number of calls brought it. */
export interface Row extends Readonly<{ key: string; exp: number; at: number; outcome?: string }> {
  /** Hash of the JSON, to know the message again. */
  readonly payload: string;
  /** The JSON; empty once there is an outcome. */
  readonly request: string;
  readonly state: "taken" | "begun" | "finished" | "cancelled";
  /** The call whose cancellation removed the work, and in which phase. */
  readonly cancelled?: Readonly<{ callId: string; phase: "pending" | "running" }>;
}
/** Where a conversation stands after its last turn. */
export type Context = Readonly<{ ipk: string; task: string; turn: number; prev: string; used: number }>;
/** One line. Of several about the same thing the last one counts. */
export type Entry =
  | { kind: "head"; instance: string; place: string }
  | { kind: "try"; callId: string; count: number }
  | { kind: "row"; row: Row }
  | { kind: "call"; call: Offered }
  | { kind: "turn"; id: string; context?: Context };

const MOST_ROWS = 10_000;
const MOST_BYTES = 256_000_000;
const DAY = 86_400_000;

const lines = (entries: readonly Entry[]): string => entries.map((entry) => `${JSON.stringify(entry)}\n`).join("");
/** Where a journal lies: a copy of its folder lies elsewhere, and gets a name of its own (RL-TRANSPORT-017). */
function placeOf(stat: { dev: number; ino: number }): string {
  const machine = existsSync("/etc/machine-id") ? readFileSync("/etc/machine-id", "utf8").trim() : "";
  return `${stat.dev}:${stat.ino}:${machine}`;
}

export class Journal {
  readonly rows = new Map<string, Row>();
  readonly calls = new Map<string, Offered>();
  /** The conversations, the one that was used last at the end. */
  readonly contexts = new Map<string, Context>();
  readonly #tries = new Map<string, number>();
  #file = -1;
  instance: string = randomUUID();
  private constructor(private readonly path: string) {}

  /** RL-TRANSPORT-015, RL-TRANSPORT-016. The lock is an abstract socket: the kernel drops it with the process. */
  static async open(folder: string): Promise<Journal> {
    const name = `\0ringline-${hex(sha256(utf8(realpathSync(folder))))}`;
    await new Promise<void>((resolve, reject) => {
      const lock = createServer().on("error", () => reject(new LocalError("config", `another process has the journal in ${folder}`)));
      lock.listen({ path: name }, () => resolve(void lock.unref()));
    });
    const journal = new Journal(join(folder, "journal.jsonl"));
    if (existsSync(journal.path)) journal.#load();
    journal.tidy();
    return journal;
  }

  #load(): void {
    const here = placeOf(statSync(this.path));
    for (const line of readFileSync(this.path, "utf8").split("\n").slice(0, -1)) {
      const entry = JSON.parse(line) as Entry;
      if (entry.kind === "head" && entry.place === here) this.instance = entry.instance;
      this.#apply(entry);
    }
    // RL-CONVERSE-012: whatever a turn had done when its process died, nobody knows.
    for (const { state, request } of this.rows.values()) {
      if (state === "begun") this.contexts.delete((JSON.parse(request) as { context_id?: string }).context_id ?? "");
    }
  }

  #apply(entry: Entry): void {
    if (entry.kind === "try") this.#tries.set(entry.callId, entry.count);
    else if (entry.kind === "row") this.rows.set(entry.row.key, entry.row);
    else if (entry.kind === "call") this.calls.set(entry.call.callId, entry.call);
    else if (entry.kind === "turn") {
      this.contexts.delete(entry.id);
      if (entry.context !== undefined) this.contexts.set(entry.id, entry.context);
    }
  }

  /** Writes what still counts to a new file (RL-IDEM-021, RL-IDEM-023), whose first line names the journal. */
  tidy(): void {
    const now = Date.now();
    for (const row of this.rows.values()) {
      const until = Math.max(row.exp + 240_000, row.at + 600_000) + (row.state === "begun" ? DAY : 0);
      if (now > until) this.rows.delete(row.key);
    }
    for (const call of this.calls.values()) if (!this.rows.has(call.key)) this.calls.delete(call.callId);
    const file = openSync(`${this.path}.new`, "w", 0o600);
    const entries: Entry[] = [{ kind: "head", instance: this.instance, place: placeOf(fstatSync(file)) }];
    for (const row of this.rows.values()) entries.push({ kind: "row", row });
    for (const call of this.calls.values()) entries.push({ kind: "call", call });
    for (const [id, context] of this.contexts) if (now - context.used < 1_800_000) entries.push({ kind: "turn", id, context });
    for (const [callId, count] of this.#tries) if (this.#unbegun(callId)) entries.push({ kind: "try", callId, count });
    writeSync(file, lines(entries));
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
    writeSync(this.#file, lines(entries));
    if (entries.some((entry) => entry.kind !== "try")) fsyncSync(this.#file);
    for (const entry of entries) this.#apply(entry);
  }

  /** Notes that a call is about to be opened; false after three processes that did not get past it (RL-IDEM-027). */
  venture(callId: string): boolean {
    const count = (this.#tries.get(callId) ?? 0) + 1;
    if (this.#unbegun(callId) && count > 3) return false;
    this.commit({ kind: "try", callId, count });
    return true;
  }
  survived(callId: string): void {
    this.#tries.delete(callId);
  }

  /** RL-IDEM-022: whether one identity has its quarter of the memory already, or all of it is taken. */
  isFullFor(ipk: string): boolean {
    const all = [...this.rows.values()];
    const takes = (rows: readonly Row[], share: number) => {
      const bytes = rows.reduce((sum, { request, outcome }) => sum + request.length + (outcome?.length ?? 0), 0);
      return rows.length >= MOST_ROWS * share || bytes >= MOST_BYTES * share;
    };
    return takes(all, 1) || takes(all.filter(({ key }) => key.startsWith(`${ipk}:`)), 0.25);
  }
}
