"""Verification of claimed profiles: decisions, locks after rejections, and challenges."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..decisions import Decision, OperatingPoint
from ..exceptions import ParameterError
from ..voice.prompts import with_prompt
from ..voice.speech_advice import SpeechAmount, speech_advice
from ..voice.spoof_detector import load_spoof_detector
from .cells import Cell
from .challenges import (
    OpenChallenge,
    claimed_challenge,
    close_challenge,
    create_challenge,
    create_prompt,
    find_challenge,
)
from .database import RowHeld
from .decoys import Decoys
from .idempotency import IdempotentCall, IdempotentCalls
from .keys import Caller
from .model import NO_POINT, PHRASE, SPEAKER, VerificationTrial, half_point, label_of, point_reply
from .profiles import UPDATE_PROFILE, ProfileStore
from .recordings import ProcessedRecording
from .refusals import count_refusal
from .schemas import (
    Challenge,
    ChallengeKind,
    HalfReply,
    Problem,
    Verdict,
    VerifyReply,
    VerifyRequest,
)
from .store import MINUTE, Transaction
from .tables import IDS_OF_USER, ProfileRow

# Names of the kinds of trials: the target (T) or an impostor (I) with the correct (C) or a wrong (W) phrase.
KINDS = {"speaker+phrase": "TC", "speaker": "TW", "phrase": "IC", "nothing": "IW"}
# Kinds of a model of voices only.
VOICE_KINDS = {"speaker": "TC", "nothing": "IC"}
# Reason codes for states in which nothing is decided, where the code differs from the state.
STATE_REASONS = {
    "created": "not_enrolled",
    "enrolling": "not_enrolled",
    "stale": "model_changed",
}


@dataclass
class Attempt:
    """Claim of a caller to be the owner of a profile, and the state of its verification.

    Parameters
    ----------
    caller : owner of the API key
    name : id of the claimed profile
    recording : processed recording
    request : fields of the request
    point : operating point (thresholds) of the decision
    phrase : label of the claimed phrase; empty: any enrolled phrase
    prompt : prompted words of the challenge; empty: an enrolled phrase is compared
    reason : reason code if the recording is not scored; None: it is compared with `cells`
    cells : sums of the profile, of those phrases that have enough recordings
    call : the call with its Idempotency-Key; None: the request has no such key
    spoof_llr : LLR of bona fide against spoofed speech, from the caller's countermeasure, or else from the spoof
        detector of the service; None: there is neither
    looks : number of looks at a stream before its end; None: the recording is no stream
    """

    caller: Caller
    name: str
    recording: ProcessedRecording
    request: VerifyRequest
    point: OperatingPoint = NO_POINT
    phrase: str = ""
    prompt: tuple[str, ...] = ()
    reason: str | None = None
    cells: list[Cell] = field(default_factory=list)
    call: IdempotentCall | None = None
    spoof_llr: float | None = None
    looks: int | None = None


@dataclass(frozen=True)
class Look:
    """Result of comparing the sound of a stream so far with a profile.

    Parameters
    ----------
    reply : decision about this sound at the operating point of the request
    is_accepted : whether the sound is accepted at the model's strictest operating point as well; always False if the
        request itself asks for that point
    """

    reply: VerifyReply
    is_accepted: bool


class Verifier:
    """Decides attempts: methods with an argument `work` run in that transaction, and lock the profiles of the attempts.

    Parameters
    ----------
    profiles : profiles of the service
    idempotency : stored answers to calls with an Idempotency-Key
    """

    def __init__(self, profiles: ProfileStore, idempotency: IdempotentCalls) -> None:
        self.profiles = profiles
        self._idempotency = idempotency
        self.templates = profiles.templates
        self.settings = profiles.settings
        self._points = lru_cache(100)(self._point)
        self._decoys = Decoys(profiles)

    def verify(self, work: Transaction, attempts: Sequence[Attempt]) -> list[VerifyReply | Problem]:
        """Decide attempts on different profiles together, and write the decisions to the audit.

        Returns
        -------
        per attempt, in the given order, the reply, or the problem with which it is refused
        """
        rows = self.profiles.locked(work, [attempt.name for attempt in attempts])
        outcomes: dict[str, VerifyReply | Problem] = {}
        missing = [attempt.name for attempt in attempts if attempt.name not in rows]
        if missing:
            outcomes |= {name: RowHeld() for name in self.profiles.existing(work, missing)}
        admitted = []
        for attempt in attempts:
            if attempt.name in outcomes:
                continue
            work.caller = attempt.caller
            try:
                stored = self._idempotency.claim(work, attempt.call)
            except Problem as problem:
                stored = problem
            if attempt.looks and stored is not None:
                # another process has answered this call: the looks of this one are an attempt of their own
                attempt.call = stored = None
            if isinstance(stored, VerifyReply | Problem):
                outcomes[attempt.name] = stored
                continue
            try:
                decoy_reply = None
                if attempt.name not in rows:
                    decoy_reply = self._verify_decoy(work, attempt)
                if decoy_reply is not None:
                    self._idempotency.put(work, attempt.call, decoy_reply)
                    outcomes[attempt.name] = decoy_reply
                    continue
                self._prepare(work, attempt, self.profiles.checked(rows.get(attempt.name)))
                admitted.append(attempt)
            except Problem as problem:
                self._idempotency.release(work, attempt.call)
                outcomes[attempt.name] = record_refusal(work, attempt.name, problem)
        updates = []
        replies = self._decide(work, admitted, rows)
        for attempt, reply in zip(admitted, replies, strict=True):
            work.caller = attempt.caller
            updates.append(self._counters(work, attempt, rows[attempt.name], reply.decision))
            self._record(work, attempt, reply)
            self._idempotency.put(work, attempt.call, reply)
            outcomes[attempt.name] = reply
        if updates:
            work.run_each(UPDATE_PROFILE, updates)
        return [outcomes[attempt.name] for attempt in attempts]

    def admit(
        self, work: Transaction, name: str, challenge: str | None = None
    ) -> Problem | tuple[str, ...]:
        """Check the limits of a profile before the sound of an attempt is processed.

        Parameters
        ----------
        name : id of the claimed profile
        challenge : id of the challenge that the attempt answers; None: no challenge

        Returns
        -------
        the prompted words of the challenge, empty if there is no challenge or it is an enrolled phrase; or the problem
        with which the attempt is refused
        """
        try:
            self._check_limits(work, self.profiles.row(work, name))
        except Problem as problem:
            decoy = self._decoys.find(work, name, challenge)
            return record_refusal(work, name, problem) if decoy is None else decoy.words
        found = find_challenge(work, name) if challenge is not None else None
        return () if found is None or found.id != challenge else found.words

    def look(self, work: Transaction, attempt: Attempt) -> Look | None:
        """Compare the sound of a stream so far with the claimed profile, without changing anything in the database.

        Each look is another chance for an impostor. Therefore a look counts as accepted only at the strictest operating
        point, and a stream is decided early only by two looks in a row (measured by `benchmarks.studies.looks`).

        attempt : attempt with the sound so far; its phrase, reason and cells are set

        Returns
        -------
        result of the comparison; None if the profile or the recording cannot be scored
        """
        challenge = attempt.request.challengeId
        if self._decoys.find(work, attempt.name, challenge) is not None:
            return Look(self._reply(attempt, None), False)
        row = self.profiles.row(work, attempt.name)
        self._check_limits(work, row)
        if self.profiles.state(work, row) != "enrolled":
            return None
        if challenge is not None:
            attempt.phrase = claimed_challenge(work, row.id, challenge).phrase
        elif attempt.request.phrase is not None:
            attempt.phrase = label_of(attempt.request.phrase)
        attempt.reason = self._obstacle(work, attempt, row)
        if attempt.reason is not None:
            return None
        attempts = [attempt]
        strictest = self._strictest_far()
        asked = self._points(attempt.request.far, False).far
        if strictest is not None and asked is not None and strictest < asked:
            request = attempt.request.model_copy(update={"far": strictest})
            attempts.append(replace(attempt, request=request))
        replies = [*self._decide(work, attempts, {row.id: row})]
        is_accepted = len(replies) > 1 and all(reply.decision == "accept" for reply in replies)
        return Look(replies[0], is_accepted)

    def _strictest_far(self) -> float | None:
        """Return the smallest share of impostors among the model's operating points; None if it has no points."""
        model = self.profiles.model
        points = model.bundle.operating_points(model.usual_question())
        return min((point.far for point in points if point.far is not None), default=None)

    def _check_limits(self, work: Transaction, row: ProfileRow) -> None:
        """Raise a `Problem` if a profile is damaged (409), locked, or tried too often (429)."""
        self.profiles.check_damage(row)
        until = row.locked_until
        if until is not None and until > work.now:
            detail = (
                f"the profile is locked after {row.failures} rejections in a row: try again after "
                f"{until - work.now:.0f} s"
            )
            raise Problem(429, "locked", detail, wait=until - work.now)
        wait = self._rate_until(work, row) - work.now - MINUTE
        if wait > 0:
            detail = f"there were too many attempts on this profile: try again after {wait:.0f} s"
            raise Problem(429, "rate", detail, wait=wait)

    def _rate_until(self, work: Transaction, row: ProfileRow) -> float:
        """Return the time until which a profile's limit of attempts is used up, if the present attempt is counted.

        With a limit of n attempts per minute, each attempt moves this time forward by 1/n minute. An attempt is refused
        if the time is more than a minute ahead.
        """
        rate = self.settings.profile_rate
        if not rate:
            return work.now
        until = row.rate_until or work.now
        if not work.now <= until <= work.now + MINUTE:
            # in the past, or written by a wrong clock
            until = work.now
        return until + MINUTE / rate

    def _prepare(self, work: Transaction, attempt: Attempt, row: ProfileRow) -> None:
        """Set all fields of an attempt that the decision needs; its `reason` stays None if it can be scored.

        row : locked row of the claimed profile

        Raises
        ------
        Problem : if the attempt is refused, for example because the profile is locked (429)
        """
        request = attempt.request
        self._check_limits(work, row)
        attempt.spoof_llr = request.countermeasureLlr
        attempt.point = self._points(request.far, attempt.spoof_llr is not None)
        attempt.phrase = "" if request.phrase is None else label_of(request.phrase)
        if request.challengeId is not None:
            challenge = self._claimed_challenge(work, row, request.challengeId)
            attempt.prompt = challenge.words
            attempt.phrase = "" if challenge.words else challenge.phrase
            check_prompt(attempt)
        attempt.reason = self._obstacle(work, attempt, row)
        if attempt.reason is None and attempt.spoof_llr is None:
            attempt.spoof_llr = self._detected_llr(work, attempt)

    def _verify_decoy(self, work: Transaction, attempt: Attempt) -> VerifyReply | None:
        """Return the reply to an attempt that answers a decoy challenge; None if it does not answer one.

        The recording is rejected like one of a wrong speaker, or inconclusive if it cannot be used.

        Raises
        ------
        Problem : 409 if the decoy has expired, or 409 or 422 by `check_prompt`
        """
        challenge = self._decoys.find(work, attempt.name, attempt.request.challengeId)
        if challenge is None:
            return None
        if challenge.expires < work.now:
            raise expired_challenge()
        attempt.prompt = challenge.words
        check_prompt(attempt)
        attempt.reason = attempt.recording.reason or "wrong_speaker"
        reply = self._reply(attempt, None)
        if attempt.recording.reason is None:
            reply.decision = "reject"
            close_challenge(work, attempt.name)
        detail = {"decision": reply.decision, "reason": "unknown_name"}
        work.note("verify", None, reply.resultId, **detail)
        return reply

    def _detected_llr(self, work: Transaction, attempt: Attempt) -> float | None:
        """Return the spoof detector's LLR of bona fide against spoofed speech.

        None if the detector is off, or was off for all enrolled recordings of the profile.
        """
        score = attempt.recording.spoof_score
        if score is None:
            return None
        enrolments = self.templates.spoof_scores(work, attempt.name)
        return load_spoof_detector().llr(score, enrolments) if enrolments else None

    def _decide(
        self, work: Transaction, attempts: Sequence[Attempt], rows: dict[str, ProfileRow]
    ) -> Iterator[VerifyReply]:
        """Yield the reply to each attempt; all attempts that can be scored are scored in one call.

        attempts : attempts after `_prepare`
        rows : {profile id: locked row} of their profiles
        """
        scored = [attempt for attempt in attempts if attempt.reason is None]
        decisions: Iterator[Decision] = iter([])
        if scored:
            vectors = [attempt.recording.vector for attempt in scored]
            contributions = self.profiles.model.contributions(
                np.stack([v for v in vectors if v is not None])
            )
            last_change = rows[scored[0].name].last_change
            deployed = self.profiles.domain.deployed(work, last_change)
            trials = []
            for attempt, contribution in zip(scored, contributions, strict=True):
                spoof = attempt.spoof_llr
                # thresholds differ between profiles with and without known phrases
                is_known = deployed.are_phrases_known(attempt.cells)
                is_prompted = bool(attempt.prompt)
                attempt.point = self._points(
                    attempt.request.far, spoof is not None, is_known, is_prompted
                )
                test = Cell(attempt.phrase, contribution, 1)
                is_detected = attempt.request.countermeasureLlr is None and spoof is not None
                trials.append(
                    VerificationTrial(
                        attempt.cells, test, spoof, attempt.point, is_prompted, is_detected
                    )
                )
            decisions = iter(deployed.decisions(trials, self.settings.spoof_prior))
        for attempt in attempts:
            decision = next(decisions) if attempt.reason is None else None
            if decision is not None and attempt.prompt:
                log_probability = attempt.recording.prompt_log_probability
                decision = with_prompt(decision, attempt.prompt, log_probability)
            if decision is not None and decision.reason == "not_enough_evidence":
                recordings = sum(cell.count for cell in attempt.cells)
                enrolled = SpeechAmount(recordings, rows[attempt.name].speech_s)
                tested = SpeechAmount(1, attempt.recording.speech_s)
                decision = replace(decision, advice=speech_advice(enrolled, tested))
            yield self._reply(attempt, decision)

    def _reply(self, attempt: Attempt, decision: Decision | None) -> VerifyReply:
        """Return the reply to an attempt.

        decision : decision about the scored recording; None: it was not scored
        """
        point = attempt.point
        model = self.profiles.model
        verdict: Verdict = "reject" if attempt.reason == "suspected_replay" else "inconclusive"
        reply = VerifyReply(
            resultId=secrets.token_hex(16),
            decision=verdict,
            reason=attempt.reason,
            threshold=point.threshold,
            rejectThreshold=point.reject,
            countermeasureLlr=attempt.spoof_llr,
            operatingPoint=None if point.measured is None else point_reply(point),
            quality=attempt.recording.quality,
            modelVersion=model.version,
            notice=model.notice,
        )
        if decision is not None:
            kinds = KINDS if PHRASE in decision.llrs else VOICE_KINDS
            probabilities = decision.probabilities.items()
            reply.decision = decision.answer
            reply.reason = decision.reason
            reply.advice = decision.advice
            reply.voice = decision.views.get(SPEAKER)
            reply.phrase = decision.views.get(PHRASE)
            reply.llr = float(decision.llr)
            reply.posteriors = {kinds.get(name, name): float(p) for name, p in probabilities}
            reply.llrSpeaker = decision.llrs[SPEAKER]
            reply.llrPhrase = decision.llrs.get(PHRASE)
            reply.promptLogProbability = attempt.recording.prompt_log_probability
            reply.calibrated = decision.calibrated
            if decision.halves:
                reply.threshold = reply.rejectThreshold = None
                reply.halves = {
                    view: HalfReply(
                        llr=decision.llrs[view],
                        decision=decision.views[view],
                        **half_point(half).model_dump(),
                    )
                    for view, half in decision.halves.items()
                }
        return reply

    def _record(self, work: Transaction, attempt: Attempt, reply: VerifyReply) -> None:
        """Write the audit entry of a decision, store the mark of its recording, and close an answered challenge."""
        if attempt.reason is None:
            # a recording that led to no decision may be sent again
            self.profiles.marks.put(work, attempt.name, attempt.recording)
        if attempt.request.challengeId is not None and reply.decision != "inconclusive":
            close_challenge(work, attempt.name)
        detail = reply.model_dump(exclude={"resultId", "quality"})
        if attempt.looks is not None:
            detail["looks"] = attempt.looks
        work.note("verify", attempt.name, reply.resultId, **detail)

    def _counters(
        self, work: Transaction, attempt: Attempt, row: ProfileRow, verdict: str
    ) -> dict[str, object]:
        """Update the counters in the row of the profile after a decision, and return them as {column: value}.

        A rejection is counted, and locks the profile if it was one too many; an acceptance ends the count.
        """
        if verdict == "accept":
            row.failures = 0
            row.locked_until = None
            row.last_used = work.now
            if attempt.request.challengeId is not None and not attempt.prompt:
                row.last_phrase = attempt.phrase
        elif verdict == "reject" or (attempt.looks and attempt.recording.reason is not None):
            # sound that makes a stream unusable after looks does not make the looks free
            self._count_rejection(work, row)
        return {
            "profile_id": row.id,
            "failures": row.failures,
            "locked_until": row.locked_until,
            "last_used": row.last_used,
            "last_phrase": row.last_phrase,
            "rate_until": self._rate_until(work, row),
        }

    def _count_rejection(self, work: Transaction, row: ProfileRow) -> None:
        """Count a rejection in `row`, and lock the profile after too many; the caller must store the row."""
        row.failures += 1
        excess = row.failures - self.settings.lock_after
        if excess >= 0:
            row.locked_until = work.now + self.settings.lock_s * 2.0 ** min(excess, 16)

    def _obstacle(self, work: Transaction, attempt: Attempt, row: ProfileRow) -> str | None:
        """Return the reason code if an attempt cannot be scored; otherwise set its `cells` and return None."""
        state = self.profiles.current(work, row)
        if state != "enrolled":
            return STATE_REASONS.get(state, state)
        if attempt.recording.reason is not None:
            return attempt.recording.reason
        if self.profiles.marks.is_copy(work, attempt.name, attempt.recording):
            return "suspected_replay"
        attempt.cells = self._complete_cells(work, row)
        enrolled = {cell.phrase for cell in attempt.cells}
        accepted = {"", *enrolled, *self.profiles.model.known_phrases}
        if not enrolled or attempt.phrase not in accepted:
            return "not_enrolled"
        return None

    def _complete_cells(self, work: Transaction, row: ProfileRow) -> list[Cell]:
        """Return the sums of a profile, without phrases that have fewer recordings than the setting ``enrolments``."""
        cells = self.templates.cells(work, row)
        counts: Counter[str] = Counter()
        for cell in cells:
            counts[cell.phrase] += cell.count
        return [cell for cell in cells if counts[cell.phrase] >= self.settings.enrolments]

    def point(self) -> OperatingPoint:
        """Return the thresholds and error rates that apply if a call does not choose its share of impostors (`far`)."""
        return self._points(None, False)

    def _point(
        self,
        far: float | None,
        has_countermeasure: bool,
        is_known: bool | None = None,
        is_prompted: bool = False,
    ) -> OperatingPoint:
        """Return the thresholds of a call with their measured error rates.

        Parameters
        ----------
        far : share of impostors that may be accepted; None: that of the settings, or else that of the model's first
            operating point
        has_countermeasure : whether the call has the LLR of a countermeasure
        is_known : whether the phrases of the profile are known classes; None: as in the default question
        is_prompted : whether words were prompted, so that only the voice is compared

        Raises
        ------
        Problem : 422 if the model has no thresholds for this share
        """
        model = self.profiles.model
        spoof = 0.0 if has_countermeasure else None
        question = model.usual_question(spoof)
        if is_prompted:
            question = model.question(spoof=spoof, is_prompted=True)
        elif is_known is False:
            question = replace(question, known=())
        try:
            return model.bundle.point(question, far=far or self.settings.far)
        except ParameterError as error:
            raise Problem(422, "operating-point", str(error)) from error

    # -- challenges ----------------------------------------------------------

    def challenge(
        self, work: Transaction, name: str, kind: ChallengeKind = "phrase"
    ) -> Challenge | Problem:
        """Return the open challenge of a profile, or a new one, with the text to say in the next verification.

        A profile keeps its challenge until it is answered or expires. Otherwise somebody could request challenges until
        one asks for a phrase of which they have a recording. Requests count towards the limit of attempts per minute;
        an expired challenge counts as a rejection.

        Parameters
        ----------
        name : id of the profile
        kind : "phrase", "words" or "digits"

        Returns
        -------
        the challenge; or, if the profile is locked or tried too often, the problem with which the call is refused. It
        is returned, not raised, so that the transaction, which counts the refusal, is committed

        Raises
        ------
        Problem : 404 or 410 if the profile does not exist, 409 if it cannot have a challenge of this kind
        """
        row = self.profiles.locked_one(work, name)
        state = self.profiles.current(work, row)
        self.profiles.check_damage(row)
        if state != "enrolled":
            detail = f"expected an enrolled profile for a challenge; this profile is {state}"
            raise Problem(409, "state", detail, state=state)
        found = find_challenge(work, name)
        if found is not None and found.expires < work.now:
            self._count_expired(work, row)
            found = None
        try:
            self._check_limits(work, row)
        except Problem as problem:
            return record_refusal(work, name, problem)
        texts = self._challenge_texts(work, row)
        if found is None or not (found.words or found.phrase in texts):
            close_challenge(work, name)
            found = self._new_challenge(work, row, kind, texts)
        row.rate_until = self._rate_until(work, row)
        work.run(UPDATE_PROFILE, profile_id=name, rate_until=row.rate_until)
        return found.reply(name, texts)

    def challenge_of_user(
        self, work: Transaction, user: str, kind: ChallengeKind = "phrase"
    ) -> Challenge | Problem:
        """Return a challenge for the only profile with a userId, or a decoy challenge if that is not possible.

        The answer does not reveal whether the name is unknown, ambiguous, not enrolled or locked; only the audit does.

        user : name of the person, the userId
        kind : "phrase", "words" or "digits"
        """
        self._check_kind(kind)
        names = list(work.run(IDS_OF_USER, user=user).scalars())
        reason = "unknown_name" if not names else "ambiguous_name"
        if len(names) == 1:
            try:
                outcome = self.challenge(work, names[0], kind)
            except Problem as problem:
                if problem.status_code != 409:
                    raise
                outcome = problem
            if isinstance(outcome, Challenge):
                return outcome
            reason = outcome.kind
        work.note("challenge", names[0] if len(names) == 1 else None, reason=reason)
        return self._decoys.challenge(work, user, kind)

    def _check_kind(self, kind: ChallengeKind) -> None:
        """Raise a `Problem` (409) if the service cannot check challenges of this kind, because it has no recogniser."""
        if kind != "phrase" and self.profiles.model.text_model is None:
            detail = (
                "this service cannot check prompted words: run `mvplda extractor get sounds --decoder`, then restart "
                "the service"
            )
            raise Problem(409, "no-decoder", detail)

    def _new_challenge(
        self, work: Transaction, row: ProfileRow, kind: ChallengeKind, texts: dict[str, str]
    ) -> OpenChallenge:
        """Store and return a new challenge for a profile.

        kind : "phrase", "words" or "digits"
        texts : {label: text} of the phrases to choose from, for the kind "phrase"
        """
        seconds = self.settings.challenge_s
        if kind == "phrase":
            return create_challenge(work, row, texts, seconds)
        self._check_kind(kind)
        return create_prompt(work, row, kind, seconds)

    def _challenge_texts(self, work: Transaction, row: ProfileRow) -> dict[str, str]:
        """Return {label: text} of the phrases that a challenge of a profile may ask for.

        These are its phrases with enough recordings, and the phrases of the model that need no enrolment.
        """
        texts = {**self.profiles.model.known_phrases}
        profile_texts = self.profiles.texts(row)
        texts |= {
            cell.phrase: profile_texts.get(cell.phrase, "")
            for cell in self._complete_cells(work, row)
        }
        if not all(texts.values()):
            raise self.templates.damage(row.id, "phrases")
        return texts

    def _count_expired(self, work: Transaction, row: ProfileRow) -> None:
        """Delete the expired challenge of a profile, and count it as a rejection."""
        close_challenge(work, row.id)
        self._count_rejection(work, row)
        columns = {"failures": row.failures, "locked_until": row.locked_until}
        work.run(UPDATE_PROFILE, profile_id=row.id, **columns)
        work.note("challenge-expired", row.id)

    def _claimed_challenge(
        self, work: Transaction, row: ProfileRow, challenge: str
    ) -> OpenChallenge:
        """Return the open challenge of a profile.

        Raises a `Problem` (409) if its id is not `challenge`, if it was answered, or if it has expired.
        """
        found = claimed_challenge(work, row.id, challenge)
        if found.expires < work.now:
            self._count_expired(work, row)
            raise expired_challenge()
        return found


def expired_challenge() -> Problem:
    """Return the refusal of an attempt whose challenge has expired."""
    return Problem(409, "challenge-expired", "the challenge has expired: request a new challenge")


def check_prompt(attempt: Attempt) -> None:
    """Raise a `Problem` if the recording of an attempt does not fit its prompted words.

    Raises
    ------
    Problem : 422 for a vector instead of sound, 409 if other words were prompted when the sound was processed
    """
    recording = attempt.recording
    if not attempt.prompt or recording.reason is not None:
        return
    if not recording.digest:
        detail = "expected sound for prompted words, because a vector does not contain words; got a vector"
        raise Problem(422, "prompt", detail)
    if recording.prompt != attempt.prompt or recording.prompt_log_probability is None:
        detail = "the challenge changed while the recording was processed: request a new challenge"
        raise Problem(409, "challenge-used", detail)


def record_refusal(work: Transaction, name: str, problem: Problem) -> Problem:
    """Return `problem`, the refusal of an attempt on the profile `name`; count it if its status is 429."""
    if problem.status_code == 429:
        count_refusal(work, problem.kind, name)
    return problem
