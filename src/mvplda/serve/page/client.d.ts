// Types of the client of the service. Made from /openapi.json by tools/javascript_client.py.

/** Sound (WAV, FLAC, Ogg or WebM), or a vector of the service's extractor. */
export type Recording = Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | number[] | Float32Array | Float64Array;

export interface Options {
  /** API key; without it, a service without keys on the same machine */
  key?: string;
  /** Attempts of a call that has no answer or is refused for a while; default 4 */
  attempts?: number;
  /** Seconds before the second attempt, doubled before each further one; default 0.3 */
  firstWaitS?: number;
  /** A call that the service wants to be repeated later than this is not repeated; default 10 */
  longestWaitS?: number;
  /** Seconds to wait for an answer, per attempt; default 30 */
  timeoutS?: number;
  /** Function to send with, such as one of a proxy */
  fetch?: typeof fetch;
}

/** The service refused a call. */
export class ServiceError extends Error {
  constructor(status: number, fields: Record<string, unknown>, retryAfter: number | null);
  /** Status of HTTP */
  readonly status: number;
  /** Kind of the problem, such as `locked` or `not-found` */
  readonly kind: string;
  /** Sentence for people */
  readonly detail: string;
  /** Code of a refused recording, such as `too_noisy` */
  readonly reason: string | null;
  /** Seconds to wait before another attempt; null if waiting does not help */
  readonly retryAfter: number | null;
  /** All fields of the answer */
  readonly fields: Record<string, unknown>;
}

/**
 * Client of a service. A call without an answer, or that is refused for a while, is sent again with the same
 * `Idempotency-Key`: the service does it once.
 */
export class Client {
  constructor(url: string, options?: Options);

  /** Verify a claimed person and phrase: accept, reject with a reason, or inconclusive. */
  verify(
    profileId: string,
    recording: Recording,
    fields?: { phrase?: string | null; challengeId?: string | null; far?: number | null; countermeasureLlr?: number | null },
  ): Promise<VerifyReply>;
  /** Identify a speaker among all profiles or `candidates`, with the probability of none of them. */
  identify(
    recording: Recording,
    fields?: { candidates?: string[] | null; top?: number; priorNone?: number },
  ): Promise<IdentifyReply>;
  /** Return the open challenge of a profile, or choose a random one for one verification within a minute. */
  challenge(body: NewChallenge): Promise<Challenge>;
  /** Return the status and the versions of the service. */
  health(): Promise<Health>;
  /** Return the status if database, model and, for identification, voices in memory are ready; else refuse. */
  ready(): Promise<Ready>;
  /** Return counters in the text format of Prometheus. */
  metrics(): Promise<string>;
  /** Return the model: views, calibration, error rates with intervals, and their data. */
  getModel(): Promise<ModelInfo>;
  /** Return name, role and policy of the key of this call. */
  getKey(): Promise<KeyReply>;
  /** Return changes and decisions, newest first, without sound and without vectors. */
  getAudit(
    fields?: { top?: number; after?: number; profileId?: string | null; resultId?: string | null; action?: string | null },
  ): Promise<AuditPage>;
  /** Create a profile of a person who has given consent. */
  createProfile(body: NewProfile): Promise<ProfileReply>;
  /** Return profiles by page, without vectors: all, those of a `userId`, or of all that begin with `search`. */
  getProfiles(
    fields?: { top?: number; after?: string | null; userId?: string | null; search?: string | null },
  ): Promise<ProfilePage>;
  /** Return state, counts and times of a profile, without vectors. */
  getProfile(profileId: string): Promise<ProfileReply>;
  /** Erase everything at once; the id stays, marked as deleted with its time. */
  deleteProfile(profileId: string): Promise<ProfileReply>;
  /** Add a recording or a vector; a refusal (422, with a reason) leaves the profile as it was. */
  enrol(
    profileId: string,
    recording: Recording,
    fields?: { phrase?: string | null; session?: string | null },
  ): Promise<EnrolReply>;
  /** Remove a recording; the profile is then the same as if it had never been added. */
  removeEnrolment(profileId: string, number: number): Promise<ProfileReply>;
  /** Remove all recordings of a profile. */
  reset(profileId: string): Promise<ProfileReply>;
  /** Unlock a profile after rejections; nothing is erased. */
  unlock(profileId: string): Promise<ProfileReply>;
  /** Erase the voice at once; the name is kept and marked: the person must not be verified by voice. */
  optOut(profileId: string): Promise<ProfileReply>;
  /** Return everything that is stored of a person. */
  export(profileId: string): Promise<Export>;
}

export interface AuditEntry {
  id: string;
  at: string;
  caller: string;
  action: string;
  profileId: string | null;
  resultId: string | null;
  [other: string]: unknown;
}

export interface AuditPage {
  /** `after` of the next page */
  next: string | null;
  items: AuditEntry[];
  [other: string]: unknown;
}

export interface Candidate {
  profileId: string;
  userId: string | null;
  llr: number | null;
  probability: number | null;
  [other: string]: unknown;
}

export interface Challenge {
  challengeId: string;
  profileId: string;
  /** `words` also for digits */
  kind: "phrase" | "words";
  phrases: string[];
  expires: string;
  [other: string]: unknown;
}

export interface Consent {
  given: boolean;
  /** What the person agreed to */
  text?: string | null;
}

export interface EnrolReply {
  profileId: string;
  userId: string | null;
  state: "created" | "enrolling" | "enrolled" | "stale" | "expired" | "damaged" | "opted_out" | "deleted";
  /** Null for a key of the role verify */
  phrases: string[] | null;
  enrollmentsCount: number;
  remainingEnrollmentsCount: number;
  /** Null for a key of the role verify */
  remainingByPhrase: Record<string, number> | null;
  speechLength: number;
  modelVersion: string | null;
  created: string;
  updated: string;
  lastUsed: string | null;
  expires: string | null;
  /** End of the lock after consecutive rejections; null: not locked */
  lockedUntil: string | null;
  enrollmentId: number;
  quality: QualityReply | null;
  phraseLlr: number | null;
  consistencyLlr: number | null;
  [other: string]: unknown;
}

export interface Export {
  profile: ProfileReply;
  consent: Record<string, unknown> | null;
  enrollments: StoredEnrolment[];
  record: AuditEntry[];
  kept: string;
  [other: string]: unknown;
}

export interface ExtractorInfo {
  name: string | null;
  fingerprint: string | null;
  dimension: number;
  [other: string]: unknown;
}

/** Thresholds of the speaker or the phrase alone, and the error rates that were measured at them. */
export interface HalfPoint {
  accept: number;
  reject: number;
  farByKind: Record<string, number>;
  frr: number | null;
  people: number | null;
  [other: string]: unknown;
}

/** Decision about the speaker or the phrase alone: its LLR, verdict, thresholds and measured error rates. */
export interface HalfReply {
  accept: number;
  reject: number;
  farByKind: Record<string, number>;
  frr: number | null;
  people: number | null;
  llr: number;
  decision: "accept" | "reject" | "inconclusive";
  [other: string]: unknown;
}

export interface Health {
  status: "ok";
  version: string;
  modelVersion: string;
  extractor: string | null;
  demoNetwork: boolean;
  notice: string | null;
  keysWanted: boolean;
  [other: string]: unknown;
}

export interface IdentifyReply {
  resultId: string;
  candidates: Candidate[];
  /** The identified profile; null if none is likely enough among so many */
  identified: string | null;
  noneOfThem: number | null;
  profilesCount: number;
  reason: string | null;
  quality: QualityReply | null;
  modelVersion: string;
  notice: string | null;
  [other: string]: unknown;
}

/** The API key of a call: its name, its role and its policy. */
export interface KeyReply {
  name: string;
  role: string;
  /** What the key sees of a decision */
  detail: "verdict" | "halves" | "evidence";
  /** Largest `far` of a verification; null: any */
  far: number | null;
  /** Required of each verification */
  require: "none" | "challenge" | "countermeasure" | "either";
  [other: string]: unknown;
}

/** The model, and its default operating point. */
export interface ModelInfo {
  modelVersion: string;
  extractor: ExtractorInfo;
  views: string[];
  calibration: Record<string, unknown>;
  calibrated: boolean;
  largestLlr: number | null;
  operatingPoints: OperatingPointReply[];
  data: Record<string, unknown>;
  /** Phrases of training, which need no enrolment */
  knownPhrases: string[];
  /** Kinds of challenges; words and digits need the decoder of a recogniser */
  challengeKinds: ("phrase" | "words" | "digits")[];
  notice: string | null;
  threshold: number;
  rejectThreshold: number;
  far: number | null;
  [other: string]: unknown;
}

export interface NewChallenge {
  /** Profile to verify, unless `userId` names it */
  profileId?: string | null;
  /** Name of the person in place of `profileId`. A name without an enrolled profile gets a challenge too: its verification ends like that of a wrong voice */
  userId?: string | null;
  /** An enrolled phrase, or random English words or digits that need no enrolment */
  kind?: "phrase" | "words" | "digits";
}

export interface NewProfile {
  userId?: string | null;
  phrase?: string | null;
  consent: Consent;
}

/** Thresholds, and the error rates that were measured at them on held-out people. */
export interface OperatingPointReply {
  wantedFar: number | null;
  threshold: number;
  /** FAR of the worst kind of trial */
  far: number | null;
  farInterval: number[] | null;
  frr: number | null;
  frrInterval: number[] | null;
  /** FAR per kind of trial to be rejected, as in `posteriors` */
  farByKind: Record<string, number>;
  people: number | null;
  basis: string;
  /** Thresholds of speaker and phrase; empty if `threshold` decides */
  halves: Record<string, HalfPoint>;
  [other: string]: unknown;
}

/** Details of a problem (RFC 9457). */
export interface ProblemDetails {
  type: string;
  title: string;
  status: number;
  detail: string;
  instance?: string | null;
  reason?: string | null;
  [other: string]: unknown;
}

export interface ProfilePage {
  /** `after` of the next page */
  next: string | null;
  items: ProfileReply[];
  [other: string]: unknown;
}

export interface ProfileReply {
  profileId: string;
  userId: string | null;
  state: "created" | "enrolling" | "enrolled" | "stale" | "expired" | "damaged" | "opted_out" | "deleted";
  /** Null for a key of the role verify */
  phrases: string[] | null;
  enrollmentsCount: number;
  remainingEnrollmentsCount: number;
  /** Null for a key of the role verify */
  remainingByPhrase: Record<string, number> | null;
  speechLength: number;
  modelVersion: string | null;
  created: string;
  updated: string;
  lastUsed: string | null;
  expires: string | null;
  /** End of the lock after consecutive rejections; null: not locked */
  lockedUntil: string | null;
  [other: string]: unknown;
}

export interface QualityReply {
  durationS: number;
  speechS: number;
  peakDb: number;
  levelDb: number;
  clipped: number;
  snrDb: number | null;
  bandwidthHz: number;
  warnings: string[];
  [other: string]: unknown;
}

export interface Ready {
  status: "ready";
  modelVersion: string;
  [other: string]: unknown;
}

export interface StoredEnrolment {
  enrollmentId: number;
  phrase: string;
  created: string;
  speechLength: number;
  session: string;
  vectorKept: boolean;
  extractor: string | null;
  spoofScore?: number | null;
  [other: string]: unknown;
}

/** A decision and its evidence.

Fields of the evidence are null if nothing was scored, or if the policy of the key does not include them. */
export interface VerifyReply {
  resultId: string;
  decision: "accept" | "reject" | "inconclusive";
  reason: string | null;
  /** What to do next, if more speech would help a decision */
  advice?: string | null;
  /** Verdict about the speaker alone */
  voice?: "accept" | "reject" | "inconclusive" | null;
  /** Verdict about the phrase alone */
  phrase?: "accept" | "reject" | "inconclusive" | null;
  llr?: number | null;
  /** Threshold of `llr`; null if `halves` decide */
  threshold: number | null;
  rejectThreshold: number | null;
  /** At even odds: target (T) or impostor (I), correct (C) or wrong (W) phrase */
  posteriors?: Record<string, number> | null;
  llrSpeaker?: number | null;
  llrPhrase?: number | null;
  /** Log probability of prompted words, given the recording */
  promptLogProbability?: number | null;
  /** Decisions about `speaker` and `phrase`; null if `threshold` decides about `llr` */
  halves?: Record<string, HalfReply> | null;
  calibrated?: boolean | null;
  countermeasureLlr: number | null;
  operatingPoint: OperatingPointReply | null;
  quality: QualityReply | null;
  modelVersion: string;
  notice: string | null;
  [other: string]: unknown;
}
