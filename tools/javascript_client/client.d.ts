// Types of the client of the service. Made from /openapi.json by tools/javascript_client.py.

/** Sound (WAV, FLAC, Ogg or WebM), or a vector of the service's extractor. */
export type Recording = Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | number[] | Float32Array | Float64Array;

export interface Options {
  /** API key; without it, a service without keys on the same machine */
  key?: string;
  /** Attempts of a call that has no answer or is refused for a while; default 4 */
  attempts?: number;
  /** Seconds before the second attempt, doubled before each further one; default 0.3 */
  firstWaitS?: number;
  /** A call that the service wants to be repeated later than this is not repeated; default 10 */
  longestWaitS?: number;
  /** Seconds to wait for an answer, per attempt; default 30 */
  timeoutS?: number;
  /** Function to send with, such as one of a proxy */
  fetch?: typeof fetch;
}

/** The service refused a call. */
export class ServiceError extends Error {
  constructor(status: number, fields: Record<string, unknown>, retryAfter: number | null);
  /** Status of HTTP */
  readonly status: number;
  /** Kind of the problem, such as `locked` or `not-found` */
  readonly kind: string;
  /** Sentence for people */
  readonly detail: string;
  /** Code of a refused recording, such as `too_noisy` */
  readonly reason: string | null;
  /** Seconds to wait before another attempt; null if waiting does not help */
  readonly retryAfter: number | null;
  /** All fields of the answer */
  readonly fields: Record<string, unknown>;
}

/**
 * Client of a service. A call without an answer, or that is refused for a while, is sent again with the same
 * `Idempotency-Key`: the service does it once.
 */
export class Client {
  constructor(url: string, options?: Options);

  // METHODS
}

// INTERFACES
