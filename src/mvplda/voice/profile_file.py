"""File of named profiles with the vector of each recording, so that any model of these vectors can score them."""

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
"""Separator in the id of a vector, between the name of its profile and the digest of its recording."""

PROFILE_COLUMNS = ("profile", "phrase", "session")
"""Names of the arrays in a file of profiles with one text per vector."""


class ProfileBook:
    """Named profiles in an ``.npz`` file, with one vector per recording.

    The file has the arrays ``X`` with the vectors, ``ids`` (profile and digest of each recording), ``profile``,
    ``phrase`` and ``session`` (empty if they have no name) and ``extractor``.

    Parameters
    ----------
    path : .npz file, or folder of a model with profiles; a missing file has no profiles

    Attributes
    ----------
    path : the .npz file
    vectors : ids and vectors of all recordings
    columns : {"profile", "phrase" and "session": text per vector}; "" for a phrase or session without a name
    """

    def __init__(self, path: PathLike) -> None:
        self.path = file_in_folder(path, PROFILES_FILE)
        self.vectors = VectorSet(np.empty(0, np.str_), np.empty((0, 0), np.float32))
        self.columns: dict[str, list[str]] = {name: [] for name in PROFILE_COLUMNS}
        if self.path.suffix != ".npz":
            raise ParameterError(f"expected an .npz file or a folder for profiles; got {self.path}")
        if not self.path.is_file():
            return
        stored = read_columns(self.path, (*PROFILE_COLUMNS, "extractor"))
        if "profile" not in stored:
            raise FileFormatError(
                f"{self.path} is not a file of profiles, because it has no array 'profile': make one with `mvplda "
                "profiles add`"
            )
        vectors = read_vectors(self.path)
        for name in PROFILE_COLUMNS:
            self.columns[name] = [str(value) for value in stored.get(name, [""] * len(vectors))]
        extractor = next((str(name) for name in stored.get("extractor", ()) if name), None)
        self.vectors = replace(vectors, extractor=extractor)

    @property
    def owners(self) -> list[str]:
        """Name of each vector's profile, (n,)."""
        return self.columns["profile"]

    @property
    def extractor(self) -> str | None:
        """Name of the extractor that computed the vectors; None if it is unknown."""
        return self.vectors.extractor

    def all_vectors(self) -> FloatArray:
        """Return the (n, D) vectors of all profiles; raise `DataError` if there are none."""
        if not self.owners:
            raise DataError(
                f"the file of profiles {self.path} does not exist: make one with `mvplda profiles add`"
            )
        return self.vectors.X

    def enrolled(self, bundle: Bundle, with_phrases: bool = True) -> Profiles:
        """Enrol all profiles in a model.

        Recordings that do not match the others of their profile have less weight, see `recording_weights`.

        Parameters
        ----------
        bundle : model
        with_phrases : whether vectors are labelled with the names of their phrases
        """
        weights = recording_weights(self.fits(bundle))
        labels = session_labels(bundle, self.sessions())
        if with_phrases:
            labels |= phrase_labels(bundle, self.columns["phrase"])
        return bundle.enrol(self.all_vectors(), self.owners, labels or None, weights=weights)

    def fits(self, bundle: Bundle) -> Array:
        """Return the (n,) LLR of each recording against the others of its profile; NaN if there are no others."""
        return leave_one_out(bundle, self.all_vectors(), self.owners, self.sessions())

    def sessions(self) -> list[str]:
        """Return the session of each vector; those without a name belong to one session per profile."""
        pairs = zip(self.columns["session"], self.owners, strict=True)
        return [session or owner for session, owner in pairs]

    def counts(self) -> dict[str, int]:
        """Return {name of a profile: number of its recordings}."""
        return dict(Counter(self.owners))

    def of(self, name: str, phrase: str | None = None) -> ExtractedVectors:
        """Return the vectors of one profile with their sessions and phrases.

        Parameters
        ----------
        name : name of the profile
        phrase : name of the phrase to which recordings are restricted; None: all recordings

        Raises
        ------
        LabelError
            There is no such profile or phrase.
        """
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
        """Raise `DataError` if the vectors in the file were computed by another extractor than the given one."""
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
        """Add the vectors of recordings to a profile, which is created if it does not exist, and write the file.

        Parameters
        ----------
        name : name of the profile
        extractor : name of the extractor of the vectors
        X : (n, D) vectors
        marks : (n,) texts that identify the recordings, such as hashes of the samples
        session : name of the session in which all were recorded; None: a new session
        phrase : name of the phrase in all recordings; empty: no name

        Raises
        ------
        LabelError
            The name is empty, or a recording is in the file already; nothing is added then.
        DataError
            The file has vectors of another extractor.
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
                f"a recording of {name!r} was passed twice, or is in {self.path} already: nothing was added. Pass each "
                "recording once"
            )
        if self.owners:
            X = np.concatenate([self.vectors.X, X])
        new = {"profile": name, "phrase": phrase, "session": session or marks[0][:12]}
        columns = {key: [*column, *[new[key]] * len(marks)] for key, column in self.columns.items()}
        self.write(VectorSet(np.array(ids), X, extractor), columns)

    def remove(self, *names: str) -> None:
        """Remove the profiles with the given names; if no profile is left, delete the file.

        Raises
        ------
        LabelError
            A name has no profile; nothing is removed then.
        """
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
        """Replace the contents of the file; if writing fails, the old file stays.

        Parameters
        ----------
        vectors : ids and vectors of all recordings
        columns : {"profile", "phrase" or "session": text per vector}; the texts of a missing column
            are ""
        """
        unnamed = [""] * len(vectors)
        self.columns = {name: list(columns.get(name, unnamed)) for name in PROFILE_COLUMNS}
        arrays = {name: np.array(column, dtype=np.str_) for name, column in self.columns.items()}
        arrays["extractor"] = np.full(len(vectors), vectors.extractor or "")
        with atomic_write(self.path) as (temporary,), temporary.open("wb") as file:
            np.savez(file, X=vectors.X, ids=vectors.ids, **arrays)  # type: ignore[arg-type]
        self.vectors = vectors
