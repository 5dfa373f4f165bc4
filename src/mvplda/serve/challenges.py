"""Challenges: random phrases or words to be said in one verification; a profile has at most one at a time."""

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

# Beginning of a stored phrase that consists of prompted words; labels of enrolled phrases have no colon.
PROMPT = "words: "

CHALLENGE_OF = (
    sa.select(CHALLENGES.c.id, CHALLENGES.c.phrase, CHALLENGES.c.expires)
    .where(CHALLENGES.c.profile == bindparam("name"))
    .order_by(CHALLENGES.c.expires.desc())
    .limit(1)
)
DELETE_CHALLENGES = CHALLENGES.delete().where(CHALLENGES.c.profile == bindparam("name"))


class OpenChallenge(NamedTuple):
    """Stored challenge of a profile that was not answered yet.

    An expired challenge stays stored until the next call about it, which must therefore check `expires`.

    Parameters
    ----------
    id : random id
    phrase : label of the phrase to say, or `PROMPT` followed by the prompted words
    expires : time of expiry in seconds since 1970
    """

    id: str
    phrase: str
    expires: float

    @property
    def words(self) -> tuple[str, ...]:
        """Prompted words; empty if the challenge is an enrolled phrase."""
        if not self.phrase.startswith(PROMPT):
            return ()
        return tuple(self.phrase.removeprefix(PROMPT).split())

    def reply(self, profile: str, texts: Mapping[str, str]) -> Challenge:
        """Return the challenge with the field names of the API.

        profile : id of the profile
        texts : {label: text} of the profile's phrases, with that of the challenge
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
    """Return the stored challenge of the profile with the id `name`, expired or not; None if it has none."""
    row = work.run(CHALLENGE_OF, name=name).first()
    return None if row is None else OpenChallenge(row.id, row.phrase, row.expires)


def claimed_challenge(work: Transaction, name: str, challenge: str) -> OpenChallenge:
    """Return the stored challenge of the profile with the id `name`, expired or not.

    Raises a `Problem` (409) if its id is not `challenge`, or if it was already answered.
    """
    found = find_challenge(work, name)
    if found is None or found.id != challenge:
        detail = "this profile has no challenge with this challengeId, or it was answered: request a new challenge"
        raise Problem(409, "challenge-used", detail)
    return found


def create_challenge(
    work: Transaction, row: ProfileRow, texts: Mapping[str, str], seconds: float
) -> OpenChallenge:
    """Store a challenge that asks for a random phrase; the profile must not have a challenge.

    row : row of the profile; the phrase of its last accepted challenge is not used again
    texts : {label: text} of the phrases to choose from
    seconds : time until the challenge expires

    Raises a `Problem` (409) if there are fewer than two phrases.
    """
    # the phrase of the last challenge may be in a recording
    fresh = sorted(set(texts) - {row.last_phrase})
    if len(texts) < 2 or not fresh:
        detail = (
            f"a challenge needs at least two phrases to choose from; this profile has {len(texts)}: enrol another "
            "phrase"
        )
        raise Problem(409, "too-few-phrases", detail)
    challenge = open_challenge(work, row.id, draw("phrase", fresh), seconds)
    work.note("challenge", row.id)
    return challenge


def create_prompt(
    work: Transaction, row: ProfileRow, kind: PromptKind, seconds: float
) -> OpenChallenge:
    """Store a challenge that asks for random words or digits; the profile must not have a challenge.

    kind : "words" or "digits"
    seconds : time until the challenge expires
    """
    challenge = open_challenge(work, row.id, draw(kind), seconds)
    work.note("challenge", row.id)
    return challenge


def draw(kind: ChallengeKind, labels: Sequence[str] = ()) -> str:
    """Return a random text for `OpenChallenge.phrase`.

    kind : "phrase" for one of `labels`, "words" or "digits" for `PROMPT` followed by random words or digits
    """
    return secrets.choice(labels) if kind == "phrase" else PROMPT + " ".join(draw_prompt(kind))


def open_challenge(work: Transaction, name: str, phrase: str, seconds: float) -> OpenChallenge:
    """Store and return a challenge with the text `phrase` for the profile with the id `name`.

    seconds : time until the challenge expires
    """
    challenge = OpenChallenge(secrets.token_hex(16), phrase, work.now + seconds)
    work.run(CHALLENGES.insert(), profile=name, **challenge._asdict())
    return challenge


def close_challenge(work: Transaction, name: str) -> None:
    """Delete the challenge of the profile with the id `name`, if it has one."""
    work.run(DELETE_CHALLENGES, name=name)
