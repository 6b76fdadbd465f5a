/**
 * JSON that has one reading (RL-FRAME-003, RL-FRAME-007, RL-FRAME-011, RL-ENVELOPE-047): no member twice, no lone
 * surrogate, no number that another language holds differently. `JSON.parse` alone lets all of these pass.
 */
import { parse, type ValueNode } from "@humanwhocodes/momoa";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

/** `whole` matches the paths at which no number may have a fraction or an exponent, be its value what it may. */
function check(node: ValueNode, source: string, depth: number, whole: RegExp, path = ""): void {
  if (depth === 0 && (node.type === "Array" || node.type === "Object")) throw new SyntaxError("nested too deeply");
  if (node.type === "Array") for (const { value } of node.elements) check(value, source, depth - 1, whole, `${path}/-`);
  else if (node.type === "Object") {
    const names = new Set<string>();
    for (const { name, value } of node.members) {
      const word = name.type === "String" ? name.value : name.name;
      if (names.has(word) || !word.isWellFormed()) throw new SyntaxError("a member twice, or a lone surrogate");
      names.add(word);
      check(value, source, depth - 1, whole, `${path}/${word}`);
    }
  } else if (node.type === "String") {
    if (!node.value.isWellFormed()) throw new SyntaxError("a lone surrogate");
  } else if (node.type === "Number") {
    const plain = /^-?[0-9]+$/.test(source.slice(...(node.range ?? [0, 0])));
    const held = plain ? Number.isSafeInteger(node.value) : Number.isFinite(node.value) && !whole.test(path);
    if (!held) throw new SyntaxError("a number that not every reader holds");
  }
}

/** One JSON object of at most `depth` levels. Throws an `Error` for what has more than one reading. */
export function parseObject(source: string, depth: number, whole: RegExp): JsonObject {
  const value = JSON.parse(source) as Json;
  check(parse(source, { mode: "json", ranges: true }).body, source, depth, whole);
  if (!isObject(value)) throw new SyntaxError("not a JSON object");
  return value;
}

export const isObject = (value: unknown): value is JsonObject => typeof value === "object" && value !== null && !Array.isArray(value);
