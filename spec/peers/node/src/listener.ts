/** Answers calls. Nothing runs before its journal knows it, and nothing runs twice. */
import { randomUUID } from "node:crypto";
import { failed, type Offer, type Outcome, readRequest, type Request, REPLY_BYTES, TooLarge } from "./bodies.js";
import { b64, random, sha256, unb64, utf8 } from "./bytes.js";
import type { Connection } from "./connection.js";
import { answerTo, type Envelope, type Exchange, fits, openRequest, OUTCOME_CAP, sealOutcome, type Terminal } from "./envelope.js";
import { LocalError, RelayError } from "./errors.js";
import { ajv, type Frame } from "./frames.js";
import type { Home } from "./home.js";
import { type Context, type Entry, Journal, type Offered, type Row } from "./journal.js";
import type { Json } from "./json.js";
import { Relay } from "./relay.js";

export interface Work extends Request {
  readonly from: string;
  readonly callId: string;
  /** Aborted when the work is to stop: throw, and the caller is told that it stopped. */
  readonly signal: AbortSignal;
}
export type Handler = (work: Work) => Promise<string | { text: string; value?: Json }>;
/** Thrown by a handler to answer with a failure of its own words. */
export class Refusal extends Error {
  constructor(readonly code: string, readonly detail?: string) {
    super(code);
  }
}
export interface ListenerOptions {
  readonly capacity?: number;
  readonly tasks?: readonly Offer[];
  /** Whether callers without a pin are trusted at first sight; always so on realm `localhost`. */
  readonly trustNew?: boolean;
  readonly workMs?: number;
  /** Handles that are not served, whatever else is true of them. */
  readonly block?: readonly string[];
}
/** Why work is told to stop: by a call that is cancelled or lost, or because it takes too long. */
type Stop = Readonly<{ why: "cancel" | "bound" | "lease" | "late"; callId?: string }>;
type Running = { readonly abort: AbortController; stop?: Stop };
/** A call on the present connection; `timer` runs while it waits for a grant. */
type Hand = { readonly lease: string | undefined; readonly until: number; timer?: NodeJS.Timeout; sent: boolean };

export class Listener {
  readonly relay: Relay;
  readonly #boot = randomUUID();
  readonly #running = new Map<string, Running>();
  readonly #hands = new Map<string, Hand>();
  /** Contexts whose next turn is being worked on (RL-CONVERSE-007). */
  readonly #held = new Set<string>();
  #connection: Connection | undefined;
  #ended = false;
  #journal!: Journal;

  constructor(readonly home: Home, readonly handler: Handler, readonly options: ListenerOptions = {}, readonly note: (line: string) => void = () => undefined) {
    this.relay = new Relay(home, note);
  }

  /** Serves until `stop`. Throws when going on would be wrong: replaced, revoked, refused. */
  async run(ready: () => void = () => undefined): Promise<void> {
    this.#journal = await Journal.open(this.home.folder);
    for (let wait = 500; !this.#ended; wait = Math.min(wait * 2, 30_000)) {
      let pause = wait * (0.5 + Math.random() / 2);
      try {
        await this.relay.meet();
        await this.relay.publish(); // RL-KEYS-024
        const query = `instance=${this.#journal.instance}&boot=${this.#boot}&capacity=${this.options.capacity ?? 8}`;
        const connection = await this.relay.dial(`/v1/listen/${this.home.handle}?${query}`);
        wait = 250;
        const { code, reason } = await this.#serve(connection, ready);
        if (code === 4000) throw new LocalError("config", "another process listens with this journal");
        if (code === 4001) throw new LocalError("revoked", "the card of this identity was revoked");
        pause = Math.min(120_000, Math.max(pause, Number(/^retry=(\d+)$/.exec(reason)?.[1] ?? 0)));
      } catch (error) {
        const passing = error instanceof LocalError ? error.code === "relay_unreachable" : error instanceof RelayError && error.code === "rate_limited";
        if (!passing) throw error;
      }
      if (!this.#ended) await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** Ends the connection; begun work is left to end, and its outcome to the next start. */
  stop(): void {
    this.#ended = true;
    this.#connection?.close();
  }

  async #serve(connection: Connection, ready: () => void): Promise<{ code: number; reason: string }> {
    this.#connection = connection;
    const hourly = setInterval(() => {
      this.#journal.tidy();
      this.relay.publish().catch((error: unknown) => this.note(`no new prekey was published: ${(error as Error).message}`));
    }, 3_600_000);
    ready();
    for await (const frame of connection.frames("relay_to_listener")) {
      await this.#read(frame).catch((error: unknown) => {
        this.note(`a fault on this side: ${(error as Error).name}`);
        connection.close(1011);
      });
    }
    clearInterval(hourly);
    // RL-DURABLE-033, RL-DURABLE-037: what waits is dropped, what runs goes on.
    for (const { timer } of this.#hands.values()) clearTimeout(timer);
    this.#hands.clear();
    this.#connection = undefined;
    return await connection.closed;
  }

  #send(frame: Record<string, unknown>): void {
    const lease = this.#hands.get(String(frame["call_id"]))?.lease;
    this.#connection?.send(lease === undefined ? frame : { ...frame, lease_id: lease });
  }

  async #read(frame: Frame): Promise<void> {
    const callId = frame.call_id ?? "";
    const call = this.#journal.calls.get(callId);
    const hand = this.#hands.get(callId);
    const mine = hand !== undefined && hand.lease === frame.lease_id;
    if (frame.type === "incoming_call") await this.#offered(frame);
    else if (frame.type === "cancel_call") await this.#cancel(frame, call, mine);
    else if (frame.type === "call_started" && mine && call !== undefined && hand.timer !== undefined) await this.#granted(call);
    else if (frame.type === "call_rejected" && mine && call !== undefined) {
      this.#drop(callId); // RL-DURABLE-024, RL-DURABLE-025
      if (this.#row(call.key).state === "begun") this.#halt(call.key, { why: "lease", callId });
    }
  }

  /** Commits a change to a message, together with whatever must not be known without it. */
  #change(key: string, set: Partial<Row>, ...others: Entry[]): void {
    this.#journal.commit({ kind: "row", row: { ...this.#row(key), ...set } }, ...others);
  }
  #grant(call: Offered): Entry {
    return { kind: "call", call: { ...call, granted: true } };
  }
  #row(key: string): Row {
    const row = this.#journal.rows.get(key);
    if (row === undefined) throw new RangeError("a call without its message");
    return row;
  }
  #drop(callId: string): void {
    clearTimeout(this.#hands.get(callId)?.timer);
    this.#hands.delete(callId);
  }
  /** The call waits for its grant no longer. */
  #wake(callId: string): void {
    const hand = this.#hands.get(callId);
    clearTimeout(hand?.timer);
    delete hand?.timer;
  }
  #halt(key: string, stop: Stop): void {
    const running = this.#running.get(key);
    if (running === undefined || running.stop !== undefined) return;
    running.stop = stop;
    running.abort.abort();
  }

  async #offered(frame: Frame): Promise<void> {
    const { call_id: callId = "", from = "", envelope } = frame;
    this.#wake(callId);
    this.#hands.set(callId, { lease: frame.lease_id, until: frame.execute_by ?? (envelope as Envelope).exp, sent: false });
    const known = this.#journal.calls.get(callId);
    // RL-IDEM-017, RL-IDEM-018
    const same = known?.exchange.from.handle === from && known.exchange.messageId === (frame.message_id ?? "");
    if (known !== undefined) return same ? this.#answer(known) : this.#reject(callId);
    if (!this.#journal.venture(callId)) return this.#reject(callId);
    let opened: Awaited<ReturnType<Listener["open"]>>;
    try {
      opened = await this.open(frame, envelope as Envelope);
    } catch (error) {
      // What could not be checked is not refused: a durable call lapses, and comes again.
      const unchecked = error instanceof LocalError && error.code === "relay_unreachable";
      return unchecked && frame.delivery_mode === "durable" ? this.#drop(callId) : this.#reject(callId);
    } finally {
      this.#journal.survived(callId);
    }
    const { call, payload, json } = opened;
    const row = this.#journal.rows.get(call.key);
    if (row !== undefined) {
      if (row.payload !== payload) return this.#deliver(call, JSON.stringify(failed("duplicate_conflict")));
      this.#change(row.key, { exp: Math.max(row.exp, call.exchange.exp) }, { kind: "call", call });
      return this.#answer(call);
    }
    if (this.#journal.isFullFor(call.exchange.from.ipk)) return this.#deliver(call, JSON.stringify(failed("busy")));
    const taken: Row = { key: call.key, payload, request: Buffer.from(json).toString("utf8"), state: "taken", exp: call.exchange.exp, at: Date.now() };
    this.#journal.commit({ kind: "row", row: taken }, { kind: "call", call });
    const refusal = this.#judge(call, json);
    if (refusal !== undefined) await this.#finish(call.key, refusal);
    else await this.#answer(call);
  }

  /** RL-ENVELOPE-033: no word about the cause. */
  #reject(callId: string): void {
    this.#send({ type: "call_rejected", call_id: callId, code: "protocol_error" });
  }

  /** Throws for whatever is not a request to this handle by the caller that the frame names. */
  private async open(frame: Frame, envelope: Envelope) {
    const { from = "", call_id: callId = "", correlation_id: correlationId = "", message_id: messageId = "" } = frame;
    const mode = frame.delivery_mode ?? "sync";
    const [now, { iat, exp, suite }] = [this.relay.now(), envelope];
    // RL-ENVELOPE-019, before anything is decrypted; whom it knows is told under the seal (RL-ENVELOPE-058).
    if (this.#blocks(from) && !this.relay.isPinned(from)) throw new RangeError("a stranger who is not served");
    await this.relay.peer(from, { trustNew: this.options.trustNew === true });
    const signer = await this.relay.signer(from, envelope.sid, { iat });
    const seed = await this.home.secret(suite, unb64(envelope.kid, 32));
    if (seed === undefined) throw new RangeError("a key that is not here");
    // RL-ENVELOPE-025 to RL-ENVELOPE-027
    if (exp <= iat || exp - iat > (mode === "sync" ? 600_000 : 259_200_000) || iat > now + 120_000 || now >= exp + 120_000) throw new RangeError("bad times");
    if (frame.execute_by !== undefined && now >= frame.execute_by) throw new RangeError("too late");
    const { realm, party: to } = this.home;
    const exchange: Exchange = { realm, from: signer.party, to, suite, mode, messageId, correlationId, iat, exp };
    const { json, replyKey, digest } = await openRequest(exchange, envelope, seed, signer.spk);
    const key = `${signer.party.ipk}:${messageId === "" ? digest : messageId}`;
    return { call: { callId, key, exchange, digest, replyKey }, payload: b64(sha256(json)), json };
  }

  #blocks(handle: string): boolean {
    return this.options.block?.includes(handle) === true;
  }

  /** What keeps a request from being worked on (RL-ENVELOPE-036, RL-ENVELOPE-056, RL-ENVELOPE-057, CONVERSE). */
  #judge(call: Offered, json: Uint8Array): Outcome | undefined {
    let request: Request;
    try {
      request = readRequest(json);
    } catch (error) {
      return failed(error instanceof TooLarge ? "message_too_large" : "agent_error", "the request breaks the rules of its form");
    }
    if (this.#blocks(call.exchange.from.handle)) return failed("blocked");
    const offered = this.options.tasks ?? [];
    if (request.query === "tasks") return { reason: "completed", reply: { text: "" }, offered };
    const task = offered.find(({ id }) => id === request.task);
    const fits = task?.args_schema === undefined || ajv.validate(task.args_schema, request.args ?? {});
    if (request.task !== undefined && (task === undefined || !fits)) {
      return { reason: "failed", failure: { code: "task_unknown", offered: offered.map(({ id }) => id) } };
    }
    if (request.context_id === undefined) return request.prev !== undefined || (request.turn ?? 1) !== 1 ? failed("context_unknown") : undefined;
    const context = this.#journal.contexts.get(request.context_id);
    const follows = context !== undefined && context.ipk === call.exchange.from.ipk && context.task === (request.task ?? "") && !this.#held.has(request.context_id);
    const fresh = context !== undefined && Date.now() - context.used < 1_800_000 && context.turn < 10;
    return follows && fresh && request.turn === context.turn + 1 && request.prev === context.prev ? undefined : failed("context_unknown");
  }

  /** Says what is true of a call that is in hand (RL-DURABLE-040, RL-SYNC-025). */
  async #answer(call: Offered): Promise<void> {
    const row = this.#row(call.key);
    const { callId } = call;
    if (row.state === "cancelled") {
      if (row.cancelled?.callId === callId) return this.#send({ type: "call_cancelled", call_id: callId, phase: row.cancelled.phase });
      return this.#deliver(call, JSON.stringify(failed("agent_error", "the work was cancelled by another call of the same message")));
    }
    if (row.state === "begun" && !this.#running.has(row.key)) {
      return this.#finish(row.key, failed("agent_error", "the process that ran it is gone", "indeterminate_execution"));
    }
    const ended = row.state === "finished";
    if (ended && (row.outcome?.startsWith('{"reason":"completed"') !== true || call.granted === true)) return this.#deliver(call, row.outcome ?? "");
    this.#send({ type: "call_accepted", call_id: callId });
    if (call.exchange.mode === "durable" && (call.granted !== true || row.state === "taken")) {
      const hand = this.#hands.get(callId);
      if (hand !== undefined) hand.timer = setTimeout(() => this.#drop(callId), hand.until - this.relay.now()); // RL-DURABLE-034
      return this.#send({ type: "call_started", call_id: callId });
    }
    if (row.state === "taken") return this.#begin(call);
    this.#send({ type: "call_started", call_id: callId });
    if (ended) await this.#deliver(call, row.outcome ?? "");
  }

  async #granted(call: Offered): Promise<void> {
    this.#wake(call.callId);
    const row = this.#row(call.key);
    if (row.state === "taken") return this.#begin(call);
    this.#journal.commit(this.#grant(call));
    if (row.state === "finished") await this.#deliver(call, row.outcome ?? "");
  }

  #begin(call: Offered): void {
    const row = this.#row(call.key);
    const until = this.#hands.get(call.callId)?.until ?? call.exchange.exp;
    this.#change(row.key, { state: "begun" }, this.#grant(call)); // RL-DURABLE-031
    if (call.exchange.mode === "sync") this.#send({ type: "call_started", call_id: call.callId });
    const running: Running = { abort: new AbortController() };
    this.#running.set(row.key, running);
    const bound = setTimeout(() => this.#halt(row.key, { why: "bound" }), this.options.workMs ?? 300_000);
    const late = setTimeout(() => this.#halt(row.key, { why: "late", callId: call.callId }), until - this.relay.now());
    void this.#work(call, row, running).finally(() => [bound, late].forEach(clearTimeout));
  }

  async #work(call: Offered, row: Row, running: Running): Promise<void> {
    const request = readRequest(utf8(row.request));
    const context = this.#journal.contexts.get(request.context_id ?? "");
    if (request.context_id !== undefined) this.#held.add(request.context_id);
    let outcome: Outcome;
    let turns: Entry[] = [];
    try {
      const said = await this.handler({ ...request, from: call.exchange.from.handle, callId: call.callId, signal: running.abort.signal });
      const reply = typeof said === "string" ? { text: said } : said;
      const turn = (context?.turn ?? 0) + 1;
      const context_id = request.context_id ?? `ctx_${b64(random(16))}`;
      outcome = { reason: "completed", reply: { ...reply, context_id, turn, ...(request.task === undefined ? {} : { task: request.task }) } };
      if (utf8(reply.text).length > REPLY_BYTES || !fits(utf8(JSON.stringify(outcome)).length, OUTCOME_CAP)) outcome = failed("message_too_large");
      else turns = this.#turn(context_id, { ipk: call.exchange.from.ipk, task: request.task ?? "", turn, prev: b64(sha256(utf8(JSON.stringify(outcome)))), used: Date.now() });
    } catch (error) {
      outcome = error instanceof Refusal ? failed(error.code, error.detail) : failed(running.stop?.why === "bound" ? "timeout" : "agent_error");
      // Seen to stop: the handler has returned (RL-CANCEL-016).
      if (running.stop?.callId !== undefined) return await this.#stopped(row.key, running.stop.callId);
    } finally {
      this.#held.delete(request.context_id ?? "");
    }
    await this.#finish(row.key, outcome, turns);
  }

  /** What a turn leaves behind, to be committed with its outcome (RL-CONVERSE-010, RL-CONVERSE-011). */
  #turn(id: string, context: Context): Entry[] {
    const others = [...this.#journal.contexts].filter(([other]) => other !== id);
    const own = others.filter(([, { ipk }]) => ipk === context.ipk);
    const [oldest] = own.length >= 10 ? own : others.length >= 100 ? others : [];
    return [...(oldest === undefined ? [] : [{ kind: "turn", id: oldest[0] } as const]), { kind: "turn", id, context }];
  }

  async #finish(key: string, outcome: Outcome, turns: readonly Entry[] = []): Promise<void> {
    const json = JSON.stringify(outcome);
    this.#change(key, { state: "finished", request: "", outcome: json }, ...turns); // RL-IDEM-024
    this.#running.delete(key);
    for (const call of this.#inHand(key)) {
      if (outcome.reason === "completed" && call.exchange.mode === "durable" && call.granted !== true) continue; // RL-DURABLE-043: its grant is on the way
      await this.#deliver(call, json);
    }
  }

  async #stopped(key: string, by: string): Promise<void> {
    this.#change(key, { state: "cancelled", cancelled: { callId: by, phase: "running" } });
    this.#running.delete(key);
    for (const call of this.#inHand(key)) await this.#answer(call);
  }

  #inHand(key: string): Offered[] {
    return [...this.#journal.calls.values()].filter((call) => call.key === key && this.#hands.has(call.callId));
  }

  async #cancel(frame: Frame, call: Offered | undefined, mine: boolean): Promise<void> {
    const callId = frame.call_id ?? "";
    if (call === undefined) return this.#connection?.send({ ...frame, type: "call_not_cancelled", reason: "unknown" });
    if (!mine && call.exchange.mode === "durable") return;
    const row = this.#row(call.key);
    if (row.state === "taken") {
      this.#change(row.key, { state: "cancelled", cancelled: { callId, phase: "pending" } });
      for (const held of this.#inHand(row.key)) {
        this.#wake(held.callId);
        await this.#answer(held);
      }
    } else if (row.state === "begun" && this.#running.has(row.key)) this.#halt(row.key, { why: "cancel", callId });
    else if (row.state === "finished" && this.#hands.get(callId)?.sent === true) this.#send({ type: "call_not_cancelled", call_id: callId, reason: "already_terminal" });
    else await this.#answer(call);
  }

  /** RL-IDEM-025: sealed afresh for each call. */
  async #deliver(call: Offered, json: string): Promise<void> {
    const outcome = JSON.parse(json) as Outcome;
    const terminal: Terminal = outcome.reason === "completed" ? "completed" : "failed";
    const answer = answerTo(call.exchange, this.home.party, this.relay.now());
    const ending = { callId: call.callId, terminal, digest: call.digest };
    const envelope = await sealOutcome(answer, unb64(call.replyKey), this.home.ssk, ending, json);
    const hand = this.#hands.get(call.callId);
    if (hand === undefined) return;
    hand.sent = true;
    const reason = outcome.reason === "indeterminate_execution" ? { terminal_reason: outcome.reason } : {};
    this.#send({ type: "call_outcome", call_id: call.callId, terminal, ...reason, envelope });
  }
}
