"""Voices: a model with its extractor, so that recordings go in and decisions come out; and the file of profiles."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ._typing import Array, FloatArray, IntArray, PathLike
from .bundle import Bundle
from .decisions import Decision, OperatingPoint, Verdict, decide, name_among, wanted_to_name
from .exceptions import (
    DataError,
    FetchError,
    FileFormatError,
    LabelError,
    ParameterError,
)
from .extractors.extractor import Extracted, Extractor, load_extractor
from .extractors.sound import Source
from .io.vectors import VectorSet, read_columns, read_vectors
from .models import BaseScorer
from .models.domain import SITTING
from .persistence import atomic_write, load
from .scoring.profiles import Profiles, sum_evidence
from .scoring.question import Question

MODEL_FILE = "model.safetensors"
PROFILES_FILE = "profiles.npz"
REPORT_FILE = "report.txt"
"""What a folder of `setup` holds."""

DEFAULT_MODEL = Path(__file__).with_name("defaults") / "default.safetensors"
"""The model of the package: of several corpora, in a domain that enrolments tell."""
DEFAULT_EXTRACTORS = ("campplus", "resnet", "words", "sounds")

Recorded = Extracted | PathLike | Iterable[Source]
"""One side of a comparison: a sound file, several, or what was made of them."""

MARK = "#"
"""Between the name of a profile and the digest of a recording of it."""

COLUMNS = ("profile", "phrase", "sitting")
"""Of a file of profiles."""

PHRASE = "phrase"
"""The view of what is said."""

FITTING = 3.0
"""Logarithm of the odds that a take is of the person whose it should be."""

AT_ONCE = 2**22
"""Numbers of evidence of other takes that are held at a time (32 MiB)."""

TAKES_AT_ONCE = 2**8
"""Takes that are compared with others at a time: where sittings have names, their pairs count."""

MOST_OTHERS = 20
"""A take is compared with at most so many others of its profile."""


def file_in(path: PathLike, name: str) -> Path:
    """A file, or the one of this name in a folder that `setup` wrote."""
    place = Path(path)
    return place / name if place.is_dir() else place


def load_model(path: PathLike) -> Bundle:
    """The bundle of a file, or of a folder that `setup` wrote; a scorer alone becomes one."""
    held = load(file_in(path, MODEL_FILE))
    if isinstance(held, Bundle):
        return held
    if not isinstance(held, BaseScorer):
        raise FileFormatError(
            f"{path} holds a {type(held).__name__}; expected a model, such as mvplda train or setup writes"
        )
    return Bundle(None, held)


def default_extractor(names: Sequence[str] = DEFAULT_EXTRACTORS) -> Extractor:
    """The extractors of the default model, or others in their place."""
    try:
        return load_extractor(names)
    except (OSError, FetchError, ParameterError) as error:
        raise ParameterError(
            f"the extractors of the default model are not here ({error}). Fetch them: mvplda extractor get "
            f"{' '.join(names)}"
        ) from error


def default_bundle(extractor: str | None) -> Bundle | None:
    """The model of the package, where these vectors are what it takes; None where they are not."""
    if extractor is None or not DEFAULT_MODEL.is_file():
        return None
    bundle = load_model(DEFAULT_MODEL)
    return bundle if bundle.extractor == extractor else None


@dataclass(frozen=True)
class Ranking:
    """Whose voice a recording is.

    answer : accept where somebody is named, reject where it is more likely none of them, else inconclusive
    named : the profile, or None
    candidates : (profile, LLR, probability) of all, the likeliest first
    none : probability that it is none of them
    calibrated : whether the LLRs are
    point : from which LLR on one of them alone would be named
    """

    answer: Verdict
    named: str | None
    candidates: list[tuple[str, float, float]]
    none: float
    calibrated: bool
    point: OperatingPoint


@dataclass
class VoiceModel:
    """A model and the extractor that makes its vectors of sound."""

    bundle: Bundle
    extractor: Extractor

    def __post_init__(self) -> None:
        self.bundle.check_extractor(self.extractor.name, "the recordings")
        width = self.bundle.width_in
        if self.extractor.dimension != width:
            raise DataError(
                f"the model takes vectors of {width} dimensions, the extractor {self.extractor.name} makes "
                f"{self.extractor.dimension}: the model was trained on other vectors. Name the extractor that made "
                "those (-x), or train a model on vectors of this one (mvplda extract, then mvplda train)"
            )

    @classmethod
    def load(cls, path: PathLike | None = None, extractors: Sequence[str] = ()) -> VoiceModel:
        """A model file or folder with its extractors; they may be left out where the model names them.

        path : None: the model of the package
        """
        if path is None:
            own = load_extractor(extractors) if extractors else default_extractor()
            return cls(load_model(DEFAULT_MODEL), own)
        bundle = load_model(path)
        return cls(bundle, load_extractor(list(extractors) or extractor_names(bundle.extractor)))

    def deployed(self, profiles: ProfileBook) -> VoiceModel:
        """The same in the domain of what is enrolled in a file: see `Bundle.deployed`."""
        if not self.bundle.fitted_scorer.has_domain:
            return self
        return replace(self, bundle=self.bundle.deployed(profiles.enrolled(self.bundle)))

    def side(self, recordings: Recorded) -> Extracted:
        """Vectors and quality of a sound file, or of several; one that cannot be read is an error."""
        if isinstance(recordings, Extracted):
            return recordings
        if isinstance(recordings, (str, os.PathLike)):
            recordings = [recordings]
        return self.extractor.extract(list(recordings))

    def verify(
        self,
        one: Recorded,
        other: Recorded,
        question: Question | None = None,
        **wanted: float | None,
    ) -> Decision:
        """Decide whether two sides, of one or more recordings each, are the same.

        Parameters
        ----------
        one, other : a sound file, several, or what `side` made of them
        question : None: the same in every view?
        wanted : as in `mvplda.decisions.point_for`, such as far=0.001; nothing: the model's own threshold
        """
        sides = [self.side(one), self.side(other)]
        enrolled, tested = (_as_profile(self.bundle, side, str(i)) for i, side in enumerate(sides))
        answer = self.bundle.answer(enrolled, tested, question).take(0, 0)
        quality = [one for side in sides for one in side.qualities]
        point = self.bundle.point(question, enrolled, **wanted)
        return decide(answer, point, quality=quality)

    def point(
        self, enrolled: Recorded, question: Question | None = None, **wanted: float | None
    ) -> OperatingPoint:
        """Where `verify` decides about a profile."""
        profile = _as_profile(self.bundle, self.side(enrolled), "0")
        return self.bundle.point(question, profile, **wanted)

    def identify(
        self,
        test: Recorded,
        profiles: ProfileBook,
        question: Question | None = None,
        **wanted: float | None,
    ) -> Ranking:
        """Whose voice it is, of the profiles of a file; the model is deployed in their domain.

        question : None: the same speaker?
        wanted : for one profile, as in `verify`
        """
        side = self.side(test)
        bundle = self.deployed(profiles).bundle
        asked = question or speaker_question(bundle)
        enrolled = profiles.enrolled(bundle, named=False)
        answer = bundle.answer(enrolled, _as_profile(bundle, side, "test"), asked)
        llrs = answer.llr[:, 0]
        wanted = wanted_to_name(bundle.operating_points(asked), **wanted)
        point = bundle.point(asked, enrolled, **wanted)
        naming = name_among(llrs, point, doubt=bundle.doubt(asked))
        names = [str(name) for name in enrolled.ids]
        verdict: Verdict = "reject" if naming.none > 0.5 else "inconclusive"
        named = None
        if not all(quality.usable for quality in side.qualities):
            verdict = "inconclusive"
        elif naming.best is not None:
            verdict = "accept"
            named = names[naming.best]
        candidates = [
            (names[i], float(llrs[i]), float(naming.probabilities[i]))
            for i in np.argsort(-llrs, kind="stable")
        ]
        return Ranking(verdict, named, candidates, naming.none, answer.calibrated, point)


def _as_profile(bundle: Bundle, side: Extracted, name: str) -> Profiles:
    """One profile of all vectors of a side, which are of one sitting where none are named."""
    names = [name] * len(side.X)
    labels = sitting_labels(bundle, side.sittings or names) | phrase_labels(bundle, side.phrases)
    return bundle.enrol(side.X, names, labels or None)


def sitting_labels(bundle: Bundle, sittings: ArrayLike) -> dict[str, ArrayLike]:
    """Labels of vectors by their sittings; none for a model that has no such view."""
    return {SITTING: sittings} if SITTING in bundle.forms().base else {}


def phrase_labels(bundle: Bundle, phrases: Sequence[str]) -> dict[str, ArrayLike]:
    """Labels of vectors by their phrases; none where no phrase is named, or for a model of voices."""
    if not any(phrases) or PHRASE not in bundle.views:
        return {}
    return {PHRASE: np.array([phrase or None for phrase in phrases], dtype=object)}


def leave_one_out(
    bundle: Bundle, X: FloatArray, owners: Sequence[str], sittings: Sequence[str]
) -> Array:
    """(n,) LLR that each take is of the same speaker as the others of its owner; NaN where there are none."""
    fits = np.full(len(X), np.nan)
    others = _others_of_owner(owners)
    tested = np.array([row for row, rest in enumerate(others) if len(rest)], dtype=np.int64)
    if not len(tested):
        return fits
    # a vector is in the sums of many others: its evidence is made once
    y = bundle.evidence(X)
    recorded = np.asarray(sittings)
    question = speaker_question(bundle)
    labelled = bool(sitting_labels(bundle, recorded))

    def enrol(rows: IntArray, owner: IntArray) -> Profiles:
        labels = sitting_labels(bundle, recorded[rows]) if labelled else None
        return sum_evidence(y[rows], owner, labels, bundle.forms().base, bundle._key())

    # a few at a time: the evidence of all others of all takes would not fit into memory
    counts = np.array([len(others[row]) for row in tested])
    at_once = max(1, AT_ONCE // y.shape[1])
    part = counts.cumsum() // at_once + np.arange(len(tested)) // TAKES_AT_ONCE
    for some in np.split(tested, np.flatnonzero(np.diff(part)) + 1):
        rest = np.concatenate([others[row] for row in some])
        each = np.repeat(some, [len(others[row]) for row in some])
        pairs = np.arange(len(some))[:, None].repeat(2, axis=1)
        answer = bundle.answer(enrol(rest, each), enrol(some, some), question, pairs)
        fits[some] = answer.llr
    return fits


def _others_of_owner(owners: Sequence[str]) -> list[IntArray]:
    """For each take, the rows of the first few other takes of its owner."""
    rows_of: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows_of.setdefault(owner, []).append(row)
    # one more than are compared, for the take itself may be among them
    first = {owner: np.array(rows[: MOST_OTHERS + 1]) for owner, rows in rows_of.items()}
    return [first[owner][first[owner] != row][:MOST_OTHERS] for row, owner in enumerate(owners)]


def take_weights(fits: Array) -> Array:
    """(n,) how much takes count that fit the others so well: 1, or less down to a tenth; few different values."""
    chance = 1.0 / (1.0 + np.exp(-np.nan_to_num(fits, nan=np.inf) - FITTING))
    return np.maximum(np.round(chance, 1), 0.1)


def speaker_question(bundle: Bundle) -> Question:
    """Whether the speaker is the same, whatever the other views are."""
    return Question("speaker" if "speaker" in bundle.views else None)


def extractor_names(noted: str | None) -> list[str]:
    """Names by which the extractors of a model are loaded; without a note, those of the default model."""
    if noted is None:
        return list(DEFAULT_EXTRACTORS)
    return [part.rpartition("-")[0] or part for part in noted.split("+")]


class ProfileBook:
    """Named voices in an ``.npz`` file: every recording's own vector, so that any model can score them.

    The file holds, by vector, ``X``, ``ids`` (profile and digest of the recording), ``profile``, ``phrase`` and
    ``sitting`` (empty where they have no name) and ``extractor``.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = file_in(path, PROFILES_FILE)
        self.vectors = VectorSet(np.empty(0, np.str_), np.empty((0, 0), np.float32))
        self.columns: dict[str, list[str]] = {name: [] for name in COLUMNS}
        """Of every vector its profile, and what is said and the sitting, where these have names."""
        if self.path.suffix != ".npz":
            raise ParameterError(
                f"profiles are kept in an .npz file, or in a folder; got {self.path}"
            )
        if not self.path.is_file():
            return
        held = read_columns(self.path, (*COLUMNS, "extractor"))
        if "profile" not in held:
            raise FileFormatError(
                f"{self.path} is no file of profiles: it has no array 'profile', as mvplda profiles add writes"
            )
        vectors = read_vectors(self.path)
        for name in COLUMNS:
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
        weights = take_weights(self.fits(bundle))
        labels = sitting_labels(bundle, self.sittings())
        if named:
            labels |= phrase_labels(bundle, self.columns["phrase"])
        return bundle.enrol(self.all_vectors(), self.owners, labels or None, weights=weights)

    def fits(self, bundle: Bundle) -> Array:
        """LLR that every take is of the same speaker as the others of its profile: see `leave_one_out`."""
        return leave_one_out(bundle, self.all_vectors(), self.owners, self.sittings())

    def sittings(self) -> list[str]:
        """That of every vector; those of a profile are of one where none is named."""
        pairs = zip(self.columns["sitting"], self.owners, strict=True)
        return [sitting or who for sitting, who in pairs]

    def counts(self) -> dict[str, int]:
        """Recordings of every profile."""
        return dict(Counter(self.owners))

    def of(self, name: str) -> Extracted:
        """The vectors of one profile, with their sittings."""
        rows = [row for row, owner in enumerate(self.owners) if owner == name]
        if not rows:
            raise LabelError(
                f"there is no profile {name!r} in {self.path}; there are {', '.join(self.counts()) or 'none'}"
            )
        sittings = self.sittings()
        X = self.vectors.X[rows].astype(np.float32)
        phrases = [self.columns["phrase"][row] for row in rows]
        return Extracted(X, rows, [], [], [sittings[row] for row in rows], phrases)

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
        sitting: str | None = None,
        phrase: str = "",
    ) -> None:
        """Add vectors to a profile, which need not be there yet; one that is in it already is an error.

        marks : one text per vector, such as the digest of its recording, by which it is known again
        sitting : of all these vectors; None: one of its own
        phrase : what is said in all of them; empty: it has no name
        """
        if not name.strip():
            raise LabelError("a profile needs a name")
        self.check(extractor)
        ids = [*self.vectors.ids.tolist(), *(f"{name}{MARK}{mark[:12]}" for mark in marks)]
        if len(set(ids)) < len(ids):
            raise LabelError(
                f"a recording of {name!r} is given twice, or is in {self.path} already: nothing was added"
            )
        if self.owners:
            X = np.concatenate([self.vectors.X, X])
        new = {"profile": name, "phrase": phrase, "sitting": sitting or marks[0][:12]}
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
        """Write vectors, with a profile each and where they are given phrases and sittings, all or nothing."""
        nothing = [""] * len(vectors)
        self.columns = {name: list(columns.get(name, nothing)) for name in COLUMNS}
        arrays = {name: np.array(column, dtype=np.str_) for name, column in self.columns.items()}
        arrays["extractor"] = np.full(len(vectors), vectors.extractor or "")
        with atomic_write(self.path) as (part,), part.open("wb") as file:
            np.savez(file, X=vectors.X, ids=vectors.ids, **arrays)  # type: ignore[arg-type]
        self.vectors = vectors
