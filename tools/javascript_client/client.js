// Client of the service for browsers, Node, Deno and Bun. Made from /openapi.json by tools/javascript_client.py.

// Answers after which the same call may succeed.
const PASSING = [408, 425, 429, 502, 503, 504];

/** The service refused a call. */
export class ServiceError extends Error {
  /** @param {number} status @param {object} fields @param {number | null} retryAfter */
  constructor(status, fields, retryAfter) {
    super(`${status} ${fields.type ?? ""}: ${fields.detail ?? ""}`);
    this.name = "ServiceError";
    this.status = status;
    this.kind = String(fields.type ?? "").replace(/^urn:mvplda:/, "");
    this.detail = String(fields.detail ?? "");
    this.reason = fields.reason ?? null;
    this.retryAfter = retryAfter;
    this.fields = fields;
  }
}

const part = (value) => encodeURIComponent(String(value));
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");
}

/** A vector is sent as JSON with its fields, sound as the body with its fields in the query. */
function isVector(recording) {
  return Array.isArray(recording) || recording instanceof Float32Array || recording instanceof Float64Array;
}

function query(fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}

function present(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

export class Client {
  #url;
  #headers;
  #attempts;
  #firstWaitS;
  #longestWaitS;
  #timeoutS;
  #fetch;

  constructor(url, { key, attempts = 4, firstWaitS = 0.3, longestWaitS = 10, timeoutS = 30, fetch } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = key ? { "X-API-Key": key } : {};
    this.#attempts = attempts;
    this.#firstWaitS = firstWaitS;
    this.#longestWaitS = longestWaitS;
    this.#timeoutS = timeoutS;
    this.#fetch = fetch ?? ((...request) => globalThis.fetch(...request));
  }

  // METHODS

  async #send(method, path, { recording, body, fields = {}, once = false, text = false } = {}) {
    const headers = { ...this.#headers };
    // the same key in every attempt: the service does the call once
    if (once) headers["Idempotency-Key"] = randomKey();
    let content, search = "";
    if (body !== undefined || isVector(recording)) {
      headers["Content-Type"] = "application/json";
      content = JSON.stringify(body ?? { vector: Array.from(recording), ...present(fields) });
    } else {
      search = query(fields);
      if (recording !== undefined) {
        headers["Content-Type"] = recording.type || "application/octet-stream";
        content = recording;
      }
    }
    for (let attempt = 1; ; attempt++) {
      try {
        const signal = AbortSignal.timeout(1000 * this.#timeoutS);
        const options = { method, headers, body: content, signal };
        const answer = await this.#fetch(this.#url + path + search, options);
        if (!answer.ok) throw await refusal(answer);
        return text ? await answer.text() : await answer.json();
      } catch (error) {
        const wait = this.#wait(attempt, error);
        if (wait === null) throw error;
        await pause(wait);
      }
    }
  }

  /** Seconds before the next attempt; null: there is none. */
  #wait(attempt, error) {
    if (attempt >= this.#attempts) return null;
    const wait = this.#firstWaitS * 2 ** (attempt - 1) * (0.5 + Math.random() / 2);
    // without an answer
    if (!(error instanceof ServiceError)) return Math.min(wait, this.#longestWaitS);
    const isPassing = PASSING.includes(error.status) || error.kind === "in-progress";
    const longer = Math.max(wait, error.retryAfter ?? 0);
    return isPassing && longer <= this.#longestWaitS ? longer : null;
  }
}

async function refusal(answer) {
  const said = await answer.text();
  const seconds = answer.headers.get("Retry-After");
  const retryAfter = /^\d+$/.test(seconds ?? "") ? Number(seconds) : null;
  try {
    return new ServiceError(answer.status, Object(JSON.parse(said)), retryAfter);
  } catch {
    // an answer of a proxy
    return new ServiceError(answer.status, { detail: said.slice(0, 200) }, retryAfter);
  }
}
