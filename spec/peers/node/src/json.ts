/**
 * JSON that has one reading (RL-FRAME-003, RL-FRAME-007, RL-FRAME-011, RL-ENVELOPE-047): no member twice, no lone
 * surrogate, no number that another language holds differently. `JSON.parse` alone lets all of these pass.
 */
import { parse, type ValueNode } from "@humanwhocodes/momoa";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

function check(node: ValueNode, source: string, depth: number, integers: boolean): void {
  if (depth === 0 && (node.type === "Array" || node.type === "Object")) throw new SyntaxError("nested too deeply");
  if (node.type === "Array") for (const element of node.elements) check(element.value, source, depth - 1, integers);
  else if (node.type === "Object") {
    const names = new Set<string>();
    for (const { name, value } of node.members) {
      const word = name.type === "String" ? name.value : name.name;
      if (names.has(word) || !word.isWellFormed()) throw new SyntaxError("a member twice, or a lone surrogate");
      names.add(word);
      check(value, source, depth - 1, integers);
    }
  } else if (node.type === "String") {
    if (!node.value.isWellFormed()) throw new SyntaxError("a lone surrogate");
  } else if (node.type === "Number") {
    const plain = /^-?[0-9]+$/.test(source.slice(...(node.range ?? [0, 0])));
    if (!Number.isFinite(node.value) || (plain && !Number.isSafeInteger(node.value)) || (integers && !plain)) {
      throw new SyntaxError("a number that not every reader holds");
    }
  }
}

/** Throws where the number at the end of a path of members is written with a fraction or an exponent. */
function checkWhole(node: ValueNode, source: string, [first, ...rest]: readonly string[]): void {
  if (first === undefined) return check(node, source, 0, node.type === "Number");
  if (node.type !== "Object") return;
  for (const { name, value } of node.members) {
    if ((name.type === "String" ? name.value : name.name) === first && (rest.length > 0 || value.type === "Number")) checkWhole(value, source, rest);
  }
}

/**
 * One JSON object, at most `depth` levels; with `integers` every number is one, with `whole` those at these paths.
 * Throws an `Error` otherwise.
 */
export function parseObject(source: string, options: { depth: number; integers?: boolean; whole?: readonly (readonly string[])[] }): JsonObject {
  const value = JSON.parse(source) as Json;
  const { body } = parse(source, { mode: "json", ranges: true });
  check(body, source, options.depth, options.integers ?? false);
  for (const path of options.whole ?? []) checkWhole(body, source, path);
  if (!isObject(value)) throw new SyntaxError("not a JSON object");
  return value;
}

export const isObject = (value: unknown): value is JsonObject => typeof value === "object" && value !== null && !Array.isArray(value);
