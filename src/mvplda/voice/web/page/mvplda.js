// Speaker and phrase verification in a browser: nothing leaves the device.

import { compare, decide } from "./backend.js";
import { areCopies, fingerprints } from "./copies.js";
import { Network, segmentsOf, vectorOf } from "./networks.js";
import { asSound, decode } from "./sound.js";
import { measure } from "./quality.js";

export { SoundError } from "./sound.js";

const LONGEST_S = 600;

/** @param {URL} address */
async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address.pathname} cannot be loaded (${answer.status}): is the site complete?`);
  return answer;
}

/** A model with its networks. */
export class Verifier {
  /**
   * Load the model and the networks of a site.
   * @param {string | URL} [site] address of the folder that `mvplda web` wrote
   * @param {(done: number, total: number, name: string) => void} [onprogress] called after each network
   * @returns {Promise<Verifier>}
   */
  static async load(site = new URL(".", import.meta.url), onprogress = () => {}) {
    const folder = new URL(site, globalThis.location?.href ?? import.meta.url);
    const model = await (await fetched(new URL("model.json", folder))).json();
    const numbers = await (await fetched(new URL("model.bin", folder))).arrayBuffer();
    const ort = await import(new URL("runtime/ort.wasm.min.mjs", folder).href);
    ort.env.wasm.numThreads = 1; // more threads need headers that static hosts do not send
    ort.env.wasm.wasmPaths = new URL("runtime/", folder).href;
    const read = async (/** @type {string} */ name) => (
      new Uint8Array(await (await fetched(new URL(`networks/${name}`, folder))).arrayBuffer()));
    return Verifier.open(model, numbers, ort, read, onprogress);
  }

  /**
   * Open a model from its parts, for surroundings without `fetch`.
   * @param {any} model contents of model.json
   * @param {ArrayBuffer} numbers contents of model.bin
   * @param {any} ort onnxruntime-web
   * @param {(name: string) => Promise<Uint8Array>} read contents of a file of networks/
   * @param {(done: number, total: number, name: string) => void} [onprogress]
   */
  static async open(model, numbers, ort, read, onprogress = () => {}) {
    const complete = withArrays(model, numbers);
    const networks = [];
    for (const recipe of complete.recipes) {
      networks.push(await Network.open(ort, recipe, read, recipe.basis));
      onprogress(networks.length, complete.recipes.length, recipe.name);
    }
    return new Verifier(complete, networks);
  }

  /** @param {any} model @param {Network[]} networks */
  constructor(model, networks) {
    this.model = model;
    this.networks = networks;
  }

  /** Name and version of the model: profiles of another model cannot be compared. @returns {string} */
  get key() { return this.model.key; }

  /** Views that are compared, such as speaker and phrase. @returns {string[]} */
  get views() { return this.model.backend.views; }

  /** Questions that the model answers, such as "speaker+phrase". @returns {string[]} */
  get questions() { return Object.keys(this.model.questions); }

  /** Networks that the model uses. @returns {import("./mvplda.js").Credit[]} */
  get credits() { return this.model.credits; }

  /**
   * Vector and quality of a recording.
   * @param {Blob | ArrayBuffer | import("./mvplda.js").Samples} source sound file, or
   * samples (full scale 1) with their rate
   * @returns {Promise<import("./mvplda.js").Recording>}
   */
  async recording(source) {
    const { rate } = this.model;
    let sound;
    if (source instanceof ArrayBuffer) sound = await decode(source);
    else if (source instanceof Blob) sound = await decode(await source.arrayBuffer());
    else sound = { channels: [source.samples], rate: source.rate };
    const longest = LONGEST_S * sound.rate;
    if (sound.channels[0]?.length > longest) throw new RangeError(`the recording is longer than ${LONGEST_S} s`);
    const samples = asSound(sound.channels, sound.rate, rate, this.model.responses);
    const segments = segmentsOf(samples, rate, this.model.segment_s);
    const vector = await vectorOf(this.networks, segments);
    const made = fingerprints(segments.map((segment) => segment.samples), rate);
    return { vector, quality: await measure(segments, rate), ...made };
  }

  /**
   * Decide whether two sides, each of one or more recordings, match.
   * @param {import("./mvplda.js").Recording[]} enrolled
   * @param {import("./mvplda.js").Recording[]} tested
   * @param {import("./mvplda.js").VerifyOptions} [options]
   * @returns {import("./mvplda.js").Decision}
   */
  verify(enrolled, tested, { same = this.views, far, threshold } = {}) {
    if (!enrolled.length || !tested.length) throw new RangeError("each side needs at least one recording");
    const question = this.question(same);
    const point = choosePoint(question, far, threshold);
    const vectors = (/** @type {import("./mvplda.js").Recording[]} */ side) => side.map(({ vector }) => vector);
    const decision = decide(compare(this.model.backend, question, vectors(enrolled), vectors(tested)), point);
    const qualities = [...enrolled, ...tested].map(({ quality }) => quality);
    decision.faults = [...new Set(qualities.flatMap(({ warnings }) => warnings))];
    if (tested.some((test) => isCopy(test, enrolled))) {
      return { ...decision, verdict: "reject", reason: "suspected_replay" };
    }
    if (qualities.some(({ usable }) => !usable)) {
      return { ...decision, verdict: "inconclusive", reason: "unusable_recording" };
    }
    return decision;
  }

  /** @param {string[]} same @returns {import("./mvplda.js").QuestionOfModel} */
  question(same) {
    const key = this.views.filter((view) => same.includes(view)).join("+");
    const question = this.model.questions[key];
    if (!question || same.some((view) => !this.views.includes(view))) {
      throw new RangeError(`the model compares ${this.questions.join(", ")}; got ${same.join("+")}`);
    }
    return question;
  }
}

/** Whether a test is a copy of an enrolled recording, changed or not.
 * @param {import("./mvplda.js").Recording} test @param {import("./mvplda.js").Recording[]} enrolled */
function isCopy(test, enrolled) {
  if (enrolled.some(({ quality }) => quality.digest === test.quality.digest)) return true;
  const originals = enrolled.flatMap(({ fingerprint }) => fingerprint ?? []);
  return Boolean(test.variants && areCopies(test.variants, originals).includes(true));
}

/** @param {import("./mvplda.js").QuestionOfModel} question @param {number} [far] @param {number} [threshold] */
function choosePoint({ points }, far, threshold) {
  if (threshold !== undefined) return { threshold: Math.max(0, threshold), reject: 0, far: null, halves: null };
  if (far === undefined) return points[0];
  const rateOf = (/** @type {import("./mvplda.js").OperatingPoint} */ point) => point.far ?? Infinity;
  const allowed = points.filter((point) => rateOf(point) <= far + 1e-12);
  if (!allowed.length) throw new RangeError(`this model has no thresholds for a false-acceptance rate of ${far}`);
  return allowed.reduce((best, point) => (rateOf(point) > rateOf(best) ? point : best));
}

/** Replace each `{"$array": [offset, ...shape]}` by its numbers: a list, or a matrix. @param {any} value
 * @param {ArrayBuffer} numbers
 * @returns {any} */
function withArrays(value, numbers) {
  if (Array.isArray(value)) return value.map((item) => withArrays(item, numbers));
  if (value === null || typeof value !== "object") return value;
  if (!value.$array) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withArrays(item, numbers)]));
  }
  const [offset, ...shape] = value.$array;
  const size = shape.reduce((/** @type {number} */ n, /** @type {number} */ m) => n * m, 1);
  const data = new Float64Array(numbers, offset, size);
  return shape.length === 1 ? data : { rows: shape[0], columns: shape[1], data };
}
