"""The service's model, adapted to the domain (language, microphones, rooms) that its stored profiles share."""

from __future__ import annotations

import threading

import sqlalchemy as sa
from sqlalchemy import bindparam

from .model import Model
from .store import Transaction
from .tables import CHANGES, PROFILES
from .templates import Templates

# Number of profiles that the domain is estimated from: more make no difference.
DOMAIN_PROFILES = 200

CHANGE_NUMBER = sa.select(CHANGES.c.number)
SAMPLE = (
    sa.select(PROFILES.c.id, PROFILES.c.version)
    .where(PROFILES.c.model == bindparam("model"))
    .where(PROFILES.c.enrollments > 0)
    .where(PROFILES.c.damaged.is_(None))
    .order_by(PROFILES.c.id)
    .limit(bindparam("count"))
)


class DomainCache:
    """Cache of the service's model, adapted to the domain of the stored profiles.

    The domain is estimated from the first `DOMAIN_PROFILES` profiles in the order of their ids. This is a random
    sample, because ids are random. All processes have the same domain, because it depends on the database only. A
    deleted profile has no influence. In a large database few changes affect the sample, so that most calls cost one
    query.

    Parameters
    ----------
    model : model before its adaptation
    templates : stored sums of the profiles
    """

    def __init__(self, model: Model, templates: Templates) -> None:
        self.model = model
        self.templates = templates
        self._lock = threading.Lock()
        self._number = -1
        self._sample: list[tuple[str, int]] = []
        self._deployed = model

    def deployed(self, work: Transaction, number: int | None = None) -> Model:
        """Return the model, adapted to the domain of the profiles that the transaction `work` reads.

        A model without a domain is returned as it is.

        number : number of the latest change of any profile; None: read it from the database
        """
        if not self.model.has_domain:
            return self.model
        if number is None:
            number = int(work.value(CHANGE_NUMBER))
        with self._lock:
            if number == self._number:
                return self._deployed
            sample = self.sample(work)
            deployed = self._deployed
            if sample != self._sample:
                names = [name for name, _ in sample]
                cells = self.templates.cells_by_profile(work, names)
                deployed = self.model.deployed([cells[name] for name in names if name in cells])
            if work.changed:
                # not committed yet: other transactions do not see these sums
                return deployed
            self._number = number
            self._sample = sample
            self._deployed = deployed
        return deployed

    def sample(self, work: Transaction) -> list[tuple[str, int]]:
        """Return (id, version) of each profile from which the domain is estimated."""
        rows = work.run(SAMPLE, model=self.model.fingerprint, count=DOMAIN_PROFILES)
        return [(row.id, row.version) for row in rows]
