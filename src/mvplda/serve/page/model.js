// The model's card: what it is, where its thresholds come from, its limits.

import { api } from "./api.js";
import { table } from "./draw.js";
import { h, oneIn, percent, signed } from "./dom.js";

/** The threshold of the voice and that of the phrase, or a single one. */
function limits({ halves = {}, threshold }) {
  const names = { speaker: "voice", phrase: "phrase" };
  const texts = Object.entries(halves).map(([view, { accept }]) => `${names[view] ?? view} ${signed(accept)}`);
  return texts.length ? texts.join(", ") : signed(threshold);
}

/** The point whose thresholds are in use. */
export function pointInUse({ operatingPoints = [], threshold }) {
  return operatingPoints.reduce((a, b) => (Math.abs(b.threshold - threshold) < Math.abs(a.threshold - threshold) ? b : a),
    { threshold: Infinity });
}

/** Error rates at several thresholds; the threshold in use is marked. */
export function pointsTable(model) {
  const { operatingPoints = [] } = model;
  if (!operatingPoints.length) return h("p", {}, "This model has no measured error rates.");
  const rate = (value, pair) => [percent(value, 1), pair && h("small", {},
    ` ${percent(pair[0], 1)} to ${percent(pair[1], 1)}`)];
  const nearest = pointInUse(model);
  return h("div", { class: "scroll wrap", tabindex: 0, role: "region", "aria-label": "Error rates" },
    table(["at most", "threshold", "FAR", "FRR"], operatingPoints.map((p) => [
    p === nearest ? h("strong", {}, `${oneIn(p.wantedFar)} ◂`) : oneIn(p.wantedFar), limits(p),
      rate(p.far, p.farInterval), rate(p.frr, p.frrInterval)]),
  "FAR: impostors who are accepted. FRR: owners who are rejected. ◂ marks the threshold in use."));
}

export async function modelView(main) {
  const model = await api.model();
  const { extractor = {}, calibration = {}, data = {} } = model;
  const views = Array.isArray(model.views) ? model.views.map((v) => v.name ?? v) : Object.keys(model.views ?? {});
  const facts = [
    ["Version", model.modelVersion && h("code", {}, model.modelVersion)], ["Extractor", extractor.name],
      ["Fingerprint", extractor.fingerprint && h("code", {}, extractor.fingerprint)],
    ["Views", views.join(", ")], ["Calibration", [calibration.method, calibration.basis].filter(Boolean).join(": ")],
    ["Prior", model.prior === undefined ? null : typeof model.prior === "object" ? JSON.stringify(model.prior) : percent(model.prior, 1)],
    ["Threshold", Number.isFinite(model.threshold) ? `accepts from LLR ${limits(pointInUse(model).halves ? pointInUse(model) : model)}` : null],
    ["Training data", data.name], ["People in the test", data.people], ["Trials",
      data.heldOut?.trials && Object.entries(data.heldOut.trials).map(([kind,
      n]) => `${kind} ${n.toLocaleString("en-GB")}`).join(", ")], ["Known phrases", model.knownPhrases.length],
      ["Licence of the data", data.licence],
  ].filter(([, value]) => value);
  main.append(h("h1", { tabindex: -1 }, "The model"),
    h("p", { class: "lede" },
      "One model scores the speaker and the phrase of a recording. It returns log-likelihood ratios (LLR); the accepted share of impostors, or costs and odds, determine the threshold."),
    h("div", { class: "two" },
      h("section", {}, h("h2", {}, "What it is"), h("dl", { class: "facts wide" },
        facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
      h("section", {}, h("h2", {}, "Where the threshold comes from"), pointsTable(model),
        h("p", { class: "small" },
          model.basis ?? `Measured on ${data.name ?? "the data of its calibration"}; intervals are of 95 %, over speakers. Other microphones, rooms and languages have other error rates: calibrate with your own recordings.`),
        h("h2", {}, "Limits"),
        h("p", {}, "It does not distinguish a live voice from a loudspeaker or from synthetic speech. Phrases chosen at the time of the attempt defeat old recordings; use a countermeasure where that is not enough."))),
    h("details", {}, h("summary", {}, "Model card as JSON"),
      h("pre", { tabindex: 0 }, JSON.stringify(model, null, 2))));
  return null;
}
