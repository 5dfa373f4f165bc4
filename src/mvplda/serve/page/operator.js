// Recent decisions, their scores, and their drift.

import { api } from "./api.js";
import { OUTCOMES, band, chart, circles, outcome, stacked, swatch, table } from "./draw.js";
import { h, percent, signed, when } from "./dom.js";
import { pointInUse, pointsTable } from "./model.js";

const HOUR = 3600e3;

export async function operatorView(main) {
  const [records, model] = await Promise.all([api.decisions(), api.model()]);
  const decisions = records.filter(({ decision }) => decision).map((r) => ({ ...r, time: Date.parse(r.at),
    kind: outcome(r) })).sort((a, b) => a.time - b.time);
  main.append(h("h1", { tabindex: -1 }, "Operator"));
  if (!decisions.length) {
    main.append(h("div", { class: "empty" }, circles(null, 120), h("p", {},
      "There are no decisions yet. They appear here without sound and without voice data.")));
    return null;
  }
  const counts = tally(decisions);
  const voice = pointInUse(model).halves?.speaker; // with halves, the joint LLR has no threshold
  const scored = decisions.map((r) => (voice ? { ...r, llr: r.llrSpeaker } : r)).filter(({ llr }) => Number.isFinite(llr));
  const threshold = voice?.accept ?? model.threshold ?? scored.at(-1)?.threshold ?? 0;
  main.append(
    h("p", { class: "lede" }, `${decisions.length.toLocaleString("en-GB")} decisions since ${when(decisions[0].at)}.`),
    h("ul", { class: "tiles" },
      Object.entries(OUTCOMES).filter(([kind]) => kind !== "other" || counts.other).map(([kind, text]) =>
      h("li", {}, swatch(kind), h("b", {}, percent((counts[kind] ?? 0) / decisions.length, 1)), h("span", {}, text),
        h("small", {}, counts[kind] ?? 0)))),
    h("div", { class: "charts" }, overTime(decisions), histogram(scored, threshold, voice), drift(scored, threshold),
      rates(model)),
    latest(decisions.slice(-12).reverse()));
  return null;
}

function tally(list) {
  const counts = {};
  for (const { kind } of list) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

const numbers = (columns, first) => table([first, ...Object.values(OUTCOMES)],
  columns.map(({ label, counts }) => [label, ...Object.keys(OUTCOMES).map((kind) => counts[kind] ?? 0)]));

function overTime(decisions) {
  const span = decisions.at(-1).time - decisions[0].time;
  const width = [HOUR / 6, HOUR, 6 * HOUR, 24 * HOUR, 7 * 24 * HOUR].find((w) => span / w <= 24) ?? 30 * 24 * HOUR;
  const offset = new Date().getTimezoneOffset() * 60e3; // days begin at local midnight
  const slot = (time) => Math.floor((time - offset) / width);
  const first = slot(decisions[0].time), last = slot(decisions.at(-1).time);
  const name = (k) => new Date(k * width + offset).toLocaleString("en-GB",
    width < 24 * HOUR ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" });
  const columns = Array.from({ length: last - first + 1 }, (_, i) => ({ label: name(first + i),
    counts: tally(decisions.filter(({ time }) => slot(time) === first + i)) }));
  return chart("Decisions over time", "Counts per verdict.", (w) => stacked(w, columns,
    { every: Math.max(1, Math.ceil((columns.length * 56) / w)),
    label: `Decisions over time, ${columns.length} bars` }), numbers(columns, "from"));
}

function histogram(scored, threshold, voice) {
  const values = scored.map(({ llr }) => llr).sort((a, b) => a - b);
  if (!values.length) return null;
  const low = Math.floor(Math.min(quantile(values, 0.01), threshold - 2)),
    high = Math.ceil(Math.max(quantile(values, 0.99), threshold + 2));
  const bins = 24, width = (high - low) / bins;
  const bin = (llr) => Math.max(0, Math.min(bins - 1, Math.floor((llr - low) / width)));
  const columns = Array.from({ length: bins }, (_, i) => ({ label: (low + i * width).toFixed(width < 1 ? 1 : 0).replace("-", "−"),
    counts: {} }));
  for (const { llr, kind } of scored) { const { counts } = columns[bin(llr)]; counts[kind] = (counts[kind] ?? 0) + 1; }
  return chart(voice ? "Scores of the voice" : "Scores", "LLRs of the attempts; the outermost bars include all values beyond the axis.",
    (w) => stacked(w, columns, {
    every: Math.max(1, Math.ceil((bins * 44) / w)), edges: true, label: "Histogram of likelihood ratios",
      marks: [{ at: (threshold - low) / width, text: "threshold" }] }), numbers(columns, "LLR from"));
}

const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(q * (sorted.length - 1))))];

/** Mann-Whitney statistic of late against early scores, in standard deviations. */
export function shift(early, late) {
  const all = [...early.map((v) => [v, 0]), ...late.map((v) => [v, 1])].sort((a, b) => a[0] - b[0]);
  let ranks = 0;
  for (let i = 0; i < all.length;) {
    let j = i;
    while (j < all.length && all[j][0] === all[i][0]) j++;
    for (let k = i; k < j; k++) if (all[k][1]) ranks += (i + j + 1) / 2;
    i = j;
  }
  const n = early.length, m = late.length;
  return (ranks - (m * (n + m + 1)) / 2) / Math.sqrt((n * m * (n + m + 1)) / 12);
}

function drift(scored, threshold) {
  const accepted = scored.filter(({ kind }) => kind === "accept");
  if (accepted.length < 20) return h("figure", { class: "chart" }, h("h2", {}, "Drift"),
    h("figcaption", {}, `Drift is shown from 20 accepted attempts on; there are ${accepted.length}.`));
  const groups = Math.min(12, Math.floor(accepted.length / 5));
  const points = Array.from({ length: groups }, (_, g) => {
    const group = accepted.slice(Math.floor((g * accepted.length) / groups), Math.floor(((g + 1) * accepted.length) / groups));
    const values = group.map(({ llr }) => llr).sort((a, b) => a - b);
    return { label: new Date(group[0].time).toLocaleDateString("en-GB", { day: "numeric", month: "short" }),
      low: quantile(values, 0.25), mid: quantile(values, 0.5), high: quantile(values, 0.75) };
  });
  const half = Math.floor(accepted.length / 2);
  const z = shift(accepted.slice(0, half).map(({ llr }) => llr), accepted.slice(half).map(({ llr }) => llr));
  const finding = Math.abs(z) < 3 ? `No drift: later scores are about as high as earlier ones (z ${signed(z)}).`
    : `Later scores are ${z < 0 ? "lower" : "higher"} than earlier ones (z ${signed(z)}): check microphones, rooms and the age of the profiles.`;
  return chart("Drift", `Median and middle half of accepted LLRs, in equal groups. ${finding}`,
    (w) => band(w, points, { level: threshold, levelText: "threshold", every: Math.ceil((groups * 56) / w),
    label: `Accepted scores over time. ${finding}` }),
    table(["from", "lower quarter", "median", "upper quarter"], points.map(({ label, low, mid, high }) => [label,
      low.toFixed(1), mid.toFixed(1), high.toFixed(1)])));
}

function rates(model) {
  return h("figure", { class: "chart" }, h("h2", {}, "Error rates at the threshold"), pointsTable(model),
    h("figcaption", {}, "Measured on the data of the calibration: the service itself cannot know who really spoke."));
}

function latest(decisions) {
  return h("section", {}, h("h2", {}, "Latest"), h("div", { class: "scroll", tabindex: 0, role: "region",
    "aria-label": "Latest decisions" },
    table(["when", "decision", "LLR", "voice", "phrase", "result"], decisions.map((d) => [
      new Date(d.time).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit",
        second: "2-digit" }),
      h("span", { class: "row tight" }, swatch(d.kind),
        OUTCOMES[d.kind] + (d.kind === "other" || (d.decision === "inconclusive" && d.reason) ? ` (${String(d.reason).replaceAll("_", " ")})` : "")),
      ...[d.llr, d.llrSpeaker, d.llrPhrase].map((v) => (Number.isFinite(v) ? signed(v) : "–")),
        h("code", {}, String(d.resultId).slice(0, 8))]))));
}
