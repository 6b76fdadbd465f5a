/**
 * JSON that has one reading (RL-FRAME-003, RL-FRAME-007, RL-FRAME-011, RL-ENVELOPE-047): no member twice, no lone
 * surrogate, no number that another language holds differently. `JSON.parse` lets all of these pass.
 */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;

class Parser {
  #at = 0;
  constructor(private readonly source: string, private readonly depth: number, private readonly integers: boolean) {}

  whole(): Json {
    const value = this.value(this.depth);
    this.match(SPACE);
    if (this.#at !== this.source.length) throw new SyntaxError("more than one JSON value");
    return value;
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.source)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  private eat(token: string): boolean {
    this.match(SPACE);
    if (!this.source.startsWith(token, this.#at)) return false;
    this.#at += token.length;
    return true;
  }

  private expect(token: string): void {
    if (!this.eat(token)) throw new SyntaxError(`expected ${token} at ${this.#at}`);
  }

  private string(): string {
    this.match(SPACE);
    const raw = this.match(STRING);
    if (raw === undefined) throw new SyntaxError(`expected a string at ${this.#at}`);
    const value = JSON.parse(raw) as string;
    if (/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(value)) throw new SyntaxError("a lone surrogate");
    return value;
  }

  private value(left: number): Json {
    if (left < 0) throw new SyntaxError("nested too deeply");
    if (this.eat("{")) {
      const object: JsonObject = Object.create(null) as JsonObject;
      if (this.eat("}")) return object;
      do {
        const name = this.string();
        if (Object.hasOwn(object, name)) throw new SyntaxError("a member twice");
        this.expect(":");
        object[name] = this.value(left - 1);
      } while (this.eat(","));
      this.expect("}");
      return object;
    }
    if (this.eat("[")) {
      const array: Json[] = [];
      if (this.eat("]")) return array;
      do array.push(this.value(left - 1));
      while (this.eat(","));
      this.expect("]");
      return array;
    }
    if (this.eat("true")) return true;
    if (this.eat("false")) return false;
    if (this.eat("null")) return null;
    if (this.source[this.#at] === '"') return this.string();
    const digits = this.match(NUMBER);
    if (digits === undefined) throw new SyntaxError(`no JSON value at ${this.#at}`);
    const plain = /^-?[0-9]+$/.test(digits);
    const number = Number(digits);
    if (!Number.isFinite(number) || (plain && !Number.isSafeInteger(number)) || (this.integers && !plain)) {
      throw new SyntaxError("a number that not every reader holds");
    }
    return number;
  }
}

/** One JSON object, at most `depth` levels; with `integers` every number is one. Throws `SyntaxError`. */
export function parseObject(source: string, options: { depth: number; integers?: boolean }): JsonObject {
  const value = new Parser(source, options.depth, options.integers ?? false).whole();
  if (!isObject(value)) throw new SyntaxError("not a JSON object");
  return value;
}

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);
