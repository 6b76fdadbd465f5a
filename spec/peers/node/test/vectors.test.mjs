// Replays the vectors of the specification: what is accepted gives the same bytes, what is refused is refused.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { DIRECTIONS, DOES } from "../subjects/vectors.mjs";

const folder = new URL("../../../vectors/", import.meta.url);
for (const name of readdirSync(folder).filter((name) => name.endsWith(".json"))) {
  const { vectors = [] } = JSON.parse(readFileSync(new URL(name, folder), "utf8"));
  for (const { id, op, says, input, expect } of vectors) {
    const does = DOES[op];
    if (does === undefined) continue;
    test(`${id}: ${says}`, async () => {
      if (op === "frame.read" && !DIRECTIONS.includes(input.direction)) return;
      if (expect.result === "refused") return void (await assert.rejects(async () => does(input)));
      for (const [member, value] of Object.entries((await does(input)) ?? {})) assert.deepEqual(value, expect.output[member], member);
    });
  }
}
