"""Search for a voice in PostgreSQL with the extension pgvector.

SQLAlchemy does not have its types and operators, so the statements of this module are SQL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.exc import DBAPIError

from .. import __version__
from .._typing import Array
from ..exceptions import ParameterError
from ..scoring.search import SearchIndex
from .cells import Cell, Integers, merge_cells
from .database import lock_hosts
from .model import VOICE, Model
from .profiles import ProfileStore
from .store import DAY, Transaction
from .tables import CHANGES, PROFILES
from .voice_memory import Scores

# Largest number of profiles whose vectors are written in one transaction, which locks them for less than a second.
WRITE_LIMIT = 300
# Number of times that a search is repeated because other transactions changed the same profiles.
TRIES = 20
# SQLSTATE of PostgreSQL: another transaction changed rows that this one has read.
CONFLICT = "40001"

# The table is unlogged: no vector is in the log of the database or in copies made from it, and the table is empty after
# a crash. A change of a profile deletes its vectors in the same transaction. Other schemas belong to other tenants.
THIS_TABLE = "SELECT to_regclass(quote_ident(current_schema()) || '.voice_vectors')"
CREATE_TABLE = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE UNLOGGED TABLE voice_vectors (profile TEXT NOT NULL, version TEXT NOT NULL, vector vector NOT NULL);
CREATE INDEX voice_vectors_profile ON voice_vectors (profile);
CREATE FUNCTION drop_voice_vectors() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN DELETE FROM voice_vectors WHERE profile = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER drop_voice_vectors AFTER UPDATE OF change ON profiles FOR EACH ROW EXECUTE FUNCTION drop_voice_vectors()
"""
NAMES = bindparam("names", type_=sa.Text, expanding=True)
# Section 1: the best profiles; 2: profiles without a vector of this version; 3: all others without their names, in
# groups of nearly equal products, as the mean and number of each group.
SEARCH = sa.text("""
WITH every AS MATERIALIZED (
    SELECT id, max(-(vector <#> CAST(:query AS vector))) AS product
    FROM profiles LEFT JOIN voice_vectors ON profile = id AND voice_vectors.version = :version
    WHERE state = 'enrolled' AND damaged IS NULL AND model = :model AND coalesce(last_used, created) >= :since
        AND (:everybody OR id IN :names)
    GROUP BY id
), best AS MATERIALIZED (
    SELECT id, product, 1 AS people FROM every WHERE product IS NOT NULL ORDER BY product DESC LIMIT :count
), missing AS (SELECT id, product, 0 FROM every WHERE product IS NULL ORDER BY id LIMIT :write_limit),
others AS (
    SELECT CAST(NULL AS text), avg(product), count(*) FROM every
    WHERE product IS NOT NULL AND id NOT IN (SELECT id FROM best) GROUP BY round(product * 16)
)
SELECT 1 AS section, * FROM best UNION ALL SELECT 2, * FROM missing UNION ALL SELECT 3, * FROM others ORDER BY section
""").bindparams(NAMES)
LOCK_PROFILES = (
    sa.select(PROFILES.c.id)
    .where(PROFILES.c.id.in_(NAMES))
    .order_by(PROFILES.c.id)
    .with_for_update(skip_locked=True)
)
DELETE_VECTORS = sa.text("DELETE FROM voice_vectors WHERE profile IN :names").bindparams(NAMES)
PUT_VECTOR = sa.text(
    "INSERT INTO voice_vectors (profile, version, vector) VALUES (:profile, :version, :vector)"
)
COUNTER = sa.select(CHANGES.c.number, CHANGES.c.master)
COUNTS = (
    sa.select(PROFILES.c.enrollments)
    .distinct()
    .where(PROFILES.c.state == "enrolled")
    .where(PROFILES.c.damaged.is_(None))
    .where(PROFILES.c.model == bindparam("model"))
)


class VectorVersion(NamedTuple):
    """Version of the search vectors in the database.

    Parameters
    ----------
    name : hash of everything that the vectors depend on, the same in every process
    model : model, adapted to its domain
    search : computes vectors of profiles and of tests; their inner product is the LLR before calibration
    rotation : (columns, columns) secret orthogonal matrix that rotates the vectors
    """

    name: str
    model: Model
    search: SearchIndex
    rotation: Array


class VectorTable:
    """Search vectors of all voices in the service's PostgreSQL, rotated by a secret derived from the master key.

    Search vectors depend on the model and its present domain. Missing ones are written by the next search, in its
    transaction.

    Parameters
    ----------
    profiles : profiles of the service

    Raises
    ------
    ParameterError : if the database is not PostgreSQL with the extension pgvector
    """

    def __init__(self, profiles: ProfileStore) -> None:
        self.profiles = profiles
        self.store = profiles.store
        self.settings = profiles.settings
        self._current: tuple[int, VectorVersion] | None = None
        if not self.store.is_postgres:
            raise ParameterError(
                "--search pgvector needs PostgreSQL, but the database is SQLite: pass --database postgresql://..., or "
                "leave --search out to search in memory"
            )
        try:
            with self.store.database.begin() as connection:
                lock_hosts(connection)
                table = connection.exec_driver_sql(THIS_TABLE).scalar()
                if table is None:
                    connection.exec_driver_sql(CREATE_TABLE)
        except DBAPIError as error:
            raise ParameterError(
                "--search pgvector needs the extension pgvector: install its package for your PostgreSQL and let "
                "a superuser run CREATE EXTENSION vector, or leave --search out to search in memory. The database "
                f"reports: {error.orig}"
            ) from error

    def scores(
        self, test: Integers, candidates: Sequence[str] | None = None, count: int = 20
    ) -> Scores:
        """Compare the voice of a test with profiles, and return the LLRs and the best profiles.

        Parameters
        ----------
        test : (rank,) evidence of the test in whole numbers
        candidates : ids of the profiles to search; None: all enrolled profiles
        count : number of best profiles whose ids are returned

        Returns
        -------
        the model, adapted to the domain of the enrolled people, with which the LLRs were computed; the ids of the
            `count` best profiles, the best first; the LLRs of all searched profiles, first those of the returned ids
            in the same order, then the others in no fixed order
        """
        conflicts = 0
        scores = None
        while scores is None:
            try:
                with self.store.write() as work:
                    # read changes, profiles and vectors as of one moment
                    work.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    scores = self._scores(work, test, candidates, count)
            except DBAPIError as error:
                conflicts += 1
                if getattr(error.orig, "sqlstate", "") != CONFLICT or conflicts > TRIES:
                    raise
        return scores

    def _scores(
        self, work: Transaction, test: Integers, candidates: Sequence[str] | None, count: int
    ) -> Scores | None:
        """Search in one transaction, see `scores`; return None if the search must be repeated to write more vectors."""
        version = self._version(work)
        model = version.model
        query = version.search.queries(model.side([[Cell("", test, 1)]], False))[0]
        values: dict[str, object] = {
            "query": str((query @ version.rotation).tolist()),
            "version": version.name,
            "model": model.fingerprint,
            "since": work.now - self.settings.expire_days * DAY,
            "everybody": candidates is None,
            "names": list(candidates or ()),
            "count": count,
            "write_limit": WRITE_LIMIT,
        }
        rows = work.run(SEARCH, **values).all()
        missing = [row.id for row in rows if row.product is None]
        if missing:
            # no vectors are written for profiles whose data keys are destroyed
            if self._write(work, missing, version) and len(missing) == WRITE_LIMIT:
                return None
            rows = work.run(SEARCH, **values).all()
        rows = [row for row in rows if row.product is not None]
        names = [row.id for row in rows if row.id is not None]
        llrs = model.calibrated(np.array([row.product for row in rows]))
        return model, names, np.repeat(llrs, [row.people for row in rows])

    def _version(self, work: Transaction) -> VectorVersion:
        """Return the version of search vectors that belongs to the present model, domain and profiles."""
        counter = work.run(COUNTER).one()
        current = self._current
        if current is not None and current[0] == counter.number:
            return current[1]
        model = self.profiles.domain.deployed(work, counter.number)
        sample = self.profiles.domain.sample(work) if model.has_domain else []
        counts = sorted(work.run(COUNTS, model=model.fingerprint).scalars()) or [1]
        dependencies = repr((__version__, model.fingerprint, counts, sample, counter.master))
        # the search index depends on the counts of a profile, and not on its sums
        ones = np.ones(model.rank, dtype=np.int64)
        side = model.unlabelled([Cell("", ones, count) for count in counts])
        index = model.bundle.index(side, VOICE)
        version = VectorVersion(
            hashlib.sha256(dependencies.encode()).hexdigest(),
            model,
            index,
            self.profiles.templates.index_rotation(counter.master, index.vectors.shape[1]),
        )
        self._current = (counter.number, version)
        return version

    def _write(self, work: Transaction, names: list[str], version: VectorVersion) -> int:
        """Write the vectors of the profiles `names`, and return the number of profiles that could be read.

        Their rows are locked: a deletion at the same time waits, and then deletes the vectors too. Profiles that
        another connection has locked get their vectors later.
        """
        names = list(work.run(LOCK_PROFILES, names=names).scalars())
        work.run(DELETE_VECTORS, names=names)
        cells = self.profiles.templates.cells_by_profile(work, names)
        if cells:
            ids = list(cells)
            side = version.model.unlabelled([merge_cells(cells[name])[0] for name in ids])
            vectors, owners = version.search.encode(side)
            rotated = (vectors @ version.rotation).tolist()
            rows: list[dict[str, object]] = [
                {"profile": ids[owner], "version": version.name, "vector": str(vector)}
                for owner, vector in zip(owners.tolist(), rotated, strict=True)
            ]
            work.run_each(PUT_VECTOR, rows)
        return len(cells)
