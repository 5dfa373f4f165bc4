// One recording: open the microphone, count in, record until the speaker has finished, and close it.
//
// Raw samples through an AudioWorklet become a WAV file here, rather than MediaRecorder's WebM or (in Safari) MP4:
// every browser makes the same file, no codec changes the voice, and the meter shows the very samples that are sent.

const PRE_ROLL = 15; // blocks of 20 ms before "go": many people begin early
const SILENCE_S = 3; // longest wait for speech
const QUIET_DB = -70, SPEECH_OVER_FLOOR_DB = 12, MIN_SPEECH_DB = -52;

export const canRecord = () => Boolean(window.AudioWorkletNode && navigator.mediaDevices?.getUserMedia);

const decibels = (power) => Math.max(QUIET_DB, 10 * Math.log10(power + 1e-12));

function loudness(block) {
  let power = 0, peak = 0;
  for (const x of block) { power += x * x; peak = Math.max(peak, Math.abs(x)); }
  return { db: decibels(power / block.length), peak };
}

/** Record until silence follows speech, nothing but silence came, `stop()` is called, or `longest` seconds are over. */
export class Recorder {
  constructor({ device, countIn = 3, longest = 8, pause = 0.9, onstate, onlevel }) {
    Object.assign(this, { device, countIn, longest, pause, onstate, onlevel });
    this.blocks = [];
    this.spoken = 0;
    this.silent = 0;
    this.levels = [];
    this.listening = false;
  }

  async start() {
    this.onstate("opening");
    const processing = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const audio = { channelCount: 1, ...processing, ...(this.device && { deviceId: { exact: this.device } }) };
    this.stream = await navigator.mediaDevices.getUserMedia({ audio });
    if (this.cancelled) { this.close(); return null; }
    this.context = new AudioContext();
    await this.context.resume();
    await this.context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
    const tap = new AudioWorkletNode(this.context, "tap", { numberOfOutputs: 0 });
    this.context.createMediaStreamSource(this.stream).connect(tap);
    this.finished = new Promise((resolve) => (this.finish = resolve));
    tap.port.onmessage = ({ data }) => this.add(data);
    for (let left = this.countIn; left > 0 && !this.cancelled; left--) {
      this.onstate("count", left);
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
    this.listening = true;
    if (!this.cancelled) this.onstate("listening");
    else this.finish();
    await this.finished;
    const { sampleRate } = this.context;
    this.close();
    if (this.silence && !this.cancelled) {
      throw new Error("Silence: no speech was recorded. Speak up, or choose another microphone under Settings.");
    }
    return this.cancelled ? null : { file: wav(this.blocks, sampleRate), blocks: this.blocks, sampleRate };
  }

  add(block) {
    const { db, peak } = loudness(block);
    this.blocks.push(block);
    if (db > QUIET_DB) this.levels.push(db); // drivers begin with zeros, which are not the noise of the room
    if (!this.listening) {
      this.blocks = this.blocks.slice(-PRE_ROLL);
      this.onlevel?.({ db, peak, elapsed: 0 });
      return;
    }
    const speech = db > Math.max(MIN_SPEECH_DB, this.floor() + SPEECH_OVER_FLOOR_DB);
    this.spoken += speech;
    this.silent = speech ? 0 : this.silent + 1;
    const elapsed = (this.blocks.length - PRE_ROLL) * 0.02;
    this.onlevel?.({ db, peak, elapsed: elapsed / this.longest });
    this.silence = this.spoken < 5 && elapsed > SILENCE_S;
    if (this.silence || (this.spoken > 12 && this.silent * 0.02 > this.pause) || elapsed > this.longest) this.stop();
  }

  /** Noise level of the room: the lowest tenth of the last four seconds. */
  floor() {
    const sorted = this.levels.slice(-200).sort((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 10)] ?? QUIET_DB;
  }

  stop() { this.listening && this.finish?.(); }

  cancel() { this.cancelled = true; this.finish?.(); }

  close() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.context?.close();
    this.onstate("closed");
  }
}

/** A WAV file of one channel and 16 bits. */
function wav(blocks, rate) {
  const count = blocks.reduce((sum, block) => sum + block.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * count));
  const word = (at, text) => [...text].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  word(0, "RIFF"); view.setUint32(4, 36 + 2 * count, true); word(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, rate, true); view.setUint32(28, 2 * rate, true); view.setUint16(32, 2, true); view.setUint16(34,
    16, true);
  word(36, "data"); view.setUint32(40, 2 * count, true);
  let at = 44;
  for (const block of blocks) for (const x of block) {
    view.setInt16(at, Math.round(32767 * Math.max(-1, Math.min(1, x))), true);
    at += 2;
  }
  return new File([view], "recording.wav", { type: "audio/wav" });
}

/** Play a recording to the speaker. */
export async function play({ blocks, sampleRate }) {
  const context = new AudioContext({ sampleRate });
  const count = blocks.reduce((sum, block) => sum + block.length, 0);
  const buffer = context.createBuffer(1, count, sampleRate);
  let at = 0;
  for (const block of blocks) { buffer.copyToChannel(block, 0, at); at += block.length; }
  const source = new AudioBufferSourceNode(context, { buffer });
  source.connect(context.destination);
  source.onended = () => context.close();
  source.start();
}
