"""Whose voice is it? All enrolled voices in memory, kept up with the database."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from .._typing import Array
from ..decisions import OperatingPoint, name_among
from ..scoring.profiles import Profiles as Side
from ..scoring.question import Question
from ..spoofing import with_countermeasure
from .gate import Heard
from .keys import Caller
from .model import DEFAULT_FAR, SPEAKER, Model, whole
from .profiles import Profiles
from .records import Audit
from .settings import Settings
from .store import Store, Work
from .tables import profiles, used
from .templates import DAY, Cell, Templates

BATCH = 20_000
"""Profiles that are read at once."""
LATEST = 2000
"""Changed profiles that stand beside the many before these are joined anew; at most a tenth of them."""


@dataclass
class Block:
    """Voices that are scored in one product; those that left or changed since are not alive."""

    ids: list[str]
    y: Array
    weights: Array
    side: Side | None
    alive: NDArray[np.bool_]
    rows: dict[str, int]

    def take(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Which are alive and among the names."""
        mask = np.zeros(len(self.ids), dtype=bool)
        mask[[self.rows[name] for name in names if name in self.rows]] = True
        return mask & self.alive


class Index:
    """Follows the numbers of changes in the database: no clock decides what was seen."""

    def __init__(
        self,
        store: Store,
        templates: Templates,
        people: Profiles,
        audit: Audit,
        model: Model,
        settings: Settings,
    ) -> None:
        self.store = store
        self.templates = templates
        self.people = people
        self.audit = audit
        self.model = model
        self.settings = settings
        self._lock = threading.Lock()
        self._change = -1
        self._expired_before = 0.0
        self._many = self._block([], np.zeros((0, model.rank)), np.zeros(0))
        self._few = self._many
        self._latest: dict[str, Cell] = {}

    # -- questions -----------------------------------------------------------

    def identify(
        self,
        heard: Heard,
        candidates: Sequence[str] | None,
        top: int,
        prior_none: float,
        caller: Caller,
    ) -> dict[str, Any]:
        """The likeliest profiles, and the probability that it is none of them."""
        said: dict[str, Any] = {
            "resultId": secrets.token_hex(16),
            "candidates": [],
            "identified": None,
            "noneOfThem": 1.0,
            "profilesCount": 0,
            "reason": heard.reason,
        }
        if heard.reason is None:
            said |= self._ranked(heard, candidates, top, prior_none)
        first = {}
        if said["candidates"]:
            best = said["candidates"][0]
            first = {"profileId": best["profileId"], "llr": best["llr"]}
        kept = ("identified", "noneOfThem", "profilesCount", "reason")
        detail = {name: said[name] for name in kept}
        with self.store.write() as work:
            self.audit.note(
                work, caller, "identify", None, said["resultId"], {**detail, "best": first}
            )
        return {
            **said,
            "quality": heard.quality,
            "modelVersion": self.model.version,
            "notice": self.model.notice,
        }

    def _ranked(
        self, heard: Heard, candidates: Sequence[str] | None, top: int, prior_none: float
    ) -> dict[str, Any]:
        assert heard.vector is not None
        test = self.model.share(heard.vector[None])[0]
        model, blocks, llrs = self.scores(test, candidates)
        count = int(np.isfinite(llrs).sum())
        best = np.argsort(-llrs)[:top] if top >= len(llrs) else np.argpartition(-llrs, top)[:top]
        places = {name_at(blocks, place): place for place in best if np.isfinite(llrs[place])}
        people, exact = self._exact(model, list(places), test)
        # who is leaving at this moment is out
        llrs[best] = -np.inf
        for name, llr in exact.items():
            llrs[places[name]] = llr
        if heard.countermeasure is not None:
            weights = self.settings.weights
            share = weights["spoof"] / sum(weights.values())
            llrs = with_countermeasure(llrs, heard.countermeasure, share)
        doubt = model.bundle.doubt(Question(same=SPEAKER))
        point = self._point(model)
        naming = name_among(llrs, point, none=prior_none, count=count, doubt=doubt)
        probabilities = naming.probabilities
        ranked = []
        for name in sorted(exact, key=lambda name: -llrs[places[name]]):
            ranked.append(
                {
                    "profileId": name,
                    "userId": people[name],
                    "llr": float(llrs[places[name]]),
                    "probability": float(probabilities[places[name]]),
                }
            )
        named = None if naming.best is None else name_at(blocks, naming.best)
        return {
            "candidates": ranked,
            "identified": named,
            "noneOfThem": naming.none,
            "profilesCount": count,
        }

    def _point(self, model: Model) -> OperatingPoint:
        """Of the question whose voice it is."""
        question = Question(same=SPEAKER)
        if model.bundle.operating_points(question):
            return model.point(question, True, self.settings.far)
        return OperatingPoint(-np.log(self.settings.far or DEFAULT_FAR))

    def scores(
        self, test: NDArray[np.int64], candidates: Sequence[str] | None = None
    ) -> tuple[Model, list[Block], Array]:
        """The model in its domain, and LLRs of all profiles that they are of this voice.

        -inf for those who are not asked about.
        """
        with self._lock, self.store.read() as work:
            self._refresh(work)
            model = self.people.deployed_model(work)
            blocks = [self._many, self._few]
            masks = [block.alive.copy() for block in blocks]
            if candidates is not None:
                masks = [block.take(candidates) for block in blocks]
        parts = []
        for block, mask in zip(blocks, masks, strict=True):
            if block.side is not None:
                parts.append(np.where(mask, model.voices(block.side, test), -np.inf))
        return model, blocks, np.concatenate([np.zeros(0), *parts])

    def _exact(
        self, model: Model, names: list[str], test: NDArray[np.int64]
    ) -> tuple[dict[str, str | None], dict[str, float]]:
        """Names and LLRs of a few profiles, with the phrases of each apart."""
        if not names:
            return {}, {}
        with self.store.read() as work:
            cells = self.templates.some_cells(work, names)
            query = sa.select(profiles.c.id, profiles.c.user_id)
            query = query.where(profiles.c.id.in_(list(cells)), profiles.c.state == "enrolled")
            people = {row.id: row.user_id for row in work.execute(query)}
        if not people:
            return {}, {}
        own = [cells[name] for name in people]
        several = model.has_phrases and any(len(some) > 1 for some in own)
        llrs = model.voices(model.side(own, several), test)
        return people, dict(zip(people, llrs.tolist(), strict=True))

    # -- keeping up ----------------------------------------------------------

    def _refresh(self, work: Work) -> None:
        """Read what changed, and drop those whom time made expired."""
        since = work.now - self.settings.expire_days * DAY
        columns = (profiles.c.id, profiles.c.state, profiles.c.model, profiles.c.change)
        query = sa.select(*columns, used.label("used")).where(profiles.c.change > self._change)
        changed = work.execute(query).all()
        expired: list[str] = []
        if self._expired_before and since > self._expired_before:
            late = sa.select(profiles.c.id).where(profiles.c.state == "enrolled")
            late = late.where(used < since, used >= self._expired_before)
            expired = list(work.execute(late).scalars())
        self._expired_before = max(self._expired_before, since)
        if not changed and not expired:
            return
        for name in (*expired, *(row.id for row in changed)):
            self._latest.pop(name, None)
            if name in self._many.rows:
                self._many.alive[self._many.rows[name]] = False
        enrolled = sorted(row.id for row in changed if self._is_enrolled(row, since))
        self._read(work, enrolled)
        self._change = max([self._change, *(row.change for row in changed)])

    def _is_enrolled(self, row: Any, since: float) -> bool:
        if row.state != "enrolled" or row.model != self.model.fingerprint:
            return False
        return bool(row.used >= since)

    def _read(self, work: Work, names: list[str]) -> None:
        parts = []
        for start in range(0, len(names), BATCH):
            cells = self.templates.some_cells(work, names[start : start + BATCH])
            self._latest |= {name: whole(own) for name, own in cells.items()}
            if len(self._latest) >= BATCH:
                parts.append(self._made(self._latest))
                self._latest = {}
        self._few = self._made(self._latest)
        few_enough = min(LATEST, max(50, len(self._many.ids) // 10))
        if parts or len(self._latest) > few_enough:
            self._join([*parts, self._few])

    def _made(self, cells: Mapping[str, Cell]) -> Block:
        if not cells:
            return self._block([], np.zeros((0, self.model.rank)), np.zeros(0))
        y = self.model.sums([cell.total for cell in cells.values()])
        weights = np.array([cell.count for cell in cells.values()], dtype=np.float64)
        return self._block(list(cells), y, weights)

    def _block(self, ids: list[str], y: Array, weights: Array) -> Block:
        side = self.model.side_of_sums(y, weights, ids) if ids else None
        rows = {name: row for row, name in enumerate(ids)}
        return Block(ids, y, weights, side, np.ones(len(ids), dtype=bool), rows)

    def _join(self, more: Sequence[Block]) -> None:
        blocks = [self._many, *more]
        ids = []
        for block in blocks:
            ids += [name for name, alive in zip(block.ids, block.alive, strict=True) if alive]
        y = np.concatenate([block.y[block.alive] for block in blocks])
        weights = np.concatenate([block.weights[block.alive] for block in blocks])
        self._many = self._block(ids, y, weights)
        self._latest = {}
        self._few = self._made({})


def name_at(blocks: Sequence[Block], place: int) -> str:
    """The profile of a place in the scores of all blocks."""
    for block in blocks:
        if place < len(block.ids):
            return block.ids[place]
        place -= len(block.ids)
    raise IndexError(place)
