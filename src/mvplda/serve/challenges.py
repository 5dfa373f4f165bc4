"""Challenges: a random phrase, or random words, for one verification; at most one open per profile."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam

from ..voice.prompts import PromptKind, draw_prompt
from .schemas import Challenge, ChallengeKind, Problem
from .store import Transaction
from .tables import CHALLENGES, ProfileRow
from .times import iso

# Begin of a stored phrase that is prompted words; no label of a phrase has a colon.
PROMPT = "words: "

CHALLENGE_OF = (
    sa.select(CHALLENGES.c.id, CHALLENGES.c.phrase, CHALLENGES.c.expires)
    .where(CHALLENGES.c.profile == bindparam("name"))
    .order_by(CHALLENGES.c.expires.desc())
    .limit(1)
)
DELETE_CHALLENGES = CHALLENGES.delete().where(CHALLENGES.c.profile == bindparam("name"))


class OpenChallenge(NamedTuple):
    """Challenge that waits for an answer. It may have expired, if no call has noticed this yet.

    phrase : label of the phrase to speak, or prompted words after `PROMPT`
    """

    id: str
    phrase: str
    expires: float

    @property
    def words(self) -> tuple[str, ...]:
        """Return the prompted words; empty if the challenge is an enrolled phrase."""
        if not self.phrase.startswith(PROMPT):
            return ()
        return tuple(self.phrase.removeprefix(PROMPT).split())

    def reply(self, profile: str, texts: Mapping[str, str]) -> Challenge:
        """Return the challenge with the field names of the API.

        texts : {label: text} of phrases
        """
        words = self.words
        return Challenge(
            challengeId=self.id,
            profileId=profile,
            kind="words" if words else "phrase",
            phrases=[" ".join(words) if words else texts[self.phrase]],
            expires=iso(self.expires),
        )


def find_challenge(work: Transaction, name: str) -> OpenChallenge | None:
    """Return the challenge of a profile, which may have expired; None if there is none."""
    row = work.run(CHALLENGE_OF, name=name).first()
    return None if row is None else OpenChallenge(row.id, row.phrase, row.expires)


def create_challenge(
    work: Transaction, row: ProfileRow, texts: Mapping[str, str], seconds: float
) -> OpenChallenge:
    """Store a challenge of one random phrase for a profile without a challenge.

    texts : {label: text} of the phrases to choose from
    seconds : time until the challenge expires
    """
    # the phrase of the last challenge may be in a recording
    fresh = sorted(set(texts) - {row.last_phrase})
    if len(texts) < 2 or not fresh:
        detail = f"a challenge needs two phrases to choose from, the profile has {len(texts)}: enrol more"
        raise Problem(409, "too-few-phrases", detail)
    challenge = open_challenge(work, row.id, draw("phrase", fresh), seconds)
    work.note("challenge", row.id)
    return challenge


def create_prompt(
    work: Transaction, row: ProfileRow, kind: PromptKind, seconds: float
) -> OpenChallenge:
    """Store a challenge of random words for a profile without a challenge; it expires after `seconds`."""
    challenge = open_challenge(work, row.id, draw(kind), seconds)
    work.note("challenge", row.id)
    return challenge


def draw(kind: ChallengeKind, labels: Sequence[str] = ()) -> str:
    """Return a random phrase to store with a challenge: one of `labels`, or `PROMPT` and random words or digits."""
    return secrets.choice(labels) if kind == "phrase" else PROMPT + " ".join(draw_prompt(kind))


def open_challenge(work: Transaction, name: str, phrase: str, seconds: float) -> OpenChallenge:
    """Store a challenge for the profile id `name`, which expires after `seconds`."""
    challenge = OpenChallenge(secrets.token_hex(16), phrase, work.now + seconds)
    work.run(CHALLENGES.insert(), profile=name, **challenge._asdict())
    return challenge


def close_challenge(work: Transaction, name: str) -> None:
    """Delete the challenge of a profile."""
    work.run(DELETE_CHALLENGES, name=name)
