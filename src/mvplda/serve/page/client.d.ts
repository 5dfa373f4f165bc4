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

  /** Verify the claim to be the owner of a profile, by voice and phrase: accept, reject or inconclusive. */
  verify(
    profileId: string,
    recording: Recording,
    fields?: { phrase?: string | null; challengeId?: string | null; far?: number | null; countermeasureLlr?: number | null },
  ): Promise<VerifyReply>;
  /** Identify a speaker among all enrolled profiles, or among `candidates`; the speaker may be none of them. */
  identify(
    recording: Recording,
    fields?: { candidates?: string[] | null; top?: number; priorNone?: number },
  ): Promise<IdentifyReply>;
  /** Return the challenge to answer in the next verification of a profile: the open one, or a new random one. */
  challenge(body: NewChallenge): Promise<Challenge>;
  /** Return the status and the versions of the service. */
  health(): Promise<Health>;
  /** Return 200 if the database answers and the voices for identification are loaded; 503 otherwise. */
  ready(): Promise<Ready>;
  /** Return the metrics of the service in the text format of Prometheus. */
  metrics(): Promise<string>;
  /** Return the model: its views, calibration, and error rates with intervals and the data behind them. */
  getModel(): Promise<ModelInfo>;
  /** Return the name, role and policy of the API key of this call. */
  getKey(): Promise<KeyReply>;
  /** Return one page of the audit: changes, decisions and refusals, newest first, without sound and vectors. */
  getAudit(
    fields?: { top?: number; after?: number; profileId?: string | null; resultId?: string | null; action?: string | null },
  ): Promise<AuditPage>;
  /** Create a profile of a person who has given consent. */
  createProfile(body: NewProfile): Promise<ProfileReply>;
  /** Return one page of profiles: all, or only those of the person `userId`, or of names that begin with `search`. */
  getProfiles(
    fields?: { top?: number; after?: string | null; userId?: string | null; search?: string | null },
  ): Promise<ProfilePage>;
  /** Return a profile: its state, phrases, numbers of recordings, and times, without vectors. */
  getProfile(profileId: string): Promise<ProfileReply>;
  /** Erase all data of a profile at once, except its id and the time of the deletion. */
  deleteProfile(profileId: string): Promise<ProfileReply>;
  /** Add a recording or a vector to a profile; a refusal (422, with a reason) leaves the profile as it was. */
  enrol(
    profileId: string,
    recording: Recording,
    fields?: { phrase?: string | null; session?: string | null },
  ): Promise<EnrolReply>;
  /** Remove a recording from a profile, which is then as if the recording had never been added. */
  removeEnrolment(profileId: string, number: number): Promise<ProfileReply>;
  /** Remove all recordings of a profile, but not its name, phrases and consent. */
  reset(profileId: string): Promise<ProfileReply>;
  /** Unlock a profile that was locked after too many rejections; no data are erased. */
  unlock(profileId: string): Promise<ProfileReply>;
  /** Erase the recordings of a profile at once; name and consent stay, with the state `opted_out`. */
  optOut(profileId: string): Promise<ProfileReply>;
  /** Return all stored data of a profile, its recordings and its audit entries, without vectors. */
  export(profileId: string): Promise<Export>;
}

/** Entry of the audit; further fields depend on its action. */
export interface AuditEntry {
  id: string;
  at: string;
  /** Name of the caller's API key */
  caller: string;
  action: string;
  profileId: string | null;
  resultId: string | null;
  [other: string]: unknown;
}

/** One page of the audit. */
export interface AuditPage {
  /** Value of `after` with which the next page is read; null: this is the last page */
  next: string | null;
  items: AuditEntry[];
  [other: string]: unknown;
}

/** Profile whose owner is possibly the speaker. */
export interface Candidate {
  profileId: string;
  /** Name of the owner; null if the API key must not see it */
  userId: string | null;
  /** LLR of the same speaker */
  llr: number | null;
  /** Probability that the speaker is the owner of this profile */
  probability: number | null;
  [other: string]: unknown;
}

/** Phrase or words that must be said in the next verification. */
export interface Challenge {
  challengeId: string;
  profileId: string;
  /** `phrase`: an enrolled phrase; `words`: random words or digits */
  kind: "phrase" | "words";
  /** List of one text, the phrase or the words to say */
  phrases: string[];
  expires: string;
  [other: string]: unknown;
}

/** Consent of a person to the storage of voice templates. */
export interface Consent {
  /** Whether the person agreed; if not, no profile is created */
  given: boolean;
  /** What the person agreed to */
  text?: string | null;
}

/** Profile after an enrolment, and the new recording. */
export interface EnrolReply {
  profileId: string;
  /** Name of the person */
  userId: string | null;
  state: "created" | "enrolling" | "enrolled" | "stale" | "expired" | "damaged" | "opted_out" | "deleted";
  /** Phrases of the profile; null if the API key has the role verify */
  phrases: string[] | null;
  /** Number of recordings */
  enrollmentsCount: number;
  /** Number of recordings that are still needed to enrol a first phrase */
  remainingEnrollmentsCount: number;
  /** Number of recordings that are still needed per phrase; null if the API key has the role verify */
  remainingByPhrase: Record<string, number> | null;
  /** Seconds of speech in all recordings */
  speechLength: number;
  /** Model that computed the templates; null: no recordings */
  modelVersion: string | null;
  created: string;
  updated: string;
  /** Time of the last enrolment or acceptance */
  lastUsed: string | null;
  /** Time at which the profile expires if it is not used */
  expires: string | null;
  /** Time until which the profile is locked after rejections; null: not locked */
  lockedUntil: string | null;
  enrollmentId: number;
  /** Null for a vector or an unreadable file */
  quality: QualityReply | null;
  /** LLR of the same phrase as in earlier recordings; null if there is none with this phrase */
  phraseLlr: number | null;
  /** LLR of the same speaker as in earlier recordings; null if there is none */
  consistencyLlr: number | null;
  [other: string]: unknown;
}

/** All stored data of a person, without vectors. */
export interface Export {
  profile: ProfileReply;
  consent: Record<string, unknown> | null;
  enrollments: StoredEnrolment[];
  /** Entries of the audit about the profile */
  record: AuditEntry[];
  /** List of stored data that are not in this export */
  kept: string;
  [other: string]: unknown;
}

/** The network that computes vectors from sound. */
export interface ExtractorInfo {
  name: string | null;
  /** Hash of the network's weights and recipe */
  fingerprint: string | null;
  /** Length of the vectors */
  dimension: number;
  [other: string]: unknown;
}

/** Thresholds for one half of a decision, speaker or phrase, and the error rates measured at them. */
export interface HalfPoint {
  /** The half is accepted from this LLR */
  accept: number;
  /** The half is rejected below this LLR */
  reject: number;
  /** Per kind of trial that should be rejected, the share of trials that are accepted */
  farByKind: Record<string, number>;
  /** Share of owners that are not accepted */
  frr: number | null;
  /** Number of people in the measurement */
  people: number | null;
  [other: string]: unknown;
}

/** Decision about one half, speaker or phrase: its LLR, verdict, thresholds and measured error rates. */
export interface HalfReply {
  /** The half is accepted from this LLR */
  accept: number;
  /** The half is rejected below this LLR */
  reject: number;
  /** Per kind of trial that should be rejected, the share of trials that are accepted */
  farByKind: Record<string, number>;
  /** Share of owners that are not accepted */
  frr: number | null;
  /** Number of people in the measurement */
  people: number | null;
  llr: number;
  decision: "accept" | "reject" | "inconclusive";
  [other: string]: unknown;
}

/** Status and versions of the service. */
export interface Health {
  status: "ok";
  /** Version of mvplda */
  version: string;
  modelVersion: string;
  /** Name of the extractor; null if it is unknown */
  extractor: string | null;
  /** Whether the extractor is the demonstration network, which must not decide about people */
  demoNetwork: boolean;
  /** Warning to show to users */
  notice: string | null;
  /** Whether calls need an API key */
  keysWanted: boolean;
  [other: string]: unknown;
}

/** Result of an identification. */
export interface IdentifyReply {
  /** Id of the result in the audit */
  resultId: string;
  /** Most probable profiles, best first */
  candidates: Candidate[];
  /** Id of the identified profile; null if no profile is probable enough among all that were searched */
  identified: string | null;
  /** Probability that the speaker owns none of the searched profiles */
  noneOfThem: number | null;
  /** Number of searched profiles */
  profilesCount: number;
  /** Reason code if the recording cannot be used; null otherwise */
  reason: string | null;
  /** Null for a vector or an unreadable file */
  quality: QualityReply | null;
  modelVersion: string;
  /** Warning to show to users */
  notice: string | null;
  [other: string]: unknown;
}

/** The API key of a call: its name, its role and its policy. */
export interface KeyReply {
  name: string;
  role: string;
  /** Fields of a decision that the key may see: the verdict, also those of voice and phrase (`halves`), or all (`evidence`) */
  detail: "verdict" | "halves" | "evidence";
  /** Largest `far` that a verification may have; null: any */
  far: number | null;
  /** Protection against replayed and synthetic voices that each verification must have */
  require: "none" | "challenge" | "countermeasure" | "either";
  [other: string]: unknown;
}

/** The model, and its default operating point. */
export interface ModelInfo {
  modelVersion: string;
  extractor: ExtractorInfo;
  /** Views that the model compares, such as `speaker` and `phrase` */
  views: string[];
  /** Calibration per question */
  calibration: Record<string, unknown>;
  /** Whether LLRs of the service's question are calibrated */
  calibrated: boolean;
  /** Largest possible LLR; null: no limit */
  largestLlr: number | null;
  operatingPoints: OperatingPointReply[];
  /** Card of the model: training data and measurements */
  data: Record<string, unknown>;
  /** Phrases of training, which need no enrolment */
  knownPhrases: string[];
  /** Kinds of challenges that the service can check; words and digits need the decoder of a recogniser */
  challengeKinds: ("phrase" | "words" | "digits")[];
  /** Warning to show to users */
  notice: string | null;
  threshold: number;
  rejectThreshold: number;
  far: number | null;
  [other: string]: unknown;
}

/** Challenge to be created, for a profile or for the name of a person. */
export interface NewChallenge {
  /** Profile to verify; leave it out if `userId` is sent */
  profileId?: string | null;
  /** Name of the person, in place of `profileId`. A name without an enrolled profile gets a challenge too, whose verification is rejected like a wrong voice */
  userId?: string | null;
  /** `phrase`: an enrolled phrase; `words`, `digits`: random English words or digits */
  kind?: "phrase" | "words" | "digits";
}

/** Profile to be created. */
export interface NewProfile {
  /** Name of the person */
  userId?: string | null;
  /** Phrase to be enrolled; default: the phrase of the first recording */
  phrase?: string | null;
  consent: Consent;
}

/** Thresholds, and the error rates that were measured at them on held-out people. */
export interface OperatingPointReply {
  /** Smallest share of accepted impostors (FAR) for which these thresholds were chosen */
  wantedFar: number | null;
  /** A trial is accepted from this LLR */
  threshold: number;
  /** Measured FAR of the kind of trial with the most false acceptances */
  far: number | null;
  /** 95 % interval of `far` over people */
  farInterval: number[] | null;
  /** Measured share of owners that are not accepted */
  frr: number | null;
  /** 95 % interval of `frr` over people */
  frrInterval: number[] | null;
  /** Measured FAR per kind of trial that should be rejected; kinds as in `posteriors` */
  farByKind: Record<string, number>;
  /** Number of people in the measurement */
  people: number | null;
  /** How the thresholds were chosen, in words */
  basis: string;
  /** Thresholds of `speaker` and `phrase`; empty if `threshold` decides about both */
  halves: Record<string, HalfPoint>;
  [other: string]: unknown;
}

/** Details of a problem (RFC 9457). */
export interface ProblemDetails {
  /** Code of the problem */
  type: string;
  /** Standard text of the HTTP status, such as "Not Found" */
  title: string;
  /** HTTP status */
  status: number;
  /** Explanation for people */
  detail: string;
  /** Path of the call */
  instance?: string | null;
  reason?: string | null;
  [other: string]: unknown;
}

/** One page of profiles. */
export interface ProfilePage {
  /** Value of `after` with which the next page is read; null: this is the last page */
  next: string | null;
  items: ProfileReply[];
  [other: string]: unknown;
}

/** State of a profile, without its vectors. */
export interface ProfileReply {
  profileId: string;
  /** Name of the person */
  userId: string | null;
  state: "created" | "enrolling" | "enrolled" | "stale" | "expired" | "damaged" | "opted_out" | "deleted";
  /** Phrases of the profile; null if the API key has the role verify */
  phrases: string[] | null;
  /** Number of recordings */
  enrollmentsCount: number;
  /** Number of recordings that are still needed to enrol a first phrase */
  remainingEnrollmentsCount: number;
  /** Number of recordings that are still needed per phrase; null if the API key has the role verify */
  remainingByPhrase: Record<string, number> | null;
  /** Seconds of speech in all recordings */
  speechLength: number;
  /** Model that computed the templates; null: no recordings */
  modelVersion: string | null;
  created: string;
  updated: string;
  /** Time of the last enrolment or acceptance */
  lastUsed: string | null;
  /** Time at which the profile expires if it is not used */
  expires: string | null;
  /** Time until which the profile is locked after rejections; null: not locked */
  lockedUntil: string | null;
  [other: string]: unknown;
}

/** Measured quality of a recording. */
export interface QualityReply {
  /** Length in seconds */
  durationS: number;
  /** Seconds of speech */
  speechS: number;
  /** Level of the loudest sample, in dB relative to full scale */
  peakDb: number;
  /** Mean level of the speech, in dB relative to full scale */
  levelDb: number;
  /** Share of clipped samples */
  clipped: number;
  /** Signal-to-noise ratio in dB; null: not measurable */
  snrDb: number | null;
  /** Highest frequency within 60 dB of the loudest one, in Hz */
  bandwidthHz: number;
  warnings: string[];
  [other: string]: unknown;
}

/** Answer of a service that is ready for calls. */
export interface Ready {
  status: "ready";
  modelVersion: string;
  [other: string]: unknown;
}

/** Stored recording of a profile, without its vector. */
export interface StoredEnrolment {
  enrollmentId: number;
  phrase: string;
  created: string;
  /** Seconds of speech */
  speechLength: number;
  session: string;
  /** Whether its vector is stored */
  vectorKept: boolean;
  extractor: string | null;
  /** Raw score of the detector of spoofs; null: the detector was off */
  spoofScore?: number | null;
  [other: string]: unknown;
}

/** A decision and its evidence.

Fields of the evidence are null if the recording was not scored, or if the policy of the API key hides them. */
export interface VerifyReply {
  /** Id of the decision in the audit */
  resultId: string;
  decision: "accept" | "reject" | "inconclusive";
  /** Reason of a rejection or an inconclusive answer */
  reason: string | null;
  /** Advice to enrol more recordings or to use a longer phrase; null if there is enough speech */
  advice?: string | null;
  /** Verdict about the speaker alone */
  voice?: "accept" | "reject" | "inconclusive" | null;
  /** Verdict about the phrase alone */
  phrase?: "accept" | "reject" | "inconclusive" | null;
  /** LLR of the claim: the owner says the claimed phrase, against all other hypotheses */
  llr?: number | null;
  /** The claim is accepted from this `llr`; null if `halves` decide */
  threshold: number | null;
  /** The claim is rejected below this `llr`; null if `halves` decide */
  rejectThreshold: number | null;
  /** Probability per kind of trial, with a prior of 0.5 for TC: target (T) or impostor (I), correct (C) or wrong (W) phrase */
  posteriors?: Record<string, number> | null;
  /** LLR of the same speaker */
  llrSpeaker?: number | null;
  /** LLR of the same phrase */
  llrPhrase?: number | null;
  /** Log probability of prompted words, given the recording */
  promptLogProbability?: number | null;
  /** Decisions about `speaker` and `phrase`; null if `threshold` decides about `llr` */
  halves?: Record<string, HalfReply> | null;
  /** Whether the LLRs are calibrated */
  calibrated?: boolean | null;
  /** LLR of bona fide against spoofed speech, from the caller or the spoof detector of the service; null: from neither */
  countermeasureLlr: number | null;
  /** Thresholds of the decision with their measured error rates; null if none were measured */
  operatingPoint: OperatingPointReply | null;
  /** Null for a vector or an unreadable file */
  quality: QualityReply | null;
  modelVersion: string;
  /** Warning to show to users */
  notice: string | null;
  [other: string]: unknown;
}
