"""Decoy challenges for names without an enrolled profile, whose answers are always rejected.

Without them, a log-in page that requests a challenge for a name would reveal whether that person is enrolled.
"""

from __future__ import annotations

import hmac
import json
from collections import Counter

import sqlalchemy as sa

from .challenges import OpenChallenge, close_challenge, find_challenge, open_challenge
from .challenges import draw as draw_challenge
from .model import label_of
from .profiles import ProfileStore
from .schemas import Challenge, ChallengeKind
from .store import Transaction
from .tables import PROFILES

# Profiles whose phrases decoys may repeat, and the number of people that must have a phrase: a phrase of one person is
# part of the secret of this person.
SAMPLE_SIZE = 200
LEAST_PEOPLE = 2
SAMPLE = (
    sa.select(PROFILES.c.phrases)
    .where(PROFILES.c.state == "enrolled")
    .order_by(PROFILES.c.id)
    .limit(SAMPLE_SIZE)
)
# Phrases of decoys where fewer than two phrases are shared by several people.
USUAL_PHRASES = (
    "my voice is my key",
    "open the garden door",
    "the weather is fine today",
    "please let me into my account",
    "good morning and welcome back",
)
# Number of phrases that one name seems to have enrolled.
PHRASES_PER_NAME = 3


class Decoys:
    """Decoy challenges, stored in the same table as those of profiles.

    The made-up profile id of a name is always the same, and so are its phrases while the phrases in the service are.

    Parameters
    ----------
    profiles : profiles of the service; decoys ask for phrases that several of them have enrolled
    """

    def __init__(self, profiles: ProfileStore) -> None:
        self._profiles = profiles
        self._settings = profiles.settings

    def challenge(self, work: Transaction, user: str, kind: ChallengeKind) -> Challenge:
        """Return the open decoy challenge of the name `user`, or a new one.

        kind : "phrase", "words" or "digits"
        """
        name = self._digest(user)[:32]
        texts = self._texts(work, user)
        found = find_challenge(work, name)
        is_open = found is not None and found.expires >= work.now
        if found is None or not is_open or not (found.words or found.phrase in texts):
            close_challenge(work, name)
            phrase = draw_challenge(kind, sorted(texts))
            found = open_challenge(work, name, phrase, self._settings.challenge_s)
        return found.reply(name, texts)

    def find(self, work: Transaction, name: str, challenge: str | None) -> OpenChallenge | None:
        """Return the decoy with the id `challenge` for the made-up profile id `name`.

        None if there is no such decoy, or if `name` is the id of a real profile.
        """
        found = find_challenge(work, name)
        if found is None or found.id != challenge or self._profiles.existing(work, [name]):
            return None
        return found

    def _texts(self, work: Transaction, user: str) -> dict[str, str]:
        """Return {label: text} of the phrases that challenges for the name `user` ask for."""
        texts = self._shared_texts(work)
        if len(texts) < 2:
            texts |= {label_of(text): text for text in USUAL_PHRASES}
        labels = sorted(texts, key=lambda label: self._digest(f"{user}\n{label}"))
        enrolled = {label: texts[label] for label in labels[:PHRASES_PER_NAME]}
        # a profile may be asked for these without having enrolled them
        return {**self._profiles.model.known_phrases, **enrolled}

    def _shared_texts(self, work: Transaction) -> dict[str, str]:
        """Return {label: text} of the phrases that at least `LEAST_PEOPLE` profiles of a sample have enrolled."""
        people: Counter[tuple[str, str]] = Counter()
        for stored in work.run(SAMPLE).scalars():
            try:
                people.update(json.loads(stored).items())
            except (ValueError, AttributeError, TypeError):
                # damaged phrases: the next use of the profile reports them
                continue
        return {label: text for (label, text), count in people.items() if count >= LEAST_PEOPLE}

    def _digest(self, text: str) -> str:
        """Return the keyed hash of `text` in hexadecimal, equal on all hosts with the same master key."""
        key = self._profiles.templates.vault.masters.first.derived("decoys")
        return hmac.digest(key, text.encode(), "sha256").hex()
