// Detection of copies of recordings, changed or not: voice/fingerprint.py in JavaScript.

import { irfft, powerSpectrum, rfft, round } from "./fft.js";
import { quantile } from "./speech.js";

const RATE = 16000, WINDOW = 1024, HOP = 256, FINE_HOP = 64, LONGEST_S = 30;
const LOWEST_HZ = 280, HIGHEST_HZ = 3360, BAND_HZ = 40, FLOOR_DB = 45, LAG = 2, SMALLEST_DB = 1.5;
const SPEEDS = [0.98, 0.985, 0.99, 0.995, 1.0, 1.005, 1.01, 1.015, 1.02], OFFSETS = [0, HOP / 2];
const LEAST_OVERLAP = 0.6, LEAST_FRAMES = 12;
const LOW_BANDS = 33; // codecs of mobile telephones replace the harmonics above
const LIMITS = [{ bands: Infinity, long: 0.21, margin: 2.2 }, { bands: LOW_BANDS, long: 0.25, margin: 2.6 }];

/**
 * Fingerprint of a recording, and its fingerprints at the speeds and offsets of a test; null if the rate is not 16 kHz.
 * @param {Float32Array[]} parts samples of the recording @param {number} rate
 * @returns {{fingerprint: import("./mvplda.js").Fingerprint, variants: import("./mvplda.js").Fingerprint[]} | null}
 */
export function fingerprints(parts, rate) {
  if (rate !== RATE) return null;
  const samples = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => { samples.set(part, at); return at + part.length; }, 0);
  const spectrogram = powerSpectrogram(samples.subarray(0, LONGEST_S * RATE));
  const variants = SPEEDS.flatMap((speed) => OFFSETS.map((offset) => energyCodes(spectrogram, speed, offset)));
  return { fingerprint: energyCodes(spectrogram, 1, 0), variants };
}

/** Power spectra of windows. @param {Float32Array} samples */
function powerSpectrogram(samples) {
  const padded = new Float32Array(samples.length + WINDOW);
  padded.set(samples, WINDOW / 2);
  const shape = (/** @type {number} */ i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / (WINDOW - 1));
  const window = Float64Array.from({ length: WINDOW }, (_, i) => shape(i));
  const count = Math.floor(samples.length / FINE_HOP) + 1;
  return Array.from({ length: count }, (_, t) => (
    powerSpectrum(window.map((x, i) => x * padded[t * FINE_HOP + i]))));
}

/** Triangular weights of the bands of a recording that is to be played at a speed. @param {number} speed */
function bandWeights(speed) {
  // a frequency of the recording played faster is lower in the recording itself
  const edge = (/** @type {number} */ k) => (((LOWEST_HZ + k * BAND_HZ) / speed) * WINDOW) / RATE;
  const count = Math.ceil((HIGHEST_HZ - LOWEST_HZ) / BAND_HZ) - 2;
  return Array.from({ length: count }, (_, k) => {
    const low = edge(k), centre = edge(k + 1), high = edge(k + 2);
    const first = Math.ceil(low);
    const weights = [];
    for (let bin = first; bin <= high; bin++) {
      weights.push(Math.max(0, Math.min((bin - low) / (centre - low), (high - bin) / (high - centre))));
    }
    return { first, weights };
  });
}

/** Codes of a recording as if it were played at another speed, from an offset in samples.
 * @param {Float64Array[]} spectrogram @param {number} speed @param {number} offset
 * @returns {import("./mvplda.js").Fingerprint} */
function energyCodes(spectrogram, speed, offset) {
  const bank = bandWeights(speed);
  const step = (HOP * speed) / FINE_HOP, first = offset / FINE_HOP;
  const count = Math.max(0, Math.ceil((spectrogram.length - 0.5 - first) / step));
  const rows = Array.from({ length: count }, (_, t) => {
    const power = spectrogram[Math.min(round(first + t * step), spectrogram.length - 1)];
    return bank.map(({ first: bin, weights }) => (
      10 * Math.log10(weights.reduce((sum, weight, i) => sum + weight * power[bin + i], 0) + 1e-20)));
  });
  const top = count ? quantile(rows.flat(), 0.99) : 0;
  const slopes = rows.map((row) => {
    const levels = row.map((x) => Math.max(x - top, -FLOOR_DB));
    return levels.slice(1).map((x, k) => x - levels[k]);
  });
  const bands = bank.length - 1;
  const frames = Math.max(0, count - LAG);
  const codes = new Int8Array(frames * bands);
  for (let t = 0; t < frames; t++) {
    for (let k = 0; k < bands; k++) {
      const change = slopes[t + LAG][k] - slopes[t][k];
      if (Math.abs(change) > SMALLEST_DB) codes[t * bands + k] = Math.sign(change);
    }
  }
  return { bands, codes };
}

/** Number of frames that differ from silence. @param {import("./mvplda.js").Fingerprint} fingerprint */
function framesOf({ bands, codes }) {
  let count = 0;
  for (let t = 0; t < codes.length; t += bands) count += Number(codes.subarray(t, t + bands).some((x) => x !== 0));
  return count;
}

/**
 * Whether a recording is a changed copy of each of several others.
 * @param {import("./mvplda.js").Fingerprint[]} variants of the recording
 * @param {import("./mvplda.js").Fingerprint[]} originals
 * @returns {boolean[]}
 */
export function areCopies(variants, originals) {
  const frames = framesOf(variants[SPEEDS.indexOf(1) * OFFSETS.length]);
  const found = similarities(variants, originals);
  return originals.map((original, i) => {
    const shorter = Math.min(frames, framesOf(original));
    if (shorter < LEAST_FRAMES) return false;
    return LIMITS.some(({ long, margin }, limit) => found[i][limit] >= long + margin / Math.sqrt(shorter));
  });
}

/**
 * Largest correlations with each original over all speeds, offsets and alignments in time: one per limit.
 * @param {import("./mvplda.js").Fingerprint[]} variants
 * @param {import("./mvplda.js").Fingerprint[]} originals
 * @returns {number[][]}
 */
export function similarities(variants, originals) {
  const longest = (/** @type {import("./mvplda.js").Fingerprint[]} */ all) => (
    all.reduce((most, { bands, codes }) => Math.max(most, codes.length / bands), 1));
  let size = 1;
  while (size < longest(variants) + longest(originals)) size *= 2;
  const others = originals.map((original) => transformed(original, size));
  const best = originals.map(() => LIMITS.map(() => 0));
  for (const variant of variants) {
    const one = transformed(variant, size);
    others.forEach((other, i) => LIMITS.forEach(({ bands }, limit) => {
      best[i][limit] = Math.max(best[i][limit], largest(one, other, limit, bands, size));
    }));
  }
  return best;
}

/** Largest correlation over all alignments that overlap enough, in the bands of a limit.
 * @param {Transformed} one @param {Transformed} other
 * @param {number} limit @param {number} bands @param {number} size */
function largest(one, other, limit, bands, size) {
  const least = LEAST_OVERLAP * Math.min(one.parts[limit].total, other.parts[limit].total);
  if (!(least > 0)) return 0;
  const correlations = correlate(one.columns.slice(0, bands), other.columns.slice(0, bands), size);
  const ofOne = correlate([one.parts[limit].energy], [other.present], size);
  const ofOther = correlate([one.present], [other.parts[limit].energy], size);
  // energies are whole numbers, up to rounding in the transforms
  const enough = least - 0.1;
  return correlations.reduce((most, x, lag) => {
    if (ofOne[lag] < enough || ofOther[lag] < enough) return most;
    return Math.max(most, x / Math.sqrt(Math.max(ofOne[lag], 1) * Math.max(ofOther[lag], 1)));
  }, 0);
}

/** Transforms over time of the bands, of the presence of frames, and of their energy in the bands of each limit.
 * @param {import("./mvplda.js").Fingerprint} fingerprint @param {number} size @returns {Transformed} */
function transformed({ bands, codes }, size) {
  const frames = codes.length / bands;
  const columns = Array.from({ length: bands }, (_, k) => (
    rfft(Float64Array.from({ length: frames }, (__, t) => codes[t * bands + k]), size)));
  const parts = LIMITS.map(({ bands: most }) => {
    const energy = new Float64Array(frames);
    codes.forEach((x, i) => { if (i % bands < most) energy[Math.floor(i / bands)] += x * x; });
    return { total: energy.reduce((sum, x) => sum + x, 0), energy: rfft(energy, size) };
  });
  return { columns, parts, present: rfft(new Float64Array(frames).fill(1), size) };
}

/** Sum of the correlations of pairs of signals, from their transforms.
 * @param {Spectrum[]} ones @param {Spectrum[]} others @param {number} size */
function correlate(ones, others, size) {
  const re = new Float64Array(size / 2 + 1), im = new Float64Array(size / 2 + 1);
  ones.forEach((one, c) => {
    const other = others[c];
    for (let k = 0; k < re.length; k++) {
      re[k] += one.re[k] * other.re[k] + one.im[k] * other.im[k];
      im[k] += one.im[k] * other.re[k] - one.re[k] * other.im[k];
    }
  });
  return irfft({ re, im }, size);
}

/**
 * @typedef {{re: Float64Array, im: Float64Array}} Spectrum
 * @typedef {{columns: Spectrum[], present: Spectrum, parts: {total: number, energy: Spectrum}[]}} Transformed
 */
