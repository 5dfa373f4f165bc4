// Say who you are, say the phrase, and see which of four things happened.

import { api, key } from "./api.js";
import { bars, circles, dial, plane, scale } from "./draw.js";
import { announce, byName, h, oneIn, percent } from "./dom.js";
import { SOUND_REASONS, booth, qualityList } from "./booth.js";

const TENFOLD = Math.log(10);

/** Verdict: which circles are filled, a heading, a sentence that is no surer than the evidence. */
export function verdict({ decision, reason, voice, words, llrSpeaker, llrPhrase }, name) {
  const probably = (llr) => (Math.abs(llr ?? 0) < TENFOLD ? "probably " : "");
  const says = {
    wrong_phrase: ["TW", "Turned away: the words",
      `It ${(llrSpeaker ?? 0) < TENFOLD ? "may be" : "sounds like"} ${name}, but these are ${probably(llrPhrase)}not the words that were asked for.`],
    wrong_speaker: ["IC", "Turned away: the voice",
      `The words are ${probably(llrPhrase)}right, but this is ${probably(llrSpeaker)}not the voice of ${name}.`],
    both: ["IW", "Turned away: voice and words", `Neither the voice nor the words seem to be those of ${name}.`],
    suspected_replay: ["IW", "Turned away: heard before",
      "This recording, or one almost like it, was heard before. Say it afresh."],
    not_enrolled: [null, "Not enrolled yet", `${name} has not said the phrase often enough yet. Enrol first.`],
    expired: [null, "Expired", `${name}'s profile was not used for so long that it has expired. Enrol again.`],
    opted_out: [null, "Opted out", `${name} does not want to be verified by voice.`],
    model_changed: [null, "The model has changed",
      `The model is another one since ${name} enrolled, so their profile says nothing now. Enrol again.`],
  };
  const [fault, advice] = SOUND_REASONS[reason] ?? [];
  if (fault) return [null, `Not decided: ${fault}`, `${advice} Nothing was decided.`];
  if (decision === "accept") return ["TC", `Welcome, ${name}`, "Voice and words fit."];
  if (says[reason]) return says[reason];
  if (decision === "reject") return ["IW", "Turned away", "The evidence is against it."];
  // where one half is clear, say which is not: an owner who said other words should know
  const open = voice === "accept" && words !== "accept" ? `The voice fits; whether these are the words is not clear.`
    : words === "accept" && voice !== "accept" ? `The words fit; whether this is the voice of ${name} is not clear.`
      : "The evidence is too weak on either side.";
  return [null, "Not decided", `${open} Say the phrase once more, as it stands here.`];
}

export async function verifyView(main, query) {
  const asked = query.get("who");
  const [first, model, chosen] = await Promise.all([api.people(), api.model().catch(() => ({})),
    asked ? api.profile(asked) : null]);
  const isReady = ({ state }) => ["enrolled", "stale"].includes(state);
  const called = (p) => p.userId || p.profileId;
  let people = [...(chosen ? [chosen] : []), ...first].filter(isReady).sort(byName);
  main.append(h("h1", { tabindex: -1 }, "Who are you?"));
  if (!people.length && first.length < 20 && !key.get()) {
    const here = first.some(({ state }) => !["opted_out", "deleted"].includes(state));
    main.append(h("div", { class: "empty" }, circles(null, 120), h("p", {}, here
      ? "Nobody has finished enrolling yet. Three takes are needed."
      : "Nobody is enrolled yet. It takes a minute: read what is kept of you, then say a phrase three times."),
    h("a", { class: "button primary", href: "#/enrol" }, "Enrol")));
    return null;
  }
  let ticking = null, current = null, waiting = null, shown = null;
  const names = h("datalist", { id: "names" });
  const start = chosen ?? (people.length === 1 ? people[0] : null);
  const who = h("input", { id: "who", list: "names", autocomplete: "off", spellcheck: "false", oninput: typed,
    value: start ? called(start) : "" });
  list();
  const mode = h("select", { id: "mode", onchange: reset }, [[0, "The phrase I enrolled"], [1, "A phrase chosen now"]]
    .map(([n, text]) => h("option", { value: n }, text)));
  const strict = h("select", { id: "strict" },
    [["", "As the server is set"], ...(model.operatingPoints ?? []).map(({ wantedFar }) => [wantedFar,
    `${oneIn(wantedFar)} impostors may pass`])].map(([v, text]) => h("option", { value: v }, text)));
  const place = h("div", { class: "place" });
  const side = h("form", { class: "side", "aria-label": "Claim", onsubmit: (event) => event.preventDefault() },
    h("p", { class: "field" }, h("label", { for: "who" }, "I am"), who, names),
    h("details", { open: false }, h("summary", {}, "How it is asked and decided"),
      h("p", { class: "field" }, h("label", { for: "mode" }, "I say"), mode,
        h("small", {}, "A phrase chosen now is asked for once, for a minute: last time's recording is a wrong phrase.")),
      h("p", { class: "field" }, h("label", { for: "strict" }, "How strict"), strict)));
  const split = h("div", { class: "split" }, side, place);
  main.append(split);

  const claimed = () => people.find((p) => called(p) === who.value.trim());
  const name = () => claimed()?.userId || "this person";

  function list() { names.replaceChildren(...people.map((p) => h("option", { value: called(p) }))); }

  /** Look for who types, when a moment has passed without another letter. */
  function typed() {
    if (claimed()) { show_stage(); return; }
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const text = who.value.trim();
      const found = (await api.people(text)).filter(isReady);
      if (text !== who.value.trim()) return;
      people = found.sort(byName);
      list();
      show_stage();
    }, 200);
  }

  function show_stage() { if (claimed()?.profileId !== shown) reset(); }

  function stop() {
    clearInterval(ticking);
    current?.leave?.();
  }

  function reset() {
    stop();
    split.classList.remove("judged");
    shown = claimed()?.profileId ?? null;
    if (!shown) {
      place.replaceChildren(h("section", { class: "stage" }, circles(null, 120), h("p", { class: "says" },
        who.value.trim() ? "Nobody who is enrolled is called so." : "Type your name, then say your phrase.")));
      return null;
    }
    if (Number(mode.value)) return ask();
    const { phrases = [] } = claimed();
    return stage(phrases[0], `Say the phrase of ${name()}`, (sound) => judge(sound, { phrase: phrases[0] }));
  }

  function lost(text) {
    stop();
    place.replaceChildren(h("section", { class: "stage" }, h("p", { class: "problem", role: "alert" }, text),
      h("button", { type: "button", class: "primary", onclick: reset }, "Ask for another phrase")));
  }

  async function ask() {
    let challenge;
    try {
      challenge = await api.challenge(shown);
    } catch (error) {
      lost(error.message);
      return;
    }
    const until = Date.parse(challenge.expires);
    const left = h("span", { class: "number" });
    const tick = () => {
      const seconds = Math.max(0, Math.round((until - Date.now()) / 1000));
      left.textContent = `${seconds} s`;
      if (!seconds) lost("The time is over: what was asked for is forgotten.");
    };
    tick();
    ticking = setInterval(tick, 1000);
    stage(challenge.phrases[0], ["Asked for once, within ", left], async (sound) => {
      clearInterval(ticking);
      await judge(sound, { challengeId: challenge.challengeId }).catch((error) => lost(error.message));
    });
  }

  function stage(phrase, hint, onsound) {
    current = booth({ phrase, hint, onsound });
    place.replaceChildren(current);
  }

  async function judge(sound, fields) {
    fields.far = strict.value;
    show(await api.verify(shown, sound, fields));
  }

  function show(answer) {
    stop();
    split.classList.add("judged");
    const [kind, heading, sentence] = verdict(answer, name());
    const title = h("h2", { tabindex: -1 }, heading);
    const has = (...names) => names.every((n) => Number.isFinite(answer[n]));
    const again = h("p", { class: "row" }, h("button", { class: "primary", type: "button",
      onclick: () => { reset(); place.querySelector("button")?.focus(); } }, "Once more"),
      answer.reason === "not_enrolled" || answer.reason === "model_changed" || answer.reason === "expired" ? h("a",
        { class: "button quiet", href: `#/enrol?who=${encodeURIComponent(shown)}` }, "Enrol") : null);
    place.replaceChildren(h("article", { class: `result ${answer.decision}`, "data-decision": answer.decision,
      "data-reason": answer.reason ?? "" },
      h("header", {}, circles(kind, 132), h("div", {}, title, h("p", {}, sentence), again)),
      answer.posteriors && h("div", {}, h("h3", {}, "What probably happened"), bars(answer.posteriors)),
      has("llr", "threshold") && h("details", { class: "expert" }, h("summary", {}, "The numbers behind it"),
        has("llrSpeaker", "llrPhrase") && h("div", { class: "dials" }, dial("voice", "voice", answer.llrSpeaker),
          dial("words", "words", answer.llrPhrase)),
        h("div", { class: "pair" },
          has("llrSpeaker", "llrPhrase") && h("div", {}, h("h3", {}, "Where it lies"),
            plane(answer.llrSpeaker, answer.llrPhrase)),
          h("div", {}, h("h3", {}, "The threshold"), scale(answer.llr, answer.threshold, answer.rejectThreshold,
            answer.decision),
          answer.operatingPoint && h("p", { class: "small" }, operating(answer.operatingPoint))))),
      h("details", {}, h("summary", {}, "The recording and the record"),
        [answer.quality].flat().map((quality) => qualityList(quality)),
        h("dl", { class: "facts" }, h("dt", {}, "Result"), h("dd", {}, h("code", {}, answer.resultId)),
          h("dt", {}, "Model"), h("dd", {}, h("code", {}, answer.modelVersion ?? "–"))))));
    announce(`${heading}. ${sentence}`);
    title.focus();
  }

  reset();
  return stop;
}

function operating({ far, farInterval, frr, frrInterval }) {
  const range = ([low, high]) => `(95 % interval ${percent(low, 1)} to ${percent(high, 1)})`;
  return `At this threshold ${percent(far, 1)} of the impostors pass ${range(farInterval)} and ${percent(frr, 1)} of the `
    + `rightful are turned away ${range(frrInterval)}, in the data that its errors were measured on.`;
}
