/** Calls, sync and durable. Everything sealed is kept and sent again byte for byte; nothing is sealed twice. */
import { MESSAGE_BYTES, type Offer, type Reply, readOutcome, type Request } from "./bodies.js";
import { b64, hex, random, sha256, text, unb64, utf8 } from "./bytes.js";
import type { Connection } from "./connection.js";
import { answerTo, type Envelope, type Exchange, fits, type Mode, openOutcome, REQUEST_CAP, sealRequest, type Terminal } from "./envelope.js";
import { LocalError, PeerFailure, RelayError } from "./errors.js";
import type { Frame } from "./frames.js";
import type { Home } from "./home.js";
import { Relay } from "./relay.js";

export interface CallOptions extends Partial<Request> {
  readonly messageId?: string;
  readonly correlationId?: string;
  /** How long to wait, ms; for a durable call how long it may wait to be begun, at most 72 h. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Told why a cancellation that `signal` asked for did not happen; the call goes on. */
  readonly onNotCancelled?: (reason: string) => void;
}
/** `prev` is for the next turn of the conversation. */
export type Answer = Reply & Readonly<{ callId: string; prev: string; offered?: readonly Offer[] }>;
/** A sealed request and what became of it, as it is kept in the outbox under its message id. */
interface Pending extends Readonly<{ exchange: Exchange; envelope: Envelope; digest: string }> {
  /** Hash of the JSON. */
  readonly content: string;
  /** Of the one-time key for the answer; gone once the answer is open. */
  replySeed?: string;
  callId?: string;
  answer?: Sealed;
}
/** An opened outcome with all that proves it to a third party. */
type Sealed = Readonly<{ terminal: Terminal; json: string; ctx: string; signature: string; card: string }>;
const ENDS: Record<string, string> = { canceled: "canceled", expired: "timeout", delivery_failed: "offline", revoked: "unauthorized", indeterminate_execution: "timeout" };
/** Byte for byte the same whenever it is sent. */
function requestFrame({ exchange, envelope }: Pending): Frame {
  const delivery = exchange.mode === "durable" ? ({ delivery_mode: "durable" } as const) : {};
  return { type: "call_request", envelope, correlation_id: exchange.correlationId, message_id: exchange.messageId, ...delivery };
}
/** Whether a `call_queued` is about this request and promises no more than was asked (RL-DURABLE-068). */
function isReceipt(frame: Frame, { messageId, correlationId, exp }: Exchange): boolean {
  return frame.message_id === messageId && frame.correlation_id === correlationId && (frame.expires_at ?? 0) <= exp;
}
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export class Caller {
  readonly relay: Relay;
  /** Not to dial before, Unix ms (RL-TRANSPORT-039). */
  #rest = 0;
  #revoked = false;
  constructor(readonly home: Home, readonly note: (line: string) => void = () => undefined) {
    this.relay = new Relay(home, note);
  }

  /** The JSON to seal. Throws `LocalError` for what must not be sent. */
  #json(options: CallOptions): string {
    const { message = "", task, args, query, context_id, turn, prev, traceparent, messageId } = options;
    const json = JSON.stringify({ message, task, args, query, context_id, turn, prev, traceparent });
    const refuse = (code: string, what: string) => new LocalError(code, `${what}; nothing was sealed or sent`);
    if (messageId !== undefined && !/^(?!0+$)[0-9a-f]{32}$/.test(messageId)) throw refuse("config", "the message id is none");
    if (utf8(message).length > MESSAGE_BYTES) throw refuse("message_too_large", "the message is over 64,000 bytes");
    if (!fits(utf8(json).length + 1218, REQUEST_CAP)) throw refuse("message_too_large", "message and arguments do not fit");
    const empty = message === "" && query === undefined && task === undefined && args === undefined;
    if (empty) throw refuse("config", "the message is empty"); // RL-ENVELOPE-050
    return json;
  }

  /** RL-IDEM-010, RL-IDEM-011: what was sealed before under this message id, or what is sealed now and kept. */
  async #prepare(handle: string, mode: Mode, options: CallOptions, life: number): Promise<Pending> {
    const json = this.#json(options);
    const content = b64(sha256(utf8(json)));
    const known = options.messageId === undefined ? undefined : this.home.read<Pending>(`outbox/${options.messageId}.json`);
    if (known !== undefined) {
      const { to, mode: before } = known.exchange;
      if (to.handle === handle && before === mode && known.content === content) return known;
      throw new LocalError("config", "this message id was used for another message; nothing was sent");
    }
    const pending = { ...(await this.#seal(handle, mode, json, options, life)), content };
    if (mode === "durable" || options.messageId !== undefined) this.#keep(pending);
    return pending;
  }

  #keep(pending: Pending): void {
    this.home.write(`outbox/${pending.exchange.messageId}.json`, pending);
  }

  async #seal(handle: string, mode: Mode, json: string, options: CallOptions, life: number): Promise<Omit<Pending, "content">> {
    const { messageId = hex(random(16)), correlationId = hex(random(16)) } = options;
    await this.relay.meet();
    const { ipk, cardId, prekey } = await this.relay.peer(handle);
    const suite = Math.max(...[...prekey.keys.keys()].filter((id) => this.home.suites.includes(id)));
    const key = prekey.keys.get(suite);
    if (key === undefined) throw new LocalError("version_unsupported", `no suite in common with ${handle}; nothing was sealed`);
    const iat = this.relay.now();
    const { realm, party: from, ssk } = this.home;
    const exchange: Exchange = { realm, from, to: { handle, ipk, cardId }, suite, mode, messageId, correlationId, iat, exp: iat + life };
    return { exchange, ...(await sealRequest(exchange, key, ssk, json)) };
  }

  /** Throws `RangeError` for what does not open; `LocalError` when the relay kept the check from being made. */
  async #open(pending: Pending, callId: string, terminal: Terminal, envelope: Envelope): Promise<Sealed> {
    const { exchange, digest, replySeed } = pending;
    if (replySeed === undefined) throw new RangeError("no key to open it");
    const { party, spk } = await this.relay.signer(exchange.to.handle, envelope.sid, { ipk: exchange.to.ipk });
    const answer = answerTo(exchange, party, envelope.iat);
    const opened = await openOutcome(answer, envelope, unb64(replySeed, 32), spk, { callId, terminal, digest });
    readOutcome(opened.json, terminal);
    return { terminal, json: text(opened.json), ctx: b64(opened.ctx), signature: b64(opened.signature), card: envelope.sid };
  }

  #told(answer: Sealed, callId: string): Answer {
    const json = utf8(answer.json);
    const { reason, reply, failure, offered = [] } = readOutcome(json, answer.terminal);
    if (failure !== undefined) throw new PeerFailure(failure.code, failure.detail, reason, callId);
    return { ...(reply as Reply), offered, callId, prev: b64(sha256(json)) };
  }

  /** A sync call. Throws `RelayError`, `PeerFailure` or `LocalError`; `signal` asks for the cancellation. */
  async call(handle: string, options: CallOptions): Promise<Answer> {
    const deadline = Date.now() + (options.timeoutMs ?? 390_000);
    const pending = await this.#prepare(handle, "sync", options, 600_000);
    for (let wait = 500; pending.answer === undefined; wait = Math.min(wait * 2, 8_000)) {
      // RL-SYNC-037, RL-SYNC-038
      const { status } = pending.callId === undefined ? { status: 200 } : await this.relay.request("GET", `/v1/calls/${pending.callId}`).catch(() => ({ status: 0 }));
      if (status === 404) throw new LocalError("timeout", "the relay has forgotten the call; the work may have run, and was not asked for again", pending.callId);
      const end = status === 200 ? await this.#send(pending, deadline, options) : undefined;
      if (end !== undefined) pending.answer = end;
      else if (Date.now() >= deadline) throw new LocalError("timeout", "stopped waiting; the work may have run", pending.callId);
      else await pause(wait * (0.5 + Math.random() / 2));
    }
    if (options.messageId !== undefined) this.#keep(pending);
    return this.#told(pending.answer, pending.callId ?? "");
  }

  /** A connection for one call, or undefined when it may be tried again. Throws otherwise. */
  async #dial(handle: string, deadline: number, signal?: AbortSignal): Promise<Connection | undefined> {
    if (this.#revoked) throw new LocalError("revoked", "this card was revoked; nothing was sent"); // RL-TRANSPORT-041
    if (this.#rest > Date.now()) await pause(Math.min(this.#rest, deadline) - Date.now());
    return await this.relay.dial(`/v1/call/${handle}`).catch((error: unknown) => {
      const passing = error instanceof LocalError && error.code === "relay_unreachable";
      if (passing && Date.now() < deadline && signal?.aborted !== true) return undefined;
      throw error;
    });
  }

  /**
   * Sends the request on a connection of its own, until a sync call has its outcome or a durable one its `callId`.
   * Undefined when the connection was lost before; throws what ends the call.
   */
  async #send(pending: Pending, deadline: number, { signal, onNotCancelled }: CallOptions = {}): Promise<Sealed | undefined> {
    const { exchange } = pending;
    const connection = await this.#dial(exchange.to.handle, deadline, signal);
    if (connection === undefined) return undefined;
    let asked = false;
    const cancel = () => {
      if (asked || pending.callId === undefined) return; // RL-CANCEL-013: held until the call has a name
      asked = true;
      connection.send({ type: "cancel_call", call_id: pending.callId });
    };
    let late = false;
    const timer = setTimeout(() => (cancel(), (late = true), connection.close()), Math.max(0, deadline - Date.now()));
    signal?.addEventListener("abort", cancel);
    connection.send(requestFrame(pending));
    try {
      for await (const frame of connection.frames("relay_to_caller")) {
        if (frame.type === "call_status" && frame.correlation_id === exchange.correlationId) {
          if (exchange.mode === "sync") pending.callId ??= frame.call_id ?? "";
          this.note(`the relay says: ${frame.state ?? ""} (${frame.call_id ?? ""})`);
          if (signal?.aborted === true) cancel();
        } else if (frame.type === "call_queued" && isReceipt(frame, exchange)) {
          pending.callId = frame.call_id ?? "";
          return undefined;
        } else if (frame.type === "call_error" && (frame.call_id === undefined || frame.call_id === (pending.callId ?? frame.call_id))) {
          throw new RelayError(frame.code ?? "", frame.call_id, frame.retry_after_ms);
        } else if (frame.type === "call_not_cancelled" && frame.call_id === pending.callId) {
          asked = false;
          onNotCancelled?.(frame.reason ?? "");
        } else if (frame.type === "call_outcome" && exchange.mode === "sync") {
          const end = await this.#opened(pending, frame);
          if (end !== undefined) return end;
        }
      }
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
      connection.close();
    }
    if (late) {
      const what = asked ? "the cancellation was requested" : "nothing was heard of the call";
      throw new LocalError("timeout", `stopped waiting; ${what}, the work may have run`, pending.callId);
    }
    await this.#lost(connection, pending.callId);
    return undefined;
  }

  /** RL-ENVELOPE-039, RL-ENVELOPE-040: what does not open is nobody's answer, and is passed over. */
  async #opened(pending: Pending, { call_id: callId = "", terminal = "failed", envelope }: Frame): Promise<Sealed | undefined> {
    try {
      const end = await this.#open(pending, callId, terminal, envelope as Envelope);
      pending.callId = callId;
      delete pending.replySeed; // RL-ENVELOPE-044
      return end;
    } catch (error) {
      this.note(`an outcome that cannot be used: ${(error as Error).message}`);
      return undefined;
    }
  }

  /** What the end of a connection says; throws when it is not to be made again. */
  async #lost(connection: Connection, callId: string | undefined): Promise<void> {
    const { code, reason } = await connection.closed;
    const seconds = code === 1001 ? /^retry=(\d{1,9})$/.exec(reason)?.[1] : undefined;
    if (seconds !== undefined) this.#rest = Date.now() + Math.min(Number(seconds), 120_000);
    if (code === 4000) throw new LocalError("relay_unreachable", "another connection took this one's place; the work may have run", callId);
    if (code !== 4001) return;
    this.#revoked = true;
    throw new LocalError("revoked", "this card was revoked; the work may have run", callId);
  }

  /** Leaves a durable call with the relay. The receipt, a plain string, is good in any later process with this home. */
  async submit(handle: string, options: CallOptions): Promise<string> {
    const pending = await this.#prepare(handle, "durable", options, Math.min(options.timeoutMs ?? 259_200_000, 259_200_000));
    const receipt = pending.exchange.messageId;
    await this.#queue(receipt, pending, Date.now() + 30_000);
    return receipt;
  }

  async #queue(receipt: string, pending: Pending, deadline: number): Promise<void> {
    for (let wait = 250; pending.callId === undefined; wait = Math.min(wait * 2, 8_000)) {
      await this.#send(pending, deadline).catch((error: unknown) => {
        if (error instanceof RelayError && error.callId === undefined && error.code !== "timeout") this.home.remove(`outbox/${receipt}.json`);
        if (pending.callId === undefined) throw error;
      });
      if (pending.callId === undefined) await pause(wait);
    }
    this.#keep(pending);
  }

  #pending(receipt: string): Pending {
    const pending = /^[0-9a-f]{32}$/.test(receipt) ? this.home.read<Pending>(`outbox/${receipt}.json`) : undefined;
    if (pending === undefined) throw new LocalError("config", "no such receipt in this home");
    return pending;
  }

  /** The answer to a durable call. `LocalError` `timeout` when it is not there within `waitMs`: ask again later. */
  async result(receipt: string, waitMs = 0): Promise<Answer> {
    const deadline = Date.now() + waitMs;
    const pending = this.#pending(receipt);
    await this.relay.meet();
    if (pending.answer === undefined) await this.#queue(receipt, pending, Math.max(deadline, Date.now() + 5_000));
    const callId = pending.callId ?? "";
    while (pending.answer === undefined) {
      const seconds = Math.min(50, Math.max(0, Math.floor((deadline - Date.now()) / 1000)));
      const { status, body } = await this.relay.request("GET", `/v1/calls/${callId}?wait=${seconds}`, undefined, { waitMs: seconds * 1000 });
      if (status === 404) throw new LocalError("timeout", "the relay has no record of the call any more; the work may have run", callId);
      const state = String(body["state"]);
      const outcome = body["outcome"] as { terminal: Terminal; envelope: Envelope } | null;
      if (status === 200 && outcome !== null && outcome !== undefined) {
        try {
          pending.answer = await this.#open(pending, callId, outcome.terminal, outcome.envelope);
        } catch (error) {
          if (error instanceof RangeError || error instanceof SyntaxError) throw new LocalError("bad_signature", "the outcome that the relay shows does not open", callId);
          throw error;
        }
      } else if (status === 200 && body["finished_at"] !== null) {
        if (state === "completed" || state === "failed") throw new LocalError("timeout", "the relay gives the outcome no more", callId);
        throw new RelayError(ENDS[state] ?? state, callId);
      } else if (Date.now() >= deadline) throw new LocalError("timeout", `not there yet (the relay says: ${state}); ask again later`, callId);
      else if (seconds === 0 || status !== 200) await pause(250);
    }
    if (pending.replySeed !== undefined) {
      delete pending.replySeed;
      this.#keep(pending); // RL-ENVELOPE-043: kept before it is acknowledged
      await this.relay.request("POST", `/v1/calls/${callId}/ack`).catch(() => undefined);
    }
    return this.#told(pending.answer, callId);
  }

  /** Asks for the cancellation of a durable call: what the relay says became of it, within its 10 s. */
  async cancel(receipt: string): Promise<"canceled" | "requested" | "already_terminal" | "too_late" | "unknown"> {
    const pending = this.#pending(receipt);
    if (pending.callId === undefined) throw new LocalError("config", "the relay has not taken this call yet");
    const { status, body } = await this.relay.request("POST", `/v1/calls/${pending.callId}/cancel`, undefined, { waitMs: 15_000 });
    if (status === 200) return "canceled";
    if (status === 202) return "requested";
    const code = String(body["code"]);
    if (code === "already_terminal" || code === "too_late" || code === "unknown") return code;
    throw new RelayError(code, pending.callId);
  }

  /** Lets the relay keep calls to this handle while no listener is connected; the rest of the policy stays as it is. */
  async allowDurable(): Promise<void> {
    await this.relay.meet();
    const path = `/v1/handles/${this.home.handle}/policy`;
    const { accept, allow, block } = (await this.relay.request("GET", path)).body;
    const { status } = await this.relay.request("PUT", path, { offline: true, accept, allow, block });
    if (status !== 200) throw new RelayError(`HTTP ${status}`);
  }

  /** Turns of one conversation, one after the other (CONVERSE). */
  conversation(handle: string): (options: CallOptions) => Promise<Answer> {
    const correlationId = hex(random(16));
    let last: Promise<Partial<Answer>> = Promise.resolve({});
    return (options) => {
      const before = last;
      const next = before.then(({ context_id, turn, prev }) => {
        const follows = context_id !== undefined && turn !== undefined && prev !== undefined;
        return this.call(handle, { ...options, correlationId, ...(follows ? { context_id, turn: turn + 1, prev } : {}) });
      });
      last = next.catch(() => before); // a failure is no turn
      return next;
    };
  }
}
