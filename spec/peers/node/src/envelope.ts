/** Sealing and opening (ENVELOPE). The opener rebuilds the context; nothing of it is read from the envelope. */
import { b64, type Bytes, concat, equal, label, random, sha256, text, u16, u32, u64, u8, unb64, utf8, v, vt } from "./bytes.js";
import { sign, verify } from "./keys.js";
import { checkHpkeKey, hpkeOpen, hpkeSeal, keyId, suiteOf } from "./suites.js";

export const REQUEST_CAP = 393_000;
export const OUTCOME_CAP = 1_545_000;
export type Mode = "sync" | "durable";
export type Terminal = "completed" | "failed";

export interface Envelope {
  readonly v: 1;
  readonly suite: number;
  readonly kid: string;
  readonly sid: string;
  readonly iat: number;
  readonly exp: number;
  readonly ct: string;
}

/** What both sides know of a request. */
export interface Exchange {
  readonly realm: string;
  readonly from: { readonly handle: string; readonly ipk: Bytes; readonly cardId: Bytes };
  readonly to: { readonly handle: string; readonly ipk: Bytes };
  readonly suite: number;
  readonly mode: Mode;
  readonly messageId: string;
  readonly correlationId: string;
  readonly iat: number;
  readonly exp: number;
}

/** What is bound in an outcome beyond its request. */
export interface Ending { readonly callId: string; readonly terminal: Terminal; readonly digest: Bytes }

export function context(exchange: Exchange, toKeyId: Bytes, ending?: Ending): Bytes {
  const { from, to } = exchange;
  const common = concat(
    ...[label("ctx"), u8(ending === undefined ? 1 : 2), u16(exchange.suite), vt(exchange.realm)],
    ...[vt(from.handle), from.ipk, from.cardId, vt(to.handle), to.ipk, toKeyId],
    ...[u8(exchange.mode === "sync" ? 0 : 1), vt(exchange.messageId), vt(exchange.correlationId)],
    ...[u64(exchange.iat), u64(exchange.exp)],
  );
  if (ending === undefined) return common;
  return concat(common, vt(ending.callId), u8(ending.terminal === "completed" ? 1 : 2), ending.digest);
}

export const signInput = (ctx: Bytes, body: Bytes): Bytes => concat(label("sig"), sha256(ctx), sha256(body));
const info = (ctx: Bytes): Bytes => concat(label("hpke"), sha256(ctx));

export function padme(length: number): number {
  const exponent = Math.floor(Math.log2(length));
  const step = 2 ** (exponent - (Math.floor(Math.log2(exponent)) + 1));
  return Math.ceil(length / step) * step;
}
export const paddedSize = (body: number, cap: number): number => Math.min(padme(Math.max(69 + body, 2048)), cap);
export const fits = (body: number, cap: number): boolean => 69 + body <= cap;

async function seal(ctx: Bytes, suite: number, toKey: Bytes, ssk: Bytes, body: Bytes, cap: number): Promise<[string, Bytes]> {
  if (!fits(body.length, cap)) throw new RangeError("a body over its limit");
  const input = signInput(ctx, body);
  const head = concat(u8(1), sign(ssk, input), u32(body.length), body);
  const plain = concat(head, new Uint8Array(paddedSize(body.length, cap) - head.length));
  return [b64(await hpkeSeal(suite, toKey, info(ctx), plain)), input];
}

/** RL-ENVELOPE-028 to RL-ENVELOPE-031. Throws for whatever does not hold; the cause is not for the other side. */
async function open(envelope: Envelope, ctx: Bytes, key: { id: Bytes; seed: Bytes }, sender: { id: Bytes; spk: Bytes }, cap: number) {
  if (envelope.kid !== b64(key.id) || envelope.sid !== b64(sender.id)) throw new RangeError("ids of another key or card");
  const plain = await hpkeOpen(envelope.suite, key.seed, info(ctx), unb64(envelope.ct));
  const length = new DataView(plain.buffer, plain.byteOffset).getUint32(65);
  if (plain[0] !== 1 || !fits(length, cap) || plain.length !== paddedSize(length, cap)) throw new RangeError("a bad plaintext");
  const body = plain.slice(69, 69 + length);
  if (!equal(plain.subarray(69 + length), new Uint8Array(plain.length - 69 - length))) throw new RangeError("a bad padding");
  const input = signInput(ctx, body);
  verify(sender.spk, input, plain.slice(1, 65));
  return { body, input, signature: plain.slice(1, 65) };
}

/** Seals `json` for `toKey`, with a fresh one-time key for the answer (RL-ENVELOPE-009). */
export async function sealRequest(exchange: Exchange, toKey: Bytes, ssk: Bytes, json: string) {
  const replySeed = random(32);
  const body = concat(v(await suiteOf(exchange.suite).publicOf(replySeed)), utf8(json));
  const kid = keyId(exchange.suite, toKey);
  const [ct, input] = await seal(context(exchange, kid), exchange.suite, toKey, ssk, body, REQUEST_CAP);
  const { suite, iat, exp } = exchange;
  const envelope: Envelope = { v: 1, suite, kid: b64(kid), sid: b64(exchange.from.cardId), iat, exp, ct };
  return { envelope, replySeed, digest: sha256(input) };
}

/** What is no UTF-8 opened all the same, and is answered under a seal (RL-ENVELOPE-036): it reads as no JSON. */
function readable(bytes: Bytes): string {
  try {
    return text(bytes);
  } catch {
    return "";
  }
}

export async function openRequest(exchange: Exchange, envelope: Envelope, seed: Bytes, spk: Bytes) {
  const id = keyId(exchange.suite, await suiteOf(exchange.suite).publicOf(seed));
  const sender = { id: exchange.from.cardId, spk };
  const { body, input } = await open(envelope, context(exchange, id), { id, seed }, sender, REQUEST_CAP);
  const length = ((body[0] ?? 0) << 8) | (body[1] ?? 0);
  const replyKey = body.slice(2, 2 + length);
  checkHpkeKey(exchange.suite, replyKey);
  const jsonBytes = body.slice(2 + length);
  return { json: readable(jsonBytes), jsonBytes, replyKey, digest: sha256(input) };
}

/** `answer`: the exchange of the outcome, `from` the listener and `iat` the time of sealing. */
export async function sealOutcome(answer: Exchange, replyKey: Bytes, ssk: Bytes, ending: Ending, json: string): Promise<Envelope> {
  const kid = keyId(answer.suite, replyKey);
  const [ct] = await seal(context(answer, kid, ending), answer.suite, replyKey, ssk, utf8(json), OUTCOME_CAP);
  return { v: 1, suite: answer.suite, kid: b64(kid), sid: b64(answer.from.cardId), iat: answer.iat, exp: answer.exp, ct };
}

export async function openOutcome(answer: Exchange, envelope: Envelope, replySeed: Bytes, spk: Bytes, ending: Ending) {
  if (envelope.suite !== answer.suite || envelope.exp !== answer.exp) throw new RangeError("another suite or time than the request's");
  const id = keyId(answer.suite, await suiteOf(answer.suite).publicOf(replySeed));
  const ctx = context(answer, id, ending);
  const opened = await open(envelope, ctx, { id, seed: replySeed }, { id: answer.from.cardId, spk }, OUTCOME_CAP);
  return { json: text(opened.body), jsonBytes: opened.body, ctx, signature: opened.signature };
}
