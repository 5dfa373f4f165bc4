"""Is it the owner, and are these the words? Decisions, the challenges they answer, and locks after failures."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ..exceptions import ParameterError
from .audio import Heard
from .decisions import KINDS, Odds, Point, choose_point, odds, reason_of
from .desk import DAY, Problem, iso, log
from .keys import Caller
from .model import Cell, Mode
from .store import challenges, profiles, templates
from .templates import Templates


@dataclass(frozen=True)
class Ask:
    """What a verification is asked to be decided by."""

    phrase: str | None = None
    challenge: str | None = None
    far: float | None = None
    prior: float | None = None
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0
    countermeasure: float | None = None


class Verification(Templates):
    def verify(self, name: str, heard: Sequence[Heard], ask: Ask, caller: Caller) -> dict[str, Any]:
        """Decide whether it is the owner who says the phrase; whatever comes of it is on record."""
        wait = self.profile_rates.wait(name)
        if wait:
            raise Problem(429, "rate", "there are too many attempts on this profile", wait=wait)
        now, result = self.clock(), secrets.token_hex(16)
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._check_lock(row)
            wanted = self._wanted(connection, row, ask, len(heard))
            cells: list[Cell] = []
            reason = self._obstacle(connection, row, heard)
            if reason is None:
                key = self._data_key(name)
                if self._state(row) == "stale":
                    row = self._again(connection, row, key)
                # a phrase counts from as many takes on as were wanted
                cells = [
                    cell
                    for cell in self._cells(connection, name, key)
                    if cell.count >= self.rules.required
                ]
                own = {cell.phrase for cell in cells} | self._known()
                if any(self._is_copy(connection, name, key, one) for one in heard):
                    reason = "suspected_replay"
                elif (
                    not cells or not set(wanted or ()) <= own
                ):  # none: more takes are wanted than once were
                    reason = "not_enrolled"
            # the most suspicious of what the caller says, and of what was heard here: the lowest
            llrs = (ask.countermeasure, *(one.countermeasure for one in heard))
            spoof = min((llr for llr in llrs if llr is not None), default=None)
            point = self._point(ask, self._model().mode(cells, wanted), spoof)
        found: Odds | None = None
        decision = "reject" if reason == "suspected_replay" else "inconclusive"
        if reason is None:
            found = self._odds(cells, heard, wanted, point, spoof)
            decision = point.verdict(found.llr)
            reason = reason_of(found, decision)
        said = self._answer(result, decision, reason, found, point, heard, spoof)
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            self._check_lock(row)  # once more: others may have been turned away meanwhile
            self._settle(connection, row, decision, ask, now)
            for one in heard if row["state"] != "opted_out" else ():
                self._mark(connection, name, one)
            kept = {k: v for k, v in said.items() if k not in ("resultId", "quality")}
            self._note(connection, caller, "verify", name, result, kept)
        log.info(
            "verify",
            extra={"resultId": result, "decision": decision, "reason": reason, "profile": name},
        )
        return said

    def challenge(self, name: str, count: int, caller: Caller) -> dict[str, Any]:
        """Phrases drawn at random of those that the profile enrolled and those that the model knows."""
        now = self.clock()
        with self.store.write() as connection:
            row = self._row(connection, name, lock=True)
            if self._state(row) == "stale" and self._kept(connection, name):
                row = self._again(connection, row, self._data_key(name))
            state = self._state(row)
            if state != "enrolled":
                raise Problem(
                    409,
                    "state",
                    f"the profile is {state}: only enrolled ones are challenged",
                    state=state,
                )
            enough = (templates.c.profile == name) & (templates.c["count"] >= self.rules.required)
            ready = set(connection.execute(sa.select(templates.c.phrase).where(enough)).scalars())
            texts = {
                label: text for label, text in json.loads(row["phrases"]).items() if label in ready
            }
            if self.model is not None and self.model.known:
                texts = {**self.model.texts, **texts}
            own = sa.select(challenges.c.id, challenges.c.phrases).where(
                challenges.c.profile == name
            )
            drawn = connection.execute(own.order_by(challenges.c.created.desc())).first()
            said = connection.execute(
                own.where(challenges.c.used > 0).order_by(challenges.c.used.desc())
            ).first()
            # what was accepted last is not asked for, however often one asks; what was drawn last, if others remain
            fresh = [
                label for label in texts if said is None or label not in json.loads(said.phrases)
            ]
            rest = [
                label for label in fresh if drawn is None or label not in json.loads(drawn.phrases)
            ]
            fresh = rest if len(rest) >= count or said is None else fresh
            if len(texts) < 2 or len(fresh) < count:
                few = f"there are {len(texts)} phrases to choose from, too few for {count} that differ from the last ones"  # noqa: E501
                raise Problem(409, "too-few-phrases", f"{few}: enrol more phrases")
            chosen = secrets.SystemRandom().sample(sorted(fresh), count)
            made, expires = secrets.token_hex(16), now + self.rules.challenge_s
            old = challenges.c.expires < now - DAY
            others = (challenges.c.profile == name) & (
                challenges.c.id != (said.id if said is not None else "")
            )
            never = challenges.c.used.is_(None) | (challenges.c.used < 0)
            connection.execute(challenges.delete().where(old & (never | others)))
            new = {
                "id": made,
                "profile": name,
                "phrases": json.dumps(chosen),
                "created": now,
                "expires": expires,
            }
            connection.execute(challenges.insert().values(**new, used=None))
            self._note(connection, caller, "challenge", name)
        asked = [texts[label] for label in chosen]
        return {"challengeId": made, "profileId": name, "phrases": asked, "expires": iso(expires)}

    def line(self) -> dict[str, Any]:
        """Where the line is drawn, where a call says nothing about it."""
        point = self._point(Ask(), spoof=None if self.countermeasure is None else 0.0)
        line = {
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "far": self.far(),
            "prior": point.prior,
        }
        return {
            **line,
            "weights": dict(self.rules.weights),
            "countermeasure": self.countermeasure is not None,
        }

    def far(self, mode: Mode = "enrolled") -> float:
        """The share of false acceptances that is wanted where a call says nothing."""
        own = {} if self.model is None else self.model.about.get("far", {})
        return float(self.rules.far or own.get(mode, 0.01))

    # -- inside ----------------------------------------------------------------------

    def _check_lock(self, row: Mapping[str, Any]) -> None:
        until = row["locked_until"]
        if until is not None and until > self.clock():
            said = f"after {row['failures']} rejections the profile is locked for a while"
            raise Problem(429, "locked", said, wait=until - self.clock())

    def _wanted(
        self, connection: Connection, row: Mapping[str, Any], ask: Ask, count: int
    ) -> list[str] | None:
        """Labels of the phrases that were asked for; None: any of the enrolled ones. A challenge is used up by this."""
        wanted: list[str] | None = None if ask.phrase is None else [self._label(ask.phrase)]
        if ask.challenge is not None:
            found = (
                connection.execute(sa.select(challenges).where(challenges.c.id == ask.challenge))
                .mappings()
                .first()
            )
            if found is None or found["profile"] != row["id"]:
                raise Problem(404, "not-found", "there is no such challenge of this profile")
            here = (challenges.c.id == ask.challenge) & challenges.c.used.is_(None)
            if not connection.execute(
                challenges.update().where(here).values(used=-self.clock())
            ).rowcount:
                raise Problem(
                    409, "challenge-used", "the challenge was answered already: ask for another"
                )
            if found["expires"] < self.clock():
                raise Problem(409, "challenge-expired", "the challenge is too old: ask for another")
            wanted = json.loads(found["phrases"])
        if wanted is None and count > 1:
            raise Problem(
                422,
                "recordings",
                "several recordings are answers to a challenge of as many phrases",
            )
        if wanted is not None and count != len(wanted):
            asked = f"{len(wanted)} phrases were asked for: send as many recordings, in their order; got {count}"
            raise Problem(422, "recordings", asked)
        return wanted

    def _obstacle(
        self, connection: Connection, row: Mapping[str, Any], heard: Sequence[Heard]
    ) -> str | None:
        """Why nothing can be decided, whatever was said."""
        state = self._state(row)
        if state in ("opted_out", "expired"):
            return state
        if state in ("created", "enrolling"):
            return "not_enrolled"
        if state == "stale" and not self._kept(connection, row["id"]):
            return "model_changed"
        return next((h.reason for h in heard if h.reason is not None), None)

    def _point(self, ask: Ask, mode: Mode = "enrolled", spoof: float | None = None) -> Point:
        model, far = self.model, ask.far
        # errors were measured without spoofs, and with other kinds of impostors as many of each
        measured = (
            model is not None
            and spoof is None
            and len({self.rules.weights[kind] for kind in KINDS[1:]}) == 1
        )
        # a mode that was not measured has the line of enrolled phrases, and no figures
        errors = (
            None
            if model is None or not measured
            else model.errors.get(mode, model.errors.get("enrolled"))
        )
        if (
            far is None and ask.prior is None
        ):  # a wish: where it cannot be shown, the least that can
            points = () if errors is None else errors.points
            far = max([self.far(mode), *sorted(point["wantedFar"] for point in points)[:1]])
        try:
            point = choose_point(
                errors,
                float("inf") if model is None else model.most,
                far=far,
                prior=ask.prior,
                miss_cost=ask.miss_cost,
                false_alarm_cost=ask.false_alarm_cost,
            )
        except ParameterError as error:
            raise Problem(422, "operating-point", str(error)) from error
        return point if model is None or mode in model.errors else replace(point, measured=None)

    def _odds(
        self,
        cells: Sequence[Cell],
        heard: Sequence[Heard],
        wanted: Sequence[str] | None,
        point: Point,
        spoof: float | None,
    ) -> Odds:
        model = self._model()
        shares = model.prepare(np.stack([self._vector(one) for one in heard]))
        tests = [Cell(label, share, 1) for label, share in zip(wanted or [""], shares, strict=True)]
        evidence = model.evidence(cells, tests, wanted is not None)
        return odds(evidence, model.doubt, point.prior, spoof, self.rules.weights)

    def _answer(
        self,
        result: str,
        decision: str,
        reason: str | None,
        found: Odds | None,
        point: Point,
        heard: Sequence[Heard],
        spoof: float | None,
    ) -> dict[str, Any]:
        qualities = [h.quality for h in heard]
        return {
            "resultId": result,
            "decision": decision,
            "reason": reason,
            "llr": None if found is None else found.llr,
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "posteriors": None if found is None else found.posteriors,
            "prior": point.prior,
            "llrSpeaker": None if found is None else found.llr_speaker,
            "llrPhrase": None if found is None else found.llr_phrase,
            "countermeasureLlr": spoof,
            "operatingPoint": point.measured,
            "quality": qualities[0] if len(qualities) == 1 else qualities,
            "modelVersion": self._model().version,
            "notice": self._model().about.get("notice"),
        }

    def _settle(
        self, connection: Connection, row: Mapping[str, Any], decision: str, ask: Ask, now: float
    ) -> None:
        """What a decision leaves behind: failures in a row and a lock, or a profile that was used."""
        changes: dict[str, Any] = {}
        if decision == "reject":
            failures = row["failures"] + 1
            over = failures - self.rules.lock_after
            locked = now + self.rules.lock_s * 2.0 ** min(over, 16) if over >= 0 else None
            changes = {"failures": failures, "locked_until": locked}
        elif decision == "accept":
            changes = {"failures": 0, "locked_until": None, "last_used": now}
            if ask.challenge is not None:
                connection.execute(
                    challenges.update().where(challenges.c.id == ask.challenge).values(used=now)
                )
        if changes:
            connection.execute(
                profiles.update().where(profiles.c.id == row["id"]).values(**changes)
            )
