// Computation of a network's input from samples, and of a vector from its output: voice/extractors/front_end.py in
// JavaScript.

import { powerSpectrum, round } from "./fft.js";
import { peak, SoundError } from "./sound.js";

const FRAME_S = 0.025, SHIFT_S = 0.01, FLOOR = 2 ** -23, MIN_DEVIATION = 1e-5;
const MIN_POINT_FRAMES = 3;

/** Samples as a recipe requires them: cut to speech, scaled to a level, padded with silence.
 * @param {import("./speech.js").SoundSegment} segment @param {import("./mvplda.js").Recipe} recipe */
export function prepareSamples(segment, recipe) {
  const settings = recipe.samples;
  const samples = settings.cut ? segment.cut(settings.margin_s) : segment.samples;
  if (samples.length < settings.shortest_s * segment.rate) {
    throw new SoundError(`the recording is too short: at least ${settings.shortest_s} s are needed`);
  }
  const gain = settings.level === "peak" ? Math.fround(settings.level_value / peak(samples)) : 1;
  const pad = round(settings.pad_s * segment.rate);
  const prepared = new Float32Array(samples.length + 2 * pad);
  samples.forEach((x, i) => { prepared[pad + i] = x * gain; });
  return prepared;
}

/** @param {string} name @param {number} size */
function windowOf(name, size) {
  const cosine = (/** @type {number} */ i) => Math.cos((2 * Math.PI * i) / (size - 1));
  /** @type {Record<string, (i: number) => number>} */
  const shapes = {
    povey: (i) => (0.5 - 0.5 * cosine(i)) ** 0.85,
    hamming: (i) => 0.54 - 0.46 * cosine(i),
    hanning: (i) => 0.5 - 0.5 * cosine(i),
  };
  return Float64Array.from({ length: size }, (_, i) => shapes[name](i));
}

/** @param {number} hz */
const mel = (hz) => 1127 * Math.log(1 + hz / 700);

/** Triangular weights of the bins of a spectrum, per filter: first bin and weights.
 * @param {import("./mvplda.js").Recipe["features"]} settings @param {number} rate @param {number} size */
function filterBank(settings, rate, size) {
  const lowest = mel(settings.low_hz);
  const highest = mel(settings.high_hz > 0 ? settings.high_hz : rate / 2 + settings.high_hz);
  const step = (highest - lowest) / (settings.bins + 1);
  return Array.from({ length: settings.bins }, (_, filter) => {
    const left = lowest + filter * step, centre = left + step, right = centre + step;
    const weights = Float64Array.from({ length: size / 2 }, (__, bin) => {
      const at = mel((bin * rate) / size);
      return Math.max(0, Math.min((at - left) / (centre - left), (right - at) / (right - centre)));
    });
    const first = weights.findIndex((x) => x > 0);
    return { first, weights: weights.slice(first, weights.findLastIndex((x) => x > 0) + 1) };
  });
}

/** Kaldi's log filter banks of samples (full scale 1), normalised over time.
 * @param {Float32Array} samples @param {import("./mvplda.js").Recipe} recipe @returns {Frames} */
export function filterBanks(samples, recipe) {
  const { features: settings, rate } = recipe;
  const length = round(FRAME_S * rate), shift = round(SHIFT_S * rate);
  if (samples.length < length) throw new SoundError("the recording is too short: speak longer");
  let size = 1;
  while (size < length) size *= 2;
  const window = windowOf(settings.window, length);
  const bank = filterBank(settings, rate, size);
  const rows = Math.floor((samples.length - length) / shift) + 1;
  const frames = { rows, columns: settings.bins, data: new Float32Array(rows * settings.bins) };
  const scale = recipe.samples.scale;
  const frame = new Float64Array(length);
  for (let t = 0; t < rows; t++) {
    let mean = 0;
    for (let i = 0; i < length; i++) mean += samples[t * shift + i] * scale;
    mean /= length;
    for (let i = 0; i < length; i++) {
      const before = samples[t * shift + Math.max(i - 1, 0)] * scale - mean;
      frame[i] = window[i] * (samples[t * shift + i] * scale - mean - settings.preemphasis * before);
    }
    const power = powerSpectrum(frame, size);
    bank.forEach(({ first, weights }, filter) => {
      const energy = weights.reduce((sum, weight, i) => sum + weight * power[first + i], 0);
      frames.data[t * settings.bins + filter] = Math.log(Math.max(energy, FLOOR));
    });
  }
  normalise(frames, settings.normalisation);
  return frames;
}

/** Normalise columns over time, in place. @param {Frames} frames @param {string} kind */
function normalise({ rows, columns, data }, kind) {
  if (kind === "none") return;
  for (let c = 0; c < columns; c++) {
    let sum = 0, squares = 0;
    for (let t = 0; t < rows; t++) sum += data[t * columns + c];
    const mean = sum / rows;
    for (let t = 0; t < rows; t++) squares += (data[t * columns + c] - mean) ** 2;
    const deviation = Math.sqrt(squares / Math.max(1, rows - 1)) + MIN_DEVIATION;
    const divisor = kind === "mean+variance" ? deviation : 1;
    for (let t = 0; t < rows; t++) data[t * columns + c] = (data[t * columns + c] - mean) / divisor;
  }
}

/** Starts of windows, evenly spread from the first to the last frame, with equally many per third.
 * @param {number} last @param {number} step */
export function windowStarts(last, step) {
  const count = 3 * Math.ceil((Math.floor(last / step) + 1) / 3);
  const spacing = last / (count - 1);
  return Array.from({ length: count }, (_, i) => (i < count - 1 ? Math.floor(i * spacing) : last));
}

/** Means of the rows of each third, side by side. @param {Float32Array[]} rows */
export function thirds(rows) {
  const per = rows.length / 3, columns = rows[0].length;
  const means = new Float32Array(3 * columns);
  rows.forEach((row, i) => row.forEach((x, c) => { means[Math.floor(i / per) * columns + c] += x / per; }));
  return means;
}

/** Scale a row to length 1, in place. @template {Float32Array | Float64Array} T @param {T} row @returns {T} */
export function unit(row) {
  let squares = 0;
  for (const x of row) squares += x * x;
  const length = Math.max(Math.sqrt(squares), 1e-12);
  for (let i = 0; i < row.length; i++) row[i] /= length;
  return row;
}

/** Points in time of a recording: mean directions of a network's frames, and the duration in seconds.
 * @param {Frames} output @param {Float32Array} samples @param {import("./mvplda.js").Recipe} recipe
 * @param {Frames} basis */
export function pointsOf(output, samples, recipe, basis) {
  const { windows, rate } = recipe;
  const pad = round(recipe.samples.pad_s * rate);
  // frames of the padding are left out
  const first = round(pad / windows.step);
  const wanted = Math.max(round((samples.length - pad) / windows.step), first + MIN_POINT_FRAMES);
  const end = Math.min(wanted, output.rows);
  if (end <= first) throw new SoundError("the recording is too short: speak longer");
  const frames = [];
  for (let t = first; t < end; t++) {
    const frame = unit(output.data.slice(t * output.columns, (t + 1) * output.columns));
    const projected = new Float64Array(basis.columns);
    frame.forEach((x, row) => {
      for (let c = 0; c < basis.columns; c++) projected[c] += x * basis.data[row * basis.columns + c];
    });
    frames.push(projected);
  }
  const points = new Float32Array(windows.points * basis.columns + 1);
  intervalMeans(frames, windows.points).forEach((point, i) => points.set(unit(point), i * basis.columns));
  points[points.length - 1] = (frames.length * windows.step) / rate;
  return points;
}

/** Means of frames over equal intervals of time; interpolated values if there are few frames.
 * @param {Float64Array[]} frames @param {number} count @returns {Float64Array[]} */
export function intervalMeans(frames, count) {
  const total = frames.length;
  const edge = (/** @type {number} */ k) => (k * total) / count;
  if (total <= count) {
    return Array.from({ length: count }, (_, k) => interpolated(frames, (edge(k) + edge(k + 1)) / 2 - 0.5));
  }
  // a mean is a difference of integrals at the edges; the integral of piecewise constant frames is linear
  const integrals = [new Float64Array(frames[0].length)];
  for (const frame of frames) integrals.push(integrals[integrals.length - 1].map((x, c) => x + frame[c]));
  return Array.from({ length: count }, (_, k) => {
    const low = interpolated(integrals, edge(k));
    return interpolated(integrals, edge(k + 1)).map((x, c) => ((x - low[c]) * count) / total);
  });
}

/** Row at a fractional index, limited to the first and the last. @param {Float64Array[]} rows @param {number} at */
function interpolated(rows, at) {
  const limited = Math.min(rows.length - 1, Math.max(0, at));
  const low = Math.floor(limited), high = Math.min(low + 1, rows.length - 1);
  return rows[low].map((x, c) => x + (limited - low) * (rows[high][c] - x));
}

/** @typedef {{rows: number, columns: number, data: Float32Array}} Frames rows of a matrix */
