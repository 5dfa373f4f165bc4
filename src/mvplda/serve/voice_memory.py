"""Search for a voice in memory, kept up to date with the database."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa
from sqlalchemy import bindparam

from .._typing import Array
from ..scoring.profiles import Profiles
from ..scoring.search import SearchIndex
from .cells import Cell, Integers, merge_cells
from .domain import CHANGE_NUMBER
from .model import VOICE, Model
from .profiles import ProfileStore
from .store import DAY, Transaction
from .tables import PROFILES, last_use

# The model in its domain, profiles, and LLRs; LLRs beyond the last name are those of profiles that are not listed.
Scores = tuple[Model, list[str], Array]

# Profiles that are read by one query.
BATCH = 10_000
# A block is at most a tenth as large as the one before it: few blocks, and few times that a block is rebuilt.
GROWTH = 10

IS_ENROLLED = sa.and_(
    PROFILES.c.state == "enrolled",
    PROFILES.c.damaged.is_(None),
    PROFILES.c.model == bindparam("model"),
    last_use >= bindparam("since"),
)
CHANGED = sa.select(PROFILES.c.id, PROFILES.c.change, IS_ENROLLED.label("is_enrolled")).where(
    PROFILES.c.change > bindparam("number"),
    # a damaged number must not hide the changes that follow
    PROFILES.c.change <= CHANGE_NUMBER.scalar_subquery(),
)
EXPIRED = (
    sa.select(PROFILES.c.id)
    .where(PROFILES.c.state == "enrolled")
    .where(last_use < bindparam("since"), last_use >= bindparam("before"))
)


class VoiceBlock:
    """Voices that one matrix product compares with a test.

    alive : (n,) False for profiles that were deleted or changed since
    """

    def __init__(self, ids: list[str], side: Profiles) -> None:
        self.ids = ids
        self.side = side
        self.alive = np.ones(len(ids), dtype=bool)
        self._index: tuple[Model, SearchIndex] | None = None

    def index(self, model: Model) -> SearchIndex:
        """Return the vectors for a deployed model, computed again if the domain has changed."""
        cached = self._index
        if cached is None or cached[0] is not model:
            # another thread may compute the same; the last one is stored
            cached = self._index = (model, model.bundle.index(self.side, VOICE))
        return cached[1]

    def llrs(self, model: Model, test: Profiles) -> Array:
        """Return (n,) LLRs of the same speaker by inner products: the exact LLRs or slightly larger."""
        index = self.index(model)
        products = index.vectors @ index.queries(test)[0]
        largest = np.full(len(self.ids), -np.inf)
        np.maximum.at(largest, index.owners, products)
        return model.calibrated(largest)


class VoiceMemory:
    """Enrolled voices in memory; follows the numbers of changes in the database, and therefore needs no clock."""

    def __init__(self, profiles: ProfileStore) -> None:
        self.profiles = profiles
        self.settings = profiles.settings
        self._lock = threading.Lock()
        self._change = -1
        self._expired_before = 0.0
        self._blocks: list[VoiceBlock] = []
        self._row_of: dict[str, tuple[VoiceBlock, int]] = {}

    def scores(
        self, test: Integers, candidates: Sequence[str] | None = None, count: int = 0
    ) -> Scores:
        """Return all profiles with their LLRs for the voice of a test, whatever `count`.

        The LLR is -inf for profiles outside of `candidates`, and for deleted and changed ones, which may occur twice.
        """
        with self._lock, self.profiles.store.read() as work:
            self._refresh(work)
            model = self.profiles.domain.deployed(work)
            blocks = [(block, block.alive.copy()) for block in self._blocks]
        names: list[str] = []
        llr_blocks = [np.zeros(0)]
        test_side = model.side([[Cell("", test, 1)]], False)
        for block, alive in blocks:
            names += block.ids
            llr_blocks.append(np.where(alive, block.llrs(model, test_side), -np.inf))
        llrs = np.concatenate(llr_blocks)
        if candidates is not None:
            chosen = set(candidates)
            llrs[[name not in chosen for name in names]] = -np.inf
        return model, names, llrs

    def _refresh(self, work: Transaction) -> None:
        """Read the profiles that changed, and drop those that have expired."""
        since = work.now - self.settings.expire_days * DAY
        model = self.profiles.model.fingerprint
        changed = work.run(CHANGED, model=model, since=since, number=self._change).all()
        outdated = [row.id for row in changed]
        if self._expired_before and since > self._expired_before:
            outdated += work.run(EXPIRED, since=since, before=self._expired_before).scalars()
        self._expired_before = max(self._expired_before, since)
        for name in outdated:
            if name in self._row_of:
                block, row = self._row_of.pop(name)
                block.alive[row] = False
        enrolled = sorted(row.id for row in changed if row.is_enrolled)
        voices: dict[str, Cell] = {}
        for start in range(0, len(enrolled), BATCH):
            batch = enrolled[start : start + BATCH]
            for name, cells in self.profiles.templates.cells_by_profile(work, batch).items():
                voices[name] = merge_cells(cells)[0]
        if voices:
            self._add(list(voices), *self.profiles.model.sums(list(voices.values())))
        self._change = max([self._change, *(row.change for row in changed)])

    def _add(self, ids: list[str], y: Array, weights: Array) -> None:
        """Append a block, merged with those before it that are not much larger."""
        while self._blocks and len(ids) * GROWTH > len(self._blocks[-1].ids):
            before = self._blocks.pop()
            alive = np.flatnonzero(before.alive)
            ids = [before.ids[row] for row in alive] + ids
            y = np.concatenate([before.side.y[alive], y])
            weights = np.concatenate([before.side.weights[alive], weights])
        side = self.profiles.model.scorer.profiles(y, weights, np.arange(len(y)), ids)
        block = VoiceBlock(ids, side)
        self._blocks.append(block)
        self._row_of |= {name: (block, row) for row, name in enumerate(ids)}
