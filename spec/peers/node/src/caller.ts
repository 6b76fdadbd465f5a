/** Calls, sync and durable. Everything sealed is kept and sent again byte for byte; nothing is sealed twice. */
import { b64, hex, random, sha256, unb64, utf8 } from "./bytes.js";
import { MESSAGE_BYTES, type Outcome, type Reply, readOutcome, type Request } from "./bodies.js";
import { type Envelope, type Exchange, fits, type Mode, openOutcome, REQUEST_CAP, sealRequest, type Terminal } from "./envelope.js";
import { LocalError, PeerFailure, RelayError } from "./errors.js";
import { type Frame, readFrame } from "./frames.js";
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
  readonly suites?: readonly number[];
}
export interface Answer extends Reply {
  readonly callId: string;
  readonly offered?: Outcome["offered"];
  /** `prev` of the next turn of the conversation. */
  readonly prev: string;
}
interface Pending {
  readonly handle: string;
  readonly mode: Mode;
  readonly frame: Frame;
  readonly peer: string;
  readonly digest: string;
  /** Hash of the JSON. */
  readonly content: string;
  replySeed?: string;
  callId?: string;
  answer?: Sealed;
}
/** An opened outcome with all that proves it to a third party. */
interface Sealed {
  readonly terminal: Terminal;
  readonly json: string;
  readonly ctx: string;
  readonly signature: string;
  readonly card: string;
}
const ENDS: Record<string, string> = { canceled: "canceled", expired: "timeout", delivery_failed: "offline", revoked: "unauthorized", indeterminate_execution: "timeout" };
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
  #json({ messageId, correlationId, timeoutMs, signal, onNotCancelled, suites, ...rest }: CallOptions): string {
    void [correlationId, timeoutMs, signal, onNotCancelled, suites];
    if (messageId !== undefined && !/^(?!0+$)[0-9a-f]{32}$/.test(messageId)) throw new LocalError("config", "the message id is none; nothing was sealed");
    const json = JSON.stringify({ message: "", ...rest });
    if (utf8(rest.message ?? "").length > MESSAGE_BYTES || !fits(utf8(json).length + 1218, REQUEST_CAP)) {
      throw new LocalError("message_too_large", "the message is over 64,000 bytes; nothing was sealed or sent");
    }
    if ((rest.message ?? "") === "" && rest.query === undefined && rest.task === undefined && rest.args === undefined) {
      throw new LocalError("config", "the message is empty; nothing was sealed or sent"); // RL-ENVELOPE-050
    }
    return json;
  }

  /** RL-IDEM-010, RL-IDEM-011: what was sealed before under this message id, or what is sealed now and kept. */
  async #prepare(handle: string, mode: Mode, options: CallOptions, life: number): Promise<Pending> {
    const json = this.#json(options);
    const content = b64(sha256(utf8(json)));
    const known = options.messageId === undefined ? undefined : this.home.read<Pending>(`outbox/${options.messageId}.json`);
    if (known !== undefined) {
      if (known.handle === handle && known.mode === mode && known.content === content) return known;
      throw new LocalError("config", "this message id was used for another message; nothing was sent");
    }
    const pending = { ...(await this.#seal(handle, mode, json, options, life)), content };
    if (mode === "durable" || options.messageId !== undefined) this.#keep(pending);
    return pending;
  }

  #keep(pending: Pending): void {
    this.home.write(`outbox/${pending.frame.message_id ?? ""}.json`, pending);
  }

  async #seal(handle: string, mode: Mode, json: string, options: CallOptions, life: number): Promise<Omit<Pending, "content">> {
    const { messageId = hex(random(16)), correlationId = hex(random(16)), suites } = options;
    await this.relay.meet();
    const peer = await this.relay.peer(handle);
    const usable = [...peer.prekey.keys.keys()].filter((id) => (suites ?? this.home.suites).includes(id));
    const suite = Math.max(...usable);
    const key = peer.prekey.keys.get(suite);
    if (key === undefined) throw new LocalError("version_unsupported", `no suite in common with ${handle}; nothing was sealed`);
    const iat = this.relay.now();
    const { realm, ipk, cardId } = this.home;
    const from = { handle: this.home.handle, ipk, cardId };
    const exchange: Exchange = { realm, from, to: peer, suite, mode, messageId, correlationId, iat, exp: iat + life };
    const { envelope, replySeed, digest } = await sealRequest(exchange, key, this.home.ssk, json);
    const delivery = mode === "durable" ? ({ delivery_mode: "durable" } as const) : {};
    const frame: Frame = { type: "call_request", envelope, correlation_id: correlationId, message_id: messageId, ...delivery };
    return { handle, mode, frame, peer: b64(peer.ipk), digest: b64(digest), replySeed: b64(replySeed) };
  }

  /** Throws `RangeError` for what does not open; `LocalError` when the relay kept the check from being made. */
  async #open(pending: Pending, callId: string, terminal: Terminal, envelope: Envelope): Promise<Sealed> {
    const { frame, replySeed } = pending;
    if (frame.envelope === undefined || replySeed === undefined) throw new RangeError("no key to open it");
    const signer = await this.relay.cardOf(pending.handle, envelope.sid, { ipk: unb64(pending.peer, 32) });
    const { suite, exp } = frame.envelope;
    const from = { handle: pending.handle, ipk: signer.ipk, cardId: signer.id };
    const ids = { messageId: frame.message_id ?? "", correlationId: frame.correlation_id ?? "" };
    const { realm, handle, ipk } = this.home;
    const answer: Exchange = { realm, from, to: { handle, ipk }, suite, mode: pending.mode, ...ids, iat: envelope.iat, exp };
    const opened = await openOutcome(answer, envelope, unb64(replySeed, 32), signer.card.spk, { callId, terminal, digest: unb64(pending.digest, 32) });
    readOutcome(opened.json, terminal);
    return { terminal, json: opened.json, ctx: b64(opened.ctx), signature: b64(opened.signature), card: envelope.sid };
  }

  #told(answer: Sealed, callId: string): Answer {
    const outcome = readOutcome(answer.json, answer.terminal);
    const { reply, failure } = outcome;
    if (failure !== undefined) throw new PeerFailure(failure.code, failure.detail, outcome.reason, callId);
    return { ...(reply as Reply), callId, prev: b64(sha256(utf8(answer.json))), ...(outcome.offered === undefined ? {} : { offered: outcome.offered }) };
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

  /**
   * Sends the request on a connection of its own, until a sync call has its outcome or a durable one its `callId`.
   * Undefined when the connection was lost before; throws what ends the call.
   */
  async #send(pending: Pending, deadline: number, { signal, onNotCancelled }: CallOptions = {}): Promise<Sealed | undefined> {
    if (this.#revoked) throw new LocalError("revoked", "this card was revoked; nothing was sent"); // RL-TRANSPORT-041
    if (this.#rest > Date.now()) await pause(Math.min(this.#rest, deadline) - Date.now());
    const socket = await this.relay.dial(`/v1/call/${pending.handle}`).catch((error: unknown) => {
      if (error instanceof LocalError && error.code === "relay_unreachable" && Date.now() < deadline && signal?.aborted !== true) return undefined;
      throw error;
    });
    if (socket === undefined) return undefined;
    let [bad, asked] = [0, false];
    const cancel = () => {
      if (asked || pending.callId === undefined) return; // RL-CANCEL-013: held until the call has a name
      asked = true;
      socket.send(JSON.stringify({ type: "cancel_call", call_id: pending.callId }));
    };
    const read = async (frame: Frame): Promise<Sealed | undefined> => {
      if (frame.type === "call_status" && frame.correlation_id === pending.frame.correlation_id) {
        if (pending.mode === "sync") pending.callId ??= frame.call_id ?? "";
        this.note(`the relay says: ${frame.state ?? ""} (${frame.call_id ?? ""})`);
        if (signal?.aborted === true) cancel();
      } else if (frame.type === "call_queued") {
        // RL-DURABLE-068
        const { message_id, correlation_id, envelope } = pending.frame;
        if (frame.message_id !== message_id || frame.correlation_id !== correlation_id || (frame.expires_at ?? 0) > (envelope?.exp ?? 0)) return undefined;
        pending.callId = frame.call_id ?? "";
        socket.close(1000);
      } else if (frame.type === "call_error" && (frame.call_id === undefined || frame.call_id === (pending.callId ?? frame.call_id))) {
        throw new RelayError(frame.code ?? "", frame.call_id, frame.retry_after_ms);
      } else if (frame.type === "call_not_cancelled" && frame.call_id === pending.callId) {
        asked = false;
        onNotCancelled?.(frame.reason ?? "");
      } else if (frame.type === "call_outcome" && frame.envelope !== undefined && pending.mode === "sync") {
        // RL-ENVELOPE-039, RL-ENVELOPE-040: what does not open is nobody's answer.
        const end = await this.#open(pending, frame.call_id ?? "", frame.terminal ?? "failed", frame.envelope).catch((error: unknown) => {
          this.note(`an outcome that cannot be used: ${(error as Error).message}`);
        });
        if (end === undefined) return undefined;
        pending.callId = frame.call_id ?? "";
        delete pending.replySeed; // RL-ENVELOPE-044
        return end;
      }
      return undefined;
    };
    return await new Promise<Sealed | undefined>((resolve, reject) => {
      let turn = Promise.resolve();
      const late = setTimeout(() => {
        cancel();
        const what = asked ? "the cancellation was requested" : "nothing was heard of the call";
        reject(new LocalError("timeout", `stopped waiting; ${what}, the work may have run`, pending.callId));
        socket.close(1000);
      }, Math.max(0, deadline - Date.now()));
      socket.on("message", (data: Buffer, binary) => {
        turn = turn.then(async () => {
          let frame: Frame;
          try {
            frame = readFrame(data, binary, "relay_to_caller");
          } catch {
            if (++bad >= 20) socket.close(1008, "frames"); // RL-FRAME-017, RL-FRAME-018
            return;
          }
          const end = await read(frame);
          if (end !== undefined) resolve(end);
          if (end !== undefined) socket.close(1000);
        }).catch((error: unknown) => (reject(error as Error), socket.close(1000)));
      });
      socket.on("close", (code: number, reason: Buffer) => void turn.then(() => {
        clearTimeout(late);
        signal?.removeEventListener("abort", cancel);
        const wait = code === 1001 ? /^retry=(\d{1,9})$/.exec(reason.toString()) : null;
        if (wait !== null) this.#rest = Date.now() + Math.min(Number(wait[1]), 120_000);
        if (code === 4001) this.#revoked = true;
        if (code === 4000) reject(new LocalError("relay_unreachable", "another connection took this one's place; the work may have run", pending.callId));
        if (code === 4001) reject(new LocalError("revoked", "this card was revoked; the work may have run", pending.callId));
        resolve(undefined);
      }));
      socket.on("error", () => undefined);
      signal?.addEventListener("abort", cancel);
      socket.resume();
      socket.send(JSON.stringify(pending.frame));
    });
  }

  /** Leaves a durable call with the relay. The receipt, a plain string, is good in any later process with this home. */
  async submit(handle: string, options: CallOptions): Promise<string> {
    const pending = await this.#prepare(handle, "durable", options, Math.min(options.timeoutMs ?? 259_200_000, 259_200_000));
    const receipt = pending.frame.message_id ?? "";
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
    if (status === 200 || status === 202) return status === 200 ? "canceled" : "requested";
    const code = String(body["code"]);
    if (code === "already_terminal" || code === "too_late" || code === "unknown") return code;
    throw new RelayError(code, pending.callId);
  }

  /** Lets the relay keep calls to this handle while no listener is connected; the rest of the policy stays as it is. */
  async allowDurable(): Promise<void> {
    await this.relay.meet();
    const path = `/v1/handles/${this.home.handle}/policy`;
    const { body } = await this.relay.request("GET", path);
    const { accept, allow, block } = body;
    const { status } = await this.relay.request("PUT", path, { offline: true, accept, allow, block });
    if (status !== 200) throw new RelayError(`HTTP ${status}`);
  }

  /** Turns of one conversation, one after the other (CONVERSE). */
  conversation(handle: string): (options: CallOptions) => Promise<Answer> {
    const correlationId = hex(random(16));
    let last: Promise<Answer | undefined> = Promise.resolve(undefined);
    return (options) => {
      const next = last.catch(() => undefined).then((before) => {
        const { context_id, turn, prev } = before ?? {};
        return this.call(handle, { ...options, correlationId, ...(context_id === undefined || turn === undefined || prev === undefined ? {} : { context_id, turn: turn + 1, prev }) });
      });
      last = next.catch(() => last);
      return next;
    };
  }
}
