"""File of named profiles: the vector of each recording, so that any model can score them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .._typing import Array, FloatArray, PathLike
from ..atomic_files import atomic_write
from ..bundle import Bundle
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..io.vectors import VectorSet, read_columns, read_vectors
from ..model_files import PROFILES_FILE, file_in_folder
from ..scoring.profiles import Profiles
from .evidence import leave_one_out, phrase_labels, recording_weights, session_labels
from .extractors.extractor import ExtractedVectors

DIGEST_SEPARATOR = "#"
"""Separator in ids between the name of a profile and the digest of a recording."""

PROFILE_COLUMNS = ("profile", "phrase", "session")
"""Columns of a file of profiles beside its vectors."""


class ProfileBook:
    """Named profiles in an ``.npz`` file, with one vector per recording.

    The file holds, per vector, ``X``, ``ids`` (profile and digest of the recording), ``profile``, ``phrase`` and
    ``session`` (empty without a name) and ``extractor``.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = file_in_folder(path, PROFILES_FILE)
        self.vectors = VectorSet(np.empty(0, np.str_), np.empty((0, 0), np.float32))
        self.columns: dict[str, list[str]] = {name: [] for name in PROFILE_COLUMNS}
        """Profile, phrase and session of each vector; phrase and session are empty without a name."""
        if self.path.suffix != ".npz":
            raise ParameterError(f"expected an .npz file or a folder for profiles; got {self.path}")
        if not self.path.is_file():
            return
        stored = read_columns(self.path, (*PROFILE_COLUMNS, "extractor"))
        if "profile" not in stored:
            raise FileFormatError(
                f"{self.path} is not a file of profiles: it has no array 'profile'. Make one with mvplda profiles add"
            )
        vectors = read_vectors(self.path)
        for name in PROFILE_COLUMNS:
            self.columns[name] = [str(value) for value in stored.get(name, [""] * len(vectors))]
        extractor = next((str(name) for name in stored.get("extractor", ()) if name), None)
        self.vectors = replace(vectors, extractor=extractor)

    @property
    def owners(self) -> list[str]:
        """Name of each vector's profile."""
        return self.columns["profile"]

    @property
    def extractor(self) -> str | None:
        """Name of the extractor of the vectors."""
        return self.vectors.extractor

    def all_vectors(self) -> FloatArray:
        """Vectors of all profiles; an empty file is an error."""
        if not self.owners:
            raise DataError(
                f"the file of profiles {self.path} does not exist: make one with mvplda profiles add"
            )
        return self.vectors.X

    def enrolled(self, bundle: Bundle, with_phrases: bool = True) -> Profiles:
        """Enrol all profiles in a model; recordings that do not match their profile are down-weighted.

        with_phrases : label vectors with their phrases, if these have names
        """
        weights = recording_weights(self.fits(bundle))
        labels = session_labels(bundle, self.sessions())
        if with_phrases:
            labels |= phrase_labels(bundle, self.columns["phrase"])
        return bundle.enrol(self.all_vectors(), self.owners, labels or None, weights=weights)

    def fits(self, bundle: Bundle) -> Array:
        """Return the LLR of each recording against the others of its profile, (n,); see `leave_one_out`."""
        return leave_one_out(bundle, self.all_vectors(), self.owners, self.sessions())

    def sessions(self) -> list[str]:
        """Session of each vector; vectors without a session name belong to one session per profile."""
        pairs = zip(self.columns["session"], self.owners, strict=True)
        return [session or owner for session, owner in pairs]

    def counts(self) -> dict[str, int]:
        """Number of recordings of each profile."""
        return dict(Counter(self.owners))

    def of(self, name: str, phrase: str | None = None) -> ExtractedVectors:
        """Return the vectors of one profile, with their sessions and phrases; all phrases, or a single one."""
        rows = [row for row, owner in enumerate(self.owners) if owner == name]
        if not rows:
            raise LabelError(
                f"there is no profile {name!r} in {self.path}; expected one of: "
                f"{', '.join(self.counts()) or '(it is empty)'}"
            )
        if phrase is not None:
            enrolled = dict.fromkeys(self.columns["phrase"][row] for row in rows)
            rows = [row for row in rows if self.columns["phrase"][row] == phrase]
            if not rows:
                named = ", ".join(filter(None, enrolled)) or "(its phrases have no names)"
                raise LabelError(
                    f"the profile {name!r} in {self.path} has no phrase {phrase!r}; expected one of: {named}"
                )
        sessions = self.sessions()
        X = self.vectors.X[rows].astype(np.float32)
        phrases = [self.columns["phrase"][row] for row in rows]
        return ExtractedVectors(X, rows, [], [], [sessions[row] for row in rows], phrases)

    def check(self, extractor: str | None) -> None:
        """Raise an error if the profiles come from another extractor."""
        if self.owners and extractor != self.extractor:
            raise DataError(
                f"the profiles in {self.path} are vectors of the extractor {self.extractor or '(unknown)'}; got "
                f"{extractor or '(unknown)'}: use the same, or enrol the profiles again with this one"
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
        """Add vectors to a profile, which is created if it does not exist; repeated recordings are an error.

        marks : text per vector that identifies its recording, such as a digest
        session : of all these vectors; None: a new one
        phrase : name of the phrase of all these vectors; empty: no name
        """
        if not name.strip():
            raise LabelError("expected a name for the profile; got an empty one")
        self.check(extractor)
        ids = [
            *self.vectors.ids.tolist(),
            *(f"{name}{DIGEST_SEPARATOR}{mark[:12]}" for mark in marks),
        ]
        if len(set(ids)) < len(ids):
            raise LabelError(
                f"a recording of {name!r} is given twice or is in {self.path} already: nothing was added"
            )
        if self.owners:
            X = np.concatenate([self.vectors.X, X])
        new = {"profile": name, "phrase": phrase, "session": session or marks[0][:12]}
        columns = {key: [*column, *[new[key]] * len(marks)] for key, column in self.columns.items()}
        self.write(VectorSet(np.array(ids), X, extractor), columns)

    def remove(self, *names: str) -> None:
        """Remove profiles, all or none; removing the last profile deletes the file."""
        removed = [row for name in names for row in self.of(name).rows]
        remaining = np.delete(np.arange(len(self.owners)), removed).tolist()
        if remaining:
            vectors = replace(
                self.vectors, ids=self.vectors.ids[remaining], X=self.vectors.X[remaining]
            )
            columns = {
                key: [column[row] for row in remaining] for key, column in self.columns.items()
            }
            self.write(vectors, columns)
        else:
            self.path.unlink()

    def write(self, vectors: VectorSet, columns: Mapping[str, Sequence[str]]) -> None:
        """Write vectors with their profiles, and phrases and sessions if given, all or nothing."""
        unnamed = [""] * len(vectors)
        self.columns = {name: list(columns.get(name, unnamed)) for name in PROFILE_COLUMNS}
        arrays = {name: np.array(column, dtype=np.str_) for name, column in self.columns.items()}
        arrays["extractor"] = np.full(len(vectors), vectors.extractor or "")
        with atomic_write(self.path) as (part,), part.open("wb") as file:
            np.savez(file, X=vectors.X, ids=vectors.ids, **arrays)  # type: ignore[arg-type]
        self.vectors = vectors
