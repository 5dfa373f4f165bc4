// Calls to the server; refusals become errors with a reason.

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

async function call(method, path, { json, sound } = {}) {
  const headers = { accept: "application/json" };
  if (key.get()) headers["X-API-Key"] = key.get();
  if (json) headers["content-type"] = "application/json";
  if (sound) headers["content-type"] = sound.type || "application/octet-stream";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: json ? JSON.stringify(json) : sound, cache: "no-store" });
  } catch {
    throw new Refusal(0, { detail: "The server cannot be reached. Check that it is running, then try again." });
  }
  const text = await answer.text();
  let body = null;
  try { body = text ? JSON.parse(text) : null; } catch { /* a proxy's own page: the status suffices */ }
  if (!answer.ok) {
    if (answer.status === 401) document.dispatchEvent(new CustomEvent("key-wanted"));
    throw new Refusal(answer.status, body ?? {});
  }
  return body;
}

/** Sound is the body of a call; other fields are in the query. */
function send(path, sound, fields) {
  const present = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return call("POST", `${path}?${new URLSearchParams(present)}`, { sound });
}

/** Every page of a list, up to a number of items. */
async function all(path, limit = 2000) {
  const items = [];
  let after = "";
  do {
    const page = await call("GET",
      `${path}${path.includes("?") ? "&" : "?"}top=500${after && `&after=${encodeURIComponent(after)}`}`);
    items.push(...page.items);
    after = page.next ?? "";
  } while (after && items.length < limit);
  return items;
}

const profile = (id, rest = "") => `v1/profiles/${encodeURIComponent(id)}${rest}`;

/** People whose names contain a text; with a key that may only verify, those with exactly this name. */
async function searchPeople(text = "", top = 20) {
  const name = encodeURIComponent(text);
  try {
    return (await call("GET", `v1/profiles?top=${top}${text && `&search=${name}`}`)).items;
  } catch (error) {
    if (error.status !== 403) throw error;
    return text ? (await call("GET", `v1/profiles?top=${top}&userId=${name}`)).items : [];
  }
}

/** The person with exactly this name; null: nobody, or several. */
async function findPerson(name) {
  const { items } = await call("GET", `v1/profiles?top=2&userId=${encodeURIComponent(name)}`);
  return items.length === 1 ? items[0] : null;
}

export const api = {
  health: () => call("GET", "v1/health"),
  model: () => call("GET", "v1/model"),
  key: () => call("GET", "v1/key"),
  profile: (id) => call("GET", profile(id)),
  people: searchPeople,
  person: findPerson,
  decisions: () => all("v1/audit?action=verify"),
  create: (body) => call("POST", "v1/profiles", { json: body }),
  enrol: (id, sound, phrase) => send(profile(id, "/enrollments"), sound, { phrase }),
  removeRecording: (id, n) => call("DELETE", profile(id, `/enrollments/${n}`)),
  verify: (id, sound, fields) => send(profile(id, "/verify"), sound, fields),
  challenge: (id, kind) => call("POST", "v1/challenges", { json: { profileId: id, kind } }),
  challengeOf: (name) => call("POST", "v1/challenges", { json: { userId: name } }),
  unlock: (id) => call("POST", profile(id, "/unlock")),
  reset: (id) => call("POST", profile(id, "/reset")),
  optOut: (id) => call("POST", profile(id, "/opt-out")),
  remove: (id) => call("DELETE", profile(id)),
};
