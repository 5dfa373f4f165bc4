// Discrete Fourier transforms of any length, in double precision.

/** Round half to even, as Python does. @param {number} x @returns {number} */
export function round(x) {
  const floor = Math.floor(x);
  if (x - floor !== 0.5) return Math.round(x);
  return floor % 2 === 0 ? floor : floor + 1;
}

/** Complex transforms whose length is a power of two. */
class PowerOfTwo {
  /** @param {number} n */
  constructor(n) {
    this.n = n;
    this.cos = new Float64Array(n / 2);
    this.sin = new Float64Array(n / 2);
    for (let i = 0; i < n / 2; i++) {
      this.cos[i] = Math.cos((2 * Math.PI * i) / n);
      this.sin[i] = -Math.sin((2 * Math.PI * i) / n);
    }
    this.order = new Uint32Array(n);
    for (let i = 1; i < n; i++) this.order[i] = (this.order[i >> 1] >> 1) | (i & 1 ? n >> 1 : 0);
  }

  /** Transform in place. @param {Float64Array} re @param {Float64Array} im */
  forward(re, im) {
    const { n, cos, sin, order } = this;
    for (let i = 0; i < n; i++) {
      const j = order[i];
      if (j > i) {
        [re[i], re[j]] = [re[j], re[i]];
        [im[i], im[j]] = [im[j], im[i]];
      }
    }
    for (let half = 1; half < n; half *= 2) {
      const step = n / (2 * half);
      for (let start = 0; start < n; start += 2 * half) {
        for (let k = 0, t = 0; k < half; k++, t += step) {
          const a = start + k, b = a + half;
          const x = re[b] * cos[t] - im[b] * sin[t];
          const y = re[b] * sin[t] + im[b] * cos[t];
          re[b] = re[a] - x; im[b] = im[a] - y;
          re[a] += x; im[a] += y;
        }
      }
    }
  }
}

/** Complex transforms of any length, by Bluestein's algorithm: a convolution with a chirp. */
class Bluestein {
  /** @param {number} n */
  constructor(n) {
    this.n = n;
    let size = 1;
    while (size < 2 * n) size *= 2;
    this.fft = new PowerOfTwo(size);
    this.cos = new Float64Array(n);
    this.sin = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      // i * i modulo 2 n keeps the angle exact for long signals
      const angle = (Math.PI * ((i * i) % (2 * n))) / n;
      this.cos[i] = Math.cos(angle);
      this.sin[i] = -Math.sin(angle);
    }
    this.chirpRe = new Float64Array(size);
    this.chirpIm = new Float64Array(size);
    for (let i = 0; i < n; i++) {
      for (const at of i ? [i, size - i] : [0]) {
        this.chirpRe[at] = this.cos[i];
        this.chirpIm[at] = -this.sin[i];
      }
    }
    this.fft.forward(this.chirpRe, this.chirpIm);
  }

  /** Transform in place. @param {Float64Array} re @param {Float64Array} im */
  forward(re, im) {
    const { n, cos, sin, fft, chirpRe, chirpIm } = this;
    const size = fft.n;
    const a = new Float64Array(size), b = new Float64Array(size);
    for (let i = 0; i < n; i++) {
      a[i] = re[i] * cos[i] - im[i] * sin[i];
      b[i] = re[i] * sin[i] + im[i] * cos[i];
    }
    fft.forward(a, b);
    for (let i = 0; i < size; i++) {
      const x = a[i] * chirpRe[i] - b[i] * chirpIm[i];
      // the conjugate, so that a forward transform inverts
      b[i] = -(a[i] * chirpIm[i] + b[i] * chirpRe[i]);
      a[i] = x;
    }
    fft.forward(a, b);
    for (let i = 0; i < n; i++) {
      const x = a[i] / size, y = -b[i] / size;
      re[i] = x * cos[i] - y * sin[i];
      im[i] = x * sin[i] + y * cos[i];
    }
  }
}

/** @type {Map<number, PowerOfTwo | Bluestein>} */
const plans = new Map();
const MAX_PLANS = 16;

/** @param {number} n */
function plan(n) {
  let found = plans.get(n);
  if (!found) {
    if (plans.size >= MAX_PLANS) plans.delete(/** @type {number} */ (plans.keys().next().value));
    found = (n & (n - 1)) === 0 ? new PowerOfTwo(n) : new Bluestein(n);
    plans.set(n, found);
  }
  return found;
}

/**
 * Transform of real values, padded with zeros or cut to n.
 * @param {ArrayLike<number>} values
 * @param {number} [n]
 * @returns {{re: Float64Array, im: Float64Array}} n / 2 + 1 frequencies
 */
export function rfft(values, n = values.length) {
  const re = new Float64Array(n), im = new Float64Array(n);
  for (let i = 0; i < Math.min(n, values.length); i++) re[i] = values[i];
  plan(n).forward(re, im);
  const count = Math.floor(n / 2) + 1;
  return { re: re.subarray(0, count), im: im.subarray(0, count) };
}

/**
 * Real values of a spectrum; missing frequencies are zero.
 * @param {{re: ArrayLike<number>, im: ArrayLike<number>}} spectrum
 * @param {number} n number of values
 * @returns {Float64Array}
 */
export function irfft(spectrum, n) {
  const re = new Float64Array(n), im = new Float64Array(n);
  const count = Math.min(Math.floor(n / 2) + 1, spectrum.re.length);
  for (let k = 0; k < count; k++) {
    const isReal = k === 0 || 2 * k === n;
    re[k] = spectrum.re[k];
    // the conjugate of everything, so that a forward transform inverts
    im[k] = isReal ? 0 : -spectrum.im[k];
    if (!isReal) {
      re[n - k] = spectrum.re[k];
      im[n - k] = spectrum.im[k];
    }
  }
  plan(n).forward(re, im);
  for (let i = 0; i < n; i++) re[i] /= n;
  return re;
}

/** Power spectrum of real values. @param {ArrayLike<number>} values @param {number} [n] @returns {Float64Array} */
export function powerSpectrum(values, n = values.length) {
  const { re, im } = rfft(values, n);
  return re.map((x, k) => x * x + im[k] * im[k]);
}
