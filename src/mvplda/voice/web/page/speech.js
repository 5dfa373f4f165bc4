// Detection of speech by level and periodicity: voice/audio/speech_detection.py in JavaScript.

import { irfft, powerSpectrum, rfft, round } from "./fft.js";

const FRAME_S = 0.025;
export const SHIFT_S = 0.01;
export const DIGITAL_ZERO_DB = -100;
export const ZERO_DB = -120;
export const STEADY_DB = 4;
const BELOW_LOUD_DB = 30, MIN_RANGE_SHARE = 0.3;
const LOW_RATE = 4000, LOWEST_HZ = 60, HIGHEST_HZ = 1500, WINDOW_S = 0.064, EVEN_HZ = 500;
const PITCH_HZ = [70, 400], PERIODIC = 0.5, MAX_HARMONICS_DB = 20;
const LINE_HZ = 40, LINE = 0.97, PAIR = 0.9, PAIR_HZ = 600;
const STILL = 0.99, STILL_S = 0.08, TONE_SHARE = 0.5;
const MIN_VOICED_S = 0.03, NEAR_S = 0.2, GAP_S = 0.1, EDGE_S = 0.03;
export const SPECTRUM = 512;

/** @param {number} seconds @returns {number} */
const frames = (seconds) => round(seconds / SHIFT_S);

/** Periodic Hann window. @param {number} size */
export const hann = (size) => (
  Float64Array.from({ length: size }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / size)));

/** Quantile with linear interpolation. @param {ArrayLike<number>} values @param {number} share */
export function quantile(values, share) {
  const sorted = Float64Array.from(values).sort();
  const at = share * (sorted.length - 1);
  const low = Math.floor(at);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

/** Samples of a recording, or of a segment of one, with its levels, its speech and its spectra. */
export class SoundSegment {
  /** @param {Float32Array} samples full scale 1 @param {number} rate */
  constructor(samples, rate) {
    this.samples = samples;
    this.rate = rate;
    this.levels = levelsOf(samples, rate);
    this.speech = this.detect();
    this.speechS = this.speech.reduce((sum, x) => sum + x, 0) * SHIFT_S;
    this.windows = windowsOf(samples);
    const window = hann(SPECTRUM);
    this.power = this.windows.map((values) => {
      const power = powerSpectrum(values.map((x, i) => x * window[i]));
      power[0] = 0;
      return power;
    });
    this.spectrum = new Float64Array(SPECTRUM / 2 + 1);
    for (const power of this.power) power.forEach((x, k) => { this.spectrum[k] += x; });
  }

  /** Mask of the frames that are speech. @returns {Uint8Array} */
  detect() {
    const { levels } = this;
    const loud = loudFrames(levels);
    if (!loud.includes(1)) return loud;
    const isVoiced = voicedFrames(this, loud);
    let voiced = loud.map((x, t) => x & isVoiced[t]);
    const opening = (frames(MIN_VOICED_S) - 1) / 2;
    voiced = dilate(erode(voiced, opening), opening);
    const near = dilate(voiced, frames(NEAR_S));
    let speech = loud.map((x, t) => x & near[t]);
    // pauses within a word are filled, but nothing is added at the ends
    const closed = erode(dilate(speech, frames(GAP_S) / 2), frames(GAP_S) / 2);
    speech = speech.map((x, t) => x | closed[t]);
    return dilate(speech, frames(EDGE_S)).map((x, t) => x & Number(levels[t] > DIGITAL_ZERO_DB));
  }

  /** Samples from the first to the last speech with a margin; all without speech. @param {number} marginS */
  cut(marginS) {
    const first = this.speech.indexOf(1), last = this.speech.lastIndexOf(1);
    if (first < 0) return this.samples;
    const shift = round(SHIFT_S * this.rate), margin = round(marginS * this.rate);
    const end = last * shift + round(FRAME_S * this.rate) + margin;
    return this.samples.subarray(Math.max(0, first * shift - margin), end);
  }
}

/** Power of frames without their mean, in dB. @param {Float32Array} samples @param {number} rate */
function levelsOf(samples, rate) {
  const length = round(FRAME_S * rate), shift = round(SHIFT_S * rate);
  const count = samples.length < length ? 0 : Math.floor((samples.length - length) / shift) + 1;
  const floor = 10 ** (ZERO_DB / 10);
  return Float64Array.from({ length: count }, (_, t) => {
    let sum = 0, squares = 0;
    for (let i = t * shift; i < t * shift + length; i++) {
      sum += samples[i];
      squares += samples[i] * samples[i];
    }
    return 10 * Math.log10(Math.max(squares / length - (sum / length) ** 2, floor));
  });
}

/** Windows that overlap by half. @param {Float32Array} samples */
function windowsOf(samples) {
  const padded = new Float32Array(Math.max(samples.length, SPECTRUM));
  padded.set(samples);
  const count = Math.floor((padded.length - SPECTRUM) / (SPECTRUM / 2)) + 1;
  const start = (/** @type {number} */ w) => (w * SPECTRUM) / 2;
  return Array.from({ length: count }, (_, w) => padded.subarray(start(w), start(w) + SPECTRUM));
}

/** The 5th and the 95th percentile of levels, without digital zeros. @param {Float64Array} levels */
export function levelRange(levels) {
  const sound = levels.filter((x) => x > DIGITAL_ZERO_DB);
  return sound.length ? [quantile(sound, 0.05), quantile(sound, 0.95)] : [ZERO_DB, ZERO_DB];
}

/** Mask of frames close to the loud ones and clearly above the quiet ones. @param {Float64Array} levels */
function loudFrames(levels) {
  const [quiet, loud] = levelRange(levels);
  let limit = DIGITAL_ZERO_DB;
  if (loud - quiet >= STEADY_DB) limit = Math.max(loud - BELOW_LOUD_DB, quiet + MIN_RANGE_SHARE * (loud - quiet));
  return Uint8Array.from(levels, (x) => Number(x > limit));
}

/** Mask of frames that are periodic at a pitch and not part of a tone. @param {SoundSegment} segment
 * @param {Uint8Array} loud */
function voicedFrames(segment, loud) {
  const spectra = lowSpectra(segment.samples, segment.rate, loud.length);
  const still = stillness(spectra);
  const periodic = periodicity(spectra);
  const tones = new Uint8Array(loud.length), voiced = new Uint8Array(loud.length);
  spectra.forEach((spectrum, t) => {
    const power = spectrum.reduce((sum, x) => sum + x, 0) / spectrum.length ** 2;
    const hasHarmonics = 10 * Math.log10(Math.max(power, 1e-30)) > segment.levels[t] - MAX_HARMONICS_DB;
    const [line, pair] = lineShares(spectrum);
    tones[t] = Number(line > LINE || pair > PAIR || still[t] > STILL);
    voiced[t] = Number(hasHarmonics && periodic[t] > PERIODIC);
  });
  // whole stretches are tones or not: single frames of a tone may look voiced
  for (let start = 0, end; start < loud.length; start = end + 1) {
    end = start;
    let count = 0;
    while (end < loud.length && loud[end] && voiced[end]) count += tones[end++];
    if (count > TONE_SHARE * (end - start)) voiced.fill(0, start, end);
  }
  return voiced;
}

/** Power spectra around the middles of frames, in the band of the first harmonics. @returns {Float64Array[]} */
function lowSpectra(/** @type {Float32Array} */ samples, /** @type {number} */ rate, /** @type {number} */ count) {
  const { re, im } = rfft(samples);
  for (let k = 0; k < re.length; k++) {
    const hz = (k * rate) / samples.length;
    // the noise of rooms falls with frequency; without 3 dB per octave its lowest band would pass for a low voice
    const gain = hz < LOWEST_HZ || hz > HIGHEST_HZ ? 0 : Math.sqrt(hz / EVEN_HZ);
    re[k] *= gain;
    im[k] *= gain;
  }
  const length = round((samples.length * LOW_RATE) / rate);
  const low = irfft({ re, im }, length);
  const size = round(WINDOW_S * LOW_RATE);
  const window = hann(size);
  return Array.from({ length: count }, (_, t) => {
    const start = round((LOW_RATE * FRAME_S) / 2) + round(LOW_RATE * SHIFT_S) * t - size / 2;
    return powerSpectrum(window.map((x, i) => x * (low[start + i] ?? 0)), 2 * size);
  });
}

/** Largest autocorrelation at the lags of a pitch, per frame. @param {Float64Array[]} spectra */
function periodicity(spectra) {
  if (!spectra.length) return [];
  const size = spectra[0].length - 1;
  // two lags per sample, because the peak of a high voice lies between samples
  const lagsOf = (/** @type {Float64Array} */ power) => irfft({ re: power, im: new Float64Array(size + 1) }, 4 * size);
  const window = lagsOf(powerSpectrum(hann(size), 2 * size));
  const first = round((2 * LOW_RATE) / PITCH_HZ[1]), last = round((2 * LOW_RATE) / PITCH_HZ[0]);
  return spectra.map((power) => {
    const lags = lagsOf(power);
    let best = -Infinity;
    for (let lag = first; lag < last; lag++) {
      best = Math.max(best, lags[lag] / Math.max(lags[0], 1e-30) / (window[lag] / window[0]));
    }
    return best;
  });
}

/** Shares of the energy around the loudest frequency, and around two high ones. @param {Float64Array} spectrum */
function lineShares(spectrum) {
  const count = spectrum.length;
  const hz = LOW_RATE / 2 / (count - 1), width = round(LINE_HZ / hz);
  const totals = new Float64Array(count + 1);
  spectrum.forEach((x, k) => { totals[k + 1] = totals[k] + x; });
  const around = spectrum.map((_, k) => totals[Math.min(k + width + 1, count)] - totals[Math.max(k - width, 0)]);
  const largest = (/** @type {Float64Array} */ values) => (
    values.reduce((best, x, k) => (x > values[best] ? k : best), 0));
  const first = largest(around);
  // the second line must not share a bin with the first
  const others = around.map((x, k) => (Math.abs(k - first) > 2 * width ? x : 0));
  const second = largest(others);
  const energy = Math.max(totals[count], 1e-30);
  const areHigh = Math.min(first, second) * hz > PAIR_HZ;
  return [around[first] / energy, areHigh ? (around[first] + others[second]) / energy : 0];
}

/** Cosine of each spectrum with that 80 ms before or after, whichever is larger. @param {Float64Array[]} spectra */
function stillness(spectra) {
  const unit = spectra.map((power) => {
    const length = Math.max(Math.sqrt(power.reduce((sum, x) => sum + x, 0)), 1e-30);
    return power.map((x) => Math.sqrt(x) / length);
  });
  const still = new Float64Array(spectra.length);
  const lag = frames(STILL_S);
  for (let t = lag; t < unit.length; t++) {
    const cosine = unit[t].reduce((sum, x, k) => sum + x * unit[t - lag][k], 0);
    still[t] = Math.max(still[t], cosine);
    still[t - lag] = Math.max(still[t - lag], cosine);
  }
  return still;
}

/** Extend the ones of a mask by a number of frames on each side. @param {Uint8Array} mask @param {number} by */
function dilate(mask, by) {
  const wide = new Uint8Array(mask.length);
  mask.forEach((x, t) => { if (x) wide.fill(1, Math.max(0, t - by), t + by + 1); });
  return wide;
}

/** Keep the ones with a number of ones on each side; beyond the ends are zeros. @param {Uint8Array} mask
 * @param {number} by */
function erode(mask, by) {
  const narrow = Uint8Array.from(mask);
  mask.forEach((x, t) => { if (!x) narrow.fill(0, Math.max(0, t - by), t + by + 1); });
  narrow.fill(0, 0, by);
  narrow.fill(0, Math.max(0, mask.length - by));
  return narrow;
}
