// Charts. Two circles stand for the voice (left, blue) and the phrase (right, amber): filled if it matches, hollow if it
// does not; if both match, their intersection is dark. Position and filling carry the meaning, so colour is not needed.

import { h, s, percent, signed, times } from "./dom.js";

export const KINDS = {
  TC: { voice: true, phrase: true, text: "right speaker, right phrase" },
  TW: { voice: true, phrase: false, text: "right speaker, wrong phrase" },
  IC: { voice: false, phrase: true, text: "impostor, right phrase" },
  IW: { voice: false, phrase: false, text: "impostor, wrong phrase" },
};

/** The two circles; dashed if `kind` is null. */
export function circles(kind, size = 44) {
  const { voice, phrase } = KINDS[kind] ?? { voice: null, phrase: null };
  const ring = (on) => (on === null ? "ring unknown" : on ? "ring on" : "ring off");
  return s("svg", { class: "circles", viewBox: "0 0 40 28", width: size, height: size * 0.7, "aria-hidden": "true",
    focusable: "false" },
    s("circle", { class: `${ring(voice)} voice`, cx: 14, cy: 14, r: 11.5 }),
    s("circle", { class: `${ring(phrase)} phrase`, cx: 26, cy: 14, r: 11.5 }),
    voice && phrase && s("path", { class: "meet", d: "M20 4.2a11.5 11.5 0 0 1 0 19.6a11.5 11.5 0 0 1 0-19.6z" }));
}

const DECADE = Math.log(10);
const at = (angle, radius) => [100 + radius * Math.cos(angle), 100 - radius * Math.sin(angle)];

/** A dial of an LLR: up is no evidence, right "same", left "other"; a tick is a factor of ten. */
export function dial(name, label, llr) {
  const reach = 3;
  const decades = Math.max(-reach, Math.min(reach, llr / DECADE));
  const angle = (d) => Math.PI / 2 - (d / reach) * (Math.PI * 0.46);
  const arc = (from, to, radius) => {
    const [x0, y0] = at(angle(from), radius), [x1, y1] = at(angle(to), radius);
    return `M${x0} ${y0}A${radius} ${radius} 0 0 ${from < to ? 1 : 0} ${x1} ${y1}`;
  };
  const ticks = Array.from({ length: 2 * reach + 1 }, (_, i) => i - reach).map((d) => {
    const [x0, y0] = at(angle(d), d % reach ? 84 : 79), [x1, y1] = at(angle(d), 89);
    return s("path", { class: "tick", d: `M${x0} ${y0}L${x1} ${y1}` });
  });
  const evidence = `${times(llr)} likelier ${llr >= 0 ? "the same" : label === "voice" ? "another" : "other"} ${label}`;
  return h("figure", { class: `dial ${name} ${llr >= 0 ? "yes" : "no"}` },
    s("svg", { viewBox: "0 4 200 108", role: "img", "aria-label": `${label}: LLR ${signed(llr)}, ${evidence}` },
      s("path", { class: "track", d: arc(-reach, reach, 94) }),
      Math.abs(decades) > 0.02 && s("path", { class: "swept", d: arc(0, decades, 94) }),
      ticks,
      s("path", { class: "needle", d: "M100 100V30",
        "--turn": `${(90 - (180 * angle(decades)) / Math.PI).toFixed(1)}deg` }),
        s("circle", { class: "hub", cx: 100, cy: 100, r: 6 }),
      s("text", { x: 14, y: 111, class: "end" }, "other"), s("text", { x: 186, y: 111, class: "end",
        "text-anchor": "end" }, "same")),
    h("figcaption", {}, h("b", {}, label), h("span", { class: "number" }, signed(llr)), h("small", {}, evidence)));
}

/** Where the recording lies between the four possibilities. */
export function plane(llrSpeaker, llrPhrase) {
  const reach = Math.max(3 * DECADE, 1.15 * Math.max(Math.abs(llrSpeaker), Math.abs(llrPhrase)));
  const position = (v) => 150 + (140 * Math.max(-reach, Math.min(reach, v))) / reach;
  const x = position(llrPhrase), y = 300 - position(llrSpeaker);
  const likeliest = llrSpeaker >= 0 ? (llrPhrase >= 0 ? "TC" : "TW") : llrPhrase >= 0 ? "IC" : "IW";
  const region = (kind, left, top) => s("g", { class: `region ${kind} ${kind === likeliest ? "likeliest" : ""}` },
    s("rect", { x: left, y: top, width: 140, height: 140 }),
    s("text", { x: left + (left > 100 ? 131 : 9), y: top + (top > 100 ? 131 : 18),
      "text-anchor": left > 100 ? "end" : "start" }, kind));
  return h("figure", { class: "plane" },
    s("svg", { viewBox: "-14 0 318 318", role: "img",
      "aria-label": `Plane of the two likelihood ratios: phrase ${signed(llrPhrase)} across, voice ${signed(llrSpeaker)} up. The point lies in ${likeliest}, ${KINDS[likeliest].text}.` },
      region("TW", 10, 10), region("TC", 150, 10), region("IW", 10, 150), region("IC", 150, 150),
      s("path", { class: "axis", d: "M150 10V290M10 150H290" }),
      s("path", { class: "lead voice", d: `M150 ${y}H${x}` }), s("path", { class: "lead phrase", d: `M${x} 150V${y}` }),
      s("circle", { class: "halo", cx: x, cy: y, r: 13 }), s("circle", { class: "point", cx: x, cy: y, r: 6.5 }),
      s("text", { class: "name phrase", x: 150, y: 311, "text-anchor": "middle" }, "phrase →"),
      s("text", { class: "name voice", x: 0, y: 150, "text-anchor": "middle", transform: "rotate(-90 0 150)" },
        "voice →")),
    h("figcaption", {}, "Each region is one kind of trial."));
}

/** The four probabilities. */
export function bars(posteriors) {
  return h("ul", { class: "bars", "aria-label": "Probabilities of the kinds of trials" },
    Object.entries(KINDS).map(([kind, { text }]) => {
      const p = posteriors[kind] ?? 0;
      return h("li", {}, circles(kind, 34),
        h("span", { class: "what" }, text),
        h("span", { class: "number" }, p > 0.9995 && p < 1 ? "> 99.9 %" : p < 0.0005 && p > 0 ? "< 0.1 %" : percent(p,
          1)),
        h("span", { class: `bar ${kind}`, "--share": p }, h("i")));
    }));
}

/** The axis of the LLR with both thresholds: accepting begins at one, rejecting ends at the other. */
export function scale(llr, threshold, lower, decision) {
  const reach = Math.max(1.4 * Math.abs(threshold), 1.15 * Math.abs(llr), 8);
  const x = (v) => 10 + (380 * (Math.max(-reach, Math.min(reach, v)) + reach)) / (2 * reach);
  const low = Math.min(lower ?? threshold, threshold);
  return h("figure", { class: `scale ${decision}` },
    s("svg", { viewBox: "0 0 400 58", role: "img",
      "aria-label": `LLR ${signed(llr)}; accepts from ${signed(threshold)}` }, hatching(),
      s("rect", { class: "no", x: 10, y: 26, width: x(low) - 10, height: 8 }),
      s("rect", { class: "maybe", x: x(low), y: 26, width: x(threshold) - x(low), height: 8 }),
      s("rect", { class: "yes", x: x(threshold), y: 26, width: 390 - x(threshold), height: 8 }),
      s("path", { class: "axis", d: `M${x(threshold)} 22V40` }),
      s("text", { x: x(threshold), y: 53, "text-anchor": x(threshold) > 320 ? "end" : "middle" },
        `accepts from ${signed(threshold)}`),
      s("path", { class: "marker", d: `M${x(llr)} 24l-6 -10h12z` }),
      s("text", { class: "value", x: x(llr), y: 10,
        "text-anchor": llr > 0.8 * reach ? "end" : llr < -0.8 * reach ? "start" : "middle" }, `LLR ${signed(llr)}`)));
}

/** A picture that is drawn anew for every width, so that its letters stay legible on a phone. */
export function chart(title, note, paint, table) {
  const hold = h("div", { class: "hold" });
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (Math.round(contentRect.width) === width || !contentRect.width) return;
    width = Math.round(contentRect.width);
    hold.replaceChildren(paint(width));
  }).observe(hold);
  return h("figure", { class: "chart" }, h("h2", {}, title), hold, h("figcaption", {}, note),
    table && h("details", {}, h("summary", {}, "Table"), h("div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, table)));
}

export function table(head, rows, caption) {
  return h("table", {}, caption && h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h(i ? "td" : "th", i ? {} : { scope: "row" },
      cell))))));
}

export const OUTCOMES = {
  accept: "accepted",
  wrong_speaker: "rejected: wrong speaker",
  wrong_phrase: "rejected: wrong phrase",
  both: "rejected: both",
  other: "rejected: other reasons",
  inconclusive: "inconclusive",
};

export const outcome = ({ decision, reason }) =>
  decision === "reject" ? (reason in OUTCOMES && reason !== "accept" ? reason : "other") : decision;

/** How a kind of decision is painted, wherever it appears. */
export function swatch(kind) {
  return s("svg", { class: "swatch", viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, hatching(),
    s("rect", { class: `mass ${kind}`, width: 14, height: 14, rx: 3 }));
}

function hatching() {
  return s("defs", {}, s("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)" },
    s("rect", { class: "hatch-ground", width: 5, height: 5 }), s("rect",
      { class: "hatch-line", width: 2, height: 5 })));
}

/** A label of the axis; the last one ends where the picture does. */
function underAxis(x, width, height, text) {
  const last = x > width - 22;
  return s("text", { x: last ? width : x, y: height - 7, "text-anchor": last ? "end" : "middle" }, text);
}

/** Bars of counts on top of each other. columns: [{label, counts: {kind: n}}]; marks: [{at (in columns), text}];
 * edges: a label marks the left edge of its column. */
export function stacked(width, columns, { marks = [], every = 1, edges = false, label }) {
  const height = 190, left = 30, bottom = 24, top = 18;
  const largest = Math.max(1, ...columns.map(({ counts }) => Object.values(counts).reduce((a, b) => a + b, 0)));
  const step = (width - left - 6) / columns.length;
  const thick = Math.min(0.8 * step, 44);
  const y = (n) => top + (height - top - bottom) * (1 - n / largest);
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, hatching(),
    [0, largest].map((n) => s("g", {}, s("path", { class: "grid", d: `M${left} ${y(n)}H${width}` }),
      s("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, n))),
    columns.map(({ label: name, counts }, i) => {
      let below = 0;
      const segments = Object.keys(OUTCOMES).filter((kind) => counts[kind]).map((kind) => {
        const rect = s("rect", { class: `mass ${kind}`, x: left + (i + 0.5) * step - thick / 2, width: thick,
          y: y(below + counts[kind]), height: y(below) - y(below + counts[kind]) });
        below += counts[kind];
        return rect;
      });
      return s("g", {}, segments, i % every === 0 && underAxis(left + (i + (edges ? 0 : 0.5)) * step, width, height, name));
    }),
    marks.map(({ at: column, text }) => s("g", { class: "mark" }, s("path",
      { d: `M${left + column * step} ${top - 6}V${height - bottom}` }),
      s("text", { x: left + column * step + (column * step > width / 2 ? -5 : 5), y: top - 4,
        "text-anchor": column * step > width / 2 ? "end" : "start" }, text))));
}

/** A line with a band. points: [{label, low, mid, high}]; level: a value to compare with. */
export function band(width, points, { level, levelText, label, every = 1 }) {
  const height = 190, left = 36, bottom = 24, top = 12;
  const values = points.flatMap(({ low, high }) => [low, high]).concat(level ?? []);
  const [lowest, highest] = [Math.min(...values), Math.max(...values)];
  const y = (v) => top + (height - top - bottom) * (1 - (v - lowest) / (highest - lowest || 1));
  const x = (i) => left + 10 + ((width - left - 20) * i) / Math.max(1, points.length - 1);
  const path = (pick) => points.map((point, i) => `${i ? "L" : "M"}${x(i)} ${y(point[pick])}`).join("");
  const back = points.map((point, i) => `L${x(i)} ${y(point.low)}`).reverse().join("");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    [lowest, highest].map((v) => s("g", {}, s("path", { class: "grid", d: `M${left} ${y(v)}H${width}` }),
      s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, v.toFixed(1)))),
    s("path", { class: "spread", d: `${path("high")}${back}Z` }), s("path", { class: "line", d: path("mid") }),
    points.map(({ mid, label: name }, i) => s("g", {}, s("circle", { class: "dot", cx: x(i), cy: y(mid), r: 3.5 }),
      i % every === 0 && underAxis(x(i), width, height, name))),
    level !== undefined && s("g", { class: "mark" }, s("path", { d: `M${left} ${y(level)}H${width}` }),
      s("text", { x: width - 4, y: y(level) - 5, "text-anchor": "end" }, levelText)));
}
