"""Is it the owner, and are these the words? Decisions, and locks after rejections."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..calibration import Answer
from ..decisions import OperatingPoint, decide
from ..exceptions import ParameterError
from .challenges import Challenges
from .gate import Heard
from .keys import Caller
from .model import DEFAULT_FAR, KIND_OF, PHRASE, SPEAKER, even, point_fields
from .problems import Problem
from .profiles import Profiles
from .records import Audit, label_of
from .settings import Settings
from .store import Work
from .tables import profiles
from .templates import Cell, Templates

log = logging.getLogger("mvplda.serve")


@dataclass(frozen=True)
class Ask:
    """What a verification is decided by."""

    phrase: str | None = None
    challenge: str | None = None
    far: float | None = None
    prior: float | None = None
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0
    countermeasure: float | None = None


class Verifier:
    """Decides, in one transaction that has the lock of the profile, and writes what was decided into the audit."""

    def __init__(
        self,
        profiles: Profiles,
        templates: Templates,
        challenges: Challenges,
        audit: Audit,
        settings: Settings,
    ) -> None:
        self.profiles = profiles
        self.templates = templates
        self.challenges = challenges
        self.audit = audit
        self.settings = settings

    def verify(
        self, work: Work, name: str, heard: Heard, ask: Ask, caller: Caller
    ) -> dict[str, Any]:
        model = self.profiles.needed_model()
        row = self.profiles.row(work, name, lock=True)
        self._check_lock(work, row)
        wanted = "" if ask.phrase is None else label_of(ask.phrase)
        if ask.challenge is not None:
            wanted = self.challenges.use(work, name, ask.challenge)
        llrs = [llr for llr in (ask.countermeasure, heard.countermeasure) if llr is not None]
        spoof = min(llrs, default=None)  # the more suspicious of the two
        point = self.point(ask, spoof)
        reason, cells = self._obstacle(work, row, heard, wanted)
        said: dict[str, Any] = {"decision": "inconclusive", "reason": reason}
        if reason == "suspected_replay":
            said["decision"] = "reject"
        if reason is None:
            assert heard.vector is not None
            test = Cell(wanted, model.share(heard.vector[None])[0], 1)
            options = {"weights": self.settings.weights, "countermeasure": spoof}
            answer = self.profiles.deployed_model(work).answer(cells, test, **options)
            said = decision_fields(answer, point)
        said = answer_fields(said, point, heard, spoof, model.version, model.notice)
        self._settle(work, row, said["decision"], ask)
        if row["state"] != "opted_out":
            self.templates.put_mark(work, name, heard)
        detail = {key: value for key, value in said.items() if key not in ("resultId", "quality")}
        self.audit.note(work, caller, "verify", name, said["resultId"], detail)
        return said

    def _obstacle(
        self, work: Work, row: dict[str, Any], heard: Heard, wanted: str
    ) -> tuple[str | None, list[Cell]]:
        """Why nothing can be decided, whatever was said; else the sums to decide by."""
        state = self.profiles.state(work, row)
        if state in ("opted_out", "expired"):
            return state, []
        if state in ("created", "enrolling"):
            return "not_enrolled", []
        if state == "stale" and not self.profiles.can_enrol_again(work, row["id"]):
            return "model_changed", []
        if heard.reason is not None:
            return heard.reason, []
        if state == "stale":
            self.profiles.enrol_again(work, row)
        if self.templates.is_copy(work, row["id"], heard):
            return "suspected_replay", []
        # a phrase counts from as many recordings on as are wanted
        required = self.settings.enrolments
        cells = [cell for cell in self.templates.cells(work, row) if cell.count >= required]
        allowed = {"", *(cell.phrase for cell in cells)}
        allowed |= set(self.profiles.needed_model().known_phrases)
        if not cells or wanted not in allowed:
            return "not_enrolled", []
        return None, cells

    # -- operating points ----------------------------------------------------

    def point(self, ask: Ask, spoof: float | None = None) -> OperatingPoint:
        model = self.profiles.needed_model()
        even_kinds = even(self.settings.weights)
        question = model.question(False, self.settings.weights, spoof)
        if ask.prior is not None and ask.far is not None:
            detail = "give the share of false acceptances, or a prior and costs, not both"
            raise Problem(422, "operating-point", detail)
        far = ask.far
        if far is None and ask.prior is None:
            far = self.settings.far
            if far is None and not (even_kinds and model.bundle.operating_points(question)):
                far = DEFAULT_FAR
        costs = {
            "prior": ask.prior,
            "miss_cost": ask.miss_cost,
            "false_alarm_cost": ask.false_alarm_cost,
        }
        try:
            return model.point(question, even_kinds, far, **costs)
        except ParameterError as error:
            raise Problem(422, "operating-point", str(error)) from error

    def default_point(self, spoofs: bool) -> dict[str, Any]:
        """Where a call gives no operating point."""
        point = self.point(Ask(), 0.0 if spoofs else None)
        return {
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "far": point.far,
            "weights": dict(self.settings.weights),
            "countermeasure": spoofs,
        }

    # -- locks ---------------------------------------------------------------

    def _check_lock(self, work: Work, row: Mapping[str, Any]) -> None:
        until = row["locked_until"]
        if until is not None and until > work.now:
            detail = f"after {row['failures']} rejections the profile is locked for a while"
            raise Problem(429, "locked", detail, wait=until - work.now)

    def _settle(self, work: Work, row: Mapping[str, Any], decision: str, ask: Ask) -> None:
        """Rejections in a row and a lock, or a profile that was used."""
        if decision == "inconclusive":
            return
        values: dict[str, Any] = {"failures": 0, "locked_until": None, "last_used": work.now}
        if decision == "reject":
            failures = row["failures"] + 1
            over = failures - self.settings.lock_after
            locked = None
            if over >= 0:
                locked = work.now + self.settings.lock_s * 2.0 ** min(over, 16)
            values = {"failures": failures, "locked_until": locked}
        elif ask.challenge is not None:
            self.challenges.accept(work, ask.challenge)
        work.execute(profiles.update().where(profiles.c.id == row["id"]).values(**values))


def decision_fields(answer: Answer, point: OperatingPoint) -> dict[str, Any]:
    """What was decided about a trial, and by what evidence."""
    decision = decide(answer, point)
    posteriors = {}
    for hypothesis, value in answer.posteriors().items():
        kind = KIND_OF.get(hypothesis, "+".join(hypothesis))
        posteriors[kind] = float(np.asarray(value))
    if PHRASE not in answer.views:  # a model of voices alone has two hypotheses
        posteriors = {"TC": posteriors.pop("TW"), "IC": posteriors.pop("IW"), **posteriors}
    phrase_llr = None
    if PHRASE in answer.views:
        phrase_llr = float(answer.llr_of(PHRASE))
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


def answer_fields(
    said: Mapping[str, Any],
    point: OperatingPoint,
    heard: Heard,
    spoof: float | None,
    version: str,
    notice: str | None,
) -> dict[str, Any]:
    undecided = ("voice", "words", "llr", "posteriors", "llrSpeaker", "llrPhrase", "calibrated")
    return {
        "resultId": secrets.token_hex(16),
        **dict.fromkeys(undecided),
        **said,
        "threshold": point.threshold,
        "rejectThreshold": point.reject,
        "countermeasureLlr": spoof,
        "operatingPoint": None if point.measured is None else point_fields(point),
        "quality": heard.quality,
        "modelVersion": version,
        "notice": notice,
    }
