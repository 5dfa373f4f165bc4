// The page: enrolment and verification with a microphone or with files.

import { h } from "./dom.js";
import { SoundError, Verifier } from "./mvplda.js";
import { deleteProfile, listProfiles, putProfile } from "./profiles.js";
import { canRecord, Recorder } from "./recorder.js";

const REASONS = {
  wrong_speaker: "another voice",
  wrong_phrase: "another phrase",
  both: "another voice and another phrase",
  either: "another voice or another phrase, unclear which",
  suspected_replay: "a copy of an enrolled recording",
  not_enough_evidence: "not enough evidence: say a longer phrase, or enrol more recordings",
  unusable_recording: "a recording has too little speech",
};
const VERDICTS = { accept: "Accepted", reject: "Rejected", inconclusive: "Inconclusive" };
const STATES = { opening: "Allow the microphone …", count: "Ready …", listening: "Speak now.", closed: "Comparing …" };

/** @param {string} id @returns {any} */
const element = (id) => document.getElementById(id);
const forms = [element("enrol"), element("verify")];
/** @type {Verifier} */
let verifier;

/** @param {string} text */
function say(text) { element("status").textContent = text; }

/** @param {boolean} isBusy */
function setBusy(isBusy) {
  for (const form of forms) {
    form.querySelector("button").disabled = isBusy || !canRecord();
    form.elements.files.disabled = isBusy;
  }
}

/** Wait until the service worker has stored the site, so that nothing is loaded twice. */
async function keepForLater() {
  if (!navigator.serviceWorker) return false;
  try {
    await navigator.serviceWorker.register("sw.js");
    await navigator.serviceWorker.ready;
    return true;
  } catch {
    return false; // such as private windows: the page works, but not without a network
  }
}

/** One recording of the microphone. */
async function record() {
  const onstate = (/** @type {keyof STATES} */ state) => say(STATES[state]);
  const recorded = await new Recorder({ device: "", onstate, onlevel: () => {} }).start();
  return recorded ? [recorded.file] : [];
}

/** @param {Iterable<File>} files */
async function recordingsOf(files) {
  const recordings = [];
  for (const file of files) {
    const recording = await verifier.recording(file);
    if (!recording.quality.usable) throw new SoundError(`${file.name} has too little speech: say a longer phrase`);
    recordings.push(recording);
  }
  return recordings;
}

/** Run a task with the forms disabled, and show its problem. @param {() => Promise<void>} task */
async function busy(task) {
  setBusy(true);
  try {
    await task();
    say("Ready.");
  } catch (error) {
    say(`${error instanceof Error ? error.message : error}.`.replace(/\.\.$/, "."));
  } finally {
    setBusy(false);
    for (const form of forms) form.elements.files.value = "";
  }
}

/** @param {string} name @param {Iterable<File>} files */
async function enrol(name, files) {
  const added = (await recordingsOf(files)).map(({ variants, ...stored }) => stored);
  const existing = (await listProfiles(verifier.key)).find((profile) => profile.name === name);
  await putProfile({ name, key: verifier.key, recordings: [...(existing?.recordings ?? []), ...added] });
  await showProfiles();
}

/** @param {Iterable<File>} files */
async function verify(files) {
  const { profile: { value: name }, same } = element("verify").elements;
  const profile = (await listProfiles(verifier.key)).find((other) => other.name === name);
  if (!profile) throw new Error("Enrol somebody first");
  const started = performance.now();
  const [tested] = await Promise.all([Promise.all([...files].map((file) => verifier.recording(file)))]);
  const decision = verifier.verify(profile.recordings, tested, { same: same.value.split("+") });
  showDecision(decision, performance.now() - started);
}

/** @param {import("./mvplda.js").Decision} decision @param {number} milliseconds */
function showDecision(decision, milliseconds) {
  const reason = decision.reason ? `: ${/** @type {any} */ (REASONS)[decision.reason] ?? decision.reason}` : "";
  const rows = Object.entries(decision.llrs).map(([view, llr]) => h("tr", {},
    h("th", { scope: "row" }, view), h("td", {}, llr.toFixed(2)),
    h("td", {}, (decision.point.halves?.[view].accept ?? decision.point.threshold).toFixed(2)),
    h("td", {}, decision.views[view])));
  const result = element("result");
  result.dataset.verdict = decision.verdict;
  result.dataset.reason = decision.reason ?? "";
  result.dataset.llr = String(decision.llr);
  const head = ["view", "LLR", "accepts from", "verdict"].map((text) => h("th", { scope: "col" }, text));
  const faults = decision.faults.length ? `Recordings are ${decision.faults.join(", ")}. ` : "";
  result.replaceChildren(
    h("p", { class: "verdict" }, `${VERDICTS[decision.verdict]}${reason}.`),
    h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)),
    h("p", {}, `${faults}Compared in ${(milliseconds / 1000).toFixed(1)} s.`));
}

async function showProfiles() {
  const profiles = await listProfiles(verifier.key);
  const remove = (/** @type {string} */ name) => busy(async () => { await deleteProfile(name); await showProfiles(); });
  element("profiles").replaceChildren(...profiles.map(({ name, recordings }) => h("li", {},
    h("span", {}, `${name}: ${recordings.length} recording${recordings.length > 1 ? "s" : ""}`),
    h("button", { type: "button", onclick: () => remove(name), "aria-label": `Delete ${name}` }, "Delete"))));
  element("verify").elements.profile.replaceChildren(...profiles.map(({ name }) => h("option", { value: name }, name)));
}

function listen() {
  const [enrolment, verification] = forms;
  const name = () => enrolment.elements.name.value.trim();
  enrolment.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    busy(async () => enrol(name(), await record()));
  });
  enrolment.elements.files.addEventListener("change", () => {
    if (enrolment.reportValidity()) busy(() => enrol(name(), enrolment.elements.files.files));
  });
  verification.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    busy(async () => verify(await record()));
  });
  verification.elements.files.addEventListener("change", () => busy(() => verify(verification.elements.files.files)));
}

async function start() {
  const isStored = await keepForLater();
  verifier = await Verifier.load(undefined, (done, total) => say(`Networks ready: ${done} of ${total} …`));
  const titles = verifier.questions.map((key) => h("option", { value: key }, key.replace("+", " and ")));
  element("verify").elements.same.replaceChildren(...titles);
  element("credits").replaceChildren(...verifier.credits.map(({ title, licence, source }) => (
    h("li", {}, `${title}: ${licence}, ${source}`))));
  await showProfiles();
  listen();
  setBusy(false);
  say(isStored ? "Ready. The page is stored on this device." : "Ready.");
}

start().catch((error) => say(`The page cannot start: ${error.message}`));
