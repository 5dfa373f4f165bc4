// The recording stage: phrase, button, level meter and countdown, or a file instead.

import { h, s, announce } from "./dom.js";
import { Recorder, canRecord } from "./recorder.js";
import { settings } from "./settings.js";

const BARS = 56;

/** `onsound(file, recording)` receives the sound; `recording` holds its samples, or is null for an uploaded file. */
export function booth({ phrase, hint, onsound }) {
  let recorder = null;
  const face = h("span", { class: "face" });
  const label = h("span", { class: "label" });
  const circle = (name, cx) => [s("circle", { class: `${name} full`, cx, cy: 50, r: 48 }),
    s("circle", { class: name, cx, cy: 50, r: 48 })];
  const button = h("button", { type: "button", class: "record", onclick: press }, face, label);
  const wave = h("div", { class: "wave", "aria-hidden": "true" }, Array.from({ length: BARS }, () => h("i")));
  const meter = h("div", { class: "levels", role: "meter", "aria-label": "Level in dB", "aria-valuemin": -60,
    "aria-valuemax": 0, "aria-valuenow": -60 },
    h("span", {}, "quiet"), h("span", {}, "good"), h("span", {}, "too loud"));
  const instruction = h("p", { class: "instruction" });
  const file = h("input", { type: "file", id: "sound-file", class: "unseen",
    accept: "audio/*,.wav,.flac,.ogg,.opus,.webm,.m4a,.mp3", onchange: upload });
  const fileButton = h("label", { class: "button quiet", for: "sound-file" },
    canRecord() ? "Use a file instead" : "Choose a recording");
  const stage = h("section", { class: "stage", "aria-label": "Recording" },
    h("p", { class: "hint" }, hint),
    h("p", { class: phrase ? "phrase" : "phrase unquoted" }, phrase || "your pass-phrase"), instruction,
    canRecord() ? [h("div", { class: "controls" }, s("svg", { viewBox: "0 0 160 100", "aria-hidden": "true" },
      circle("voice", 54), circle("phrase", 106)), button), wave, meter]
      : h("p", { class: "lack" }, window.isSecureContext
        ? "This browser offers no microphone to the page. Use a recording from a file."
        : "Browsers offer the microphone only to pages over HTTPS or on localhost. Use a recording from a file."),
    h("p", { class: "row centre" }, file, fileButton));

  const history = new Array(BARS).fill(-60);
  const bars = [...wave.children];
  let last = null;
  function level(measured) {
    history.push(measured.db);
    history.shift();
    if (!last) requestAnimationFrame(paint); // blocks arrive more often than the screen is drawn
    last = measured;
  }

  function paint() {
    const { db, peak, elapsed } = last;
    last = null;
    history.forEach((value, i) => bars[i].style.setProperty("--level", Math.max(0.03, (value + 60) / 60)));
    bars[BARS - 1].classList.toggle("hot", peak > 0.99);
    stage.style.setProperty("--now", Math.max(0, (db + 60) / 60));
    stage.style.setProperty("--gone", Math.min(1, elapsed));
    meter.setAttribute("aria-valuenow", Math.round(db));
  }

  function show(state, left) {
    stage.dataset.state = state;
    const labels = { idle: "Record", opening: "Opening the microphone", count: "Get ready", listening: "Stop",
      sending: "Checking", closed: "Checking" };
    label.textContent = labels[state] ?? "Record";
    face.textContent = state === "count" ? left : "";
    instruction.textContent = { listening: "Say it now, as you usually speak.",
      opening: "If your browser asks, allow the microphone.", idle: canRecord() ? "Press Record, then say it." : "",
      sending: "Checking …" }[state] ?? "";
    if (state === "listening") announce(`Say now: ${phrase || "your pass-phrase"}`);
    if (state === "count") announce(String(left));
    button.setAttribute("aria-disabled", String(state === "sending" || state === "opening" || state === "closed"));
  }

  async function press() {
    if (button.getAttribute("aria-disabled") === "true") return;
    if (recorder) { recorder.stop(); return; }
    try {
      const { device, countIn } = settings.get();
      recorder = new Recorder({ device, countIn, onstate: show, onlevel: level });
      const recording = await recorder.start();
      if (recording) await send(recording.file, recording);
      else show("idle");
    } catch (error) {
      const denied = { NotAllowedError: "The microphone was not allowed. Allow it in the browser's address bar, or use a file.",
        NotFoundError: "No microphone was found. Plug one in, or use a file." };
      fail(denied[error.name] ?? error.message);
    } finally {
      recorder = null;
    }
  }

  async function upload() {
    const [chosen] = file.files;
    if (chosen) await send(chosen, null);
    file.value = "";
  }

  async function send(sound, recording) {
    show("sending");
    try {
      await onsound(sound, recording);
      show("idle");
    } catch (error) {
      fail(error.message);
    }
  }

  function fail(text) {
    show("idle");
    instruction.textContent = text;
    announce(text);
  }

  stage.addEventListener("keydown", (event) => { if (event.key === "Escape") recorder?.cancel(); });
  stage.leave = () => recorder?.cancel();
  show("idle");
  level({ db: -60, peak: 0, elapsed: 0 });
  return stage;
}

/** A heading and a sentence for every fault of a recording. */
export const SOUND_REASONS = {
  not_enough_speech: ["too little speech",
    "The recording contains too little speech. Say the whole phrase, at your usual pace."],
  too_noisy: ["too noisy", "There is too much noise in the recording. Find a quieter place, or come nearer to the microphone."],
  clipped: ["too loud", "The recording is too loud and clipped. Step back a little."],
  too_quiet: ["silence", "The recording is nearly silent. Come nearer to the microphone."],
  no_speech: ["no speech", "The recording contains no speech, only silence or a steady sound."],
  too_long: ["too long", "The recording is longer than the service accepts."],
  unreadable: ["not readable", "The file cannot be read. Use WAV, FLAC, Ogg or WebM."],
};

/** Quality of a recording: a word for each property, with its number. */
export function qualityList(quality, { phraseLlr, consistencyLlr } = {}) {
  const warned = new Set(quality?.warnings ?? []);
  const rows = [];
  const add = (name, fine, judgement, number) => rows.push(h("li", { class: fine ? "fine" : "poor" },
    h("span", { class: "sign", "aria-hidden": "true" }, fine ? "✓" : "!"), h("span", { class: "name" }, name),
      h("span", { class: "word" }, judgement), h("span", { class: "number" }, number)));
  if (quality) {
    const { levelDb, clipped, snrDb, speechS } = quality;
    if (speechS !== undefined) add("Speech", !warned.has("short"),
      warned.has("short") ? "too little" : "enough", `${speechS.toFixed(1)} s`);
    if (levelDb !== undefined) add("Level", !warned.has("quiet"), warned.has("quiet") ? "too quiet" : "good",
      `${Math.round(levelDb)} dB`);
    if (clipped !== undefined) add("Clipping", !warned.has("clipped"), warned.has("clipped") ? "too loud" : "none",
      `${(100 * clipped).toFixed(2)} %`);
    if (snrDb !== undefined) add("Noise", !warned.has("noisy"), warned.has("noisy") ? "too much" : "little",
      snrDb === null ? "–" : `SNR ${Math.round(snrDb)} dB`);
    if (warned.has("narrow")) add("Bandwidth", false, "telephone",
      `${(quality.bandwidthHz / 1000).toFixed(1)} kHz`);
  }
  if (phraseLlr !== undefined && phraseLlr !== null) add("Phrase", phraseLlr > 0,
    phraseLlr > 0 ? "matches" : "may differ", "");
  if (consistencyLlr !== undefined && consistencyLlr !== null) add("Voice", consistencyLlr > 0,
    consistencyLlr > 0 ? "matches" : "may differ", "");
  return h("ul", { class: "quality" }, rows);
}
