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

  /** Verify the claim to be the owner of a profile, by voice and phrase: accept, reject or inconclusive. */
  verify(profileId, recording, fields) {
    return this.#send("POST", `/v1/profiles/${part(profileId)}/verify`, { recording, fields, once: true });
  }

  /** Identify a speaker among all enrolled profiles, or among `candidates`; the speaker may be none of them. */
  identify(recording, fields) {
    return this.#send("POST", "/v1/identify", { recording, fields });
  }

  /** Return the challenge to answer in the next verification of a profile: the open one, or a new random one. */
  challenge(body) {
    return this.#send("POST", "/v1/challenges", { body, once: true });
  }

  /** Return the status and the versions of the service. */
  health() {
    return this.#send("GET", "/v1/health");
  }

  /** Return 200 if the database answers and the voices for identification are loaded; 503 otherwise. */
  ready() {
    return this.#send("GET", "/v1/ready");
  }

  /** Return the metrics of the service in the text format of Prometheus. */
  metrics() {
    return this.#send("GET", "/metrics", { text: true });
  }

  /** Return the model: its views, calibration, and error rates with intervals and the data behind them. */
  getModel() {
    return this.#send("GET", "/v1/model");
  }

  /** Return the name, role and policy of the API key of this call. */
  getKey() {
    return this.#send("GET", "/v1/key");
  }

  /** Return one page of the audit: changes, decisions and refusals, newest first, without sound and vectors. */
  getAudit(fields) {
    return this.#send("GET", "/v1/audit", { fields });
  }

  /** Create a profile of a person who has given consent. */
  createProfile(body) {
    return this.#send("POST", "/v1/profiles", { body, once: true });
  }

  /** Return one page of profiles: all, or only those of the person `userId`, or of names that begin with `search`. */
  getProfiles(fields) {
    return this.#send("GET", "/v1/profiles", { fields });
  }

  /** Return a profile: its state, phrases, numbers of recordings, and times, without vectors. */
  getProfile(profileId) {
    return this.#send("GET", `/v1/profiles/${part(profileId)}`);
  }

  /** Erase all data of a profile at once, except its id and the time of the deletion. */
  deleteProfile(profileId) {
    return this.#send("DELETE", `/v1/profiles/${part(profileId)}`);
  }

  /** Add a recording or a vector to a profile; a refusal (422, with a reason) leaves the profile as it was. */
  enrol(profileId, recording, fields) {
    return this.#send("POST", `/v1/profiles/${part(profileId)}/enrollments`, { recording, fields, once: true });
  }

  /** Remove a recording from a profile, which is then as if the recording had never been added. */
  removeEnrolment(profileId, number) {
    return this.#send("DELETE", `/v1/profiles/${part(profileId)}/enrollments/${part(number)}`);
  }

  /** Remove all recordings of a profile, but not its name, phrases and consent. */
  reset(profileId) {
    return this.#send("POST", `/v1/profiles/${part(profileId)}/reset`, { once: true });
  }

  /** Unlock a profile that was locked after too many rejections; no data are erased. */
  unlock(profileId) {
    return this.#send("POST", `/v1/profiles/${part(profileId)}/unlock`, { once: true });
  }

  /** Erase the recordings of a profile at once; name and consent stay, with the state `opted_out`. */
  optOut(profileId) {
    return this.#send("POST", `/v1/profiles/${part(profileId)}/opt-out`, { once: true });
  }

  /** Return all stored data of a profile, its recordings and its audit entries, without vectors. */
  export(profileId) {
    return this.#send("GET", `/v1/profiles/${part(profileId)}/export`);
  }

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
