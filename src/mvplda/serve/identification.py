"""Whose voice is it? Every enrolled voice in memory, kept up with the database, and asked in one product."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from scipy.special import logsumexp

from .._typing import Array
from ..scoring.profiles import Profiles
from ..spoofing import with_countermeasure
from .audio import Heard
from .decisions import odds, spoof_share
from .desk import DAY
from .keys import Caller, Vault
from .model import PHRASE, SPEAKER, Calibration, Cell, ServiceModel
from .store import Store, among, profiles, templates
from .templates import Templates

OVERLAP_S = 5.0
"""Clocks of hosts differ, and transactions end after they begin: changes of the last seconds are read once more."""
BATCH = 20_000
LATEST = 2000
"""Changed profiles that stand beside the many before these are made anew; at most a tenth of them."""


class Index:
    """Profiles as the model scores them; changes of other processes are seen at the next question."""

    def __init__(
        self, store: Store, vault: Vault, model: ServiceModel, clock: Callable[[], float]
    ) -> None:
        self.store, self.vault, self.model, self.clock = store, vault, model, clock
        self._lock = threading.Lock()
        self._seen, self._since = 0.0, 0.0
        self._versions: dict[str, int] = {}
        self._many: Profiles | None = None
        self._rows: dict[str, int] = {}
        self._alive = np.zeros(0, dtype=bool)
        self._latest: dict[str, list[Cell]] = {}
        self._few: Profiles | None = None

    def scores(
        self, share: Array, since: float, candidates: Sequence[str] | None = None
    ) -> tuple[Callable[[int], str], Array]:
        """For every profile the calibrated LLR that it is of this voice, whatever was said.

        LLRs of profiles that were not used since a time, or are not among the candidates, are -inf. The names come as
        a function of the place, for a million of them take longer to copy than to score.
        """
        with self._lock:
            self._refresh(since)
            many, few, alive = self._many, self._few, self._alive.copy()
            if candidates is not None:
                alive[:] = False
                alive[[self._rows[name] for name in candidates if name in self._rows]] = True
        sides = [
            (many, alive),
            (few, None if few is None or candidates is None else np.isin(few.ids, candidates)),
        ]
        test = self.model.profiles([[Cell("", np.asarray(share), 1)]], False)
        factor = self.model.calibrations.get("enrolled", Calibration()).speaker
        found, start = [np.empty(0)], 0 if many is None else len(many)
        for side, asked in sides:
            if side is not None and len(side):
                llrs = self.model.scorer.llr(
                    side, test, same=SPEAKER, given={PHRASE: "different"}, threads=1
                )[:, 0]
                llrs = factor * llrs.astype(np.float64)
                found.append(llrs if asked is None else np.where(asked, llrs, -np.inf))

        def name(place: int) -> str:
            side = many if place < start else few
            assert side is not None
            return str(side.ids[place if place < start else place - start])

        return name, np.concatenate(found)

    def _refresh(self, since: float) -> None:
        """See what changed, and whom time has made expired."""
        used = sa.func.coalesce(profiles.c.last_used, profiles.c.created)
        columns = (
            profiles.c.id,
            profiles.c.state,
            profiles.c.version,
            profiles.c.model,
            profiles.c.updated,
        )
        late = sa.select(profiles.c.id).where(
            profiles.c.state == "enrolled", used < since, used >= self._since
        )
        with self.store.read() as connection:
            query = sa.select(*columns, used.label("used")).where(
                profiles.c.updated >= self._seen - OVERLAP_S
            )
            changed = [
                row
                for row in connection.execute(query)
                if self._versions.get(row.id) != row.version
            ]
            gone = list(connection.execute(late).scalars()) if self._since else []
        for name in (*gone, *(row.id for row in changed)):
            self._latest.pop(name, None)
            if name in self._rows:
                self._alive[self._rows.pop(name)] = False
        mine = self.model.store_version
        good = [
            r.id for r in changed if r.used >= since and r.state == "enrolled" and r.model == mine
        ]
        good.sort()  # so that batches are ranges
        parts: list[Profiles | None] = []
        for start in range(0, len(good), BATCH):
            self._latest |= self.read(good[start : start + BATCH])
            if len(self._latest) >= BATCH:
                parts.append(self._made(self._latest))
                self._latest = {}
        if changed or gone:
            self._few = self._made(self._latest)
            if parts or len(self._latest) > min(LATEST, max(50, len(self._rows) // 10)):
                self._join(parts)
        self._versions |= {row.id: row.version for row in changed}
        self._seen = max(self._seen, *(row.updated for row in changed)) if changed else self._seen
        self._since = max(self._since, since)

    def _made(self, cells: Mapping[str, list[Cell]]) -> Profiles | None:
        return self.model.profiles(list(cells.values()), False, list(cells)) if cells else None

    def _join(self, more: Sequence[Profiles | None]) -> None:
        before = self._many if self._many is None or self._alive.all() else self._many[self._alive]
        parts = [side for side in (before, *more, self._few) if side is not None and len(side)]
        if parts:
            joined: dict[str, Any] = {
                name: np.concatenate([getattr(p, name) for p in parts])
                for name in ("ids", "counts", "y", "weights")
            }
            self._many = replace(parts[0], **joined, owner=np.arange(len(joined["ids"])))
            self._rows = {name: row for row, name in enumerate(self._many.ids.tolist())}
            self._alive = np.ones(len(self._many), dtype=bool)
        self._latest, self._few = {}, None

    def read(self, names: list[str]) -> dict[str, list[Cell]]:
        """What is summed of some profiles; of those who are gone, nothing."""
        keys = self.store.some_keys(names)
        found: dict[str, list[Cell]] = {}
        with self.store.read() as connection:
            for row in connection.execute(
                sa.select(templates).where(among(templates.c.profile, names))
            ):
                if row.profile in keys:
                    key = self.vault.unwrap(keys[row.profile], row.profile)
                    data = self.vault.open(key, bytes(row.total), f"{row.profile} {row.phrase}")
                    cell = Cell(row.phrase, np.frombuffer(data, "<i8"), row._mapping["count"])
                    found.setdefault(row.profile, []).append(cell)
        return found


class Identification(Templates):
    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.index = (
            None if self.model is None else Index(self.store, self.vault, self.model, self.clock)
        )

    def identify(
        self,
        heard: Heard,
        candidates: Sequence[str] | None,
        top: int,
        prior_none: float,
        caller: Caller,
    ) -> dict[str, Any]:
        """Whose voice is it, whatever was said; and how likely is it nobody's?"""
        model, result = self._model(), secrets.token_hex(16)
        ranked: list[dict[str, Any]] = []
        none, count, reason = 1.0, 0, heard.reason
        if reason is None:
            share = model.prepare(self._vector(heard)[None])[0]
            assert self.index is not None
            name_at, llrs = self.index.scores(
                share, self.clock() - self.rules.expire_days * DAY, candidates
            )
            count = int(np.isfinite(llrs).sum())
            best = np.argpartition(-llrs, top)[:top] if top < len(llrs) else np.arange(len(llrs))
            best = best[np.isfinite(llrs[best])]
            places = {name_at(place): place for place in best.tolist()}
            cells = self.index.read(list(places)) if places else {}
            with self.store.read() as connection:
                query = sa.select(profiles).where(
                    profiles.c.id.in_(list(cells)), profiles.c.state == "enrolled"
                )
                people = list(connection.execute(query).mappings())
            llrs[best] = -np.inf  # who is leaving at this moment stays so
            # all of it, of these few: the words may be the same, which the quick score takes no notice of
            if people:
                evidence = model.voices([cells[row["id"]] for row in people], Cell("", share, 1))
                llrs[[places[row["id"]] for row in people]] = [
                    odds(own, model.doubt).llr_speaker for own in evidence
                ]
            if heard.countermeasure is not None:
                llrs = with_countermeasure(
                    llrs, heard.countermeasure, spoof_share(self.rules.weights)
                )
            logs = np.append(
                llrs - np.log(max(count, 1)) + np.log1p(-prior_none), np.log(prior_none)
            )
            posterior = np.exp(logs - logsumexp(logs))
            none = float(posterior[-1])
            for row in sorted(people, key=lambda row: -llrs[places[row["id"]]]):
                place = places[row["id"]]
                person = {
                    "profileId": row["id"],
                    "userId": row["user_id"],
                    "llr": float(llrs[place]),
                }
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
