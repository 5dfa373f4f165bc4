// The server's answers, and its refusals as errors that say why.

const KEY = "mvplda-key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || (status === 413 ? "This is too large for the server."
      : `The server answered ${status}.`));
    this.status = status;
    this.reason = problem.reason;
    this.problem = problem;
  }
}

async function call(method, path, { json, form, once } = {}) {
  const headers = { accept: "application/json" };
  if (key.get()) headers["X-API-Key"] = key.get();
  if (json) headers["content-type"] = "application/json";
  if (once) headers["Idempotency-Key"] = once;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: json ? JSON.stringify(json) : form, cache: "no-store" });
  } catch {
    throw new Refusal(0, { detail: "The server cannot be reached. Look whether it is running, then try again." });
  }
  const text = await answer.text();
  let body = null;
  try { body = text ? JSON.parse(text) : null; } catch { /* a proxy's own page: its status says enough */ }
  if (!answer.ok) {
    if (answer.status === 401) document.dispatchEvent(new CustomEvent("key-wanted"));
    throw new Refusal(answer.status, body ?? {});
  }
  return body;
}

function soundForm(sounds, fields) {
  const form = new FormData();
  for (const sound of sounds) form.append("audio", sound, sound.name || "take.wav");
  for (const [name, value] of Object.entries(fields)) if (value !== undefined && value !== null && value !== "") form.append(name, value);
  return form;
}

/** Every page of a list, up to a number of items. */
async function all(path, most = 2000) {
  const items = [];
  let after = "";
  do {
    const page = await call("GET",
      `${path}${path.includes("?") ? "&" : "?"}top=500${after && `&after=${encodeURIComponent(after)}`}`);
    items.push(...page.items);
    after = page.next ?? "";
  } while (after && items.length < most);
  return items;
}

const profile = (id, rest = "") => `v1/profiles/${encodeURIComponent(id)}${rest}`;

export const api = {
  health: () => call("GET", "v1/health"),
  model: () => call("GET", "v1/model"),
  phrases: () => all("v1/phrases"),
  profiles: () => all("v1/profiles"),
  decisions: () => all("v1/audit?action=verify"),
  create: (body) => call("POST", "v1/profiles", { json: body, once: unique() }),
  enrol: (id, sound, phrase) => call("POST", profile(id, "/enrollments"),
    { form: soundForm([sound], { phrase }), once: unique() }),
  takeOut: (id, n) => call("DELETE", profile(id, `/enrollments/${n}`)),
  verify: (id, sounds, fields) => call("POST", profile(id, "/verify"),
    { form: soundForm(sounds, fields), once: unique() }),
  challenge: (id) => call("POST", "v1/challenges", { json: { profileId: id } }),
  reset: (id) => call("POST", profile(id, "/reset")),
  optOut: (id) => call("POST", profile(id, "/opt-out")),
  remove: (id) => call("DELETE", profile(id)),
};

/** A name for one request, so that sending it again does nothing twice. */
function unique() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
