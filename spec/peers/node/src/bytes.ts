/** Byte strings as the specification writes them (ENVELOPE, "Bytes"). */
import { createHash, randomBytes } from "node:crypto";

export type Bytes = Uint8Array<ArrayBuffer>;

export const utf8 = (text: string): Bytes => new TextEncoder().encode(text);
export const text = (bytes: Uint8Array): string => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
export const unhex = (digits: string): Bytes => Uint8Array.from(Buffer.from(digits, "hex"));
export const random = (length: number): Bytes => Uint8Array.from(randomBytes(length));
export const concat = (...parts: Uint8Array[]): Bytes => Uint8Array.from(Buffer.concat(parts));
export const sha256 = (...parts: Uint8Array[]): Bytes => Uint8Array.from(createHash("sha256").update(concat(...parts)).digest());
export const equal = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

function number(value: number, size: number): Bytes {
  const digits = BigInt(value).toString(16).padStart(size * 2, "0");
  if (value < 0 || digits.length > size * 2) throw new RangeError(`${value} does not fit ${size} bytes`);
  return unhex(digits);
}
export const u8 = (value: number): Bytes => number(value, 1);
export const u16 = (value: number): Bytes => number(value, 2);
export const u32 = (value: number): Bytes => number(value, 4);
export const u64 = (value: number): Bytes => number(value, 8);
export const v = (bytes: Uint8Array): Bytes => concat(u16(bytes.length), bytes);
export const vt = (value: string): Bytes => v(utf8(value));
/** RL-ENVELOPE-001: what is signed or hashed begins with the label of its use. */
export const label = (use: string): Bytes => vt(`ringline-v1/${use}`);

export const b64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64url");
/** RL-CONV-003: the one canonical form, and nothing else. Throws `RangeError`. */
export function unb64(value: string, length?: number): Bytes {
  const bytes = Uint8Array.from(Buffer.from(value, "base64url"));
  if (b64(bytes) !== value) throw new RangeError("not canonical base64url");
  if (length !== undefined && bytes.length !== length) throw new RangeError(`not ${length} bytes`);
  return bytes;
}

/** Reads a structure from its front. RL-ENVELOPE-002: `end` refuses what is left over. */
export class Reader {
  #at = 0;
  constructor(private readonly bytes: Uint8Array, use: string) {
    const head = label(use);
    if (!equal(this.take(head.length), head)) throw new RangeError(`not labelled ${use}`);
  }
  take(length: number): Bytes {
    const part = this.bytes.slice(this.#at, this.#at + length);
    if (part.length !== length) throw new RangeError("cut short");
    this.#at += length;
    return Uint8Array.from(part);
  }
  number(size: number): number {
    const value = Number.parseInt(hex(this.take(size)), 16);
    if (!Number.isSafeInteger(value)) throw new RangeError("a number out of range");
    return value;
  }
  v(): Bytes {
    return this.take(this.number(2));
  }
  end(): void {
    if (this.#at !== this.bytes.length) throw new RangeError("bytes behind the end");
  }
}
