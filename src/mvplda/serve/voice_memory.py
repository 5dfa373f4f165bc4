"""Search for a voice among all profiles in memory, which follows the changes in the database."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
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

# The model adapted to its domain, ids of profiles, and their LLRs. Further LLRs belong to profiles without an id.
Scores = tuple[Model, list[str], Array]

# Number of profiles that are read by one query, and whose search vectors are computed at a time.
BATCH = 2000
# A block has at most a tenth of the profiles of the previous block: blocks are few, and are seldom rebuilt.
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
    """Group of n profiles, whose search vectors are compared with a test by one matrix product.

    Parameters
    ----------
    ids : ids of the profiles
    sums : sums over the recordings of each profile

    Attributes
    ----------
    alive : (n,) per profile, whether its entry is valid; False after the profile was deleted or changed
    """

    def __init__(self, ids: list[str], sums: HalfSums) -> None:
        self.ids = ids
        self.sums = sums
        self.alive = np.ones(len(ids), dtype=bool)
        self._index: VoiceIndex | None = None

    def index(self, model: Model) -> VoiceIndex:
        """Return the search vectors of the profiles for a model that is adapted to its domain.

        They are computed again if `model` is another object than at the last call, because the domain has changed.
        """
        index = self._index
        if index is None or index.model is not model:
            # frees the memory of the previous index before the next one is computed
            self._index = None
            # another thread may compute the same index; the last result is stored
            index = self._index = VoiceIndex(model, self)
        return index

    def llrs(self, model: Model, test: Profiles) -> Array:
        """Return the (n,) LLRs that the speaker of a test is the owner of each profile, computed by inner products.

        They differ slightly from the exact LLRs, because sums are rounded, and phrases and sessions are ignored.

        test : one profile of the scorer, with the evidence of the test
        """
        index = self.index(model)
        products = index.vectors @ index.search.queries(test)[0]
        largest = np.full(len(self.ids), -np.inf)
        if len(products) == len(largest):
            largest[index.owners] = products
        else:
            np.maximum.at(largest, index.owners, products)
        return model.calibrated(largest)


class HalfSums:
    """Sums over the recordings of n profiles, in 16-bit floating point to save memory.

    The best profiles of a search are scored again in full precision from the database. Therefore only the total
    probability of all other profiles has the error of this precision.

    Parameters
    ----------
    y : (n, rank) sums, each divided by its scale
    scale : (n,) largest absolute component of each sum
    weights : (n,) numbers of recordings of the profiles
    """

    def __init__(self, y: NDArray[np.float16], scale: Array, weights: Array) -> None:
        self.y = y
        self.scale = scale
        self.weights = weights

    @classmethod
    def empty(cls, count: int, rank: int) -> HalfSums:
        """Return uninitialised sums of `count` profiles with `rank` components each."""
        return cls(np.empty((count, rank), dtype=np.float16), np.empty(count), np.empty(count))

    def put(self, rows: slice, y: Array, weights: Array) -> None:
        """Set m rows to the sums `y`, (m, rank), of profiles with the numbers of recordings `weights`, (m,)."""
        scale = np.maximum(np.abs(y).max(axis=1), np.finfo(np.float64).tiny)
        self.y[rows] = y / scale[:, None]
        self.scale[rows] = scale
        self.weights[rows] = weights

    def take(self, rows: slice | NDArray[np.intp]) -> HalfSums:
        """Return the sums in the given rows."""
        return HalfSums(self.y[rows], self.scale[rows], self.weights[rows])

    def joined(self, other: HalfSums) -> HalfSums:
        """Return these sums followed by those of `other`."""
        return HalfSums(
            np.concatenate([self.y, other.y]),
            np.concatenate([self.scale, other.scale]),
            np.concatenate([self.weights, other.weights]),
        )

    def profiles(self, model: Model) -> Profiles:
        """Return the sums as n profiles of the model's scorer."""
        y = self.y.astype(np.float64) * self.scale[:, None]
        return model.scorer.profiles(y, self.weights, np.arange(len(y)))


class VoiceIndex:
    """Search vectors of the profiles of a block, for one model that is adapted to its domain.

    Attributes
    ----------
    search : computes vectors of profiles and of tests; their inner product is the LLR before calibration
    vectors : (m, columns) vectors of all profiles of the block; a profile may have several
    owners : (m,) per vector, the row of its profile in the block
    """

    def __init__(self, model: Model, block: VoiceBlock) -> None:
        self.model = model
        # one profile per number of recordings: the search index depends on these numbers, and not on sums
        examples = np.unique(block.sums.weights, return_index=True)[1]
        self.search: SearchIndex = model.bundle.index(
            block.sums.take(examples).profiles(model), VOICE
        )
        # a batch at a time, to need little memory
        blocks, owners = [], []
        for start in range(0, len(block.ids), BATCH):
            batch = block.sums.take(slice(start, start + BATCH))
            vectors, owner = self.search.encode(batch.profiles(model))
            blocks.append(vectors)
            owners.append(owner + start)
        self.vectors = np.concatenate(blocks)
        self.owners = np.concatenate(owners)


class VoiceMemory:
    """Sums of all enrolled profiles in memory.

    Each search first reads the profiles that have changed since the previous search, by their change numbers.

    Parameters
    ----------
    profiles : profiles of the service
    """

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
        """Compare the voice of a test with all profiles.

        Parameters
        ----------
        test : (rank,) evidence of the test in whole numbers
        candidates : ids of the profiles to search; None: all enrolled profiles
        count : ignored; the search in PostgreSQL has the same parameter

        Returns
        -------
        the adapted model, the ids of all entries, and the LLR of each entry. The LLR is -inf for profiles that are not
        in `candidates`, and for outdated entries; an id may therefore occur twice
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
        """Read the profiles that changed since the last call, and drop expired profiles."""
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
        if enrolled:
            self._add(*self._read(work, enrolled))
        self._change = max([self._change, *(row.change for row in changed)])

    def _read(self, work: Transaction, names: list[str]) -> tuple[list[str], HalfSums]:
        """Return the ids and sums of those profiles `names` that can be decrypted."""
        model = self.profiles.model
        ids: list[str] = []
        sums = HalfSums.empty(len(names), model.rank)
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            cells = self.profiles.templates.cells_by_profile(work, batch)
            if cells:
                rows = slice(len(ids), len(ids) + len(cells))
                merged = [merge_cells(members)[0] for members in cells.values()]
                sums.put(rows, *model.sums(merged))
                ids += cells
        return ids, sums.take(slice(len(ids)))

    def _add(self, ids: list[str], sums: HalfSums) -> None:
        """Append a block with new profiles; previous blocks that are not `GROWTH` times as large are merged into it."""
        while self._blocks and len(ids) * GROWTH > len(self._blocks[-1].ids):
            before = self._blocks.pop()
            alive = np.flatnonzero(before.alive)
            ids = [before.ids[row] for row in alive] + ids
            sums = before.sums.take(alive).joined(sums)
        if not ids:
            return
        block = VoiceBlock(ids, sums)
        self._blocks.append(block)
        self._row_of |= {name: (block, row) for row, name in enumerate(ids)}
