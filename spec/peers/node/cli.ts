#!/usr/bin/env node
/** `ringline-peer`: the library from a shell. A message comes from standard input, never from the command line. */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { homedir } from "node:os";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { Caller, fingerprint, Home, Listener, LocalError, PeerFailure, RelayError, type Work } from "./src/index.js";

const USAGE = `ringline-peer [--home FOLDER] [--suite 1|2] COMMAND
  init HANDLE --relay URL [--realm NAME]   make an identity; realm is localhost unless named
  id                                       show contact string and fingerprint
  listen [--offline] PROGRAM [ARG...]      answer calls: message on standard input, reply on standard output
  call HANDLE-or-CONTACT [--durable]       call with the message on standard input
  result RECEIPT [--wait SECONDS]          the reply to a durable call
  cancel RECEIPT                           ask for its cancellation`;

/** Runs a program in a process group of its own, which is ended and seen to exit when the work is to stop. */
function run(command: readonly string[], work: Work): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command[0] ?? "", command.slice(1), { detached: true, stdio: ["pipe", "pipe", "inherit"] });
    const said = text(child.stdout);
    const end = () => child.pid !== undefined && process.kill(-child.pid, "SIGKILL");
    work.signal.addEventListener("abort", end);
    child.on("error", reject);
    child.on("close", (code) => (code === 0 ? resolve(said) : reject(new Error("the program failed"))));
    child.stdin.on("error", () => undefined).end(work.message);
  });
}

async function main(): Promise<number> {
  const strings = { home: { type: "string" }, relay: { type: "string" }, realm: { type: "string" }, wait: { type: "string" }, suite: { type: "string" } } as const;
  const flags = { durable: { type: "boolean" }, offline: { type: "boolean" } } as const;
  const listens = process.argv.indexOf("listen");
  const stop = listens < 0 ? process.argv.length : process.argv.findIndex((word, at) => at > listens && !word.startsWith("--"));
  const { values, positionals } = parseArgs({ args: process.argv.slice(2, stop), options: { ...strings, ...flags }, allowPositionals: true });
  const [command, subject = ""] = positionals;
  const folder = values.home ?? join(homedir(), ".ringline-peer");
  const suites = values.suite === undefined ? undefined : [Number(values.suite)];
  const note = (line: string) => void process.stderr.write(`${line}\n`);
  if (command === "init" && values.relay !== undefined) {
    const home = Home.open(folder, { handle: subject, base: values.relay, realm: values.realm ?? "localhost" }, suites);
    await new Caller(home, note).relay.meet();
    return console.log(home.contact), 0;
  }
  if (command === undefined || command === "init") return note(USAGE), 2;
  const home = Home.open(folder, undefined, suites);
  const caller = new Caller(home, note);
  if (command === "id") console.log(`${home.contact}\n${fingerprint(home.ipk)}`);
  else if (command === "listen") {
    const listener = new Listener(home, (work) => run(process.argv.slice(stop), work), {}, note);
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => listener.stop());
    if (values.offline === true) await caller.allowDurable();
    await listener.run(() => note(`listening as ${home.handle}`));
  } else if (command === "call") {
    const handle = subject.includes("//") ? caller.relay.pin(subject) : subject;
    const message = await text(process.stdin);
    const stopper = new AbortController();
    process.once("SIGINT", () => stopper.abort());
    if (values.durable === true) console.log(await caller.submit(handle, { message }));
    else process.stdout.write((await caller.call(handle, { message, signal: stopper.signal })).text);
  } else if (command === "result") process.stdout.write((await caller.result(subject, Number(values.wait ?? 0) * 1000)).text);
  else if (command === "cancel") console.log(await caller.cancel(subject));
  else return note(USAGE), 2;
  return 0;
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    const known = error instanceof PeerFailure || error instanceof RelayError || error instanceof LocalError;
    process.stderr.write(known ? `${error.message} [${error.code}]\n` : `a fault of this program: ${String(error)}\n`);
    process.exit(error instanceof PeerFailure ? 1 : error instanceof RelayError ? 3 : known ? 2 : 70);
  },
);
