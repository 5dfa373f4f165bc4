"""Is it the owner, and are these the words? Decisions, locks after rejections, and challenges."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from ..calibration import Answer
from ..decisions import OperatingPoint, decide
from ..exceptions import ParameterError
from .model import PHRASE, SPEAKER, Cell, Heard, label_of, point_fields
from .problems import Json, Problem
from .profiles import Profiles
from .store import DAY, Work, iso

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
class Ask:
    """What a verification is decided by."""

    phrase: str | None = None
    challenge: str | None = None
    far: float | None = None
    countermeasure: float | None = None


@dataclass
class Verifier:
    """Decides, in one transaction that has the lock of the profile, and writes what was decided into the audit."""

    profiles: Profiles

    def __post_init__(self) -> None:
        self.templates = self.profiles.templates
        self.settings = self.profiles.settings

    def verify(self, work: Work, name: str, heard: Heard, ask: Ask) -> Json:
        model = self.profiles.model
        row = self.profiles.locked(work, name)
        until = row["locked_until"]
        if until is not None and until > work.now:
            detail = f"after {row['failures']} rejections the profile is locked for a while"
            raise Problem(429, "locked", detail, wait=until - work.now)
        wanted = "" if ask.phrase is None else label_of(ask.phrase)
        if ask.challenge is not None:
            wanted = self._use(work, name, ask.challenge)
        llrs = [llr for llr in (ask.countermeasure, heard.countermeasure) if llr is not None]
        spoof = min(llrs, default=None)  # the more suspicious of the two
        point = self.point(ask, spoof)
        reason, cells = self._obstacle(work, row, heard, wanted)
        result: Json = {"decision": "inconclusive", "reason": reason, **dict.fromkeys(UNDECIDED)}
        if reason == "suspected_replay":
            result["decision"] = "reject"
        if reason is None and heard.vector is not None:
            test = Cell(wanted, model.share(heard.vector[None])[0], 1)
            deployed = self.profiles.domain.deployed(work, row["last_change"])
            spoof_prior = self.settings.spoof_prior
            answer = deployed.answer(cells, test, spoof=spoof, spoof_prior=spoof_prior)
            result = decision_fields(answer, point)
        result |= {
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "countermeasureLlr": spoof,
            "operatingPoint": None if point.measured is None else point_fields(point),
            "modelVersion": model.version,
            "notice": model.notice,
        }
        self._count(work, row, result["decision"], ask)
        if row["state"] != "opted_out":
            self.templates.put_mark(work, name, heard)
        made = secrets.token_hex(16)
        work.note("verify", name, made, **result)
        return {"resultId": made, **result, "quality": heard.quality}

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

    def point(self, ask: Ask, spoof: float | None = None) -> OperatingPoint:
        """The operating point that a call asks for, else that of the settings or of the model."""
        model = self.profiles.model
        try:
            far = ask.far or self.settings.far
            return model.bundle.point(model.question(spoof=spoof), far=far)
        except ParameterError as error:
            raise Problem(422, "operating-point", str(error)) from error

    def _count(self, work: Work, row: Json, decision: str, ask: Ask) -> None:
        """Count rejections in a row, and lock; or note that a profile was used."""
        if decision == "inconclusive":
            return
        values = {"failures": 0, "locked_until": None, "last_used": work.now}
        if decision == "reject":
            failures = row["failures"] + 1
            over = failures - self.settings.lock_after
            values = {"failures": failures}
            if over >= 0:
                values["locked_until"] = work.now + self.settings.lock_s * 2.0 ** min(over, 16)
        elif ask.challenge is not None:
            work.update("challenges", ask.challenge, used=work.now)
        work.update("profiles", row["id"], **values)

    # -- challenges ----------------------------------------------------------

    def challenge(self, work: Work, name: str) -> Json:
        """A phrase to be said now, once, so that a recording of last time has the wrong words."""
        row = self.profiles.locked(work, name)
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
        label = self._draw(work, name, texts)
        made = secrets.token_hex(16)
        expires = work.now + self.settings.challenge_s
        work.insert(
            "challenges",
            id=made,
            profile=name,
            phrases=json.dumps([label]),
            created=work.now,
            expires=expires,
        )
        work.note("challenge", name)
        return {
            "challengeId": made,
            "profileId": name,
            "phrases": [texts[label]],
            "expires": iso(expires),
        }

    def _draw(self, work: Work, name: str, texts: dict[str, str]) -> str:
        """A phrase that is neither the last accepted one nor, if others remain, the last drawn one."""
        own = "SELECT * FROM challenges WHERE profile = :name"
        drawn = work.first(f"{own} ORDER BY created DESC", name=name)
        accepted = work.first(f"{own} AND used > 0 ORDER BY used DESC", name=name)
        fresh = set(texts)
        if accepted is not None:
            fresh -= set(json.loads(accepted["phrases"]))
        if drawn is not None:
            fresh = fresh - set(json.loads(drawn["phrases"])) or fresh
        if len(texts) < 2 or not fresh:
            detail = f"there are {len(texts)} phrases to choose from, too few: enrol more phrases"
            raise Problem(409, "too-few-phrases", detail)
        if accepted is not None:
            # of old challenges the last accepted one is needed; those without an answer go by themselves
            old = (
                "DELETE FROM challenges WHERE profile = :name AND expires < :oldest AND id != :last"
            )
            work.run(old, name=name, oldest=work.now - DAY, last=accepted["id"])
        return secrets.choice(sorted(fresh))

    def _use(self, work: Work, name: str, challenge: str) -> str:
        """The phrase that was asked for; the challenge is used up by this."""
        row = work.first("SELECT * FROM challenges WHERE id = :id", id=challenge)
        if row is None or row["profile"] != name:
            raise Problem(404, "not-found", "there is no such challenge of this profile")
        if row["used"] is not None:
            detail = "the challenge was answered already: ask for another"
            raise Problem(409, "challenge-used", detail)
        if row["expires"] < work.now:
            raise Problem(409, "challenge-expired", "the challenge is too old: ask for another")
        work.update("challenges", challenge, used=-work.now)
        return str(json.loads(row["phrases"])[0])


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
