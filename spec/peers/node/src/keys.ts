/** Signatures, cards, prekey statements, successions, fingerprints and contact strings (KEYS). */
import { createHash, createPublicKey, hkdfSync, verify as holdsUnder } from "node:crypto";
import { ed25519 } from "@noble/curves/ed25519.js";
import { b64, type Bytes, concat, equal, label, Reader, sha256, text, u16, u32, u64, u8, unb64, v, vt } from "./bytes.js";
import { checkHpkeKey, SUITES, suiteOf } from "./suites.js";

export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;
export const SKEW = 120_000;
export const HANDLE = /^[a-z0-9][a-z0-9-]{1,30}$/;
export const REALM = /^[a-z0-9.-]{1,253}$/;

export const publicOf = (seed: Bytes): Bytes => Uint8Array.from(ed25519.getPublicKey(seed));
export const sign = (seed: Bytes, message: Bytes): Bytes => Uint8Array.from(ed25519.sign(message, seed));

/** RL-ENVELOPE-007, RL-KEYS-004: a canonical point of the prime-order group. Throws `RangeError`. */
export function checkSigningKey(key: Uint8Array): void {
  try {
    const point = ed25519.Point.fromBytes(key, false);
    if (!point.isSmallOrder() && point.isTorsionFree()) return;
  } catch {
    // said below
  }
  throw new RangeError("not a usable Ed25519 key");
}

export function verify(key: Bytes, message: Bytes, signature: Bytes): void {
  checkSigningKey(key);
  // By OpenSSL, which leaves the cofactor out of the equation; the verifier of noble takes an `R` of mixed order.
  const publicKey = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: b64(key) }, format: "jwk" });
  if (!holdsUnder(null, message, publicKey, signature)) throw new RangeError("a signature that does not hold");
}

type Span = Readonly<{ notBefore: number; notAfter: number }>;
export type Card = Span & Readonly<{ realm: string; handle: string; ipk: Bytes; serial: number; spk: Bytes; next: Bytes }>;

export const cardId = (card: Bytes): Bytes => sha256(card);
export const nextCommitment = (ipk: Uint8Array): Bytes => sha256(label("next"), ipk);

export function encodeCard(card: Card): Bytes {
  const times = concat(u32(card.serial), u64(card.notBefore), u64(card.notAfter));
  return concat(label("card"), vt(card.realm), vt(card.handle), card.ipk, times, card.spk, card.next);
}

/** RL-KEYS-002 to RL-KEYS-005: form, signature and life span. Whether it holds now is for the user of it. */
export function readCard(bytes: Bytes, signature: Bytes): Card {
  const from = new Reader(bytes, "card");
  const [realm, handle, ipk] = [text(from.v()), text(from.v()), from.take(32)];
  const [serial, notBefore, notAfter] = [from.number(4), from.number(8), from.number(8)];
  const [spk, next] = [from.take(32), from.take(32)];
  from.end();
  if (!REALM.test(realm) || !HANDLE.test(handle) || serial === 0) throw new RangeError("a card with a bad name or serial");
  if (notAfter <= notBefore || notAfter - notBefore > 90 * DAY + HOUR) throw new RangeError("a card with bad times");
  if (equal(spk, ipk)) throw new RangeError("a card whose operational key is its identity key");
  checkSigningKey(spk);
  verify(ipk, bytes, signature);
  return { realm, handle, ipk, serial, notBefore, notAfter, spk, next };
}

export type Prekey = Span & Readonly<{ cardId: Bytes; epoch: number; keys: ReadonlyMap<number, Bytes> }>;

export function encodePrekey(prekey: Prekey): Bytes {
  const keys = [...prekey.keys].map(([suite, key]) => concat(u16(suite), v(key)));
  const times = concat(u32(prekey.epoch), u64(prekey.notBefore), u64(prekey.notAfter));
  return concat(label("prekey"), prekey.cardId, times, u8(keys.length), ...keys);
}

/** RL-KEYS-013 to RL-KEYS-016. */
export function readPrekey(bytes: Bytes, signature: Bytes, spk: Bytes): Prekey {
  const from = new Reader(bytes, "prekey");
  const [card, epoch, notBefore, notAfter, count] = [from.take(32), from.number(4), from.number(8), from.number(8), from.number(1)];
  const keys = new Map<number, Bytes>();
  let last = -1;
  for (let at = 0; at < count; at++) {
    const [suite, key] = [from.number(2), from.v()];
    if (suite <= last) throw new RangeError("suites that do not ascend");
    if (SUITES.has(suite)) checkHpkeKey(suite, key);
    keys.set((last = suite), key);
  }
  from.end();
  if (count === 0) throw new RangeError("a prekey statement without keys");
  if (notAfter <= notBefore || notAfter - notBefore > 14 * DAY + HOUR) throw new RangeError("a prekey statement with bad times");
  verify(spk, bytes, signature);
  return { cardId: card, epoch, notBefore, notAfter, keys };
}

/** The link of a later day; it does not lead back (RL-KEYS-027). */
export function laterLink(link: Bytes, days: number): Bytes {
  if (days < 0) throw new RangeError("a day whose link was forgotten");
  for (let day = 0; day < days; day++) link = sha256(label("chain"), link);
  return link;
}

/** The secret key of a day, by that day's link. */
export function seedOf(link: Bytes, suite: number): Bytes {
  return new Uint8Array(hkdfSync("sha256", link, new Uint8Array(0), concat(label("seed"), u16(suite)), 32));
}

/** The statement of a day (its epoch), by that day's link (RL-KEYS-021, RL-KEYS-027). */
export async function statementOf(link: Bytes, epoch: number, card: Bytes, suites: readonly number[]): Promise<Bytes> {
  const keys = new Map<number, Bytes>();
  for (const suite of suites) keys.set(suite, await suiteOf(suite).publicOf(seedOf(link, suite)));
  return encodePrekey({ cardId: card, epoch, notBefore: epoch * DAY - HOUR, notAfter: (epoch + 14) * DAY, keys });
}

/** RL-KEYS-028 to RL-KEYS-031. `old` is the card that the succession leaves. */
export function checkSuccession(old: Card, oldId: Bytes, newIpk: Bytes, ts: number, sig: Bytes, oldSig?: Bytes): void {
  if (equal(newIpk, old.ipk)) throw new RangeError("a succession to the key that is there already");
  const statement = concat(label("succession"), oldId, newIpk, u64(ts));
  verify(newIpk, statement, sig);
  if (oldSig !== undefined) verify(old.ipk, statement, oldSig);
  if (old.next.every((byte) => byte === 0)) {
    if (oldSig === undefined) throw new RangeError("a succession that the old key has not signed");
  } else if (!equal(old.next, nextCommitment(newIpk))) throw new RangeError("a succession to another key than the card commits to");
}

const CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz";
export function fingerprint(ipk: Bytes): string {
  const bits = [...sha256(label("fingerprint"), ipk).subarray(0, 20)].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = bits.match(/.{5}/g)?.map((five) => CROCKFORD[Number.parseInt(five, 2)]).join("");
  return letters?.match(/.{4}/g)?.join(" ") ?? "";
}

export function safetyNumber(a: { handle: string; ipk: Bytes }, b: { handle: string; ipk: Bytes }): string {
  const both = [a, b].map((party) => concat(vt(party.handle), party.ipk)).sort(Buffer.compare);
  const digest = createHash("sha512").update(concat(label("safety"), ...both.map(v))).digest();
  const group = (at: number) => String(digest.readUIntBE(at * 5, 5) % 100_000).padStart(5, "0");
  return Array.from({ length: 12 }, (_, at) => group(at)).join(" ");
}

export type Contact = Readonly<{ handle: string; realm: string; base: string; ipk: Bytes }>;

/** RL-KEYS-046. Throws `RangeError`, `URIError`. The key of the log is checked like every other; nothing uses it here. */
export function readContact(contact: string): Contact {
  const found = /^ringline:\/\/([^@/?#]+)@([^@/?#]+)\/(?:\?at=([^?#&]+))?#k=([^?#&]+)(?:&log=([^?#&]*))?$/.exec(contact);
  const [, handle = "", realm = "", at, key = "", log] = found ?? [];
  if (!HANDLE.test(handle) || !REALM.test(realm)) throw new RangeError("not a contact string: ringline://handle@realm/#k=KEY");
  const ipk = unb64(key, 32);
  checkSigningKey(ipk);
  if (log !== undefined) checkSigningKey(unb64(log, 32));
  const base = at === undefined ? `https://${realm}` : decodeURIComponent(at);
  if (!/^https?:\/\/[a-z0-9.[\]:-]+(?:\/[A-Za-z0-9._~-]+)*$/.test(base)) throw new RangeError("not a base URL in a contact string");
  return { handle, realm, base, ipk };
}

export const holds = ({ notBefore, notAfter }: Span, at: number): boolean => notBefore - SKEW <= at && at < notAfter + SKEW;
