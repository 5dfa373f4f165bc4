"""Challenges: a phrase to be said now, once, so that a recording of last time has the wrong words."""

from __future__ import annotations

import json
import secrets
from typing import Any

import sqlalchemy as sa

from .keys import Caller
from .problems import Problem, conflict
from .profiles import Profiles
from .records import Audit, iso
from .settings import Settings
from .store import Work
from .tables import challenges, templates
from .templates import DAY


class Challenges:
    """One phrase, drawn at random from those that the profile enrolled and those that the model may ask for."""

    def __init__(self, profiles: Profiles, audit: Audit, settings: Settings) -> None:
        self.profiles = profiles
        self.audit = audit
        self.settings = settings

    def make(self, work: Work, name: str, caller: Caller) -> dict[str, Any]:
        row = self.profiles.row(work, name, lock=True)
        state = self.profiles.state(work, row)
        if state == "stale" and self.profiles.can_enrol_again(work, name):
            self.profiles.enrol_again(work, row)
            state = self.profiles.state(work, row)
        if state != "enrolled":
            raise conflict(state, f"the profile is {state}: only enrolled ones are challenged")
        texts = self._choices(work, row)
        label = self._draw(work, name, texts)
        made = secrets.token_hex(16)
        expires = work.now + self.settings.challenge_s
        new = {"id": made, "profile": name, "created": work.now, "expires": expires}
        work.execute(challenges.insert().values(**new, phrases=json.dumps([label]), used=None))
        self.audit.note(work, caller, "challenge", name)
        return {
            "challengeId": made,
            "profileId": name,
            "phrases": [texts[label]],
            "expires": iso(expires),
        }

    def _choices(self, work: Work, row: dict[str, Any]) -> dict[str, str]:
        """{label: text} of phrases with recordings enough, and of those that need none."""
        enough = templates.c["count"] >= self.settings.enrolments
        query = sa.select(templates.c.phrase).where(templates.c.profile == row["id"], enough)
        ready = set(work.execute(query).scalars())
        named: dict[str, str] = json.loads(row["phrases"])
        own = {label: text for label, text in named.items() if label in ready}
        return {**self.profiles.needed_model().known_phrases, **own}

    def _draw(self, work: Work, name: str, texts: dict[str, str]) -> str:
        """A phrase that is neither the last accepted one nor, if others remain, the last drawn one."""
        own = sa.select(challenges.c.id, challenges.c.phrases)
        own = own.where(challenges.c.profile == name)
        drawn = work.execute(own.order_by(challenges.c.created.desc())).first()
        accepted_ones = own.where(challenges.c.used > 0)
        accepted = work.execute(accepted_ones.order_by(challenges.c.used.desc())).first()
        fresh = list(texts)
        if accepted is not None:
            fresh = [label for label in fresh if label not in json.loads(accepted.phrases)]
        if drawn is not None:
            rest = [label for label in fresh if label not in json.loads(drawn.phrases)]
            fresh = rest or (fresh if accepted is not None else [])
        if len(texts) < 2 or not fresh:
            detail = f"there are {len(texts)} phrases to choose from, too few: enrol more phrases"
            raise Problem(409, "too-few-phrases", detail)
        self._sweep(work, name, accepted.id if accepted is not None else "")
        return secrets.choice(sorted(fresh))

    def _sweep(self, work: Work, name: str, keep: str) -> None:
        """Delete old challenges, but the last accepted one of each profile."""
        old = challenges.c.expires < work.now - DAY
        others = (challenges.c.profile == name) & (challenges.c.id != keep)
        not_accepted = challenges.c.used.is_(None) | (challenges.c.used < 0)
        work.execute(challenges.delete().where(old & (not_accepted | others)))

    def use(self, work: Work, name: str, challenge: str) -> str:
        """The phrase that was asked for; the challenge is used up by this."""
        row = work.row(sa.select(challenges).where(challenges.c.id == challenge))
        if row is None or row["profile"] != name:
            raise Problem(404, "not-found", "there is no such challenge of this profile")
        if row["used"] is not None:
            detail = "the challenge was answered already: ask for another"
            raise Problem(409, "challenge-used", detail)
        if row["expires"] < work.now:
            raise Problem(409, "challenge-expired", "the challenge is too old: ask for another")
        here = challenges.c.id == challenge
        work.execute(challenges.update().where(here).values(used=-work.now))
        return str(json.loads(row["phrases"])[0])

    def accept(self, work: Work, challenge: str) -> None:
        here = challenges.c.id == challenge
        work.execute(challenges.update().where(here).values(used=work.now))
