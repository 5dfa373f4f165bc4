"""Whose voice is it? Every enrolled voice in memory, kept up with the database, and asked in one product."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from scipy.special import logsumexp

from .._typing import Array
from ..scoring.profiles import Profiles
from ..spoofing import with_countermeasure
from .audio import Heard
from .decisions import odds, spoof_share
from .desk import DAY, Problem
from .keys import Caller, Vault
from .model import PHRASE, SPEAKER, Calibration, Cell, ServiceModel
from .store import Store, profiles, templates
from .templates import Templates

OVERLAP_S = 5.0
"""Clocks of hosts differ, and transactions end after they begin: changes of the last seconds are read once more."""
BATCH = 20_000
LATEST = 2000
"""Changed profiles that stand beside the many before these are made anew; at most a tenth of them."""


class Index:
    """Profiles as the model scores them; changes of other processes are seen at the next question."""

    def __init__(self, store: Store, vault: Vault, model: ServiceModel, clock: Callable[[], float]) -> None:
        self.store, self.vault, self.model, self.clock = store, vault, model, clock
        self._lock = threading.Lock()
        self._seen = 0.0
        self._versions: dict[str, int] = {}
        self._many: Profiles | None = None
        self._rows: dict[str, int] = {}
        self._alive = np.zeros(0, dtype=bool)
        self._latest: dict[str, list[Cell]] = {}
        self._few: Profiles | None = None

    def scores(self, share: Array) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all enrolled profiles, and the calibrated LLR that each is of this voice, whatever was said."""
        with self._lock:
            self._refresh()
            parts = [(self._many, self._alive), (self._few, None)]
        test = self.model.profiles([[Cell("", np.asarray(share), 1)]], False)
        factor = self.model.calibrations.get("enrolled", Calibration()).speaker
        ids, found = [np.empty(0, dtype=np.str_)], [np.empty(0)]
        for side, alive in parts:
            if side is None or not len(side):
                continue
            llrs = self.model.scorer.llr(side, test, same=SPEAKER, given={PHRASE: "different"}, threads=1)[:, 0]
            keep = slice(None) if alive is None or alive.all() else alive
            ids.append(side.ids[keep])
            found.append(factor * llrs[keep])
        return np.concatenate(ids), np.concatenate(found)

    def _refresh(self) -> None:
        with self.store.read() as connection:
            columns = (profiles.c.id, profiles.c.state, profiles.c.version, profiles.c.model, profiles.c.updated)
            rows = connection.execute(sa.select(*columns).where(profiles.c.updated >= self._seen - OVERLAP_S)).all()
        changed = [row for row in rows if self._versions.get(row.id) != row.version]
        if not changed:
            return
        enrolled = [r.id for r in changed if r.state == "enrolled" and r.model == self.model.store_version]
        cells = self._read(enrolled)
        for row in changed:
            self._versions[row.id] = row.version
            self._latest.pop(row.id, None)
            if row.id in self._rows:
                self._alive[self._rows.pop(row.id)] = False
            if row.id in cells:
                self._latest[row.id] = cells[row.id]
        self._seen = max(self._seen, *(row.updated for row in changed))
        self._few = self._made(self._latest)
        if len(self._latest) > min(LATEST, max(50, len(self._rows) // 10)):
            self._join()

    def _made(self, cells: Mapping[str, list[Cell]]) -> Profiles | None:
        return self.model.profiles(list(cells.values()), False, list(cells)) if cells else None

    def _join(self) -> None:
        sides = [self._few] if self._many is None else [self._many[self._alive], self._few]
        parts = [side for side in sides if side is not None and len(side)]
        if parts:
            joined: dict[str, Any] = {
                name: np.concatenate([getattr(p, name) for p in parts]) for name in ("ids", "counts", "y", "weights")
            }
            self._many = replace(parts[0], **joined, owner=np.arange(len(joined["ids"])), kept={})
            self._rows = {name: row for row, name in enumerate(self._many.ids.tolist())}
            self._alive = np.ones(len(self._many), dtype=bool)
        self._latest, self._few = {}, None

    def _read(self, names: list[str]) -> dict[str, list[Cell]]:
        keys = self.store.some_keys(names)
        found: dict[str, list[Cell]] = {}
        with self.store.read() as connection:
            for start in range(0, len(names), BATCH):
                some = names[start : start + BATCH]
                wide = (templates.c.profile >= min(some)) & (templates.c.profile <= max(some))
                where = templates.c.profile.in_(some) if len(some) <= 500 else wide
                wanted = set(some)
                for row in connection.execute(sa.select(templates).where(where)):
                    if row.profile in wanted and row.profile in keys:
                        key = self.vault.unwrap(keys[row.profile], row.profile)
                        data = self.vault.open(key, bytes(row.total), f"{row.profile} {row.phrase}")
                        cell = Cell(row.phrase, np.frombuffer(data, "<i8"), row._mapping["count"])
                        found.setdefault(row.profile, []).append(cell)
        return found


class Identification(Templates):
    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.index = None if self.model is None else Index(self.store, self.vault, self.model, self.clock)

    def identify(
        self, heard: Heard, candidates: Sequence[str] | None, top: int, prior_none: float, caller: Caller
    ) -> dict[str, Any]:
        """Whose voice is it, whatever was said; and how likely is it nobody's?"""
        model, result = self._model(), secrets.token_hex(16)
        ranked: list[dict[str, Any]] = []
        none, count, reason = 1.0, 0, heard.reason
        if reason is None:
            share = model.prepare(self._vector(heard)[None])[0]
            assert self.index is not None
            ids, llrs = self.index.scores(share)
            keep = ~np.isin(ids, self._expired(ids))
            if candidates is not None:
                keep &= np.isin(ids, list(candidates))
            ids, llrs = ids[keep], llrs[keep].astype(np.float64)
            count = len(ids)
            best = np.argsort(-llrs, kind="stable")[:top] if count <= 4 * top else np.argpartition(-llrs, top)[:top]
            people = {place: self._looked_at(str(ids[place]), share) for place in best.tolist()}
            for place, (llr, _) in people.items():
                llrs[place] = llr
            if heard.spoof_llr is not None and count:
                llrs = with_countermeasure(llrs, np.full(count, heard.spoof_llr), spoof_share(self.rules.weights))
            logs = np.append(llrs - np.log(max(count, 1)) + np.log1p(-prior_none), np.log(prior_none))
            posterior = np.exp(logs - logsumexp(logs))
            none = float(posterior[-1])
            for place, (_, row) in sorted(people.items(), key=lambda pair: -llrs[pair[0]]):
                if row is not None:
                    person = {"profileId": row["id"], "userId": row["user_id"], "llr": float(llrs[place])}
                    ranked.append({**person, "probability": float(posterior[place])})
        said = {
            "resultId": result,
            "candidates": ranked,
            "noneOfThem": none,
            "profilesCount": count,
            "reason": reason,
            "quality": heard.quality,
            "modelVersion": model.version,
            "notice": model.about.get("notice"),
        }
        first = {"profileId": ranked[0]["profileId"], "llr": ranked[0]["llr"]} if ranked else {}
        detail = {"noneOfThem": none, "profilesCount": count, "best": first, "reason": reason}
        with self.store.write() as connection:
            self._note(connection, caller, "identify", None, result, detail)
        return said

    def _looked_at(self, name: str, share: NDArray[np.int64]) -> tuple[float, dict[str, Any] | None]:
        """The LLR of one of the few best, all of it: its words may be the same, of which the quick one takes no notice.

        Who is leaving at this moment is nobody.
        """
        try:
            with self.store.read() as connection:
                row = self._row(connection, name)
                cells = self._cells(connection, name, self._data_key(name))
        except Problem:
            cells = []
        if not cells:
            return -np.inf, None
        model = self._model()
        return odds(model.evidence(cells, [Cell("", share, 1)], False), model.doubt).llr_speaker, row

    def _expired(self, ids: NDArray[Any]) -> list[str]:
        """Profiles that time has made expired."""
        used = sa.func.coalesce(profiles.c.last_used, profiles.c.created)
        old = used < self.clock() - self.rules.expire_days * DAY
        if not len(ids):
            return []
        query = sa.select(profiles.c.id).where(profiles.c.state == "enrolled", old)
        with self.store.read() as connection:
            return list(connection.execute(query).scalars())
