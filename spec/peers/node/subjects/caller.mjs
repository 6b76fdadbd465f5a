// The Node caller as a subject of the conformance suite; see conformance/README.md. `npm run build` comes first.
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Caller, Home, LocalError, PeerFailure, RelayError } from "../dist/src/index.js";

const { RINGLINE_SUBJECT_URL: base, RINGLINE_SUBJECT_REALM: realm, RINGLINE_SUBJECT_HANDLE: handle, RINGLINE_SUBJECT_HOME: folder } = process.env;
const home = Home.open(join(folder, "peer"), { base, realm, handle });
const caller = new Caller(home, (line) => void process.stderr.write(`${line}\n`));
const conversations = new Map();
const running = new Map();
const known = ({ message, task, args }) => ({ message, ...(task && { task }), ...(args && { args }) });

function calling(order, to) {
  const stopper = new AbortController();
  const call = { stopper, denied: () => undefined };
  running.set(order.id, call);
  const options = { ...known(order), timeoutMs: order.timeout_ms, signal: stopper.signal, onNotCancelled: (reason) => call.denied(reason) };
  if (order.message_id) options.messageId = order.message_id;
  if (order.conversation === undefined) call.answer = caller.call(to, options);
  else {
    if (!conversations.has(order.conversation)) conversations.set(order.conversation, caller.conversation(to));
    call.answer = conversations.get(order.conversation)(options);
  }
  return call.answer;
}

/** What became of the cancellation of a call that runs here, within 10 s. */
function cancelling(call) {
  return new Promise((resolve) => {
    call.denied = resolve;
    call.answer.then(() => resolve("already_terminal"), (error) => resolve(error instanceof RelayError && error.code === "canceled" ? "canceled" : "already_terminal"));
    setTimeout(resolve, 10_000, "requested").unref();
    call.stopper.abort();
  });
}

async function obey(order) {
  const to = order.to?.includes("//") ? caller.relay.pin(order.to) : order.to;
  const reply = (answer) => ({ end: "reply", text: answer.text, call_id: answer.callId });
  if (order.do === "call") return reply(await calling(order, to));
  if (order.do === "submit") {
    const options = { ...known(order), timeoutMs: order.expires_ms };
    if (order.message_id) options.messageId = order.message_id;
    return { end: "receipt", receipt: await caller.submit(to, options) };
  }
  if (order.do === "result") return reply(await caller.result(order.receipt, order.wait_ms));
  const call = running.get(order.of);
  return { end: "cancel", said: call === undefined ? await caller.cancel(order.of) : await cancelling(call) };
}

function told(error) {
  const { code, callId: call_id } = error;
  if (error instanceof PeerFailure) return { end: "peer", code, reason: error.reason, detail: error.detail };
  if (error instanceof RelayError) return { end: "relay", code, call_id };
  if (error instanceof LocalError) return { end: "local", code, call_id };
  throw error;
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const order = JSON.parse(line);
  const end = await obey(order).catch(told);
  process.stdout.write(`${JSON.stringify({ id: order.id, ...end })}\n`);
}).on("close", () => process.exit(0));
