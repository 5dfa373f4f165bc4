// Networks in onnxruntime-web: samples in, vectors out, as voice/extractors/onnx_network.py does.

import { filterBanks, pointsOf, prepareSamples, thirds, unit, windowStarts } from "./features.js";
import { SoundError } from "./sound.js";
import { SoundSegment } from "./speech.js";

const MIN_SEGMENT_WEIGHT = 1e-3; // a recording without speech has a vector too
const BATCH_SIZE = 32;

/** One network with its recipe. */
export class Network {
  /**
   * @param {any} ort onnxruntime-web
   * @param {import("./mvplda.js").Recipe} recipe
   * @param {(name: string) => Promise<Uint8Array>} read contents of a file of the site
   * @param {import("./features.js").Frames | null} basis
   */
  static async open(ort, recipe, read, basis) {
    const session = await openSession(ort, recipe.files, read);
    const graph = recipe.graph_files.length ? await openSession(ort, recipe.graph_files, read) : null;
    return new Network(ort, recipe, session, graph, basis);
  }

  /** @param {any} ort @param {import("./mvplda.js").Recipe} recipe @param {any} session @param {any} graph
   * @param {import("./features.js").Frames | null} basis */
  constructor(ort, recipe, session, graph, basis) {
    this.ort = ort;
    this.recipe = recipe;
    this.session = session;
    this.graph = graph;
    this.basis = basis;
  }

  /** Vector of a segment. @param {SoundSegment} segment @returns {Promise<Float32Array>} */
  async embed(segment) {
    const { recipe } = this;
    const samples = prepareSamples(segment, recipe);
    if (recipe.features.kind === "samples") {
      const scale = Math.fround(recipe.samples.scale);
      const output = await this.run(samples.map((x) => x * scale), [1, samples.length]);
      return this.basis ? pointsOf(output, samples, recipe, this.basis) : output.data;
    }
    const frames = this.graph ? await this.graphFrames(samples) : filterBanks(samples, recipe);
    if (recipe.windows.pool === "none") return (await this.run(...this.laidOut([frames]))).data;
    return this.pooled(frames);
  }

  /** Means over each third of the vectors of windows. @param {import("./features.js").Frames} frames */
  async pooled(frames) {
    const { windows } = this.recipe;
    const last = frames.rows - windows.frames;
    if (last < 0) throw new SoundError("the recording is too short: speak longer");
    const starts = windowStarts(last, windows.step);
    if (this.recipe.all_starts) {
      // overlapping windows share computations
      const { data } = await this.run(...this.laidOut([frames]));
      const columns = data.length / (last + 1);
      return thirds(starts.map((start) => data.subarray(start * columns, (start + 1) * columns)));
    }
    /** @type {Float32Array[]} */
    const rows = [];
    for (let k = 0; k < starts.length; k += BATCH_SIZE) {
      const batch = starts.slice(k, k + BATCH_SIZE).map((start) => ({
        rows: windows.frames,
        columns: frames.columns,
        data: frames.data.subarray(start * frames.columns, (start + windows.frames) * frames.columns),
      }));
      const { data } = await this.run(...this.laidOut(batch));
      const columns = data.length / batch.length;
      batch.forEach((_, i) => rows.push(data.slice(i * columns, (i + 1) * columns)));
    }
    return thirds(rows);
  }

  /** Frames of a network of features. @param {Float32Array} samples
   * @returns {Promise<import("./features.js").Frames>} */
  async graphFrames(samples) {
    const { features, samples: settings } = this.recipe;
    const scaled = samples.map((x) => x * settings.scale);
    const input = new this.ort.Tensor("float32", scaled, [1, scaled.length]);
    const outputs = await this.graph.run({ [this.graph.inputNames[0]]: input });
    const output = outputs[this.graph.outputNames[0]].data;
    const map = (/** @type {number} */ x) => Math.fround(x * features.multiply) + features.add;
    const data = Float32Array.from(output, map);
    return { rows: data.length / features.bins, columns: features.bins, data };
  }

  /** Data and shape of a batch of frames in the layout of the network.
   * @param {import("./features.js").Frames[]} batch */
  laidOut(batch) {
    const { layout } = this.recipe.network;
    const { rows, columns } = batch[0];
    const data = new Float32Array(batch.length * rows * columns);
    batch.forEach((frames, b) => {
      if (layout !== "bins-time") data.set(frames.data, b * rows * columns);
      else frames.data.forEach((x, i) => { data[(b * columns + (i % columns)) * rows + Math.floor(i / columns)] = x; });
    });
    /** @type {number[]} */
    let shape = [batch.length, rows, columns];
    if (layout === "bins-time") shape = [batch.length, columns, rows];
    if (layout === "time-bins-one") shape = [...shape, 1];
    return /** @type {const} */ ([data, shape, rows]);
  }

  /** Output of the network as rows. @param {Float32Array} data @param {number[]} shape @param {number} [length] */
  async run(data, shape, length = shape[1]) {
    const { ort, recipe, session } = this;
    const { lengths, mask, output } = recipe.network;
    const inputs = { [recipe.input]: new ort.Tensor("float32", data, shape) };
    if (lengths) {
      const all = new BigInt64Array(shape[0]).fill(BigInt(length));
      inputs[lengths] = new ort.Tensor("int64", all, [shape[0]]);
    }
    if (mask) {
      const count = shape[0] * length;
      const ones = recipe.mask_is_float ? new Float32Array(count).fill(1) : new BigInt64Array(count).fill(1n);
      inputs[mask] = new ort.Tensor(recipe.mask_is_float ? "float32" : "int64", ones, [shape[0], length]);
    }
    const tensor = (await session.run(inputs, [output]))[output];
    const columns = tensor.dims[tensor.dims.length - 1];
    return { rows: tensor.data.length / columns, columns, data: tensor.data };
  }
}

/** Open a network: its first file, and weights beside it. @param {any} ort @param {string[]} files
 * @param {(name: string) => Promise<Uint8Array>} read */
async function openSession(ort, [file, ...weights], read) {
  const externalData = await Promise.all(weights.map(async (name) => (
    { path: /** @type {string} */ (name.split("/").pop()), data: await read(name) }
  )));
  const options = { executionProviders: ["wasm"], externalData, logSeverityLevel: 3 };
  return ort.InferenceSession.create(await read(file), options);
}

/** Segments of samples, none longer than `longestS`; silent ones are left out.
 * @param {Float32Array} samples @param {number} rate @param {number} longestS */
export function segmentsOf(samples, rate, longestS) {
  const count = Math.ceil(samples.length / (longestS * rate));
  const size = Math.floor(samples.length / count), larger = samples.length % count;
  const segments = [];
  for (let i = 0, start = 0; i < count; i++) {
    const end = start + size + Number(i < larger);
    const part = samples.subarray(start, end);
    if (part.some((x) => x !== 0)) segments.push(new SoundSegment(part, rate));
    start = end;
  }
  return segments;
}

/** Vector of a recording: mean over its segments, weighted by the speech in each.
 * @param {Network[]} networks @param {SoundSegment[]} segments @returns {Promise<Float32Array>} */
export async function vectorOf(networks, segments) {
  /** @type {Float64Array | null} */
  let total = null;
  let weights = 0;
  for (const segment of segments) {
    const parts = [];
    for (const network of networks) parts.push(await network.embed(segment));
    const vector = networks.length === 1 ? [...parts[0]] : parts.flatMap((part) => [...unit(part)]);
    const weight = Math.max(segment.speechS, MIN_SEGMENT_WEIGHT);
    total ??= new Float64Array(vector.length);
    for (let i = 0; i < vector.length; i++) total[i] += weight * vector[i];
    weights += weight;
  }
  if (!total) throw new SoundError("the recording is silent: check the microphone");
  return Float32Array.from(total, (x) => x / weights);
}
