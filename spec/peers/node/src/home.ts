/** What a peer keeps on disk: one folder for one handle at one relay, for its owner's eyes only. */
import { chmodSync, closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { b64, type Bytes, equal, hex, random, unb64 } from "./bytes.js";
import type { Party } from "./envelope.js";
import { LocalError } from "./errors.js";
import { type Card, cardId, DAY, encodeCard, HANDLE, HOUR, laterLink, nextCommitment, publicOf, readCard, REALM, seedOf, sign, statementOf } from "./keys.js";
import { keyId, SUITES, suiteOf } from "./suites.js";

/** A secret of a replaced prekey opens what was sealed at its last moment and arrives at its last (RL-KEYS-022). */
const TAIL = 72 * HOUR + 240_000;

/** Seeds and the card are base64url. */
interface Stored extends Readonly<Record<"realm" | "base" | "handle" | "identity" | "operational" | "next", string>> {
  card: string;
  card_sig: string;
  /** The oldest link that is still needed, and when each epoch was first published (ms). */
  chain: { epoch: number; link: string };
  published: { card: string; epoch: number; at: number }[];
}

export function writeAtomically(path: string, content: string): void {
  const temporary = `${path}.${hex(random(6))}`;
  const file = openSync(temporary, "wx", 0o600);
  writeSync(file, content);
  fsyncSync(file);
  closeSync(file);
  renameSync(temporary, path);
  const folder = openSync(join(path, ".."), "r");
  fsyncSync(folder);
  closeSync(folder);
}

function readPrivate(path: string): string {
  if ((statSync(path).mode & 0o077) !== 0) throw new LocalError("config", `${path} can be read by others; nothing was done. chmod 600 it`);
  return readFileSync(path, "utf8");
}

export class Home {
  private constructor(readonly folder: string, private readonly stored: Stored) {}

  /** Opens the identity in `folder`, or makes one. `ringline-peer` keeps keys in the clear, mode 0600. */
  static open(folder: string, wanted?: { realm: string; base: string; handle: string }, suites?: readonly number[]): Home {
    const path = join(folder, "identity.json");
    mkdirSync(join(folder, "outbox"), { recursive: true, mode: 0o700 });
    chmodSync(folder, 0o700);
    if (!existsSync(path)) {
      if (wanted === undefined) throw new LocalError("config", `${folder} holds no identity; make one with: ringline-peer init`);
      if (!HANDLE.test(wanted.handle) || !REALM.test(wanted.realm)) throw new LocalError("config", "a bad handle or realm; nothing was made");
      const seeds = { identity: b64(random(32)), operational: b64(random(32)), next: b64(random(32)) };
      const chain = { epoch: Math.floor(Date.now() / DAY), link: b64(random(32)) };
      const home = new Home(folder, { ...wanted, ...seeds, card: "", card_sig: "", chain, published: [] });
      home.makeCard(1);
    }
    const stored = JSON.parse(readPrivate(path)) as Stored;
    const home = new Home(folder, stored);
    if (wanted !== undefined && wanted.handle !== stored.handle) throw new LocalError("config", `${folder} is the home of ${stored.handle}`);
    if (suites !== undefined) home.suites = suites;
    if (home.card.notAfter - Date.now() < 30 * DAY) home.makeCard(home.card.serial + 1);
    return home;
  }

  suites: readonly number[] = [...SUITES.keys()];
  get realm(): string { return this.stored.realm; }
  get base(): string { return this.stored.base; }
  get handle(): string { return this.stored.handle; }
  get ssk(): Bytes { return unb64(this.stored.operational, 32); }
  get ipk(): Bytes { return publicOf(unb64(this.stored.identity, 32)); }
  get cardBytes(): Bytes { return unb64(this.stored.card); }
  get cardId(): Bytes { return cardId(this.cardBytes); }
  /** As the other side of an exchange knows it. */
  get party(): Party { return { handle: this.handle, ipk: b64(this.ipk), cardId: b64(this.cardId) }; }
  get card(): Card { return readCard(this.cardBytes, unb64(this.stored.card_sig)); }
  get contact(): string {
    const at = this.base === `https://${this.realm}` ? "" : `?at=${this.base}`;
    return `ringline://${this.handle}@${this.realm}/${at}#k=${b64(this.ipk)}`;
  }

  private makeCard(serial: number): void {
    const notBefore = Date.now() - HOUR;
    const next = nextCommitment(publicOf(unb64(this.stored.next, 32)));
    const { realm, handle } = this;
    const card = encodeCard({ realm, handle, ipk: this.ipk, serial, notBefore, notAfter: notBefore + 90 * DAY, spk: publicOf(this.ssk), next });
    this.stored.card = b64(card);
    this.stored.card_sig = b64(sign(unb64(this.stored.identity, 32), card));
    this.save();
  }

  private save(): void {
    writeAtomically(join(this.folder, "identity.json"), JSON.stringify(this.stored, null, 1));
  }

  private link(epoch: number): Bytes {
    const { chain } = this.stored;
    return laterLink(unb64(chain.link, 32), epoch - chain.epoch);
  }

  /** The statement of today, with its signature. */
  async prekey(): Promise<{ epoch: number; prekey: string; prekey_sig: string }> {
    const epoch = Math.floor(Date.now() / DAY);
    const prekey = await statementOf(this.link(epoch), epoch, this.cardId, this.suites);
    return { epoch, prekey: b64(prekey), prekey_sig: b64(sign(this.ssk, prekey)) };
  }

  get publication(): { card: string; card_sig: string } {
    return { card: this.stored.card, card_sig: this.stored.card_sig };
  }
  /** Whether the relay has this card; with `epoch`, whether it has that statement under it. */
  isPublished(epoch?: number): boolean {
    return this.stored.published.some((one) => one.card === b64(this.cardId) && (epoch === undefined || one.epoch === epoch));
  }

  /** Notes a publication, and forgets the links that nothing can need any more (RL-KEYS-022, RL-KEYS-023). */
  notePublished(epoch: number): void {
    const now = Date.now();
    this.stored.published.push({ card: b64(this.cardId), epoch, at: now });
    const successor = (index: number) => this.stored.published[index + 1]?.at ?? Number.POSITIVE_INFINITY;
    this.stored.published = this.stored.published.filter(
      (one, index) => now < Math.min(successor(index) + DAY + TAIL, (one.epoch + 14) * DAY + TAIL),
    );
    const oldest = Math.min(epoch, ...this.stored.published.map((one) => one.epoch));
    this.stored.chain = { epoch: oldest, link: b64(this.link(oldest)) };
    this.save();
  }

  /** The secret of a prekey by its key id (RL-ENVELOPE-023). */
  async secret(suite: number, kid: Bytes): Promise<Bytes | undefined> {
    for (const epoch of new Set(this.stored.published.map((one) => one.epoch))) {
      const seed = seedOf(this.link(epoch), suite);
      if (equal(keyId(suite, await suiteOf(suite).publicOf(seed)), kid)) return seed;
    }
    return undefined;
  }

  read<T>(name: string): T | undefined {
    const path = join(this.folder, name);
    return existsSync(path) ? (JSON.parse(readPrivate(path)) as T) : undefined;
  }
  write(name: string, value: unknown): void {
    writeAtomically(join(this.folder, name), JSON.stringify(value));
  }
  remove(name: string): void {
    rmSync(join(this.folder, name), { force: true });
  }
}
