// Measurement of the quality of recordings: voice/audio/quality.py in JavaScript.

import { round } from "./fft.js";
import { peak } from "./sound.js";
import { DIGITAL_ZERO_DB, levelRange, quantile, SHIFT_S, SPECTRUM, STEADY_DB, ZERO_DB } from "./speech.js";

const FULL_SCALE = 0.999, MIN_CLIPPING_LEVEL = 0.1, UNEVEN_TOP = 0.8, MAX_TOP_SHARE = 0.12;
const NOISE_LEVEL = 0.1, NOISE_CREST = 12, VOICE_CREST = 18;
const LIMITS = { speech: 0.25, none: 0.1, quiet: -60, clipped: 0.001, snr: 10, bandwidth: 4100, broken: 0.002 };
const UNUSABLE = ["speechless", "short", "quiet"];

/** @param {number} power */
const decibels = (power) => Math.max(ZERO_DB, 10 * Math.log10(Math.max(power, 1e-30)));

/** Mean of the powers of levels. @param {number[]} levels */
const meanPower = (levels) => (levels.length ? levels.reduce((sum, x) => sum + 10 ** (x / 10), 0) / levels.length : 0);

/**
 * Quality of a recording from its segments.
 * @param {import("./speech.js").SoundSegment[]} segments
 * @param {number} rate
 * @returns {Promise<import("./mvplda.js").Quality>}
 */
export async function measure(segments, rate) {
  const length = segments.reduce((sum, segment) => sum + segment.samples.length, 0);
  const levels = segments.flatMap((segment) => [...segment.levels]);
  const isSpeech = segments.flatMap((segment) => [...segment.speech]);
  const isBroken = segments.flatMap(brokenWindows);
  const spectrum = segments[0].spectrum.map((_, k) => segments.reduce((sum, segment) => sum + segment.spectrum[k], 0));
  const speechS = isSpeech.reduce((sum, x) => sum + x, 0) * SHIFT_S;
  const peakDb = decibels(Math.max(...segments.map((segment) => peak(segment.samples))) ** 2);
  const clipped = segments.reduce((sum, segment) => sum + flatTops(segment.samples), 0) / length;
  const snrDb = signalToNoise(Float64Array.from(levels), isSpeech);
  const bandwidthHz = (lastBin(spectrum) * rate) / SPECTRUM;
  const broken = isBroken.filter(Boolean).length;
  const isSpeechless = speechS < LIMITS.none;
  /** @type {Record<string, boolean>} */
  const faults = {
    speechless: isSpeechless,
    short: !isSpeechless && speechS < LIMITS.speech,
    quiet: peakDb < LIMITS.quiet,
    clipped: clipped > LIMITS.clipped,
    noisy: snrDb !== null && snrDb < LIMITS.snr,
    narrow: bandwidthHz < LIMITS.bandwidth,
    damaged: broken >= Math.max(1, LIMITS.broken * isBroken.length),
  };
  const warnings = Object.keys(faults).filter((fault) => faults[fault]);
  return {
    durationS: length / rate,
    speechS,
    peakDb,
    levelDb: decibels(meanPower(levels.filter((_, t) => isSpeech[t]))),
    clipped,
    snrDb,
    bandwidthHz,
    warnings,
    usable: !warnings.some((fault) => UNUSABLE.includes(fault)),
    digest: await digestOf(segments, rate),
  };
}

/** Highest bin of a spectrum within 60 dB of the loudest. @param {Float64Array} spectrum */
function lastBin(spectrum) {
  const limit = spectrum.reduce((most, x) => Math.max(most, x), 0) * 1e-6;
  return Math.max(0, spectrum.findLastIndex((x) => x > limit));
}

/** Number of clipped samples: equal neighbours at the peak. @param {Float32Array} samples */
function flatTops(samples) {
  const top = peak(samples);
  if (top < MIN_CLIPPING_LEVEL) return 0;
  let near = 0, flat = 0;
  for (const x of samples) near += Number(Math.abs(x) > UNEVEN_TOP * top);
  if (near > MAX_TOP_SHARE * samples.length) return near;
  const isFlat = (/** @type {number} */ i) => (
    samples[i + 1] === samples[i] && Math.abs(samples[i + 1]) >= FULL_SCALE * top);
  for (let i = 0; i < samples.length; i++) {
    flat += Number((i + 1 < samples.length && isFlat(i)) || (i > 0 && isFlat(i - 1)));
  }
  return flat;
}

/** Mask of the windows that cannot be speech. @param {import("./speech.js").SoundSegment} segment */
function brokenWindows(segment) {
  // up to the bandwidth, because an empty band would make any spectrum look uneven
  const end = Math.max(2, lastBin(segment.spectrum) + 1);
  const levels = segment.windows.map((window) => (
    Math.sqrt(window.reduce((sum, x) => sum + x * x, 0) / SPECTRUM) + 1e-12));
  const loudest = levels.reduce((most, x) => Math.max(most, x), 0);
  const all = peak(segment.samples);
  return segment.windows.map((window, w) => {
    const power = segment.power[w].subarray(1, end).map((x) => x + 1e-20);
    const mean = power.reduce((sum, x) => sum + x, 0) / power.length;
    const flatness = Math.exp(power.reduce((sum, x) => sum + Math.log(x), 0) / power.length) / mean;
    const top = peak(window);
    const isNoise = flatness > 0.4 && levels[w] > Math.max(NOISE_LEVEL, 0.5 * loudest);
    const isSharp = top > (flatness > 0.3 ? NOISE_CREST : VOICE_CREST) * levels[w];
    return isNoise || (isSharp && top > 0.5 * all);
  });
}

/** Ratio of speech to the sound in its pauses, in dB; null without pauses. @param {Float64Array} levels
 * @param {number[]} isSpeech */
function signalToNoise(levels, isSpeech) {
  const [quiet, loud] = levelRange(levels);
  const between = levels.filter((x, t) => !isSpeech[t] && x > DIGITAL_ZERO_DB);
  const speech = [...levels].filter((_, t) => isSpeech[t]);
  if (loud - quiet < STEADY_DB || !between.length || !speech.length) return null;
  // the median is robust to loud sounds that are not speech
  const noise = 10 ** (quantile(between, 0.5) / 10);
  const signal = meanPower(speech) - noise;
  return 10 * Math.log10(Math.max(signal, 1e-12) / Math.max(noise, 1e-12));
}

/** Hash of the samples, equal for copies of a recording. @param {import("./speech.js").SoundSegment[]} segments
 * @param {number} rate */
async function digestOf(segments, rate) {
  const text = new TextEncoder().encode(String(rate));
  const length = segments.reduce((sum, segment) => sum + segment.samples.length, 0);
  const data = new DataView(new ArrayBuffer(text.length + 4 * length));
  text.forEach((byte, i) => data.setUint8(i, byte));
  let at = text.length;
  for (const { samples } of segments) {
    for (const x of samples) {
      data.setInt32(at, round(Math.min(32767, Math.max(-32767, x)) * 32768), true);
      at += 4;
    }
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data.buffer));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
