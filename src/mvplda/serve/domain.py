"""The model in the domain of this service: microphones, rooms and language as what is enrolled shows them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from .model import Model
from .store import Work
from .tables import changes, profiles, templates
from .templates import Templates

MOST_CELLS = 600
"""Stored sums that the domain is computed from: more make no difference."""

Sample = tuple[tuple[Any, ...], ...]


class Domain:
    """The service's model, deployed on the sums that are stored; computed anew when these change.

    The sums are those of the first profiles in the order of their names, which are random, and of the model in use.
    The domain therefore depends on nothing but the database: all processes have the same, and nothing of somebody who
    leaves stays in it. In a large database few changes are in the sample, so that most cost one query.
    """

    def __init__(self, model: Model, templates: Templates) -> None:
        self.model = model
        self.templates = templates
        self._lock = threading.Lock()
        self._number = -1
        self._sample: Sample = ()
        self._deployed = model

    def deployed(self, work: Work) -> Model:
        """The model in the domain of the profiles that a transaction sees."""
        if not self.model.has_domain:
            return self.model
        number = int(work.execute(sa.select(changes.c.number)).scalar_one())
        with self._lock:
            if number == self._number:
                return self._deployed
            sample = self._read_sample(work)
            deployed = self._deployed
            if sample != self._sample:
                deployed = self._made(work, sample)
            if work.changed:  # not committed yet: others do not see it
                return deployed
            self._number = number
            self._sample = sample
            self._deployed = deployed
        return deployed

    def _read_sample(self, work: Work) -> Sample:
        """(profile, version, phrase, takes) of the sums in use."""
        used = profiles.c.model == self.model.fingerprint
        query = sa.select(
            profiles.c.id, profiles.c.version, templates.c.phrase, templates.c["count"]
        )
        query = query.join_from(profiles, templates, templates.c.profile == profiles.c.id)
        query = query.where(used).order_by(templates.c.profile, templates.c.phrase)
        return tuple(tuple(row) for row in work.execute(query.limit(MOST_CELLS)))

    def _made(self, work: Work, sample: Sequence[tuple[Any, ...]]) -> Model:
        names = list(dict.fromkeys(name for name, *_ in sample))
        wanted = {(name, phrase) for name, _, phrase, _ in sample}
        cells = self.templates.some_cells(work, names) if names else {}
        people = []
        for name in names:
            own = [cell for cell in cells.get(name, []) if (name, cell.phrase) in wanted]
            if own:
                people.append(sorted(own, key=phrase_of))
        return self.model.deployed(people)


def phrase_of(cell: Any) -> str:
    return str(cell.phrase)
