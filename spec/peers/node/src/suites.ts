/** The two HPKE suites (ENVELOPE, "Suites"). A private key is its seed of 32 bytes. */
import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { CipherSuite, HkdfSha256 } from "@hpke/core";
import { DhkemX25519HkdfSha256 } from "@hpke/dhkem-x25519";
import { XWing } from "@hpke/hybridkem-x-wing";
import { x25519 } from "@noble/curves/ed25519.js";
import { type Bytes, concat, label, sha256, u16 } from "./bytes.js";

type Suite = Readonly<{ npk: number; nenc: number; hpke: CipherSuite; publicOf: (seed: Bytes) => Promise<Bytes> }>;

// A KDF object keeps the id of the suite that it was given to last: each suite needs its own.
const hpke = (kem: XWing | DhkemX25519HkdfSha256) => new CipherSuite({ kem, kdf: new HkdfSha256(), aead: new Chacha20Poly1305() });
const xwing = new XWing();
async function xwingPublicOf(seed: Bytes): Promise<Bytes> {
  const { publicKey } = await xwing.generateKeyPairDerand(seed);
  return new Uint8Array(await xwing.serializePublicKey(publicKey));
}
export const SUITES: ReadonlyMap<number, Suite> = new Map<number, Suite>([
  [1, { npk: 32, nenc: 32, hpke: hpke(new DhkemX25519HkdfSha256()), publicOf: async (seed) => Uint8Array.from(x25519.getPublicKey(seed)) }],
  [2, { npk: 1216, nenc: 1120, hpke: hpke(xwing), publicOf: xwingPublicOf }],
]);

export function suiteOf(id: number): Suite {
  const suite = SUITES.get(id);
  if (suite === undefined) throw new RangeError(`suite ${id} is not known here`);
  return suite;
}

export const keyId = (suite: number, publicKey: Uint8Array): Bytes => sha256(label("key"), u16(suite), publicKey);

/** RL-ENVELOPE-006. Throws `RangeError`. */
export function checkHpkeKey(suite: number, publicKey: Bytes): void {
  if (publicKey.length !== suiteOf(suite).npk) throw new RangeError("an HPKE key of the wrong length");
  const point = publicKey.subarray(publicKey.length - 32);
  if (((point[31] ?? 0) & 0x80) !== 0) throw new RangeError("an X25519 key with its highest bit set");
  try {
    x25519.getSharedSecret(new Uint8Array(32).fill(9), point);
  } catch {
    throw new RangeError("an X25519 key of small order");
  }
  // ML-KEM-768: 3 polynomials of 256 coefficients, 12 bits each, two in three bytes.
  for (let at = 0; suite === 2 && at < 1152; at += 3) {
    const [a, b, c] = [publicKey[at] ?? 0, publicKey[at + 1] ?? 0, publicKey[at + 2] ?? 0];
    if ((a | ((b & 15) << 8)) >= 3329 || ((b >> 4) | (c << 4)) >= 3329) throw new RangeError("an ML-KEM key that is not reduced");
  }
}

/** HPKE in base mode with empty aad: `enc || ct`. */
export async function hpkeSeal(suite: number, publicKey: Bytes, info: Bytes, plain: Bytes): Promise<Bytes> {
  const { hpke } = suiteOf(suite);
  const recipientPublicKey = await hpke.kem.importKey("raw", publicKey.slice().buffer, true);
  const { enc, ct } = await hpke.seal({ recipientPublicKey, info: info.slice().buffer }, plain.slice().buffer);
  return concat(new Uint8Array(enc), new Uint8Array(ct));
}

/** Throws for whatever does not open. */
export async function hpkeOpen(suite: number, seed: Bytes, info: Bytes, sealed: Bytes): Promise<Bytes> {
  const { hpke, nenc } = suiteOf(suite);
  const recipientKey = await hpke.kem.importKey("raw", seed.slice().buffer, false);
  const enc = sealed.slice(0, nenc).buffer;
  return new Uint8Array(await hpke.open({ recipientKey, enc, info: info.slice().buffer }, sealed.slice(nenc).buffer));
}
