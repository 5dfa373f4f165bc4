"""A file of named profiles: the vector of every recording, so that any model can score them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .._typing import Array, FloatArray, PathLike
from ..bundle import Bundle
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..io.vectors import VectorSet, read_columns, read_vectors
from ..model_files import PROFILES_FILE, file_in_folder
from ..persistence import atomic_write
from ..scoring.profiles import Profiles
from .evidence import leave_one_out, phrase_labels, recording_weights, session_labels
from .extractors.extractor import ExtractedVectors

DIGEST_SEPARATOR = "#"
"""Between the name of a profile and the digest of a recording of it."""

PROFILE_COLUMNS = ("profile", "phrase", "session")
"""Of a file of profiles."""


class ProfileBook:
    """Named voices in an ``.npz`` file: every recording's own vector, so that any model can score them.

    The file holds, by vector, ``X``, ``ids`` (profile and digest of the recording), ``profile``, ``phrase`` and
    ``session`` (empty where they have no name) and ``extractor``.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = file_in_folder(path, PROFILES_FILE)
        self.vectors = VectorSet(np.empty(0, np.str_), np.empty((0, 0), np.float32))
        self.columns: dict[str, list[str]] = {name: [] for name in PROFILE_COLUMNS}
        """Of every vector its profile, and what is said and the session, where these have names."""
        if self.path.suffix != ".npz":
            raise ParameterError(
                f"profiles are kept in an .npz file, or in a folder; got {self.path}"
            )
        if not self.path.is_file():
            return
        held = read_columns(self.path, (*PROFILE_COLUMNS, "extractor"))
        if "profile" not in held:
            raise FileFormatError(
                f"{self.path} is no file of profiles: it has no array 'profile', as mvplda profiles add writes"
            )
        vectors = read_vectors(self.path)
        for name in PROFILE_COLUMNS:
            self.columns[name] = [str(value) for value in held.get(name, [""] * len(vectors))]
        extractor = next((str(name) for name in held.get("extractor", ()) if name), None)
        self.vectors = replace(vectors, extractor=extractor)

    @property
    def owners(self) -> list[str]:
        """The profile of every vector."""
        return self.columns["profile"]

    @property
    def extractor(self) -> str | None:
        return self.vectors.extractor

    def all_vectors(self) -> FloatArray:
        if not self.owners:
            raise DataError(
                f"there is no file of profiles {self.path}: make one with mvplda profiles add"
            )
        return self.vectors.X

    def enrolled(self, bundle: Bundle, named: bool = True) -> Profiles:
        """All profiles, for a model; takes that do not fit the others of their profile count less.

        named : with their phrases, where these have names
        """
        weights = recording_weights(self.fits(bundle))
        labels = session_labels(bundle, self.sessions())
        if named:
            labels |= phrase_labels(bundle, self.columns["phrase"])
        return bundle.enrol(self.all_vectors(), self.owners, labels or None, weights=weights)

    def fits(self, bundle: Bundle) -> Array:
        """LLR that every take is of the same speaker as the others of its profile: see `leave_one_out`."""
        return leave_one_out(bundle, self.all_vectors(), self.owners, self.sessions())

    def sessions(self) -> list[str]:
        """That of every vector; those of a profile are of one where none is named."""
        pairs = zip(self.columns["session"], self.owners, strict=True)
        return [session or who for session, who in pairs]

    def counts(self) -> dict[str, int]:
        """Recordings of every profile."""
        return dict(Counter(self.owners))

    def of(self, name: str) -> ExtractedVectors:
        """The vectors of one profile, with their sessions."""
        rows = [row for row, owner in enumerate(self.owners) if owner == name]
        if not rows:
            raise LabelError(
                f"there is no profile {name!r} in {self.path}; there are {', '.join(self.counts()) or 'none'}"
            )
        sessions = self.sessions()
        X = self.vectors.X[rows].astype(np.float32)
        phrases = [self.columns["phrase"][row] for row in rows]
        return ExtractedVectors(X, rows, [], [], [sessions[row] for row in rows], phrases)

    def check(self, extractor: str | None) -> None:
        """Refuse an extractor other than the one that made the profiles."""
        if self.owners and extractor != self.extractor:
            raise DataError(
                f"the profiles in {self.path} are vectors of the extractor {self.extractor or '(not known)'}, the "
                f"extractor given is {extractor or '(not known)'}: take the same, or enrol them again with this one"
            )

    def add(
        self,
        name: str,
        extractor: str | None,
        X: FloatArray,
        marks: Sequence[str],
        session: str | None = None,
        phrase: str = "",
    ) -> None:
        """Add vectors to a profile, which need not be there yet; one that is in it already is an error.

        marks : one text per vector, such as the digest of its recording, by which it is known again
        session : of all these vectors; None: one of its own
        phrase : what is said in all of them; empty: it has no name
        """
        if not name.strip():
            raise LabelError("a profile needs a name")
        self.check(extractor)
        ids = [
            *self.vectors.ids.tolist(),
            *(f"{name}{DIGEST_SEPARATOR}{mark[:12]}" for mark in marks),
        ]
        if len(set(ids)) < len(ids):
            raise LabelError(
                f"a recording of {name!r} is given twice, or is in {self.path} already: nothing was added"
            )
        if self.owners:
            X = np.concatenate([self.vectors.X, X])
        new = {"profile": name, "phrase": phrase, "session": session or marks[0][:12]}
        columns = {key: [*old, *[new[key]] * len(marks)] for key, old in self.columns.items()}
        self.write(VectorSet(np.array(ids), X, extractor), columns)

    def remove(self, name: str) -> int:
        """Take a profile out; how many recordings it had."""
        removed = self.of(name).rows
        kept = np.delete(np.arange(len(self.owners)), removed).tolist()
        if kept:
            vectors = replace(self.vectors, ids=self.vectors.ids[kept], X=self.vectors.X[kept])
            columns = {key: [old[row] for row in kept] for key, old in self.columns.items()}
            self.write(vectors, columns)
        else:
            self.path.unlink()
        return len(removed)

    def write(self, vectors: VectorSet, columns: Mapping[str, Sequence[str]]) -> None:
        """Write vectors, with a profile each and where they are given phrases and sessions, all or nothing."""
        nothing = [""] * len(vectors)
        self.columns = {name: list(columns.get(name, nothing)) for name in PROFILE_COLUMNS}
        arrays = {name: np.array(column, dtype=np.str_) for name, column in self.columns.items()}
        arrays["extractor"] = np.full(len(vectors), vectors.extractor or "")
        with atomic_write(self.path) as (part,), part.open("wb") as file:
            np.savez(file, X=vectors.X, ids=vectors.ids, **arrays)  # type: ignore[arg-type]
        self.vectors = vectors
