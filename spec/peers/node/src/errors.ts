/** Three families of errors that are never told alike (RL-ERROR-001). */

/** The relay says so, and nobody vouches for it. With `callId` it ended that call. */
export class RelayError extends Error {
  override readonly name = "RelayError";
  constructor(readonly code: string, readonly callId?: string, readonly retryAfterMs?: number) {
    super(`the relay says: ${code}`);
  }
}

/** The peer says so, under its seal and signature. */
export class PeerFailure extends Error {
  override readonly name = "PeerFailure";
  constructor(readonly code: string, readonly detail: string | undefined, readonly reason: string, readonly callId: string) {
    super(`the peer says: ${code}${detail === undefined ? "" : `: ${detail}`}`);
  }
}

/** This side found it. `code` is one of the family `local` of errors.md. */
export class LocalError extends Error {
  override readonly name = "LocalError";
  constructor(readonly code: string, message: string, readonly callId?: string) {
    super(message);
  }
}
