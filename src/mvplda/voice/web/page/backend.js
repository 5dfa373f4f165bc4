// Comparison of an enrolled side with a test: the log-likelihood ratio, calibrated, and the verdict.
// The formulas are those of docs/math.md, sections 9.11 (domain and pair) and 9.12 (near matches of a phrase).

import { unit } from "./features.js";
import { quantile } from "./speech.js";

const WINDOW = 4, NEAR_MATCH_PRIOR = 0.3, MAX_PHRASE_LLR = 1.5, ONE_WORD_S = 0.8, RAMP_S = 0.4;
const MIN_DISTANCE = 1e-4, MIN_SECONDS = 0.05;

/** @param {number[]} values */
function logSum(values) {
  const most = Math.max(...values);
  return most === -Infinity ? most : most + Math.log(values.reduce((sum, x) => sum + Math.exp(x - most), 0));
}

/** @param {Float64Array} a @param {Float64Array} b */
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/** Views of a hypothesis. @param {string} name */
const viewsOf = (name) => (name === "nothing" ? [] : name.split("+"));

/** Evidence of a vector: each block without its channel, at length 1.
 * @param {Float32Array} vector @param {import("./mvplda.js").Block[]} blocks @returns {Float64Array[]} */
function project(vector, blocks) {
  return blocks.map((block) => {
    const row = Float64Array.from(vector.subarray(block.start, block.end));
    if (block.points) return projectPoints(row, block.points.points);
    const { channel } = block;
    const shares = Float64Array.from({ length: channel.rows }, (_, r) => (
      dot(channel.data.subarray(r * channel.columns, (r + 1) * channel.columns), row)));
    shares.forEach((share, r) => row.forEach((_, c) => { row[c] -= share * channel.data[r * channel.columns + c]; }));
    return unit(row);
  });
}

/** Points at length 1, and the seconds before the block was scaled. @param {Float64Array} row @param {number} count */
function projectPoints(row, count) {
  const points = row.subarray(0, -1), columns = points.length / count;
  row[row.length - 1] /= Math.sqrt(dot(points, points) / count);
  for (let k = 0; k < count; k++) unit(points.subarray(k * columns, (k + 1) * columns));
  return row;
}

/** Sums of the blocks of several vectors. @param {Float32Array[]} vectors
 * @param {import("./mvplda.js").Block[]} blocks */
function side(vectors, blocks) {
  const sums = vectors.map((vector) => project(vector, blocks)).reduce((total, rows) => (
    total.map((sum, b) => sum.map((x, i) => x + rows[b][i]))));
  return { count: vectors.length, sums };
}

/** Centre of the domain and its variance, given the enrolled mean; without adaptation, those of the model.
 * @param {import("./mvplda.js").Block} block @param {Float64Array} mean @param {number} count
 * @param {boolean} adapts */
function domainOf(block, mean, count, adapts) {
  const { variances } = block;
  if (!adapts) return { centre: block.mean.map((x, i) => x + block.shift[i]), variance: block.domain_variance };
  const variance = variances.own + variances.other + variances.cell + variances.take / count;
  const weight = 1 / (variance * meanSquareAbout(block.mean, block.min_mean_square));
  const precision = 1 / block.prior_domain_variance + weight;
  return {
    centre: block.mean.map((x, i) => x + (weight * (mean[i] - x)) / precision),
    variance: 1 / precision,
  };
}

/** @param {Float64Array} centre @param {number} least */
const meanSquareAbout = (centre, least) => Math.max(1 - dot(centre, centre), least);

/** Mean of unit-length vectors, scaled about a centre. @param {Float64Array} mean @param {Float64Array} centre */
function scaleAbout(mean, centre) {
  const square = 1 - 2 * dot(mean, centre) + dot(centre, centre);
  return mean.map((x, i) => (x - centre[i]) / Math.sqrt(Math.max(square, 1e-6)));
}

/** log N(e, t) - log N(e) - log N(t) for vectors with variances A, B and covariance R per column.
 * @param {Float64Array} e @param {Float64Array} t @param {number} A @param {number} B @param {number} R */
function sharedEffect(e, t, A, B, R) {
  const gain = R / B, residual = A - R * gain;
  return (gain / residual) * dot(e, t) + 0.5 * (1 / A - 1 / residual) * dot(e, e)
    - 0.5 * ((gain * gain) / residual) * dot(t, t) + 0.5 * e.length * Math.log(A / residual);
}

/** LLR of one block: same class against other classes of one domain.
 * @param {import("./mvplda.js").Block} block @param {Side} enrolled @param {Side} tested @param {number} b
 * @param {boolean} adapts */
function blockLlr(block, enrolled, tested, b, adapts) {
  const meanOf = (/** @type {Side} */ { sums, count }) => sums[b].map((x) => x / count);
  const { centre, variance } = domainOf(block, meanOf(enrolled), enrolled.count, adapts);
  const e = scaleAbout(meanOf(enrolled), centre), t = scaleAbout(meanOf(tested), centre);
  const { own, other, cell, take } = block.variances;
  const columns = centre.length;
  const tau = variance / meanSquareAbout(centre, block.min_mean_square) / columns;
  const psi = own / columns;
  const session = (other + cell + block.session_ratio * own) / columns;
  const A = psi + tau + session + take / columns / enrolled.count;
  const B = psi + tau + session + take / columns / tested.count;
  return block.weight * (sharedEffect(e, t, A, B, psi + tau) - sharedEffect(e, t, A, B, tau));
}

/** Probability that the recordings of a side have a narrow band, such as telephone calls.
 * @param {import("./mvplda.js").Backend} backend @param {Side} side */
function narrowProbability({ blocks, band }, { sums, count }) {
  const logOdds = blocks.reduce((sum, block, b) => (
    block.points ? sum : sum + dot(block.band_weights, sums[b]) / count), band?.constant ?? 0);
  return 1 / (1 + Math.exp(-logOdds));
}

/** Evidence about near matches of a phrase, from points in time.
 * @param {NonNullable<import("./mvplda.js").Block["points"]>} settings @param {Side} enrolled
 * @param {Side} tested @param {number} b */
function nearMatches(settings, enrolled, tested, b) {
  const { points: count, whole, part } = settings;
  const pointsOf = (/** @type {Side} */ { sums }) => {
    const columns = (sums[b].length - 1) / count;
    return Array.from({ length: count }, (_, k) => unit(sums[b].slice(k * columns, (k + 1) * columns)));
  };
  const e = pointsOf(enrolled), t = pointsOf(tested);
  const products = e.map((one) => t.map((other) => dot(one, other)));
  const distances = products.map((row, k) => (
    1 - (Math.max(...row) + Math.max(...products.map((other) => other[k]))) / 2));
  let worst = -Infinity;
  for (let k = 0; k + WINDOW <= count; k++) {
    worst = Math.max(worst, distances.slice(k, k + WINDOW).reduce((sum, x) => sum + x, 0) / WINDOW);
  }
  const aligned = 1 - products.reduce((sum, row, k) => sum + row[k], 0) / count;
  const log = (/** @type {number} */ x) => Math.log(Math.max(x, MIN_DISTANCE));
  const raw = whole[0] + whole[1] * log(distances.reduce((sum, x) => sum + x, 0) / count);
  const secondsOf = (/** @type {Side} */ { sums, count: recordings }) => (
    Math.max(sums[b][sums[b].length - 1] / recordings, MIN_SECONDS));
  const seconds = secondsOf(tested);
  const statistics = [
    1, log(quantile(distances, 0.25)), log(worst), log(aligned), Math.abs(Math.log(seconds / secondsOf(enrolled))),
  ];
  return {
    view: settings.view,
    // limited to +-1.5 without a corner
    same: logSum([-logSum([-raw, -MAX_PHRASE_LLR]), -MAX_PHRASE_LLR]),
    llr: part.reduce((sum, weight, k) => sum + weight * statistics[k], 0),
    prior: NEAR_MATCH_PRIOR * Math.min(1, Math.max(0, (seconds - ONE_WORD_S) / RAMP_S)),
  };
}

/** Log-likelihoods in which a different class may be a near match.
 * @param {Record<string, number>} logs @param {NearMatches | null} near */
function withNearMatches(logs, near) {
  if (!near) return logs;
  const mixed = { ...logs };
  for (const name of Object.keys(logs)) {
    const views = viewsOf(name);
    if (views.includes(near.view)) continue;
    const other = Object.keys(logs).find((key) => {
      const candidates = viewsOf(key);
      return candidates.length === views.length + 1 && [...views, near.view].every((view) => candidates.includes(view));
    });
    if (!other) continue;
    mixed[name] = logSum([Math.log1p(-near.prior) + logs[name], Math.log(near.prior) - near.llr + logs[other]]);
  }
  return mixed;
}

/** Calibrated LLR of one view. @param {import("./mvplda.js").Calibration} calibration @param {string} view
 * @param {number} raw @param {Record<string, number>} measures @param {NearMatches | null} near */
function calibratedView(calibration, view, raw, measures, near) {
  const same = near && near.view === view ? calibration.near_match_weight * near.same : 0;
  const slopes = calibration.slopes[view] ?? [1], constants = calibration.constants[view] ?? [0];
  let slope = slopes[0], constant = constants[0];
  amountsOf(calibration, measures).forEach((amount, k) => {
    slope += (slopes[k + 1] ?? 0) * amount;
    constant += (constants[k + 1] ?? 0) * amount;
  });
  return slope * raw + constant + same;
}

/** Amounts of evidence above the least of the calibration, limited to its range.
 * @param {import("./mvplda.js").Calibration} calibration @param {Record<string, number>} measures */
function amountsOf(calibration, measures) {
  return calibration.measures.map(({ name, least, largest, typical }) => (
    Math.min(largest, Math.max(least, measures[name] ?? typical)) - least));
}

/** LLR of the same phrase against near matches. @param {import("./mvplda.js").Calibration} calibration
 * @param {NearMatches} near @param {number} raw raw LLR of its view @param {Record<string, number>} measures */
function calibratedNearMatch(calibration, near, raw, measures) {
  const { near_match: { evidence, llr, constant, amounts: slopes } } = calibration;
  const amounts = amountsOf(calibration, measures);
  return slopes.reduce((sum, slope, k) => sum + slope * amounts[k], evidence * near.llr + llr * raw + constant);
}

/**
 * Compare an enrolled side, which is the only profile, with a test.
 * @param {import("./mvplda.js").Backend} backend
 * @param {import("./mvplda.js").QuestionOfModel} question
 * @param {Float32Array[]} enrolledVectors
 * @param {Float32Array[]} testedVectors
 * @returns {Answer}
 */
export function compare(backend, question, enrolledVectors, testedVectors) {
  const { blocks, views } = backend;
  const enrolled = side(enrolledVectors, blocks), tested = side(testedVectors, blocks);
  /** @type {Record<string, number>} */
  const raw = Object.fromEntries(views.map((view) => [view, 0]));
  /** @type {Record<string, number>} */
  const measures = {};
  /** @type {NearMatches | null} */
  let near = null;
  blocks.forEach((block, b) => {
    if (!block.points) {
      raw[block.view] += blockLlr(block, enrolled, tested, b, backend.adapts);
      return;
    }
    const seconds = tested.sums[b][tested.sums[b].length - 1] / tested.count;
    measures[backend.measures.seconds] = Math.log(Math.max(seconds, MIN_SECONDS) * tested.count);
    measures[backend.measures.recordings] = Math.log(enrolled.count);
    if (question.same.includes(block.points.view)) near = nearMatches(block.points, enrolled, tested, b);
  });
  if (backend.band) {
    const one = narrowProbability(backend, enrolled), other = narrowProbability(backend, tested);
    measures[backend.measures.bands] = one * (1 - other) + other * (1 - one);
  }
  const names = Object.keys({ ...question.numerator, ...question.denominator });
  const { calibration } = question;
  let inliers = Object.fromEntries(names.map((name) => [name, viewsOf(name).reduce((sum, view) => (
    sum + (calibration ? calibratedView(calibration, view, raw[view], measures, near) : raw[view])
  ), calibration?.offsets[name] ?? 0)]));
  if (near && calibration) {
    const { view } = /** @type {NearMatches} */ (near);
    near = { .../** @type {NearMatches} */ (near), llr: calibratedNearMatch(calibration, near, raw[view], measures) };
  }
  inliers = withNearMatches(inliers, near);
  const logs = calibration ? withOutliers(inliers, calibration.outlier_probability) : inliers;
  return { question, raw, inliers, logs, llr: ratio(question, logs) };
}

/** Log posteriors at equal priors, mixed with an outlier probability. @param {Record<string, number>} logs
 * @param {number} share */
function withOutliers(logs, share) {
  const names = Object.keys(logs);
  const total = logSum(Object.values(logs));
  const outlier = Math.log(share / names.length);
  return Object.fromEntries(names.map((name) => [name, logSum([Math.log1p(-share) + logs[name] - total, outlier])]));
}

/** @param {import("./mvplda.js").QuestionOfModel} question @param {Record<string, number>} logs */
function ratio({ numerator, denominator }, logs) {
  const weighted = (/** @type {Record<string, number>} */ weights) => (
    logSum(Object.entries(weights).map(([name, weight]) => logs[name] + weight)));
  return weighted(numerator) - weighted(denominator);
}

/** Log-sums of the hypotheses with a view, and of those without it. @param {Record<string, number>} logs
 * @param {string} view */
function split(logs, view) {
  const values = (/** @type {boolean} */ isSame) => (
    Object.keys(logs).filter((name) => viewsOf(name).includes(view) === isSame).map((name) => logs[name]));
  const same = values(true), different = values(false);
  return { ratio: logSum(same) - logSum(different), counts: Math.log(different.length) - Math.log(same.length) };
}

/**
 * Verdict about a comparison at the thresholds of an operating point.
 * @param {Answer} answer
 * @param {import("./mvplda.js").OperatingPoint} point
 * @returns {import("./mvplda.js").Decision}
 */
export function decide({ question, inliers, logs, llr }, point) {
  const weights = { ...question.numerator, ...question.denominator };
  const weighted = Object.fromEntries(Object.entries(weights).map(([name, weight]) => [name, logs[name] + weight]));
  const total = logSum(Object.values(weighted));
  /** @type {Record<string, number>} */
  const probabilities = {};
  for (const [name, value] of Object.entries(weighted)) {
    const shared = viewsOf(name).filter((view) => question.same.includes(view)).join("+") || "nothing";
    probabilities[shared] = (probabilities[shared] ?? 0) + Math.exp(value - total);
  }
  const evidence = Object.fromEntries(question.same.map((view) => {
    const half = split(inliers, view), odds = split(weighted, view), prior = split(weights, view);
    const isHalf = Boolean(point.halves);
    return [view, { llr: isHalf ? half.ratio + half.counts : odds.ratio - prior.ratio, odds: odds.ratio }];
  }));
  const { verdict, reason, views } = point.halves
    ? decideHalves(evidence, point.halves)
    : decideTogether(llr, evidence, point);
  const llrs = Object.fromEntries(Object.entries(evidence).map(([view, values]) => [view, values.llr]));
  return { verdict, reason, llr, llrs, views, probabilities, point, faults: [] };
}

/** @param {number} llr @param {{accept: number, reject: number}} limits @returns {import("./mvplda.js").Verdict} */
function verdictOf(llr, { accept, reject }) {
  if (llr >= accept) return "accept";
  return llr <= reject ? "reject" : "inconclusive";
}

/** Verdict with thresholds per view. @param {Evidence} evidence
 * @param {Record<string, {accept: number, reject: number}>} halves
 * @returns {Outcome} */
function decideHalves(evidence, halves) {
  const views = Object.fromEntries(Object.entries(evidence).map(([view, { llr }]) => (
    [view, verdictOf(llr, halves[view])])));
  const failed = Object.keys(views).filter((view) => views[view] === "reject");
  /** @type {import("./mvplda.js").Verdict} */
  let verdict = failed.length ? "reject" : "inconclusive";
  if (Object.values(views).every((view) => view === "accept")) verdict = "accept";
  return { verdict, reason: reasonOf(verdict, failed, evidence), views };
}

/** Verdict with a threshold of the joint LLR. @param {number} llr @param {Evidence} evidence
 * @param {import("./mvplda.js").OperatingPoint} point @returns {Outcome} */
function decideTogether(llr, evidence, point) {
  const limits = { accept: point.threshold, reject: point.reject };
  let verdict = verdictOf(llr, limits);
  // with a positive LLR no view can be unlikely, except by rounding
  let failed = llr < 0 ? Object.keys(evidence).filter((view) => evidence[view].odds < 0) : [];
  if (failed.length) verdict = "reject";
  else if (verdict === "reject" && Object.keys(evidence).length === 1) failed = Object.keys(evidence);
  const views = Object.fromEntries(Object.entries(evidence).map(([view, values]) => {
    /** @type {[string, import("./mvplda.js").Verdict]} */
    const rejected = [view, "reject"];
    if (failed.includes(view)) return rejected;
    const isAccepted = Math.max(llr, values.llr) >= point.threshold && (verdict !== "reject" || failed.length > 0);
    return /** @type {[string, import("./mvplda.js").Verdict]} */ ([view, isAccepted ? "accept" : "inconclusive"]);
  }));
  return { verdict, reason: reasonOf(verdict, failed, evidence), views };
}

/** @param {import("./mvplda.js").Verdict} verdict @param {string[]} failed @param {Evidence} evidence */
function reasonOf(verdict, failed, evidence) {
  if (verdict === "accept") return null;
  if (verdict === "inconclusive") return "not_enough_evidence";
  if (failed.length > 1 && failed.length === Object.keys(evidence).length) return "both";
  if (!failed.length) return "either";
  return `wrong_${failed.reduce((least, view) => (evidence[view].llr < evidence[least].llr ? view : least))}`;
}

/**
 * @typedef {{count: number, sums: Float64Array[]}} Side number of recordings, and sums of their blocks
 * @typedef {{view: string, same: number, llr: number, prior: number}} NearMatches
 * @typedef {{question: import("./mvplda.js").QuestionOfModel, raw: Record<string, number>,
 *   inliers: Record<string, number>, logs: Record<string, number>, llr: number}} Answer
 * @typedef {Record<string, {llr: number, odds: number}>} Evidence
 * @typedef {{verdict: import("./mvplda.js").Verdict, reason: string | null,
 *   views: Record<string, import("./mvplda.js").Verdict>}} Outcome
 */
