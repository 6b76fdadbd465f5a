/** One relay as one identity meets it: log-ins, HTTP, connections, and the keys of peers against their pins. */
import { b64, type Bytes, equal, random, unb64, utf8 } from "./bytes.js";
import { Connection, upgrade } from "./connection.js";
import type { Party } from "./envelope.js";
import { LocalError, RelayError } from "./errors.js";
import type { Home } from "./home.js";
import { isObject, type JsonObject } from "./json.js";
import { type Card, cardId, checkSuccession, fingerprint, holds, HOUR, type Prekey, readCard, readContact, readPrekey, sign } from "./keys.js";

/** Looked-up keys are used so long without asking again, ms. */
const FRESH = 300_000;

type Pin = Readonly<{ ipk: string; card?: string; card_sig?: string; epoch?: number; source: "contact" | "first sight" }>;
/** What the relay shows of a handle, verified. */
export type Peer = Party & Readonly<{ card: Card; prekey: Prekey; revoked: ReadonlySet<string>; at: number }>;
export type Answer = Readonly<{ status: number; body: JsonObject }>;

export class Relay {
  #offset = 0;
  #known = false;
  readonly #peers = new Map<string, Peer>();
  constructor(readonly home: Home, readonly note: (line: string) => void = () => undefined) {
    const url = new URL(home.base);
    const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
    if (url.protocol !== "https:" && !loopback) throw new LocalError("config", `${home.base} is neither https nor loopback`);
    if (home.realm === "localhost" && !loopback) throw new LocalError("config", "realm localhost is for loopback relays only");
  }

  /** By the relay's clock, as far as it is known (RL-AUTH-024). */
  now(): number {
    return Date.now() + this.#offset;
  }

  #token(method: string, path: string): string {
    const card = b64(this.home.cardId);
    const iat = Math.floor(this.now() / 1000);
    const head = { alg: "EdDSA", typ: "JWT", kid: card };
    const htu = path.split("?")[0];
    const claims = { iss: this.home.handle, sub: card, aud: this.home.realm, iat, exp: iat + 60, jti: b64(random(18)), htm: method, htu };
    const input = [head, claims].map((part) => b64(utf8(JSON.stringify(part)))).join(".");
    return `Bearer ${input}.${b64(sign(this.home.ssk, utf8(input)))}`;
  }

  /** Takes the relay's time from a 401; true if another try may help (RL-AUTH-023). */
  #learn(date: string | undefined): boolean {
    const theirs = Date.parse(date ?? "");
    if (Number.isNaN(theirs)) return false;
    this.#offset = theirs - Date.now();
    if (Math.abs(this.#offset) > 60_000) this.note(`the clocks of this machine and of ${this.home.base} are ${Math.round(this.#offset / 1000)} s apart`);
    return true;
  }

  async request(method: string, path: string, body?: unknown, options: { open?: boolean; waitMs?: number } = {}): Promise<Answer> {
    for (let left = 1; ; left--) {
      const headers: Record<string, string> = options.open === true ? {} : { authorization: this.#token(method, path) };
      if (body !== undefined) headers["content-type"] = "application/json";
      const signal = AbortSignal.timeout(15_000 + (options.waitMs ?? 0));
      let response: Response;
      try {
        response = await fetch(this.home.base + path, { method, headers, signal, redirect: "manual", ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
      } catch {
        throw new LocalError("relay_unreachable", `${this.home.base} did not answer; whether it acted is not known`);
      }
      if (response.status === 401 && left > 0 && this.#learn(response.headers.get("date") ?? undefined)) continue;
      const parsed: unknown = await response.json().catch(() => ({}));
      return { status: response.status, body: isObject(parsed as JsonObject) ? (parsed as JsonObject) : {} };
    }
  }

  /** RL-HTTP-016, and the publication of what is due. Once for a process, and again by `publish`. */
  async meet(): Promise<void> {
    if (this.#known) return;
    const { status, body } = await this.request("GET", "/v1/relay", undefined, { open: true });
    if (status !== 200) throw new LocalError("relay_unreachable", `${this.home.base} is no relay, or not ready (HTTP ${status})`);
    if (body["realm"] !== this.home.realm) throw new LocalError("config", `${this.home.base} is realm ${String(body["realm"])} and not ${this.home.realm}; nothing was sent`);
    if (!Array.isArray(body["protocols"]) || !body["protocols"].includes("ringline.v1")) throw new LocalError("version_unsupported", "the relay does not speak ringline.v1");
    await this.publish();
    this.#known = true;
  }

  async publish(): Promise<void> {
    const { epoch, ...prekey } = await this.home.prekey();
    if (this.home.isPublished(epoch)) return;
    const path = `/v1/handles/${this.home.handle}`;
    const { status, body } = this.home.isPublished()
      ? await this.request("PUT", `${path}/prekeys`, prekey)
      : await this.request("PUT", path, { ...this.home.publication, ...prekey });
    if (status !== 200 && status !== 201) throw new RelayError(String(body["code"] ?? `HTTP ${status}`));
    this.home.notePublished(epoch);
  }

  #pins(): Record<string, Pin> {
    // Without a prototype: `constructor` is a handle like any other.
    return Object.assign(Object.create(null), this.home.read<Record<string, Pin>>("pins.json")) as Record<string, Pin>;
  }

  isPinned(handle: string): boolean {
    return handle in this.#pins();
  }

  /** RL-KEYS-047: a contact string never replaces a key that is pinned. */
  pin(contact: string): string {
    const { handle, realm, ipk } = reading(() => readContact(contact), (why) => new LocalError("config", `${why}; nothing was pinned`));
    if (realm !== this.home.realm) throw new LocalError("config", `${handle} is of realm ${realm}; this identity is of ${this.home.realm}`);
    const pins = this.#pins();
    const known = pins[handle];
    if (known !== undefined && known.ipk !== b64(ipk)) throw new LocalError("key_changed", `another key is pinned for ${handle}; nothing was changed`);
    this.home.write("pins.json", { ...pins, [handle]: known ?? { ipk: b64(ipk), source: "contact" } });
    return handle;
  }

  /** The verified keys of a peer, pinned; `fresh` asks the relay again. */
  async peer(handle: string, options: { fresh?: boolean; trustNew?: boolean } = {}): Promise<Peer> {
    const cached = this.#peers.get(handle);
    if (cached !== undefined && options.fresh !== true && Date.now() - cached.at < FRESH) return cached;
    const { status, body } = await this.request("GET", `/v1/handles/${handle}`);
    if (status !== 200) throw refusal(status, { 404: "unknown_handle" });
    const peer = await this.#verify(handle, body, options.trustNew === true || this.home.realm === "localhost");
    this.#peers.set(handle, peer);
    return peer;
  }

  async #verify(handle: string, body: JsonObject, trustNew: boolean): Promise<Peer> {
    const bytes = (name: string) => unb64(String(body[name]));
    const bad = (code: string, why: string) => new LocalError(code, `${why}: the relay's keys for ${handle}; nothing was sealed`);
    const unreadable = (why: string) => bad("bad_signature", why);
    const card = reading(() => readCard(bytes("card"), bytes("card_sig")), unreadable);
    const prekey = reading(() => readPrekey(bytes("prekey"), bytes("prekey_sig"), card.spk), unreadable);
    const id = b64(cardId(bytes("card")));
    if (card.realm !== this.home.realm || card.handle !== handle || b64(prekey.cardId) !== id) throw bad("bad_signature", "of somebody else");
    if (!holds(card, Date.now()) || !holds(prekey, Date.now())) throw bad("bad_signature", "run out or not begun");
    const revoked = new Set(Array.isArray(body["revoked"]) ? body["revoked"].map(String) : []);
    if (revoked.has(id)) throw bad("revoked", "revoked by their owner");
    const pins = this.#pins();
    const pin: Pin = pins[handle] ?? { ipk: b64(card.ipk), source: "first sight" };
    if (!(handle in pins)) {
      if (!trustNew) throw new LocalError("untrusted_key", `no key is pinned for ${handle}; nothing was sealed. Pin its contact string`);
      this.note(`pinned ${handle} at first sight: ${fingerprint(card.ipk)}`);
    }
    const last = pin.card === undefined ? undefined : readCard(unb64(pin.card), unb64(pin.card_sig ?? ""));
    if (pin.ipk !== b64(card.ipk)) {
      if (last === undefined || pin.card === undefined) throw bad("key_changed", "not the pinned key");
      const lastId = b64(cardId(unb64(pin.card)));
      reading(() => this.#succeed(body["succession"], last, lastId, card), (why) => bad("key_changed", `not the pinned key, and no succession to it (${why})`));
    } else if (last !== undefined) {
      // RL-KEYS-042, RL-KEYS-010, RL-KEYS-020
      if (card.serial < last.serial || (card.serial === last.serial && pin.card !== b64(bytes("card")))) throw bad("key_changed", "an older card");
      if (!last.next.every((byte) => byte === 0) && !equal(last.next, card.next)) throw bad("key_changed", "another commitment");
      if (card.serial === last.serial && prekey.epoch < (pin.epoch ?? 0)) throw bad("key_changed", "an older prekey");
    }
    const now: Pin = { ipk: b64(card.ipk), card: String(body["card"]), card_sig: String(body["card_sig"]), epoch: prekey.epoch, source: pin.source };
    if (JSON.stringify(now) !== JSON.stringify(pin)) this.home.write("pins.json", { ...this.#pins(), [handle]: now });
    return { handle, ipk: b64(card.ipk), card, cardId: id, prekey, revoked, at: Date.now() };
  }

  #succeed(given: unknown, last: Card, lastId: string, card: Card): void {
    const { old_card_id, new_ipk, ts, sig, old_sig } = given as Record<string, string> & { ts: number };
    if (old_card_id !== lastId || new_ipk !== b64(card.ipk)) throw new RangeError("of other keys");
    checkSuccession(last, unb64(lastId, 32), card.ipk, ts, unb64(String(sig)), old_sig === undefined ? undefined : unb64(old_sig));
    this.note(`${card.handle} has passed to another key, as announced: ${fingerprint(card.ipk)}`);
  }

  /**
   * Whose card `sid` names, and its signing key: of the pinned identity and usable at `iat` (RL-ENVELOPE-020 to
   * RL-ENVELOPE-022); for an outcome, of the identity `ipk` at whatever time (RL-ENVELOPE-038, RL-ENVELOPE-045).
   */
  async signer(handle: string, sid: string, wanted: { iat?: number; ipk?: string }): Promise<{ party: Party; spk: Bytes }> {
    let peer = await this.peer(handle);
    if (peer.cardId !== sid) peer = await this.peer(handle, { fresh: true });
    const ipk = wanted.ipk ?? peer.ipk;
    let card = peer.card;
    if (peer.cardId !== sid) {
      const { status, body } = await this.request("GET", `/v1/handles/${handle}?card=${sid}`);
      if (status !== 200) throw new RangeError("a card that the relay does not have");
      const bytes = unb64(String(body["card"]));
      card = readCard(bytes, unb64(String(body["card_sig"])));
      if (card.realm !== this.home.realm || card.handle !== handle || b64(cardId(bytes)) !== sid) throw new RangeError("a card of somebody else");
      if (wanted.ipk === undefined && Date.now() >= peer.card.notBefore + 96 * HOUR) throw new RangeError("a card that was replaced too long ago");
    }
    if (b64(card.ipk) !== ipk) throw new RangeError("a card of another identity");
    if (peer.revoked.has(sid) || (wanted.iat !== undefined && !holds(card, wanted.iat))) throw new RangeError("a card that is revoked or did not hold");
    return { party: { handle, ipk, cardId: sid }, spk: card.spk };
  }

  /** An open connection. Throws `RelayError` or `LocalError`. */
  async dial(path: string): Promise<Connection> {
    for (let left = 1; ; left--) {
      const opened = await upgrade(this.home.base.replace(/^http/, "ws") + path, this.#token("GET", path));
      if (opened instanceof Connection) return opened;
      if (opened.status !== 401 || left === 0 || !this.#learn(opened.date)) throw refusal(opened.status);
    }
  }
}

function reading<T>(read: () => T, failure: (why: string) => Error): T {
  try {
    return read();
  } catch (error) {
    throw failure((error as Error).message);
  }
}

/** What an HTTP status that is no success means; 0 is no answer at all. */
function refusal(status: number, codes: Record<number, string> = {}): RelayError | LocalError {
  const code = { 401: "unauthorized", 429: "rate_limited", ...codes }[status];
  return code === undefined ? new LocalError("relay_unreachable", `the relay cannot be reached, or not for this (HTTP ${status})`) : new RelayError(code);
}
