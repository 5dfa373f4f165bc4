"""Whose voice is it? All enrolled voices in memory, kept up with the database; or in the database, by pgvector."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy.exc import DBAPIError

from .. import __version__
from .._typing import Array
from ..decisions import name_among, naming_options, point_for
from ..exceptions import ParameterError
from ..models.deployment import Deployable
from ..scoring.profiles import Profiles as Side
from ..scoring.search import SearchIndex
from .keys import Caller
from .model import VOICE, Cell, Integers, Model, ProcessedRecording, merge_cells
from .profiles import ProfileStore
from .schemas import Json
from .store import DAY, Transaction, begin, lock_hosts

# The model in its domain, profiles, and LLRs; beyond the profiles, LLRs of others without their names.
Scores = tuple[Model, list[str], Array]

# Profiles that are read at once.
BATCH = 10_000
# Profiles with the best products, whose LLRs are then computed with the phrases and sittings of each apart.
CANDIDATE_COUNT = 20
# A block of voices is at most a tenth of the one before it: few blocks, and few times that one is made anew.
GROWTH = 10
# Profiles whose vectors are written into the database in one transaction, which locks them for less than a second.
WRITE_LIMIT = 300
# Transactions that may fail since others wrote the same profiles meanwhile.
TRIES = 20
# Of PostgreSQL: another transaction changed what this one reads.
CONFLICT = "40001"
EXPIRED = (
    "SELECT id FROM profiles WHERE state = 'enrolled' "
    "AND coalesce(last_used, created) < :since AND coalesce(last_used, created) >= :before"
)

# Unlogged: no vector of a voice is in the log of the database, or in copies that are made by it; after a crash the
# table is empty. Whoever changes a profile takes its rows away in the same transaction.
VOICES = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE UNLOGGED TABLE voice_vectors (profile TEXT NOT NULL, version TEXT NOT NULL, vector vector NOT NULL);
CREATE INDEX voice_vectors_profile ON voice_vectors (profile);
CREATE FUNCTION drop_voice_vectors() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN DELETE FROM voice_vectors WHERE profile = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER drop_voice_vectors AFTER UPDATE OF change ON profiles FOR EACH ROW EXECUTE FUNCTION drop_voice_vectors()
"""
# The best profiles; then those without a vector of this version; then the others, without their names: means of nearly
# equal products, and of how many each is.
SEARCH = """
WITH every AS MATERIALIZED (
    SELECT id, max(-(vector <#> CAST(:query AS vector))) AS product
    FROM profiles LEFT JOIN voice_vectors ON profile = id AND voice_vectors.version = :version
    WHERE state = 'enrolled' AND model = :model AND coalesce(last_used, created) >= :since
        AND (:everybody OR id IN :names)
    GROUP BY id
), best AS MATERIALIZED (
    SELECT id, product, 1 AS people FROM every WHERE product IS NOT NULL ORDER BY product DESC LIMIT :most
), missing AS (SELECT id, product, 0 FROM every WHERE product IS NULL ORDER BY id LIMIT :written),
others AS (
    SELECT CAST(NULL AS text), avg(product), count(*) FROM every
    WHERE product IS NOT NULL AND id NOT IN (SELECT id FROM best) GROUP BY round(product * 16)
)
SELECT 1 AS place, * FROM best UNION ALL SELECT 2, * FROM missing UNION ALL SELECT 3, * FROM others ORDER BY place
"""
COUNTS = "SELECT DISTINCT enrollments FROM profiles WHERE state = 'enrolled' AND model = :model"


class VoiceBlock:
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


class SpeakerSearch:
    """Answers who it is, of profiles that a search by inner products chooses."""

    def __init__(self, people: ProfileStore) -> None:
        self.people = people
        self.settings = people.settings
        self.search: VoiceMemory | VectorTable
        if self.settings.search == "pgvector":
            self.search = VectorTable(people)
        else:
            self.search = VoiceMemory(people)

    def warm(self) -> None:
        """Search once, which reads or writes all voices, and compute the domain, before the first question comes."""
        with self.people.store.read() as work:
            model = self.people.domain.deployed(work)
        if self.settings.role != "verify":
            self.search.scores(np.ones(model.rank, dtype=np.int64))

    def identify(
        self,
        heard: ProcessedRecording,
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
        some = max(top, CANDIDATE_COUNT)
        model, names, llrs = self.search.scores(test, candidates, some)
        count = int(np.isfinite(llrs).sum())
        best = np.arange(len(names))
        if some < len(names):
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
        outlier_probability = model.bundle.outlier_probability(VOICE)
        points = model.bundle.operating_points(VOICE)
        wanted = naming_options(points, far=self.settings.far)
        point = point_for(points, far=wanted["far"])
        naming = name_among(
            llrs, point, none=prior_none, count=count, outlier_probability=outlier_probability
        )
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

    def _exact(
        self, model: Model, names: list[str], test: Integers
    ) -> tuple[dict[str, str | None], dict[str, float]]:
        """Names and LLRs of a few profiles, with the phrases of each apart."""
        with self.people.store.read() as work:
            cells = self.people.templates.cells_by_profile(work, names)
            query = "SELECT id, user_id FROM profiles WHERE state = 'enrolled' AND id IN :names"
            people = {row.id: row.user_id for row in work.run(query, names=list(cells))}
        if not people:
            return {}, {}
        own = [cells[name] for name in people]
        several = model.has_phrases and any(len(some) > 1 for some in own)
        llrs = model.speaker_llrs(model.side(own, several), test)
        return people, dict(zip(people, llrs.tolist(), strict=True))


class VoiceMemory:
    """Follows the numbers of changes in the database: no clock decides what was seen."""

    def __init__(self, people: ProfileStore) -> None:
        self.people = people
        self.settings = people.settings
        self._lock = threading.Lock()
        self._change = -1
        self._expired_before = 0.0
        self._blocks: list[VoiceBlock] = []
        self._places: dict[str, tuple[VoiceBlock, int]] = {}

    def scores(
        self, test: Integers, candidates: Sequence[str] | None = None, most: int = CANDIDATE_COUNT
    ) -> Scores:
        """All profiles, and LLRs that they are of this voice, by inner products.

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

    def _refresh(self, work: Transaction) -> None:
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
            some = self.people.templates.cells_by_profile(work, enrolled[start : start + BATCH])
            voices |= {name: merge_cells(cells)[0] for name, cells in some.items()}
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
        block = VoiceBlock(ids, side)
        self._blocks.append(block)
        self._places |= {name: (block, row) for row, name in enumerate(ids)}


class Version(NamedTuple):
    """What vectors in the database are made for, and by.

    name : of all that they depend on, the same in every process
    turn : rotation of the index's vectors
    """

    name: str
    model: Model
    search: SearchIndex
    turn: Array


class VectorTable:
    """Vectors of voices in the service's own PostgreSQL, rotated by a secret of the master key.

    Profiles that have none for the model in its present domain get theirs before an answer, in its transaction.
    """

    def __init__(self, people: ProfileStore) -> None:
        self.people = people
        self.store = people.store
        self.settings = people.settings
        self._current: tuple[int, Version] | None = None
        if not self.store.is_postgres:
            raise ParameterError(
                "--search pgvector needs PostgreSQL, and the database is SQLite: give --database postgresql://..., or "
                "search in memory, which is the default"
            )
        try:
            with begin(self.store.engine) as connection:
                lock_hosts(connection)
                table = connection.exec_driver_sql("SELECT to_regclass('voice_vectors')").scalar()
                if table is None:
                    connection.exec_driver_sql(VOICES)
        except DBAPIError as error:
            raise ParameterError(
                "--search pgvector needs the extension pgvector: install the package of it for your PostgreSQL and let "
                "a superuser run CREATE EXTENSION vector, or search in memory, which is the default. The database "
                f"says: {error.orig}"
            ) from error

    def scores(
        self, test: Integers, candidates: Sequence[str] | None = None, most: int = CANDIDATE_COUNT
    ) -> Scores:
        """The profiles with the best products, and LLRs of these and of all others."""
        conflicts = 0
        scores = None
        while scores is None:
            try:
                with self.store.write() as work:
                    # numbers of changes, profiles and vectors are those of one moment
                    work.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    scores = self._scores(work, test, candidates, most)
            except DBAPIError as error:
                conflicts += 1
                if getattr(error.orig, "sqlstate", "") != CONFLICT or conflicts > TRIES:
                    raise
        return scores

    def _scores(
        self, work: Transaction, test: Integers, candidates: Sequence[str] | None, most: int
    ) -> Scores | None:
        """None where so many vectors were missing that others may be."""
        version = self._version(work)
        model = version.model
        query = version.search.queries(model.side([[Cell("", test, 1)]], False))[0]
        values: Json = {
            "query": str((query @ version.turn).tolist()),
            "version": version.name,
            "model": model.fingerprint,
            "since": work.now - self.settings.expire_days * DAY,
            "everybody": candidates is None,
            "names": list(candidates or ()),
            "most": most,
            "written": WRITE_LIMIT,
        }
        rows = work.run(SEARCH, **values).all()
        missing = [row.id for row in rows if row.product is None]
        if missing:
            # of those whose data keys are destroyed none is written
            if self._write(work, missing, version) and len(missing) == WRITE_LIMIT:
                return None
            rows = work.run(SEARCH, **values).all()
        rows = [row for row in rows if row.product is not None]
        names = [row.id for row in rows if row.id is not None]
        llrs = model.calibrated(np.array([row.product for row in rows]))
        return model, names, np.repeat(llrs, [row.people for row in rows])

    def _version(self, work: Transaction) -> Version:
        """That of what the transaction sees: the model in its domain, for as many recordings as profiles have."""
        number = int(work.value("SELECT number FROM changes"))
        current = self._current
        if current is not None and current[0] == number:
            return current[1]
        model = self.people.domain.deployed(work, number)
        sample = self.people.domain.sample(work) if isinstance(model.scorer, Deployable) else []
        counts = sorted(work.run(COUNTS, model=model.fingerprint).scalars()) or [1]
        everything = repr((__version__, model.fingerprint, counts, sample))
        anything = np.ones(model.rank, dtype=np.int64)
        side = model.unlabelled([Cell("", anything, count) for count in counts])
        index = model.bundle.index(side, VOICE)
        version = Version(
            hashlib.sha256(everything.encode()).hexdigest(),
            model,
            index,
            model.index_rotation(index.vectors.shape[1]),
        )
        self._current = (number, version)
        return version

    def _write(self, work: Transaction, names: list[str], version: Version) -> int:
        """Write vectors of profiles, of as many as have data keys.

        Their rows are locked: who leaves meanwhile waits, and then takes the vectors along.
        """
        work.run("SELECT id FROM profiles WHERE id IN :names ORDER BY id FOR UPDATE", names=names)
        work.run("DELETE FROM voice_vectors WHERE profile IN :names", names=names)
        cells = self.people.templates.cells_by_profile(work, names)
        if cells:
            ids = list(cells)
            side = version.model.unlabelled([merge_cells(own)[0] for own in cells.values()])
            vectors, owners = version.search.encode(side)
            turned = zip(owners.tolist(), (vectors @ version.turn).tolist(), strict=True)
            work.insert_all(
                "voice_vectors",
                [
                    {"profile": ids[owner], "version": version.name, "vector": str(vector)}
                    for owner, vector in turned
                ],
            )
        return len(cells)
