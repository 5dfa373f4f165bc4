"""Whose voice is it? All enrolled voices in memory, kept up with the database."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

import numpy as np

from .._typing import Array
from ..decisions import name_among, point_for, wanted_to_name
from ..scoring.profiles import Profiles as Side
from ..scoring.search import SearchIndex
from .keys import Caller
from .model import VOICE, Cell, Heard, Integers, Model, together
from .profiles import Profiles
from .schemas import Json
from .store import DAY, Work

# Profiles that are read at once.
BATCH = 10_000
# Profiles with the best products, whose LLRs are then computed with the phrases and sittings of each apart.
CANDIDATES = 20
# A block of voices is at most a tenth of the one before it: few blocks, and few times that one is made anew.
GROWTH = 10
EXPIRED = (
    "SELECT id FROM profiles WHERE state = 'enrolled' "
    "AND coalesce(last_used, created) < :since AND coalesce(last_used, created) >= :before"
)


class Block:
    """Voices that are searched by one product; those that left or changed since are not alive."""

    def __init__(self, ids: list[str], side: Side) -> None:
        self.ids = ids
        self.side = side
        self.alive = np.ones(len(ids), dtype=bool)
        self._made: tuple[Model, SearchIndex] | None = None

    def index(self, model: Model) -> SearchIndex:
        """Vectors for the model in its domain; made anew when that has moved."""
        made = self._made
        if made is None or made[0] is not model:
            # other threads may do the same
            made = self._made = (model, model.bundle.index(self.side, VOICE))
        return made[1]

    def llrs(self, model: Model, test: Side) -> Array:
        """(n,) LLRs that it is the speaker of each profile, as far as an inner product has them: or above."""
        index = self.index(model)
        products = index.vectors @ index.queries(test)[0]
        largest = np.full(len(self.ids), -np.inf)
        np.maximum.at(largest, index.owners, products)
        return model.calibrated(largest)


class Index:
    """Follows the numbers of changes in the database: no clock decides what was seen."""

    def __init__(self, people: Profiles) -> None:
        self.people = people
        self.settings = people.settings
        self._lock = threading.Lock()
        self._change = -1
        self._expired_before = 0.0
        self._blocks: list[Block] = []
        self._places: dict[str, tuple[Block, int]] = {}

    # -- questions -----------------------------------------------------------

    def identify(
        self,
        heard: Heard,
        candidates: Sequence[str] | None,
        top: int,
        prior_none: float,
        caller: Caller,
    ) -> Json:
        """The likeliest profiles, and the probability that it is none of them."""
        ranked: list[Json] = []
        result: Json = {
            "identified": None,
            "noneOfThem": 1.0,
            "profilesCount": 0,
            "reason": heard.reason,
        }
        if heard.reason is None and heard.vector is not None:
            test = self.people.model.share(heard.vector[None])[0]
            ranked, found = self._ranked(test, candidates, top, prior_none)
            result |= found
        if not caller.may("enrol"):
            # by asking for many candidates a key that may only verify would list people's names
            for one in ranked:
                if one["profileId"] != result["identified"]:
                    one["userId"] = None
        made = secrets.token_hex(16)
        with self.people.store.write(caller) as work:
            work.note("identify", None, made, **result)
        return {
            "resultId": made,
            "candidates": ranked,
            **result,
            "quality": heard.quality,
            "modelVersion": self.people.model.version,
            "notice": self.people.model.notice,
        }

    def _ranked(
        self,
        test: Integers,
        candidates: Sequence[str] | None,
        top: int,
        prior_none: float,
    ) -> tuple[list[Json], Json]:
        model, names, llrs = self.scores(test, candidates)
        count = int(np.isfinite(llrs).sum())
        best = np.arange(len(llrs))
        some = max(top, CANDIDATES)
        if some < len(llrs):
            best = np.argpartition(-llrs, some)[:some]
        best = best[np.isfinite(llrs[best])].tolist()
        places = {names[place]: place for place in best}
        people, exact = self._exact(model, list(places), test)
        rows = [places[name] for name in exact]
        values = np.array([*exact.values()])
        if rows:
            # what the words add to a calibrated LLR is about the same for all others
            llrs += np.median(values - llrs[rows])
        # who is leaving at this moment is out
        llrs[best] = -np.inf
        llrs[rows] = values
        doubt = model.bundle.doubt(VOICE)
        points = model.bundle.operating_points(VOICE)
        wanted = wanted_to_name(points, far=self.settings.far)
        point = point_for(points, far=wanted["far"])
        naming = name_among(llrs, point, none=prior_none, count=count, doubt=doubt)
        ranked = []
        for name in sorted(exact, key=lambda name: -llrs[places[name]])[:top]:
            ranked.append(
                {
                    "profileId": name,
                    "userId": people[name],
                    "llr": float(llrs[places[name]]),
                    "probability": float(naming.probabilities[places[name]]),
                }
            )
        named = None if naming.best is None else names[naming.best]
        return ranked, {"identified": named, "noneOfThem": naming.none, "profilesCount": count}

    def scores(
        self, test: Integers, candidates: Sequence[str] | None = None
    ) -> tuple[Model, list[str], Array]:
        """The model in its domain, profiles, and LLRs that they are of this voice, by inner products.

        -inf for those who are not asked about, and for those who left or changed since: these may be there twice.
        """
        with self._lock, self.people.store.read() as work:
            self._refresh(work)
            model = self.people.domain.deployed(work)
            blocks = [(block, block.alive.copy()) for block in self._blocks]
        names: list[str] = []
        parts = [np.zeros(0)]
        heard = model.side([[Cell("", test, 1)]], False)
        for block, alive in blocks:
            names += block.ids
            parts.append(np.where(alive, block.llrs(model, heard), -np.inf))
        llrs = np.concatenate(parts)
        if candidates is not None:
            wanted = set(candidates)
            llrs[[name not in wanted for name in names]] = -np.inf
        return model, names, llrs

    def _exact(
        self, model: Model, names: list[str], test: Integers
    ) -> tuple[dict[str, str | None], dict[str, float]]:
        """Names and LLRs of a few profiles, with the phrases of each apart."""
        with self.people.store.read() as work:
            cells = self.people.templates.some_cells(work, names)
            query = "SELECT id, user_id FROM profiles WHERE state = 'enrolled' AND id IN :names"
            people = {row.id: row.user_id for row in work.run(query, names=list(cells))}
        if not people:
            return {}, {}
        own = [cells[name] for name in people]
        several = model.has_phrases and any(len(some) > 1 for some in own)
        llrs = model.voices(model.side(own, several), test)
        return people, dict(zip(people, llrs.tolist(), strict=True))

    # -- keeping up ----------------------------------------------------------

    def warm(self) -> None:
        """Read all voices, and compute the domain, before the first question comes."""
        with self._lock, self.people.store.read() as work:
            if self.settings.role != "verify":
                self._refresh(work)
            model = self.people.domain.deployed(work)
        for block in self._blocks:
            block.index(model)

    def _refresh(self, work: Work) -> None:
        """Read what changed, and drop those whom time made expired."""
        since = work.now - self.settings.expire_days * DAY
        query = (
            "SELECT id, change, state = 'enrolled' AND model = :model "
            "AND coalesce(last_used, created) >= :since AS enrolled FROM profiles WHERE change > :change"
        )
        here = self.people.model.fingerprint
        changed = work.run(query, model=here, since=since, change=self._change).all()
        gone = [row.id for row in changed]
        if self._expired_before and since > self._expired_before:
            gone += work.run(EXPIRED, since=since, before=self._expired_before).scalars()
        self._expired_before = max(self._expired_before, since)
        for name in gone:
            if name in self._places:
                block, row = self._places.pop(name)
                block.alive[row] = False
        enrolled = sorted(row.id for row in changed if row.enrolled)
        voices: dict[str, Cell] = {}
        for start in range(0, len(enrolled), BATCH):
            some = self.people.templates.some_cells(work, enrolled[start : start + BATCH])
            voices |= {name: together(cells)[0] for name, cells in some.items()}
        if voices:
            self._add(list(voices), *self.people.model.sums(list(voices.values())))
        self._change = max([self._change, *(row.change for row in changed)])

    def _add(self, ids: list[str], y: Array, weights: Array) -> None:
        """A new block, with those before it that are not much larger."""
        while self._blocks and len(ids) * GROWTH > len(self._blocks[-1].ids):
            before = self._blocks.pop()
            kept = np.flatnonzero(before.alive)
            ids = [before.ids[row] for row in kept] + ids
            y = np.concatenate([before.side.y[kept], y])
            weights = np.concatenate([before.side.weights[kept], weights])
        side = self.people.model.scorer.profiles(y, weights, np.arange(len(y)), ids)
        block = Block(ids, side)
        self._blocks.append(block)
        self._places |= {name: (block, row) for row, name in enumerate(ids)}
