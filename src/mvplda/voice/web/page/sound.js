// Conversion of sound files and microphones to samples of one channel at the sample rate of the networks.

import { irfft, rfft } from "./fft.js";

const MIN_RATE = 4000, MAX_RATE = 768000;
const CANCELLATION = 1e-3; // peak of the mean of the channels, relative to theirs, below which they cancel each other
const PADDING_S = 0.1; // zeros after the sound, so that its end does not reach its beginning
const CODEC_RATE = 48000; // rate of Opus, and of most sound in WebM and MP4

/** A recording that cannot be used. */
export class SoundError extends Error {}

/** @param {number} a @param {number} b @returns {number} */
const divisor = (a, b) => (b ? divisor(b, a % b) : a);

/**
 * Change the rate of samples, with the frequency response that Python's resampler has.
 * @param {Float32Array} samples
 * @param {number} from samples per second
 * @param {number} to
 * @param {import("./mvplda.js").Responses} responses
 * @returns {Float32Array}
 */
export function resample(samples, from, to, responses) {
  if (from === to) return samples;
  const shared = divisor(from, to);
  const blocks = Math.ceil((samples.length + PADDING_S * from) / (from / shared));
  const before = (blocks * from) / shared, after = (blocks * to) / shared;
  const spectrum = rfft(samples, before);
  const count = Math.floor(after / 2) + 1;
  const re = new Float64Array(count), im = new Float64Array(count);
  const nyquist = Math.min(from, to) / 2;
  const gain = after / before;
  for (let k = 0; k < Math.min(count, spectrum.re.length); k++) {
    const h = gain * response((k * from) / before / nyquist, responses, from);
    re[k] = h * spectrum.re[k];
    im[k] = h * spectrum.im[k];
  }
  const length = Math.round((samples.length * to) / from);
  return Float32Array.from(irfft({ re, im }, after).subarray(0, length));
}

/**
 * Gain at a frequency relative to half of the lower rate, interpolated in the table of the nearest rate.
 * @param {number} frequency @param {import("./mvplda.js").Responses} responses @param {number} rate
 */
function response(frequency, { first, step, tables }, rate) {
  const rates = Object.keys(tables).map(Number);
  const distance = (/** @type {number} */ other) => Math.abs(Math.log(other / rate));
  const table = tables[rates.reduce((best, other) => (distance(other) < distance(best) ? other : best))];
  const at = (frequency - first) / step;
  if (at <= 0) return 1;
  const low = Math.floor(at);
  if (low >= table.length - 1) return 0;
  return table[low] + (at - low) * (table[low + 1] - table[low]);
}

/**
 * Check samples, mix channels and change the rate.
 * @param {Float32Array[]} channels full scale 1
 * @param {number} from samples per second
 * @param {number} to
 * @param {import("./mvplda.js").Responses} responses
 */
export function asSound(channels, from, to, responses) {
  if (!(from >= MIN_RATE && from <= MAX_RATE)) {
    throw new SoundError(`the recording has ${from} samples per second, expected ${MIN_RATE} to ${MAX_RATE}`);
  }
  if (!channels.length || !channels[0].length) throw new SoundError("the recording is empty: record it again");
  let mixed = channels[0];
  if (channels.length > 1) {
    mixed = mixed.map((_, i) => channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length);
  }
  const loudest = channels.reduce((most, channel) => Math.max(most, peak(channel)), 0);
  if (!Number.isFinite(loudest)) throw new SoundError("the recording has samples that are not finite: record it again");
  if (!loudest) throw new SoundError("the recording is silent: check the microphone");
  if (channels.length > 1 && peak(mixed) <= CANCELLATION * loudest) {
    throw new SoundError("the channels of the recording cancel each other: use one channel alone");
  }
  return resample(mixed, from, to, responses);
}

/** Largest absolute sample; NaN or infinite if a sample is. @param {Float32Array} samples */
export function peak(samples) {
  let most = 0;
  for (const x of samples) {
    if (!(Math.abs(x) <= most)) most = Math.abs(x);
    if (Number.isNaN(most)) return NaN;
  }
  return most;
}

/**
 * Decode a sound file: PCM here, everything else by the browser.
 * @param {ArrayBuffer} data
 * @returns {Promise<{channels: Float32Array[], rate: number}>}
 */
export async function decode(data) {
  const wav = decodeWav(data);
  if (wav) return wav;
  if (typeof OfflineAudioContext === "undefined") {
    throw new SoundError("only WAV files with 16-bit samples can be read here: convert the file");
  }
  const rate = flacRate(data) ?? CODEC_RATE;
  try {
    // the context has the rate of the file, so that the browser does not resample
    const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(data);
    const channels = Array.from({ length: sound.numberOfChannels }, (_, i) => sound.getChannelData(i));
    return { channels, rate: sound.sampleRate };
  } catch (error) {
    const problem = "the file is damaged, or not a sound file that this browser can read: try WAV or MP3";
    throw new SoundError(problem, { cause: error });
  }
}

/** @param {DataView} view @param {number} at @param {string} text */
const says = (view, at, text) => [...text].every((c, i) => view.getUint8(at + i) === c.charCodeAt(0));

/** Channels and rate of a WAV file with 16-bit PCM; undefined for other files. @param {ArrayBuffer} data */
export function decodeWav(data) {
  const view = new DataView(data);
  if (data.byteLength < 44 || !says(view, 0, "RIFF") || !says(view, 8, "WAVE")) return undefined;
  let count = 0, rate = 0;
  for (let at = 12; at + 8 <= data.byteLength;) {
    const size = view.getUint32(at + 4, true);
    if (says(view, at, "fmt ")) {
      if (view.getUint16(at + 8, true) !== 1 || view.getUint16(at + 22, true) !== 16) return undefined;
      count = view.getUint16(at + 10, true);
      rate = view.getUint32(at + 12, true);
    } else if (says(view, at, "data") && count) {
      const length = Math.floor(Math.min(size, data.byteLength - at - 8) / (2 * count));
      const channels = Array.from({ length: count }, () => new Float32Array(length));
      for (let i = 0; i < length; i++) {
        for (let c = 0; c < count; c++) channels[c][i] = view.getInt16(at + 8 + 2 * (i * count + c), true) / 32768;
      }
      return { channels, rate };
    }
    at += 8 + size + (size % 2);
  }
  return undefined;
}

/** Rate of a FLAC file; undefined for other files. @param {ArrayBuffer} data */
function flacRate(data) {
  const view = new DataView(data);
  if (data.byteLength < 42 || !says(view, 0, "fLaC")) return undefined;
  return (view.getUint16(18) << 4) | (view.getUint8(20) >> 4);
}
