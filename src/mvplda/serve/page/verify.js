// Verification: claim a name, say the phrase, see the verdict.

import { api, key } from "./api.js";
import { bars, circles, dial, plane, scale } from "./draw.js";
import { announce, byName, h, oneIn, percent } from "./dom.js";
import { SOUND_REASONS, booth, qualityList } from "./booth.js";

const TENFOLD = Math.log(10);

/** Return the kind of trial, a heading, and a sentence that is as certain as the evidence. */
export function verdict({ decision, reason, advice, voice, phrase, llrSpeaker, llrPhrase }, name) {
  const probably = (llr) => (Math.abs(llr ?? 0) < TENFOLD ? "probably " : "");
  const texts = {
    wrong_phrase: ["TW", "Rejected: wrong phrase",
      `The speaker ${(llrSpeaker ?? 0) < TENFOLD ? "may be" : "sounds like"} ${name}, but this is ${probably(llrPhrase)}not the expected phrase.`],
    wrong_speaker: ["IC", "Rejected: wrong speaker",
      `The phrase is ${probably(llrPhrase)}right, but this is ${probably(llrSpeaker)}not the voice of ${name}.`],
    both: ["IW", "Rejected: voice and phrase", `Neither the voice nor the phrase matches ${name}'s profile.`],
    either: [null, "Rejected: voice or phrase",
      `The voice or the phrase does not match ${name}'s profile; it is not clear which of the two.`],
    suspected_replay: ["IW", "Rejected: repeated recording",
      "This recording, or a copy of it, was sent before. Record the phrase again."],
    not_enrolled: [null, "Not enrolled yet", `${name} has not said the phrase often enough yet. Enrol first.`],
    expired: [null, "Expired", `${name}'s profile was not used for so long that it has expired. Enrol again.`],
    opted_out: [null, "Opted out", `${name} does not want to be verified by voice.`],
    model_changed: [null, "The model has changed",
      `The model was replaced after ${name} enrolled, so the profile cannot be used. Enrol again.`],
  };
  const [fault, remedy] = SOUND_REASONS[reason] ?? [];
  if (fault) return [null, `Inconclusive: ${fault}`, `${remedy} Nothing was decided.`];
  if (decision === "accept") return ["TC", `Welcome, ${name}`, "Voice and phrase match."];
  if (texts[reason]) return texts[reason];
  if (decision === "reject") return ["IW", "Rejected", "The evidence is against this claim."];
  // if one of the two is clear, name the other: an owner who said a wrong phrase should learn it
  const open = voice === "accept" && phrase !== "accept" ? `The voice matches; it is not clear whether the phrase does.`
    : phrase === "accept" && voice !== "accept" ? `The phrase matches; it is not clear whether this is the voice of ${name}.`
      : "The evidence is too weak.";
  return [null, "Inconclusive", `${open} ${advice ?? "Say the phrase again, exactly as shown."}`];
}

export async function verifyView(main, query) {
  const requested = query.get("who");
  const [first, model, policy, chosen] = await Promise.all([api.people(), api.model().catch(() => ({})),
    api.key().catch(() => ({})), requested ? api.profile(requested) : null]);
  const isReady = ({ state }) => ["enrolled", "stale"].includes(state);
  const isAllowed = ({ wantedFar }) => !policy.far || wantedFar <= policy.far;
  const displayName = (p) => p.userId || p.profileId;
  let people = [...(chosen ? [chosen] : []), ...first].filter(isReady).sort(byName);
  main.append(h("h1", { tabindex: -1 }, "Who are you?"));
  if (!people.length && first.length < 20 && !key.get()) {
    const hasUnfinished = first.some(({ state }) => !["opted_out", "deleted"].includes(state));
    main.append(h("div", { class: "empty" }, circles(null, 120), h("p", {}, hasUnfinished
      ? "Nobody has finished enrolling yet. Three recordings are needed."
      : "Nobody is enrolled yet. It takes a minute: read what is stored about you, then say a phrase three times."),
    h("a", { class: "button primary", href: "#/enrol" }, "Enrol")));
    return null;
  }
  let ticking = null, current = null, waiting = null, shown = null;
  const names = h("datalist", { id: "names" });
  const start = chosen ?? (people.length === 1 ? people[0] : null);
  const who = h("input", { id: "who", list: "names", autocomplete: "off", spellcheck: "false", oninput: typed,
    value: start ? displayName(start) : "" });
  list();
  const kinds = model.challengeKinds ?? ["phrase"];
  const modes = [["", "The phrase I enrolled"], ["phrase", "A phrase chosen now"],
    ["words", "Random English words"], ["digits", "Random English digits"]];
  const mode = h("select", { id: "mode", onchange: reset }, modes
    .filter(([kind]) => (kind ? kinds.includes(kind) : !["challenge", "either"].includes(policy.require)))
    .map(([kind, text]) => h("option", { value: kind }, text)));
  const strict = h("select", { id: "strict" },
    [["", "Server default"], ...(model.operatingPoints ?? []).filter(isAllowed).map(({ wantedFar }) => [wantedFar,
    `${oneIn(wantedFar)} impostors may be accepted`])].map(([v, text]) => h("option", { value: v }, text)));
  const panel = h("div", { class: "panel" });
  const side = h("form", { class: "side", "aria-label": "Claim", onsubmit: (event) => event.preventDefault() },
    h("p", { class: "field" }, h("label", { for: "who" }, "I am"), who, names),
    h("details", { open: false }, h("summary", {}, "Phrase and strictness"),
      h("p", { class: "field" }, h("label", { for: "mode" }, "I say"), mode,
        h("small", {}, "What is chosen now is valid once, for a minute: a recording of an earlier attempt has the wrong words.")),
      h("p", { class: "field" }, h("label", { for: "strict" }, "How strict"), strict)));
  const split = h("div", { class: "split" }, side, panel);
  main.append(split);

  const claimed = () => people.find((p) => displayName(p) === who.value.trim());
  const name = () => claimed()?.userId || "this person";

  function list() { names.replaceChildren(...people.map((p) => h("option", { value: displayName(p) }))); }

  /** Search for the typed name after a moment without another letter. */
  function typed() {
    if (claimed()) { show_stage(); return; }
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const text = who.value.trim();
      const matches = (await api.people(text)).filter(isReady);
      if (text !== who.value.trim()) return;
      people = matches.sort(byName);
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
      panel.replaceChildren(h("section", { class: "stage" }, circles(null, 120), h("p", { class: "instruction" },
        who.value.trim() ? "No enrolled person has this name." : "Type your name, then say your phrase.")));
      return null;
    }
    if (mode.value) return ask();
    const phrase = claimed().phrases?.[0]; // a key of the role verify gets no phrases
    return stage(phrase, `Say the phrase of ${name()}`, (sound) => judge(sound, { phrase }));
  }

  function lost(text) {
    stop();
    panel.replaceChildren(h("section", { class: "stage" }, h("p", { class: "problem", role: "alert" }, text),
      h("button", { type: "button", class: "primary", onclick: reset }, "Request others")));
  }

  async function ask() {
    let challenge;
    try {
      challenge = await api.challenge(shown, mode.value);
    } catch (error) {
      lost(error.message);
      return;
    }
    const until = Date.parse(challenge.expires);
    const left = h("span", { class: "number" });
    const tick = () => {
      const seconds = Math.max(0, Math.round((until - Date.now()) / 1000));
      left.textContent = `${seconds} s`;
      if (!seconds) lost("The time is over: these words are no longer valid.");
    };
    tick();
    ticking = setInterval(tick, 1000);
    stage(challenge.phrases[0], ["Valid once, for ", left], async (sound) => {
      clearInterval(ticking);
      await judge(sound, { challengeId: challenge.challengeId }).catch((error) => lost(error.message));
    });
  }

  function stage(phrase, hint, onsound) {
    current = booth({ phrase, hint, onsound });
    panel.replaceChildren(current);
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
      onclick: () => { reset(); panel.querySelector("button")?.focus(); } }, "Try again"),
      answer.reason === "not_enrolled" || answer.reason === "model_changed" || answer.reason === "expired" ? h("a",
        { class: "button quiet", href: `#/enrol?who=${encodeURIComponent(shown)}` }, "Enrol") : null);
    panel.replaceChildren(h("article", { class: `result ${answer.decision}`, "data-decision": answer.decision,
      "data-reason": answer.reason ?? "" },
      h("header", {}, circles(kind, 132), h("div", {}, title, h("p", {}, sentence), again)),
      answer.posteriors && h("div", {}, h("h3", {}, "Probability of each kind of trial"),
        weighing(answer), bars(answer.posteriors)),
      has("llr") && h("details", { class: "expert" }, h("summary", {}, "Scores"),
        has("llrSpeaker", "llrPhrase") && h("div", { class: "dials" }, dial("voice", "voice", answer.llrSpeaker),
          dial("phrase", "phrase", answer.llrPhrase)),
        h("div", { class: "pair" },
          has("llrSpeaker", "llrPhrase") && h("div", {}, h("h3", {}, "Voice and phrase scores"),
            plane(answer.llrSpeaker, answer.llrPhrase)),
          h("div", {}, thresholds(answer),
          answer.operatingPoint && h("p", { class: "small" }, operating(answer.operatingPoint))))),
      h("details", {}, h("summary", {}, "Recording and audit entry"),
        [answer.quality].flat().map((quality) => qualityList(quality)),
        h("dl", { class: "facts" }, h("dt", {}, "Result"), h("dd", {}, h("code", {}, answer.resultId)),
          h("dt", {}, "Model"), h("dd", {}, h("code", {}, answer.modelVersion ?? "–"))))));
    announce(`${heading}. ${sentence}`);
    title.focus();
  }

  reset();
  return stop;
}

/** Why the most likely kind of trial and the verdict differ; null if they agree. */
function weighing({ halves, decision, posteriors, voice, phrase }) {
  const likeliest = Object.keys(posteriors).reduce((best, kind) => (posteriors[kind] > posteriors[best] ? kind : best));
  if (!halves || decision === "inconclusive" || (likeliest === "TC") === (decision === "accept")) return null;
  const decided = [voice === decision && "voice", phrase === decision && "phrase"].filter(Boolean);
  if (!decided.length) return null;
  return h("p", { class: "small" }, `The threshold${decided.length > 1 ? "s" : ""} of the ${decided.join(" and the ")
  } decided. These probabilities weigh voice and phrase together, at even odds.`);
}

/** The thresholds that decide: one of the voice and one of the phrase, or a single one. */
function thresholds({ halves, llr, threshold, rejectThreshold, decision }) {
  if (!halves) return [h("h3", {}, "The threshold"), scale(llr, threshold, rejectThreshold, decision)];
  const names = { speaker: "The threshold of the voice", phrase: "The threshold of the phrase" };
  return Object.entries(halves).map(([view, half]) => [h("h3", {}, names[view] ?? view),
    scale(half.llr, half.accept, half.reject, half.decision)]);
}

function operating({ far, farInterval, frr, frrInterval }) {
  const range = ([low, high]) => `(95 % interval ${percent(low, 1)} to ${percent(high, 1)})`;
  return `Here ${percent(far, 1)} of the impostors are accepted ${range(farInterval)} and ${percent(frr, 1)} of the `
    + `owners are rejected ${range(frrInterval)}, measured on held-out data.`;
}
