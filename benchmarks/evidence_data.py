"""Data sets of the study `benchmarks.evidence`: vectors with two labels, and divisions into training and test people.

Vectors of several networks are concatenated; each block is centred on the training people and scaled to unit length.
The vectors of WUW, Arabic and DSPSpeech are extracted from sound once, with the networks ``campplus`` and ``words``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.studies.beyond_speech import face_vectors
from mvplda.metrics import trial_kinds
from mvplda.preprocessing import unit_chain

Array = np.ndarray

EXTRACTORS = {"voice": "campplus", "words": "words"}
"""Blocks of the vectors of speech, and the networks that extract them."""
SPLITS = 5
MAX_TRIALS = 30_000
"""Largest number of trials per kind and split; errors are weighted to the number of all trials."""
MAX_CALLS = 4
"""Largest number of calls per person: a few people called up to ten times."""


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors of two labels.

    blocks : {network: (n, width) vectors}
    person, second : (n,) labels, such as speaker and phrase
    take : (n,) order of the vectors of a cell
    enrols, tests : (n,) masks of the vectors that may be enrolled and tested; a cell enrols its first takes
    enrolment : vectors per profile
    people : people who may be tested
    training : number of training people among `people`; all other people train too
    is_unit : whether blocks are scaled to unit length
    fixed : training people of the only division, for vectors of a network that was trained on them
    """

    blocks: dict[str, Array]
    person: Array
    second: Array
    take: Array
    enrolment: int
    training: int
    enrols: Array | None = None
    tests: Array | None = None
    people: Array | None = None
    is_unit: bool = True
    fixed: tuple[str, ...] = ()
    names: tuple[str, str] = ("speaker", "phrase")

    @property
    def cell(self) -> Array:
        """Combined label of each vector."""
        joined = [f"{a}|{b}" for a, b in zip(self.person, self.second, strict=True)]
        return np.array(joined)

    def select(self, rows: Array) -> LabelledVectors:
        """Return some of the vectors."""
        blocks = {name: block[rows] for name, block in self.blocks.items()}
        columns = {
            name: None if column is None else column[rows]
            for name, column in (("enrols", self.enrols), ("tests", self.tests))
        }
        labels = {name: getattr(self, name)[rows] for name in ("person", "second", "take")}
        return replace(self, blocks=blocks, **labels, **columns)


@dataclass(frozen=True)
class Split:
    """A division by people: training vectors, profiles, tests and a sample of their trials.

    X : (n, width) all vectors, preprocessed with the training people
    labels : {"person": (n,), "second": (n,)} labels
    train : (n,) mask
    enrol : rows of the enrolled vectors; ids : profile number of each; profiles : first row of each profile
    test : rows of the tests
    pairs : (m, 2) numbers of the profile and the test of each trial
    kinds : {kind: (m,) mask of the trials}
    weights : {kind: number of trials that each sampled trial represents}
    people : numbers of the enrolled and of the tested person of each trial, the same in all divisions
    """

    X: Array
    labels: dict[str, Array]
    blocks: dict[str, int]
    enrolment: int
    train: Array
    enrol: Array
    ids: Array
    profiles: Array
    test: Array
    pairs: Array
    kinds: dict[str, Array]
    weights: dict[str, float]
    people: tuple[Array, Array]
    trials: dict[str, int] = field(default_factory=dict)

    @property
    def train_labels(self) -> dict[str, Array]:
        """Labels of the training vectors."""
        return {view: column[self.train] for view, column in self.labels.items()}

    def restricted(self, kinds: Sequence[str]) -> Split:
        """Return the split with the trials of some kinds only."""
        rows = np.any([self.kinds[kind] for kind in kinds], axis=0)
        return replace(
            self,
            pairs=self.pairs[rows],
            kinds={kind: self.kinds[kind][rows] for kind in kinds},
            people=(self.people[0][rows], self.people[1][rows]),
        )


def split_people(data: LabelledVectors, seed: int) -> Array:
    """Return the mask of the training vectors of one division."""
    if data.fixed:
        return np.isin(data.person, data.fixed)
    people = np.unique(data.person) if data.people is None else data.people
    drawn = np.random.default_rng(seed).permutation(people)
    return ~np.isin(data.person, drawn[data.training :])


def make_split(
    data: LabelledVectors, seed: int, train: Array | None = None, tested: Array | None = None
) -> Split:
    """Divide the people into training and test people, and sample trials among the test people.

    train : (n,) mask of training vectors; None draws the training people at random
    tested : (n,) mask of vectors that may be enrolled or tested; None for all but the training vectors
    """
    train = split_people(data, seed) if train is None else train
    others = ~train if tested is None else tested & ~train
    cells = np.unique(data.cell, return_inverse=True)[1]
    enrol, test = _enrolments(data, others, cells)
    ids = np.unique(cells[enrol], return_inverse=True)[1]
    profiles = enrol[np.unique(ids, return_index=True)[1]]
    labels = {"person": data.person, "second": data.second}
    masks = trial_kinds(
        {view: column[profiles] for view, column in labels.items()},
        {view: column[test] for view, column in labels.items()},
    )
    pairs, kinds, weights = _sampled(masks, seed)
    numbers = np.unique(data.person, return_inverse=True)[1]
    return Split(
        X=preprocessed(data, train),
        labels=labels,
        blocks={name: block.shape[1] for name, block in data.blocks.items()},
        enrolment=data.enrolment,
        train=train,
        enrol=enrol,
        ids=ids,
        profiles=profiles,
        test=test,
        pairs=pairs,
        kinds=kinds,
        weights=weights,
        people=(numbers[profiles][pairs[:, 0]], numbers[test][pairs[:, 1]]),
        trials={kind: int(np.count_nonzero(mask)) for kind, mask in masks.items()},
    )


def _enrolments(data: LabelledVectors, others: Array, cells: Array) -> tuple[Array, Array]:
    """Return the rows of enrolled vectors, profile after profile, and of tests."""
    may_enrol = others if data.enrols is None else others & data.enrols
    may_test = others if data.tests is None else others & data.tests
    rows = np.flatnonzero(may_enrol)
    rows = rows[np.lexsort((data.take[rows], cells[rows]))]
    rank = np.arange(len(rows)) - np.searchsorted(cells[rows], cells[rows])
    enrol = rows[rank < data.enrolment]
    # a cell with too few takes has no profile
    sizes = np.bincount(cells[enrol], minlength=cells.max() + 1)
    enrol = enrol[sizes[cells[enrol]] == data.enrolment]
    return enrol, np.setdiff1d(np.flatnonzero(may_test), rows[rank < data.enrolment])


def _sampled(
    masks: Mapping[str, Array], seed: int
) -> tuple[Array, dict[str, Array], dict[str, float]]:
    """Draw at most `MAX_TRIALS` trials of each kind."""
    rng = np.random.default_rng(seed)
    drawn, weights = {}, {}
    for kind, mask in masks.items():
        positions = np.flatnonzero(mask)
        count = len(positions)
        if count > MAX_TRIALS:
            positions = np.sort(rng.choice(positions, MAX_TRIALS, replace=False))
        drawn[kind] = positions
        weights[kind] = max(1, count) / max(1, len(positions))
    columns = next(iter(masks.values())).shape[1]
    pairs = np.stack(np.divmod(np.concatenate(list(drawn.values())), columns), axis=1)
    names = np.repeat(list(drawn), [len(positions) for positions in drawn.values()])
    return pairs, {kind: names == kind for kind in drawn}, weights


def preprocessed(data: LabelledVectors, train: Array) -> Array:
    """Return all vectors; blocks of networks are centred on the training vectors and scaled to unit length."""
    blocks = list(data.blocks.values())
    if data.is_unit:
        blocks = [unit_chain().fit(block[train]).transform(block) for block in blocks]
    return np.concatenate(blocks, axis=1).astype(np.float64)


# Data sets.


def _speech(
    arrays: Mapping[str, Array], rows: Array, blocks: Mapping[str, str]
) -> dict[str, Array]:
    return {name: arrays[column][rows].astype(np.float64) for name, column in blocks.items()}


NPZ_BLOCKS = {"voice": "camp", "words": "words"}


def cvau(data: Path, work: Path) -> LabelledVectors:
    """Pass-phrases: three takes of one session enrol, another session, months later, is tested."""
    arrays = dict(np.load(data / "cvau.npz"))
    rows = arrays["phrase"] != ""
    person, session = arrays["speaker"][rows], arrays["session"][rows]
    both = np.intersect1d(person[session == "2014-11"], person[session == "angles"])
    return LabelledVectors(
        _speech(arrays, rows, NPZ_BLOCKS),
        person,
        arrays["phrase"][rows],
        arrays["take"][rows],
        enrolment=3,
        training=15,
        enrols=session == "2014-11",
        tests=session == "angles",
        people=both,
    )


def speech_commands(data: Path, work: Path) -> LabelledVectors:
    """Single words of 1,100 people: 500 train, 600 are tested."""
    arrays = dict(np.load(data / "speech_commands.npz"))
    every = slice(None)
    return LabelledVectors(
        _speech(arrays, every, NPZ_BLOCKS),
        arrays["speaker"],
        arrays["phrase"],
        arrays["take"],
        enrolment=1,
        training=500,
    )


def audiomnist(data: Path, work: Path) -> LabelledVectors:
    """English digits of 60 people by public networks."""
    arrays = dict(np.load(data / "audiomnist_embeddings.npz"))
    arrays["camp"] = np.load(data / "audiomnist_campplus.npz")["voice"]
    return LabelledVectors(
        _speech(arrays, slice(None), NPZ_BLOCKS), **_digits(data), enrolment=3, training=40
    )


def jvectors(data: Path, work: Path) -> LabelledVectors:
    """The same digits by a network that was trained on 40 of the people and on the digits."""
    arrays = dict(np.load(data / "audiomnist_jvectors.npz"))
    digits = _digits(data)
    trained = tuple(str(name) for name in arrays["training_speakers"])
    known = set(np.unique(digits["person"]).tolist())
    # the archive writes numbers as it likes
    fixed = tuple(name if name in known else name.zfill(2) for name in trained)
    return LabelledVectors(
        {"j-vectors": arrays["X"].astype(np.float64)},
        **digits,
        enrolment=3,
        training=40,
        is_unit=False,
        fixed=fixed,
    )


def _digits(data: Path) -> dict[str, Array]:
    with (data / "audiomnist/index.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = {"person": "speaker", "second": "phrase", "take": "session"}
    labels = {name: np.array([row[column] for row in rows]) for name, column in columns.items()}
    return {**labels, "take": labels["take"].astype(np.int64)}


def wuw(data: Path, work: Path) -> LabelledVectors:
    """Wake words by telephone: the first call enrols, later calls on other days are tested."""
    with (data / "wuw/index.csv").open(newline="") as stream:
        listed = [row for row in csv.DictReader(stream) if row["phrase"]]
    X, rows = extracted([data / "wuw" / row["file"] for row in listed], work / "wuw.npz")
    listed = [listed[row] for row in rows]
    person = np.array([row["speaker"] for row in listed])
    call = np.array([f"{row['date']} {row['session']}" for row in listed])
    number = np.zeros(len(listed), dtype=np.int64)
    for name in np.unique(person):
        own = person == name
        number[own] = np.unique(call[own], return_inverse=True)[1]
    people = np.unique(person[number > 0])
    chosen = number < MAX_CALLS
    vectors = LabelledVectors(
        X,
        person,
        np.array([row["phrase"] for row in listed]),
        number,
        enrolment=1,
        training=len(people) // 2,
        enrols=number == 0,
        tests=number > 0,
        people=people,
    )
    return vectors.select(chosen)


def sound_folder(
    data: Path, work: Path, *, name: str, enrolment: int, training: int
) -> LabelledVectors:
    """Words in files <person>/<word>/<take>.flac."""
    files = sorted((data / name).glob("*/*/*.flac"))
    X, rows = extracted(files, work / f"{name}.npz")
    parts = [files[row].relative_to(data / name).with_suffix("").parts for row in rows]
    person, word, take = (np.array(column) for column in zip(*parts, strict=True))
    return LabelledVectors(X, person, word, take, enrolment=enrolment, training=training)


def extracted(files: Sequence[Path], cache: Path) -> tuple[dict[str, Array], Array]:
    """Return the vectors of sound files by network, and the row of each; they are stored in `cache`."""
    if not cache.is_file():
        from mvplda.voice.extractors import load_extractor

        cache.parent.mkdir(parents=True, exist_ok=True)
        extractor = load_extractor(list(EXTRACTORS.values()))
        found = extractor.extract(list(files), on_error="skip", progress=True)
        spans = dict(zip(EXTRACTORS, extractor.blocks.values(), strict=True))
        blocks = {name: found.X[:, start:end] for name, (start, end) in spans.items()}
        np.savez(cache, rows=np.array(found.rows), **blocks)
    stored = np.load(cache)
    return {name: stored[name].astype(np.float64) for name in EXTRACTORS}, stored["rows"]


def digilets(data: Path, work: Path) -> LabelledVectors:
    """Handwriting: 77 writers, 62 characters, five takes."""
    arrays = np.load(data / "digilets.npz")
    return LabelledVectors(
        {"features": arrays["X"].astype(np.float64)},
        arrays["writer"].astype(str),
        arrays["character"].astype(str),
        arrays["take"].astype(np.int64),
        enrolment=3,
        training=47,
        is_unit=False,
        names=("writer", "character"),
    )


def faces(data: Path, work: Path) -> LabelledVectors:
    """Faces: 20 people in four poses."""
    X, labels, take = face_vectors(data)
    return LabelledVectors(
        {"pixels": X},
        labels["person"].astype(str),
        labels["pose"].astype(str),
        take,
        enrolment=3,
        training=13,
        is_unit=False,
        names=("person", "pose"),
    )


@dataclass(frozen=True)
class DataSet:
    """A data set: its title, largest number of principal components, files that it reads, and how to read it."""

    title: str
    components: int
    files: tuple[str, ...]
    read: Callable[[Path, Path], LabelledVectors]


DATA_SETS = {
    "cvau": DataSet("C-VAU, pass-phrases months apart", 150, ("cvau.npz",), cvau),
    "speech-commands": DataSet(
        "Speech Commands, 500 training people", 150, ("speech_commands.npz",), speech_commands
    ),
    "digilets": DataSet("DigiLeTs, handwriting", 80, ("digilets.npz",), digilets),
    "faces": DataSet("CMU faces by pose", 40, ("cmu_faces.npz",), faces),
    "wuw": DataSet("WUW, words by telephone", 150, ("wuw",), wuw),
    "audiomnist": DataSet(
        "AudioMNIST, public networks",
        150,
        ("audiomnist_embeddings.npz", "audiomnist_campplus.npz"),
        audiomnist,
    ),
    "jvectors": DataSet(
        "AudioMNIST, j-vectors (one division)", 150, ("audiomnist_jvectors.npz",), jvectors
    ),
    "arabic": DataSet(
        "Arabic words",
        150,
        ("arabic",),
        partial(sound_folder, name="arabic", enrolment=3, training=8),
    ),
    "dspspeech": DataSet(
        "DSPSpeech words",
        150,
        ("dspspeech",),
        partial(sound_folder, name="dspspeech", enrolment=2, training=9),
    ),
}
