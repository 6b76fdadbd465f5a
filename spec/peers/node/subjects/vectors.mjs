// What the Node implementation answers to the vectors of the specification; see spec/vectors/README.md.
// As a program it answers one JSON line by another. `npm run build` comes first.
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { readOutcome, readRequest } from "../dist/src/bodies.js";
import { b64, hex, text, unb64, unhex } from "../dist/src/bytes.js";
import { fits, openOutcome, openRequest, OUTCOME_CAP, paddedSize, REQUEST_CAP } from "../dist/src/envelope.js";
import { readFrame } from "../dist/src/frames.js";
import { cardId, checkSuccession, fingerprint, laterLink, readCard, readContact, readPrekey, safetyNumber, statementOf } from "../dist/src/keys.js";
import { keyId, suiteOf } from "../dist/src/suites.js";

export const DIRECTIONS = ["relay_to_caller", "relay_to_listener"];

const joined = (text) => (typeof text === "string" ? text : text.map((piece) => (typeof piece === "string" ? piece : piece.repeat.repeat(piece.times))).join(""));
const bytes = (text) => new TextEncoder().encode(joined(text));

const exchange = (input) => ({
  realm: input.realm,
  from: { handle: input.from.handle, ipk: b64(unhex(input.from.ipk)), cardId: input.from.card_id },
  to: { handle: input.to.handle, ipk: b64(unhex(input.to.ipk)), cardId: "" },
  suite: input.key.suite,
  mode: input.mode,
  messageId: input.message_id ?? "",
  correlationId: input.correlation_id,
  iat: input.envelope.iat,
  exp: input.exp ?? input.envelope.exp,
});

/** What this implementation does of each kind; kinds that only a relay needs are left out. */
export const DOES = {
  "base64url.decode": (input) => {
    const bytes = unb64(input.text);
    if (bytes.length === 0) throw new RangeError("empty");
    return { hex: hex(bytes) };
  },
  "body.read_request": (input) => void readRequest(bytes(input.text)),
  "body.read_outcome": (input) => void readOutcome(bytes(input.text), JSON.parse(joined(input.text)).reason === "completed" ? "completed" : "failed"),
  fingerprint: (input) => ({ text: fingerprint(unhex(input.ipk)) }),
  safety_number: (input) => ({
    text: safetyNumber({ handle: input.handle, ipk: unhex(input.ipk) }, { handle: input.peer_handle, ipk: unhex(input.peer_ipk) }),
  }),
  "contact.read": (input) => {
    const { handle, realm, base, ipk } = readContact(input.text);
    return { handle, realm, base_url: base, ipk: hex(ipk) };
  },
  "frame.read": (input) => {
    const data = input.hex === undefined ? Buffer.from(joined(input.text), "utf8") : Buffer.from(input.hex, "hex");
    return { type: readFrame(data, false, input.direction).type };
  },
  "card.read": (input) => {
    const card = readCard(unb64(input.card), unb64(input.card_sig));
    if (card.realm !== input.realm || card.handle !== input.handle) throw new RangeError("of somebody else");
    return { card_id: b64(cardId(unb64(input.card))), ipk: hex(card.ipk), spk: hex(card.spk), serial: card.serial, not_before: card.notBefore, not_after: card.notAfter, next: hex(card.next) };
  },
  "prekey.read": (input) => {
    const card = readCard(unb64(input.card), unb64(input.card_sig));
    const prekey = readPrekey(unb64(input.prekey), unb64(input.prekey_sig), card.spk);
    if (b64(prekey.cardId) !== b64(cardId(unb64(input.card)))) throw new RangeError("of another card");
    return { epoch: prekey.epoch, not_before: prekey.notBefore, not_after: prekey.notAfter };
  },
  "succession.read": (input) => {
    const { old_card_id, new_ipk, ts, sig, old_sig } = input.succession;
    const old = readCard(unb64(input.card), unb64(input.card_sig));
    const id = cardId(unb64(input.card));
    if (old_card_id !== b64(id)) throw new RangeError("of another card");
    checkSuccession(old, id, unb64(new_ipk, 32), ts, unb64(sig), old_sig === undefined ? undefined : unb64(old_sig));
    return { new_ipk: hex(unb64(new_ipk)) };
  },
  "key.derive": async (input) => {
    const key = await suiteOf(input.suite).publicOf(unhex(input.seed));
    return { public: hex(key), key_id: b64(keyId(input.suite, key)) };
  },
  "chain.statement": async (input) => {
    const link = laterLink(unhex(input.link), input.of_epoch - input.epoch);
    const statement = await statementOf(link, input.of_epoch, unhex(input.card_id), input.suites);
    return { link: hex(link), statement: b64(statement) };
  },
  "padding.size": (input) => {
    const cap = input.direction === "request" ? REQUEST_CAP : OUTCOME_CAP;
    if (!fits(input.body_bytes, cap)) throw new RangeError("too large");
    return { plaintext_bytes: paddedSize(input.body_bytes, cap) };
  },
  "envelope.open_request": async (input) => {
    const opened = await openRequest(exchange(input), input.envelope, unhex(input.key.seed), unhex(input.from.spk));
    return { json: text(opened.json), reply_public: hex(unb64(opened.replyKey)), context: hex(opened.ctx) };
  },
  "envelope.open_outcome": async (input) => {
    const ending = { callId: input.call_id, terminal: input.terminal, digest: b64(unhex(input.request_digest)) };
    const opened = await openOutcome(exchange(input), input.envelope, unhex(input.key.seed), unhex(input.from.spk), ending);
    return { json: text(opened.json), context: hex(opened.ctx) };
  },
};

/** The answer to one question. */
async function answer({ op, input }) {
  if (DOES[op] === undefined || (op === "frame.read" && !DIRECTIONS.includes(input.direction))) return { result: "unsupported" };
  try {
    return { result: "accepted", output: (await DOES[op](input)) ?? {} };
  } catch {
    return { result: "refused" };
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  let turn = Promise.resolve();
  createInterface({ input: process.stdin }).on("line", (line) => {
    turn = turn.then(async () => void process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`));
  });
}
