// Passes on the microphone's samples unchanged, in blocks of about 20 ms.
class Tap extends AudioWorkletProcessor {
  constructor() {
    super();
    this.size = Math.round(sampleRate * 0.02);
    this.block = new Float32Array(this.size);
    this.used = 0;
  }
  process(inputs) {
    const samples = inputs[0][0];
    if (samples) {
      for (const sample of samples) {
        this.block[this.used++] = sample;
        if (this.used === this.size) {
          this.port.postMessage(this.block);
          this.block = new Float32Array(this.size);
          this.used = 0;
        }
      }
    }
    return true;
  }
}
registerProcessor("tap", Tap);
