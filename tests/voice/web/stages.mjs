// Runs one stage of the page's scripts: node stages.mjs FOLDER STAGE < arguments.json > result.json

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, stage] = process.argv.slice(2);
const load = (name) => import(new URL(name, pathToFileURL(`${folder}/`)));
const given = JSON.parse(readFileSync(0, "utf-8"));

const stages = {
  async transforms({ values }) {
    const { irfft, rfft } = await load("fft.js");
    return values.map((row) => {
      const { re, im } = rfft(row);
      return { re: [...re], im: [...im], back: [...irfft({ re, im }, row.length)] };
    });
  },
  async resampling({ samples, from, to, responses }) {
    const { resample } = await load("sound.js");
    return [...resample(Float32Array.from(samples), from, to, responses)];
  },
  async speech({ sounds, rate }) {
    const { SoundSegment } = await load("speech.js");
    const { measure } = await load("quality.js");
    return Promise.all(sounds.map(async (samples) => {
      const segment = new SoundSegment(Float32Array.from(samples), rate);
      return { speech: [...segment.speech], cut: segment.cut(0.1).length, quality: await measure([segment], rate) };
    }));
  },
  async features({ samples, recipe }) {
    const { SoundSegment } = await load("speech.js");
    const { filterBanks, prepareSamples } = await load("features.js");
    const prepared = prepareSamples(new SoundSegment(Float32Array.from(samples), recipe.rate), recipe);
    return { prepared: [...prepared], frames: [...filterBanks(prepared, recipe).data] };
  },
  async pooling({ frames, counts, lasts, step }) {
    const { intervalMeans, windowStarts } = await load("features.js");
    const rows = frames.map((row) => Float64Array.from(row));
    const means = counts.map((count) => intervalMeans(rows, count).map((row) => [...row]));
    return { means, starts: lasts.map((last) => windowStarts(last, step)) };
  },
  async segments({ length, rate, longest }) {
    const { segmentsOf } = await load("networks.js");
    return segmentsOf(new Float32Array(length).fill(0.1), rate, longest).map(({ samples }) => samples.length);
  },
  async copies({ recordings, originals, rate }) {
    const { areCopies, fingerprints, similarities } = await load("copies.js");
    const made = (samples) => fingerprints([Float32Array.from(samples)], rate);
    const others = originals.map((samples) => made(samples).fingerprint);
    return recordings.map((samples) => {
      const { fingerprint, variants } = made(samples);
      return {
        codes: [...fingerprint.codes],
        variants: variants.map(({ codes }) => [...codes]),
        copies: areCopies(variants, others),
        similarities: similarities(variants, others),
      };
    });
  },
  async wav({ data }) {
    const { decodeWav } = await load("sound.js");
    const sound = decodeWav(Uint8Array.from(data).buffer);
    return sound ? { rate: sound.rate, channels: sound.channels.map((channel) => [...channel]) } : null;
  },
  async verification({ model, numbers, trials }) {
    const { Verifier } = await load("mvplda.js");
    const bytes = Uint8Array.from(Buffer.from(numbers, "base64"));
    const verifier = await Verifier.open(model, bytes.buffer, null, null);
    const side = (vectors) => vectors.map(({ values, digest, usable }) => (
      { vector: Float32Array.from(values), quality: { digest, usable, warnings: [] } }));
    return trials.map(({ enrolled, tested, options }) => {
      try {
        return verifier.verify(side(enrolled), side(tested), options);
      } catch (error) {
        return { error: error.message };
      }
    });
  },
};

process.stdout.write(JSON.stringify(await stages[stage](given)));
