"""Is it the owner, and are these the words? Decisions, locks after rejections, and challenges."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..decisions import Decision, OperatingPoint
from ..exceptions import ParameterError
from .keys import Caller
from .model import NO_POINT, PHRASE, SPEAKER, Cell, ProcessedRecording, label_of, point_fields
from .profiles import ProfileStore
from .schemas import Json, Problem, VerifyRequest
from .store import MINUTE, Transaction, iso

# Hypotheses by what is shared, and what they are called: the owner (T) or another (I), correct or wrong words.
KINDS = {"speaker+phrase": "TC", "speaker": "TW", "phrase": "IC", "nothing": "IW"}
# Of a model of voices alone.
VOICE_KINDS = {"speaker": "TC", "nothing": "IC"}
# Why nothing is decided, where that is not called like the state of the profile.
STATE_REASONS = {
    "created": "not_enrolled",
    "enrolling": "not_enrolled",
    "stale": "model_changed",
}
# Fields of a decision that are empty where nothing was scored.
UNDECIDED = ("voice", "words", "llr", "posteriors", "llrSpeaker", "llrPhrase", "calibrated")


@dataclass
class Attempt:
    """Somebody who says that he or she is the owner of a profile; and what is found out about it.

    wanted : label of the phrase that was asked for; empty: any
    reason : why nothing is decided; None: `cells` are compared
    """

    caller: Caller
    name: str
    heard: ProcessedRecording
    ask: VerifyRequest
    row: Json = field(default_factory=dict)
    point: OperatingPoint = NO_POINT
    wanted: str = ""
    reason: str | None = None
    cells: list[Cell] = field(default_factory=list)


class Verifier:
    """Decides, in one transaction that has the locks of the profiles, and writes what was decided into the audit."""

    def __init__(self, profiles: ProfileStore) -> None:
        self.profiles = profiles
        self.templates = profiles.templates
        self.settings = profiles.settings
        self._points = lru_cache(100)(self._point)

    def verify(self, work: Transaction, attempts: Sequence[Attempt]) -> list[Json | Problem]:
        """Decide attempts on different profiles together; a refusal of one leaves the others as they are."""
        rows = self.profiles.locked(work, [attempt.name for attempt in attempts])
        outcomes: dict[str, Json | Problem] = {}
        admitted = []
        for attempt in attempts:
            work.caller = attempt.caller
            try:
                attempt.row = self.profiles.checked(rows.get(attempt.name))
                self._prepare(work, attempt)
                admitted.append(attempt)
            except Problem as problem:
                outcomes[attempt.name] = noted(work, attempt.name, problem)
        counted = []
        for attempt, result in zip(admitted, self._decided(work, admitted), strict=True):
            work.caller = attempt.caller
            counted.append(self._counted(work, attempt, result["decision"]))
            outcomes[attempt.name] = self._settled(work, attempt, result)
        if counted:
            work.update_all("profiles", counted)
        return [outcomes[attempt.name] for attempt in attempts]

    def admit(self, work: Transaction, name: str) -> Problem | None:
        """Why an attempt would be refused, before its sound is heard."""
        try:
            self._check_limits(work, self.profiles.row(work, name))
        except Problem as problem:
            return noted(work, name, problem)
        return None

    def _check_limits(self, work: Transaction, row: Json) -> None:
        until = row["locked_until"]
        if until is not None and until > work.now:
            detail = f"after {row['failures']} rejections the profile is locked for a while"
            raise Problem(429, "locked", detail, wait=until - work.now)
        wait = self._rate_until(work, row) - work.now - MINUTE
        if wait > 0:
            raise Problem(429, "rate", "there are too many attempts on this profile", wait=wait)

    def _rate_until(self, work: Transaction, row: Json) -> float:
        """When this attempt and those before it are paid off: each costs its part of a minute."""
        rate = self.settings.profile_rate
        if not rate:
            return work.now
        until = row["rate_until"] or work.now
        if not work.now <= until <= work.now + MINUTE:  # long ago, or written by a wrong clock
            until = work.now
        return float(until + MINUTE / rate)

    def _prepare(self, work: Transaction, attempt: Attempt) -> None:
        """What an attempt is decided by; raises where it is refused."""
        ask = attempt.ask
        self._check_limits(work, attempt.row)
        attempt.point = self._points(ask.far, ask.countermeasureLlr is not None)
        attempt.wanted = "" if ask.phrase is None else label_of(ask.phrase)
        if ask.challengeId is not None:
            attempt.wanted = self._use(work, attempt.name, ask.challengeId)
        attempt.reason = self._obstacle(work, attempt)

    def _decided(self, work: Transaction, attempts: Sequence[Attempt]) -> Iterator[Json]:
        """Decisions with their evidence: all that can be scored in one call."""
        scored = [attempt for attempt in attempts if attempt.reason is None]
        decisions: Iterator[Decision] = iter([])
        if scored:
            vectors = [one.heard.vector for one in scored if one.heard.vector is not None]
            shares = self.profiles.model.share(np.stack(vectors))
            deployed = self.profiles.domain.deployed(work, scored[0].row["last_change"])
            trials = []
            for one, share in zip(scored, shares, strict=True):
                test = Cell(one.wanted, share, 1)
                spoof = one.ask.countermeasureLlr
                # errors were measured with and without phrases that are known
                is_known = deployed.knows(one.cells)
                one.point = self._points(one.ask.far, spoof is not None, is_known)
                trials.append((one.cells, test, spoof, one.point))
            decisions = iter(deployed.decisions(trials, self.settings.spoof_prior))
        for attempt in attempts:
            if attempt.reason is None:
                yield decision_fields(next(decisions))
                continue
            decision = "reject" if attempt.reason == "suspected_replay" else "inconclusive"
            yield {"decision": decision, "reason": attempt.reason, **dict.fromkeys(UNDECIDED)}

    def _settled(self, work: Transaction, attempt: Attempt, result: Json) -> Json:
        """The answer, and its entry in the audit."""
        point = attempt.point
        model = self.profiles.model
        result |= {
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "countermeasureLlr": attempt.ask.countermeasureLlr,
            "operatingPoint": None if point.measured is None else point_fields(point),
            "modelVersion": model.version,
            "notice": model.notice,
        }
        if attempt.reason is None:
            # a recording by which nothing was decided may come again
            self.templates.put_mark(work, attempt.name, attempt.heard)
        made = secrets.token_hex(16)
        work.note("verify", attempt.name, made, **result)
        return {"resultId": made, **result, "quality": attempt.heard.quality}

    def _counted(self, work: Transaction, attempt: Attempt, decision: str) -> Json:
        """What a profile keeps of an attempt: rejections in a row lock it, others note that it was used."""
        row = attempt.row
        names = ("id", "failures", "locked_until", "last_used", "last_phrase")
        values = {name: row[name] for name in names}
        values["rate_until"] = self._rate_until(work, row)
        if decision == "accept":
            values |= {"failures": 0, "locked_until": None, "last_used": work.now}
            if attempt.ask.challengeId is not None:
                values["last_phrase"] = attempt.wanted
        elif decision == "reject":
            values["failures"] += 1
            over = values["failures"] - self.settings.lock_after
            if over >= 0:
                values["locked_until"] = work.now + self.settings.lock_s * 2.0 ** min(over, 16)
        return values

    def _obstacle(self, work: Transaction, attempt: Attempt) -> str | None:
        """Why nothing can be decided, whatever was said; else the sums to decide by are set."""
        state = self.profiles.current(work, attempt.row)
        if state != "enrolled":
            return STATE_REASONS.get(state, state)
        if attempt.heard.reason is not None:
            return attempt.heard.reason
        if self.templates.is_copy(work, attempt.name, attempt.heard):
            return "suspected_replay"
        attempt.cells = self._complete(work, attempt.row)
        enrolled = {cell.phrase for cell in attempt.cells}
        if not enrolled or attempt.wanted not in {
            "",
            *enrolled,
            *self.profiles.model.known_phrases,
        }:
            return "not_enrolled"
        return None

    def _complete(self, work: Transaction, row: Json) -> list[Cell]:
        """Sums of phrases that have as many recordings as are wanted: others do not count."""
        cells = self.templates.cells(work, row)
        counts: Counter[str] = Counter()
        for cell in cells:
            counts[cell.phrase] += cell.count
        return [cell for cell in cells if counts[cell.phrase] >= self.settings.enrolments]

    def point(self) -> OperatingPoint:
        """Where a call gives no operating point."""
        return self._points(None, False)

    def _point(
        self, far: float | None, is_spoofed: bool, is_known: bool | None = None
    ) -> OperatingPoint:
        """The operating point that a call asks for, else that of the settings or of the model.

        is_known : whether the deployment knows the phrases of the profile; None: as usual
        """
        model = self.profiles.model
        question = model.usual_question(0.0 if is_spoofed else None)
        if is_known is False:
            question = replace(question, known=())
        try:
            return model.bundle.point(question, far=far or self.settings.far)
        except ParameterError as error:
            raise Problem(422, "operating-point", str(error)) from error

    # -- challenges ----------------------------------------------------------

    def challenge(self, work: Transaction, name: str) -> Json:
        """A phrase to be said now, once, so that a recording of last time has the wrong words."""
        row = self.profiles.locked_one(work, name)
        state = self.profiles.current(work, row)
        if state != "enrolled":
            detail = f"the profile is {state}: only enrolled ones are challenged"
            raise Problem(409, "state", detail, state=state)
        # phrases with recordings enough, and those that need none
        texts = {**self.profiles.model.known_phrases}
        own: dict[str, str] = json.loads(row["phrases"])
        texts |= {cell.phrase: own[cell.phrase] for cell in self._complete(work, row)}
        # a recording of last time must have the wrong words
        fresh = sorted(set(texts) - {row["last_phrase"]})
        if len(texts) < 2 or not fresh:
            detail = f"two phrases to choose from are the least, the profile has {len(texts)}: enrol more"
            raise Problem(409, "too-few-phrases", detail)
        label = secrets.choice(fresh)
        made = secrets.token_hex(16)
        expires = work.now + self.settings.challenge_s
        work.insert("challenges", id=made, profile=name, phrase=label, expires=expires)
        work.note("challenge", name)
        return {
            "challengeId": made,
            "profileId": name,
            "phrases": [texts[label]],
            "expires": iso(expires),
        }

    def _use(self, work: Transaction, name: str, challenge: str) -> str:
        """The phrase that was asked for; the challenge is used up by this."""
        out = "DELETE FROM challenges WHERE id = :id AND profile = :name RETURNING phrase, expires"
        row = work.first(out, id=challenge, name=name)
        if row is None:
            detail = (
                "there is no such challenge of this profile, or it was answered: ask for another"
            )
            raise Problem(409, "challenge-used", detail)
        if row["expires"] < work.now:
            raise Problem(409, "challenge-expired", "the challenge is too old: ask for another")
        return str(row["phrase"])


def noted(work: Transaction, name: str, problem: Problem) -> Problem:
    """A refusal, in the audit if it is for too many attempts."""
    if problem.status_code == 429:
        work.note("refuse", name, reason=problem.kind)
    return problem


def decision_fields(decision: Decision) -> Json:
    """What was decided about a trial, and by what evidence."""
    kinds = KINDS if PHRASE in decision.llrs else VOICE_KINDS
    posteriors = {kinds.get(name, name): p for name, p in decision.probabilities.items()}
    return {
        "decision": decision.answer,
        "reason": decision.reason,
        "voice": decision.voice,
        "words": decision.words,
        "llr": decision.llr,
        "posteriors": posteriors,
        "llrSpeaker": decision.llrs[SPEAKER],
        "llrPhrase": decision.llrs.get(PHRASE),
        "calibrated": decision.calibrated,
    }
