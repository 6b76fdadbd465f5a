/** One WebSocket to the relay, read as frames (TRANSPORT, FRAME). */
import { on } from "node:events";
import { WebSocket } from "ws";
import { type Direction, type Frame, readFrame } from "./frames.js";

const LARGEST = 2_063_019;
/** RL-FRAME-018: after so many frames that break their form, there is nothing to be had from the other side. */
const REFUSED = 20;
const PING_MS = 20_000;
/** So many messages may wait to be read; behind them the socket is left full. */
const AHEAD = 64;

export type Ended = Readonly<{ code: number; reason: string }>;
/** What came instead of a connection; `status` is 0 when nobody answered. */
export type Refused = Readonly<{ status: number; date: string | undefined }>;

export class Connection {
  /** How it ended, by whichever side was first. */
  readonly closed: Promise<Ended>;
  #end!: (how: Ended) => void;
  readonly #stop = new AbortController();
  readonly #messages: AsyncIterable<[Buffer, boolean]>;

  /** Takes a socket at the moment it opens: a frame may come with the handshake. @internal */
  constructor(private readonly socket: WebSocket) {
    const options = { close: ["close"], highWaterMark: AHEAD, signal: this.#stop.signal };
    this.#messages = on(socket, "message", options) as AsyncIterable<[Buffer, boolean]>;
    this.closed = new Promise((resolve) => (this.#end = resolve));
    socket.on("close", (code, reason) => this.#end({ code, reason: reason.toString() }));
    this.#keepAlive();
  }

  /** RL-TRANSPORT-035: pings, and gives a silent connection up. */
  #keepAlive(): void {
    let heard = true;
    const timer = setInterval(() => {
      if (!heard) return this.socket.terminate();
      heard = false;
      this.socket.ping();
    }, PING_MS);
    for (const event of ["message", "ping", "pong"]) this.socket.on(event, () => (heard = true));
    this.socket.on("close", () => clearInterval(timer));
  }

  /** The frames of the relay, until either side closes. What breaks its form is passed over (RL-FRAME-017). */
  async *frames(direction: Direction): AsyncGenerator<Frame> {
    let refused = 0;
    try {
      for await (const [data, binary] of this.#messages) {
        if (this.#stop.signal.aborted) return;
        let frame: Frame;
        try {
          frame = readFrame(data, binary, direction);
        } catch {
          if (++refused >= REFUSED) return this.close(1008, "frames");
          continue;
        }
        yield frame;
      }
    } catch {
      // Closed here, or the socket failed: `closed` says which.
    }
  }

  send(frame: object): void {
    this.socket.send(JSON.stringify(frame));
  }

  /** Whoever reads is not kept waiting for the other side's goodbye. */
  close(code = 1000, reason = ""): void {
    this.#stop.abort();
    this.#end({ code, reason });
    this.socket.resume();
    this.socket.close(code, reason);
  }
}

/** Asks for a WebSocket that speaks `ringline.v1`; `ws` takes no other for an answer. */
export function upgrade(url: string, authorization: string): Promise<Connection | Refused> {
  return new Promise((resolve) => {
    const limits = { perMessageDeflate: false, maxPayload: LARGEST, followRedirects: false, handshakeTimeout: 15_000 };
    const socket = new WebSocket(url, ["ringline.v1"], { headers: { authorization }, ...limits });
    socket.on("open", () => resolve(new Connection(socket)));
    socket.on("error", () => resolve({ status: 0, date: undefined }));
    socket.on("unexpected-response", (request, response) => {
      request.destroy();
      resolve({ status: response.statusCode ?? 0, date: response.headers.date });
    });
  });
}
