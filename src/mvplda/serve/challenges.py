"""Challenges: a random phrase for one verification, at most one open per profile."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam

from .schemas import Challenge, Problem
from .store import Transaction, iso
from .tables import CHALLENGES, ProfileRow

CHALLENGE_OF = (
    sa.select(CHALLENGES.c.id, CHALLENGES.c.phrase, CHALLENGES.c.expires)
    .where(CHALLENGES.c.profile == bindparam("name"))
    .order_by(CHALLENGES.c.expires.desc())
    .limit(1)
)
DELETE_CHALLENGES = CHALLENGES.delete().where(CHALLENGES.c.profile == bindparam("name"))


class OpenChallenge(NamedTuple):
    """Challenge that waits for an answer. It may have expired, if no call has noticed this yet.

    phrase : label of the phrase to speak
    """

    id: str
    phrase: str
    expires: float

    def reply(self, profile: str, text: str) -> Challenge:
        """Return the challenge with the field names of the API."""
        return Challenge(
            challengeId=self.id, profileId=profile, phrases=[text], expires=iso(self.expires)
        )


def find_challenge(work: Transaction, name: str) -> OpenChallenge | None:
    """Return the challenge of a profile, which may have expired; None if there is none."""
    row = work.run(CHALLENGE_OF, name=name).first()
    return None if row is None else OpenChallenge(row.id, row.phrase, row.expires)


def create_challenge(
    work: Transaction, row: ProfileRow, texts: Mapping[str, str], seconds: float
) -> OpenChallenge:
    """Choose one of the phrases {label: text} for a profile without a challenge."""
    # the phrase of the last challenge may be in a recording
    fresh = sorted(set(texts) - {row.last_phrase})
    if len(texts) < 2 or not fresh:
        detail = f"a challenge needs two phrases to choose from, the profile has {len(texts)}: enrol more"
        raise Problem(409, "too-few-phrases", detail)
    challenge = OpenChallenge(secrets.token_hex(16), secrets.choice(fresh), work.now + seconds)
    work.run(CHALLENGES.insert(), profile=row.id, **challenge._asdict())
    work.note("challenge", row.id)
    return challenge


def close_challenge(work: Transaction, name: str) -> None:
    """Delete the challenge of a profile."""
    work.run(DELETE_CHALLENGES, name=name)
