/** A caller and a listener for Ringline, written from its specification. See README.md. */
export { type Answer, Caller, type CallOptions } from "./caller.js";
export { LocalError, PeerFailure, RelayError } from "./errors.js";
export { Home } from "./home.js";
export { fingerprint, readContact, safetyNumber } from "./keys.js";
export { type Handler, Listener, type ListenerOptions, Refusal, type Work } from "./listener.js";
