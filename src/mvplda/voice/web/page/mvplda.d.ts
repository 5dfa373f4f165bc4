// Types of mvplda.js.

export type Verdict = "accept" | "reject" | "inconclusive";

export interface Samples {
  /** One channel, full scale 1. */
  samples: Float32Array;
  /** Samples per second. */
  rate: number;
}

export interface Quality {
  durationS: number;
  speechS: number;
  peakDb: number;
  levelDb: number;
  /** Share of samples in flat tops at the limit. */
  clipped: number;
  /** Null without pauses. */
  snrDb: number | null;
  bandwidthHz: number;
  /** speechless, short, quiet, clipped, noisy, narrow, damaged */
  warnings: string[];
  /** Whether there is enough speech for a decision. */
  usable: boolean;
  /** Hash of the samples, equal for copies. */
  digest: string;
}

export interface Fingerprint {
  /** Number of columns of `codes`. */
  bands: number;
  /** Signs of energy differences: -1, 0 or 1. Sound cannot be restored from them. */
  codes: Int8Array;
}

export interface Recording {
  vector: Float32Array;
  quality: Quality;
  /** Recognises changed copies of this recording, once it is enrolled. */
  fingerprint?: Fingerprint;
  /** The fingerprint at other speeds: only a test needs them, a profile need not store them. */
  variants?: Fingerprint[];
}

export interface OperatingPoint {
  threshold: number;
  reject: number;
  /** Share of impostors that the thresholds were chosen for. */
  far: number | null;
  /** Thresholds per view; null if the joint LLR decides. */
  halves: Record<string, { accept: number; reject: number }> | null;
}

export interface VerifyOptions {
  /** Views that must be the same; all by default. */
  same?: string[];
  /** Share of impostors that may be accepted: one that the model was measured at, or more. */
  far?: number;
  /** Threshold of the joint LLR instead. */
  threshold?: number;
}

export interface Decision {
  verdict: Verdict;
  /** wrong_speaker, wrong_phrase, both, either, not_enough_evidence, unusable_recording, suspected_replay */
  reason: string | null;
  /** Natural logarithm of the likelihood ratio of the question. */
  llr: number;
  /** LLR of each view, which its thresholds apply to. */
  llrs: Record<string, number>;
  views: Record<string, Verdict>;
  /** Probability of each set of shared views, such as "speaker+phrase" or "nothing". */
  probabilities: Record<string, number>;
  point: OperatingPoint;
  faults: string[];
}

export interface Credit { title: string; licence: string; source: string }

/** A model with its networks. */
export class Verifier {
  /** Load the model and the networks of a site that `mvplda web` wrote; by default, the folder of this module. */
  static load(site?: string | URL, onprogress?: (done: number, total: number, name: string) => void): Promise<Verifier>;
  /** Open a model from its parts, for surroundings without fetch. */
  static open(
    model: unknown,
    numbers: ArrayBuffer,
    ort: unknown,
    read: (name: string) => Promise<Uint8Array>,
    onprogress?: (done: number, total: number, name: string) => void,
  ): Promise<Verifier>;
  /** Name and version of the model: profiles of another model cannot be compared. */
  readonly key: string;
  /** Views that are compared, such as speaker and phrase. */
  readonly views: string[];
  /** Questions that the model answers, such as "speaker+phrase". */
  readonly questions: string[];
  /** Networks that the model uses. */
  readonly credits: Credit[];
  /** Vector and quality of a recording: a sound file, or samples. */
  recording(source: Blob | ArrayBuffer | Samples): Promise<Recording>;
  /** Decide whether two sides, each of one or more recordings, match. */
  verify(enrolled: Recording[], tested: Recording[], options?: VerifyOptions): Decision;
}

/** A recording that cannot be used. */
export class SoundError extends Error {}

// The files of a site: model.json, with the arrays of model.bin.

export interface Matrix { rows: number; columns: number; data: Float64Array }

export interface Responses { first: number; step: number; tables: Record<string, number[]> }

export interface Recipe {
  name: string;
  rate: number;
  samples: {
    scale: number; level: string; level_value: number; pad_s: number; shortest_s: number; cut: boolean;
    margin_s: number;
  };
  features: {
    kind: string; bins: number; window: string; low_hz: number; high_hz: number; preemphasis: number;
    normalisation: string; multiply: number; add: number;
  };
  network: { lengths: string; mask: string; output: string; layout: string };
  windows: { frames: number; step: number; pool: string; points: number };
  input: string;
  mask_is_float: boolean;
  all_starts: boolean;
  files: string[];
  graph_files: string[];
}

export interface Block {
  view: string;
  start: number;
  end: number;
  /** Settings of a block of points; null for an embedding. */
  points: { view: string; points: number; whole: number[]; part: number[] } | null;
  channel: Matrix;
  band_weights: Float64Array;
  mean: Float64Array;
  shift: Float64Array;
  variances: { own: number; other: number; cell: number; take: number; domain: number };
  prior_domain_variance: number;
  domain_variance: number;
  session_ratio: number;
  min_mean_square: number;
  weight: number;
}

export interface Backend {
  views: string[];
  /** Whether the domain is that of the enrolled recordings. */
  adapts: boolean;
  blocks: Block[];
  measures: { seconds: string; recordings: string; bands: string };
  /** Estimate of a narrow band, with the weights of the blocks; null without it. */
  band: { constant: number } | null;
}

export interface Calibration {
  measures: { name: string; least: number; largest: number; typical: number }[];
  slopes: Record<string, number[]>;
  constants: Record<string, number[]>;
  offsets: Record<string, number>;
  near_match_weight: number;
  /** Coefficients of the LLR of the same phrase against near matches. */
  near_match: { evidence: number; llr: number; constant: number; amounts: number[] };
  outlier_probability: number;
}

export interface QuestionOfModel {
  same: string[];
  numerator: Record<string, number>;
  denominator: Record<string, number>;
  calibration: Calibration | null;
  points: OperatingPoint[];
}
