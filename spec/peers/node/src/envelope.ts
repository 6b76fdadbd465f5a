/** Sealing and opening (ENVELOPE). The opener rebuilds the context; nothing of it is read from the envelope. */
import { b64, type Bytes, concat, equal, label, random, sha256, u16, u32, u64, u8, unb64, utf8, v, vt } from "./bytes.js";
import { sign, verify } from "./keys.js";
import { checkHpkeKey, hpkeOpen, hpkeSeal, keyId, suiteOf } from "./suites.js";

export const REQUEST_CAP = 393_000;
export const OUTCOME_CAP = 1_545_000;
export type Mode = "sync" | "durable";
export type Terminal = "completed" | "failed";

export type Envelope = Readonly<{ v: 1; suite: number; kid: string; sid: string; iat: number; exp: number; ct: string }>;

/** One side of an exchange; its card is the one under which it signs, and of no weight where it receives. */
export type Party = Readonly<{ handle: string; ipk: string; cardId: string }>;

/** What both sides know of a request. Ids and keys are base64url, so that it can be kept as JSON. */
export interface Exchange extends Readonly<{ realm: string; from: Party; to: Party; suite: number; mode: Mode }> {
  readonly messageId: string;
  readonly correlationId: string;
  readonly iat: number;
  readonly exp: number;
}

/** What is bound in an outcome beyond its request, whose digest it repeats. */
export type Ending = Readonly<{ callId: string; terminal: Terminal; digest: string }>;

/** The exchange of the outcome: everything of the request but who speaks, under which card, and when. */
export const answerTo = (request: Exchange, from: Party, iat: number): Exchange => ({ ...request, from, to: request.from, iat });

export function context(exchange: Exchange, toKeyId: Bytes, ending?: Ending): Bytes {
  const { from, to } = exchange;
  const common = concat(
    ...[label("ctx"), u8(ending === undefined ? 1 : 2), u16(exchange.suite), vt(exchange.realm)],
    ...[vt(from.handle), unb64(from.ipk, 32), unb64(from.cardId, 32), vt(to.handle), unb64(to.ipk, 32), toKeyId],
    ...[u8(exchange.mode === "sync" ? 0 : 1), vt(exchange.messageId), vt(exchange.correlationId)],
    ...[u64(exchange.iat), u64(exchange.exp)],
  );
  if (ending === undefined) return common;
  return concat(common, vt(ending.callId), u8(ending.terminal === "completed" ? 1 : 2), unb64(ending.digest, 32));
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

async function seal(exchange: Exchange, toKey: Bytes, ssk: Bytes, body: Bytes, ending?: Ending) {
  const cap = ending === undefined ? REQUEST_CAP : OUTCOME_CAP;
  if (!fits(body.length, cap)) throw new RangeError("a body over its limit");
  const kid = keyId(exchange.suite, toKey);
  const ctx = context(exchange, kid, ending);
  const input = signInput(ctx, body);
  const head = concat(u8(1), sign(ssk, input), u32(body.length), body);
  const plain = concat(head, new Uint8Array(paddedSize(body.length, cap) - head.length));
  const ct = b64(await hpkeSeal(exchange.suite, toKey, info(ctx), plain));
  const { suite, from, iat, exp } = exchange;
  return { envelope: { v: 1, suite, kid: b64(kid), sid: from.cardId, iat, exp, ct } satisfies Envelope, input };
}

/** RL-ENVELOPE-028 to RL-ENVELOPE-031. Throws for whatever does not hold; the cause is not for the other side. */
async function open(exchange: Exchange, envelope: Envelope, seed: Bytes, spk: Bytes, ending?: Ending) {
  const cap = ending === undefined ? REQUEST_CAP : OUTCOME_CAP;
  const kid = keyId(exchange.suite, await suiteOf(exchange.suite).publicOf(seed));
  if (envelope.kid !== b64(kid) || envelope.sid !== exchange.from.cardId) throw new RangeError("ids of another key or card");
  const ctx = context(exchange, kid, ending);
  const plain = await hpkeOpen(envelope.suite, seed, info(ctx), unb64(envelope.ct));
  const length = new DataView(plain.buffer, plain.byteOffset).getUint32(65);
  if (plain[0] !== 1 || !fits(length, cap) || plain.length !== paddedSize(length, cap)) throw new RangeError("a bad plaintext");
  const body = plain.slice(69, 69 + length);
  if (!equal(plain.subarray(69 + length), new Uint8Array(plain.length - 69 - length))) throw new RangeError("a bad padding");
  const [input, signature] = [signInput(ctx, body), plain.slice(1, 65)];
  verify(spk, input, signature);
  return { body, ctx, input, signature };
}

/** Seals `json` for `toKey`, with a fresh one-time key for the answer (RL-ENVELOPE-009). */
export async function sealRequest(exchange: Exchange, toKey: Bytes, ssk: Bytes, json: string) {
  const replySeed = random(32);
  const body = concat(v(await suiteOf(exchange.suite).publicOf(replySeed)), utf8(json));
  const { envelope, input } = await seal(exchange, toKey, ssk, body);
  return { envelope, replySeed: b64(replySeed), digest: b64(sha256(input)) };
}

export async function openRequest(exchange: Exchange, envelope: Envelope, seed: Bytes, spk: Bytes) {
  const { body, ctx, input } = await open(exchange, envelope, seed, spk);
  const length = ((body[0] ?? 0) << 8) | (body[1] ?? 0);
  const [replyKey, jsonBytes] = [body.slice(2, 2 + length), body.slice(2 + length)];
  checkHpkeKey(exchange.suite, replyKey);
  return { json: jsonBytes, replyKey: b64(replyKey), ctx, digest: b64(sha256(input)) };
}

/** `answer` comes of `answerTo`. */
export async function sealOutcome(answer: Exchange, replyKey: Bytes, ssk: Bytes, ending: Ending, json: string): Promise<Envelope> {
  return (await seal(answer, replyKey, ssk, utf8(json), ending)).envelope;
}

export async function openOutcome(answer: Exchange, envelope: Envelope, replySeed: Bytes, spk: Bytes, ending: Ending) {
  if (envelope.suite !== answer.suite || envelope.exp !== answer.exp) throw new RangeError("another suite or time than the request's");
  const { body, ctx, signature } = await open(answer, envelope, replySeed, spk, ending);
  return { json: body, ctx, signature };
}
