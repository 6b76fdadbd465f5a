// The Node listener as a subject of the conformance suite; see conformance/README.md. `npm run build` comes first.
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { Caller, Home, Listener, Refusal } from "../dist/src/index.js";

const { RINGLINE_SUBJECT_URL: base, RINGLINE_SUBJECT_REALM: realm, RINGLINE_SUBJECT_HANDLE: handle, RINGLINE_SUBJECT_HOME: folder } = process.env;
const note = (line) => void process.stderr.write(`${line}\n`);
const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(new Error("told to stop"))));
  });

const noteRun = (message) => appendFileSync(join(folder, "runs"), `${message.slice(0, 1000)}\n`);

async function obey(work) {
  noteRun(work.message);
  if (work.task === "upper") return work.args.text.toUpperCase();
  const [word, ...rest] = work.message.split(" ");
  if (word === "echo") return rest.join(" ");
  if (word === "wait") await pause(2 ** 31 - 1, work.signal).finally(() => noteRun(`stopped ${work.message}`));
  if (word === "big") return "x".repeat(Number(rest[0]));
  if (word === "slow") return await pause(Number(rest[0]), work.signal).then(() => rest.slice(1).join(" "));
  if (word === "fail") throw new Refusal("agent_error", "told to fail");
  return "?";
}

const home = Home.open(join(folder, "peer"), { base, realm, handle });
const args_schema = { type: "object", properties: { text: { type: "string" } }, required: ["text"], additionalProperties: false };
const block = (process.env.RINGLINE_SUBJECT_BLOCK ?? "").split(" ").filter(Boolean);
const tasks = [{ id: "upper", summary: "Write a text in capitals.", args_schema }];
const listener = new Listener(home, obey, { capacity: 32, tasks, block }, note);
process.on("SIGTERM", () => (listener.stop(), process.exit(0)));
await new Caller(home, note).allowDurable();
await listener.run(() => note(`listening as ${handle}`));
