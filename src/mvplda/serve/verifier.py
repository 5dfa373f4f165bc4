"""Is it the owner, and are these the words? Decisions, locks after rejections, and challenges."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..calibration import Answer
from ..decisions import OperatingPoint, decide
from ..exceptions import ParameterError
from .keys import Caller
from .model import PHRASE, SPEAKER, Cell, Heard, label_of, point_fields
from .problems import Json, Problem
from .profiles import Profiles
from .schemas import VerifyRequest
from .store import MINUTE, Work, iso

KINDS = {"speaker+phrase": "TC", "speaker": "TW", "phrase": "IC", "nothing": "IW"}
"""Hypotheses by what is shared, and what they are called: the owner (T) or another (I), correct or wrong words."""
VOICE_KINDS = {"speaker": "TC", "nothing": "IC"}
"""Of a model of voices alone."""
STATE_REASONS = {
    "created": "not_enrolled",
    "enrolling": "not_enrolled",
    "stale": "model_changed",
}
"""Why nothing is decided, where that is not called like the state of the profile."""
UNDECIDED = ("voice", "words", "llr", "posteriors", "llrSpeaker", "llrPhrase", "calibrated")
"""Fields of a decision that are empty where nothing was scored."""


@dataclass(frozen=True)
class Attempt:
    """Somebody who says that he or she is the owner of a profile."""

    caller: Caller
    name: str
    heard: Heard
    ask: VerifyRequest


@dataclass(frozen=True)
class Trial:
    """An attempt that may be decided.

    reason : why nothing is decided; None: `cells` are compared
    """

    attempt: Attempt
    row: Json
    point: OperatingPoint
    wanted: str
    spoof: float | None
    reason: str | None
    cells: list[Cell]


class Verifier:
    """Decides, in one transaction that has the locks of the profiles, and writes what was decided into the audit."""

    def __init__(self, profiles: Profiles) -> None:
        self.profiles = profiles
        self.templates = profiles.templates
        self.settings = profiles.settings
        self._points = lru_cache(100)(self._point)

    def verify(self, work: Work, attempts: Sequence[Attempt]) -> list[Json | Problem]:
        """Decide attempts on different profiles together; a refusal of one leaves the others as they are."""
        rows = self.profiles.locked(work, [attempt.name for attempt in attempts])
        outcomes: dict[str, Json | Problem] = {}
        trials = []
        for attempt in attempts:
            work.caller = attempt.caller
            try:
                row = self.profiles.checked(rows.get(attempt.name))
                self._check_limits(work, row)
                trials.append(self._trial(work, row, attempt))
            except Problem as problem:
                outcomes[attempt.name] = noted(work, attempt.name, problem)
        decided = self._decided(work, trials)
        for trial, result in zip(trials, decided, strict=True):
            outcomes[trial.attempt.name] = self._settled(work, trial, result)
        if trials:
            work.update_all("profiles", [self._counted(work, t, outcomes) for t in trials])
        return [outcomes[attempt.name] for attempt in attempts]

    def admit(self, work: Work, name: str) -> Problem | None:
        """Why an attempt would be refused, before its sound is heard."""
        try:
            self._check_limits(work, self.profiles.row(work, name))
        except Problem as problem:
            return noted(work, name, problem)
        return None

    def _check_limits(self, work: Work, row: Json) -> None:
        until = row["locked_until"]
        if until is not None and until > work.now:
            detail = f"after {row['failures']} rejections the profile is locked for a while"
            raise Problem(429, "locked", detail, wait=until - work.now)
        wait = self._rate_until(work, row) - work.now - MINUTE
        if wait > 0:
            raise Problem(429, "rate", "there are too many attempts on this profile", wait=wait)

    def _rate_until(self, work: Work, row: Json) -> float:
        """When this attempt and those before it are paid off: each costs its part of a minute."""
        rate = self.settings.profile_rate
        if not rate:
            return work.now
        until = row["rate_until"] or work.now
        if not work.now <= until <= work.now + MINUTE:  # long ago, or written by a wrong clock
            until = work.now
        return float(until + MINUTE / rate)

    def _trial(self, work: Work, row: Json, attempt: Attempt) -> Trial:
        ask = attempt.ask
        spoof = ask.countermeasureLlr
        point = self._points(ask.far, spoof is not None)
        wanted = "" if ask.phrase is None else label_of(ask.phrase)
        if ask.challengeId is not None:
            wanted = self._use(work, attempt.name, ask.challengeId)
        reason, cells = self._obstacle(work, row, attempt.heard, wanted)
        return Trial(attempt, row, point, wanted, spoof, reason, cells)

    def _decided(self, work: Work, trials: Sequence[Trial]) -> list[Json]:
        """Decisions with their evidence: all that can be scored in one call."""
        scored = [trial for trial in trials if trial.reason is None]
        answers = []
        if scored:
            shares = self.profiles.model.share(np.stack([t.attempt.heard.vector for t in scored]))
            pairs = []
            for trial, share in zip(scored, shares, strict=True):
                pairs.append((trial.cells, Cell(trial.wanted, share, 1), trial.spoof))
            deployed = self.profiles.domain.deployed(work, scored[0].row["last_change"])
            answers = deployed.answers(pairs, self.settings.spoof_prior)
        made = iter(answers)
        results: list[Json] = []
        for trial in trials:
            if trial.reason is None:
                results.append(decision_fields(next(made), trial.point))
                continue
            decision = "reject" if trial.reason == "suspected_replay" else "inconclusive"
            empty = dict.fromkeys(UNDECIDED)
            results.append({"decision": decision, "reason": trial.reason, **empty})
        return results

    def _settled(self, work: Work, trial: Trial, result: Json) -> Json:
        """The answer, and its entry in the audit."""
        attempt = trial.attempt
        point = trial.point
        model = self.profiles.model
        result |= {
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "countermeasureLlr": trial.spoof,
            "operatingPoint": None if point.measured is None else point_fields(point),
            "modelVersion": model.version,
            "notice": model.notice,
        }
        if trial.row["state"] != "opted_out":
            self.templates.put_mark(work, attempt.name, attempt.heard)
        made = secrets.token_hex(16)
        work.caller = attempt.caller
        work.note("verify", attempt.name, made, **result)
        return {"resultId": made, **result, "quality": attempt.heard.quality}

    def _counted(self, work: Work, trial: Trial, outcomes: Mapping[str, Any]) -> Json:
        """What a profile keeps of an attempt: rejections in a row lock it, others note that it was used."""
        row = trial.row
        names = ("id", "failures", "locked_until", "last_used", "last_phrase")
        values = {name: row[name] for name in names}
        values["rate_until"] = self._rate_until(work, row)
        decision = outcomes[row["id"]]["decision"]
        if decision == "accept":
            values |= {"failures": 0, "locked_until": None, "last_used": work.now}
            if trial.attempt.ask.challengeId is not None:
                values["last_phrase"] = trial.wanted
        elif decision == "reject":
            values["failures"] += 1
            over = values["failures"] - self.settings.lock_after
            if over >= 0:
                values["locked_until"] = work.now + self.settings.lock_s * 2.0 ** min(over, 16)
        return values

    def _obstacle(
        self, work: Work, row: Json, heard: Heard, wanted: str
    ) -> tuple[str | None, list[Cell]]:
        """Why nothing can be decided, whatever was said; else the sums to decide by."""
        state = self.profiles.current(work, row)
        if state != "enrolled":
            return STATE_REASONS.get(state, state), []
        if heard.reason is not None:
            return heard.reason, []
        if self.templates.is_copy(work, row["id"], heard):
            return "suspected_replay", []
        # a phrase counts from as many recordings on as are wanted
        required = self.settings.enrolments
        cells = [cell for cell in self.templates.cells(work, row) if cell.count >= required]
        allowed = {"", *(cell.phrase for cell in cells), *self.profiles.model.known_phrases}
        if not cells or wanted not in allowed:
            return "not_enrolled", []
        return None, cells

    def point(self) -> OperatingPoint:
        """Where a call gives no operating point."""
        return self._points(None, False)

    def _point(self, far: float | None, is_spoofed: bool) -> OperatingPoint:
        """The operating point that a call asks for, else that of the settings or of the model."""
        model = self.profiles.model
        question = model.question(spoof=0.0 if is_spoofed else None)
        try:
            return model.bundle.point(question, far=far or self.settings.far)
        except ParameterError as error:
            raise Problem(422, "operating-point", str(error)) from error

    # -- challenges ----------------------------------------------------------

    def challenge(self, work: Work, name: str) -> Json:
        """A phrase to be said now, once, so that a recording of last time has the wrong words."""
        row = self.profiles.locked_one(work, name)
        state = self.profiles.current(work, row)
        if state != "enrolled":
            detail = f"the profile is {state}: only enrolled ones are challenged"
            raise Problem(409, "state", detail, state=state)
        # phrases with recordings enough, and those that need none
        texts = {**self.profiles.model.known_phrases}
        own: dict[str, str] = json.loads(row["phrases"])
        for cell in self.templates.cells(work, row):
            if cell.count >= self.settings.enrolments:
                texts[cell.phrase] = own[cell.phrase]
        # a recording of last time must have the wrong words
        fresh = sorted(set(texts) - {row["last_phrase"]})
        if len(texts) < 2 or not fresh:
            detail = f"there are {len(texts)} phrases to choose from, too few: enrol more phrases"
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

    def _use(self, work: Work, name: str, challenge: str) -> str:
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


def noted(work: Work, name: str, problem: Problem) -> Problem:
    """A refusal, in the audit if it is for too many attempts."""
    if problem.status == 429:
        work.note("refuse", name, reason=problem.kind)
    return problem


def decision_fields(answer: Answer, point: OperatingPoint) -> Json:
    """What was decided about a trial, and by what evidence."""
    decision = decide(answer, point)
    kinds = VOICE_KINDS
    phrase_llr = None
    if PHRASE in answer.views:
        kinds = KINDS
        phrase_llr = float(answer.llr_of(PHRASE))
    posteriors = {kinds.get(name, name): p for name, p in decision.probabilities.items()}
    return {
        "decision": decision.answer,
        "reason": decision.reason,
        "voice": decision.voice,
        "words": decision.words,
        "llr": decision.llr,
        "posteriors": posteriors,
        "llrSpeaker": float(answer.llr_of(SPEAKER)),
        "llrPhrase": phrase_llr,
        "calibrated": answer.calibrated,
    }
