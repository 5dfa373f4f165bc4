"""Scores of lists of trials, or of all pairs of models and tests: in one process, or in shards on several workers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._progress import Progress
from .._typing import FloatArray
from ..backend import one_blas_thread
from ..bundle import Bundle
from ..coded import Coded
from ..exceptions import ParameterError
from ..io.list_shards import write_columns
from ..io.lists import read_groups
from ..io.tables import suffix_of
from ..io.trials import PARQUET_SUFFIX, Trials, read_trials
from ..io.vectors import VectorSet, read_vector_files, vector_files
from ..model_files import MODEL_FILE, file_in_folder, load_model
from ..persistence import check_same_extractor
from ..scoring.profiles import Profiles
from ..scoring.question import Question
from .ordered import ordered_map
from .outputs import file_state, finished_summary, settings_digest, shard_paths, write_note

TRIALS_PER_CHUNK = 2**20
"""Number of trials of a list that are scored at a time."""

PAIRS_PER_SHARD = 10**7
"""Number of pairs of models and tests in a shard, if the number of models per shard is not set."""


def read_checked_vectors(bundle: Bundle, path: str) -> VectorSet:
    """Read the vectors of one file, or of all files that match a pattern.

    Raises `DataError` if they are of another extractor than the model; warns if their extractor is unknown.
    """
    vectors = read_vector_files(path)
    bundle.check_extractor(vectors.extractor, path)
    return vectors


def enrolled_profiles(
    bundle: Bundle, enrol: str | None, models: str | None, tests: VectorSet
) -> Profiles:
    """Return profiles, enrolled from vectors and an enrolment list.

    enrol : file of the enrolled vectors; None: use the test vectors
    models : list of models, each with the ids of its vectors; None: every vector is a model
    tests : vectors of the tests
    """
    vectors = tests if enrol is None else read_checked_vectors(bundle, enrol)
    if enrol is not None and bundle.extractor is None:
        check_same_extractor("the test vectors", tests.extractor, enrol, vectors.extractor)
    if models is None:
        return bundle.enrol(vectors.X, vectors.ids)
    groups = read_groups(models)
    vector_ids = [name for group in groups.values() for name in group]
    owners = [model for model, group in groups.items() for _ in group]
    return bundle.enrol(vectors.select(vector_ids).X, owners)


def all_pairs(enrolled: Profiles, tests: VectorSet) -> Trials:
    """Return the list of all pairs: the first profile with each test, then the second profile, and so on."""
    rows, columns = np.indices((len(enrolled), len(tests)), dtype=np.int32)
    models = Coded(enrolled.ids.astype(np.str_), rows.ravel())
    return Trials(models, Coded(tests.ids, columns.ravel()))


def is_calibrated(system: Bundle, question: Question) -> bool:
    """Return whether a model has a calibration for a question."""
    return system.calibration(question) is not None


def score_trials(
    system: Bundle, enrolled: Profiles, tested: Profiles, listed: Trials, question: Question
) -> FloatArray:
    """Return the scores of a list of trials, (n,), computed in chunks of `TRIALS_PER_CHUNK`.

    They are calibrated LLRs if the model has a calibration for the question.

    enrolled, tested : profiles of the models, and of the tests
    listed : trials; their codes ``enrol.codes`` and ``test.codes`` are row numbers in `enrolled` and `tested`
    """
    calibrated = is_calibrated(system, question)
    chunks: list[FloatArray] = []
    for start in range(0, len(listed), TRIALS_PER_CHUNK):
        rows = slice(start, start + TRIALS_PER_CHUNK)
        pairs = np.stack([listed.enrol.codes[rows], listed.test.codes[rows]], axis=1)
        if calibrated:
            chunks.append(system.answer(enrolled, tested, question, pairs).llr)
        else:
            chunks.append(np.asarray(system.llr_trials(enrolled, tested, pairs, question)))
    return np.concatenate(chunks)


# Shards.

FileStates = tuple[tuple[str, tuple[int, ...] | str], ...]
"""Path of each file, with its size and modification time, or with a hash of its contents."""


@dataclass(frozen=True)
class ScoringJob:
    """Files and question that are the same for all shards; see `score_shards`.

    Paths are absolute, because a worker may run in another folder than the process that starts it.
    """

    model: str
    tests: str
    enrol: str | None
    models: str | None
    same: tuple[str, ...] | None
    given: tuple[tuple[str, str], ...] | None

    @property
    def question(self) -> Question:
        return Question(self.same, dict(self.given) if self.given else None)

    def file_states(self) -> FileStates:
        """Return the path of every file that is read, with a state that changes when the file does.

        The state of the model is a hash of its contents, so that finished shards stay valid if the model is trained
        again with the same result. For other files it is size and modification time.
        """
        sides = [name for path in (self.tests, self.enrol) if path for name in vector_files(path)]
        files = [*sides, *([] if self.models is None else [self.models])]
        model = file_in_folder(self.model, MODEL_FILE)
        contents = _hash_of(str(model), tuple(file_state(model)))
        return ((self.model, contents), *((path, tuple(file_state(path))) for path in files))


@lru_cache(maxsize=4)
def _hash_of(path: str, state: tuple[int, ...]) -> str:
    """Return the SHA-256 hash of a file; cached until `state`, its size and modification time, changes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class ScoreShard(NamedTuple):
    """Output file of a shard, and its trials.

    path : output file
    trials : path of a list of trials; None: the profiles `first`, ..., `end` - 1 are scored against all tests
    """

    path: str
    trials: str | None
    first: int
    end: int


def score_shards(
    model: str,
    tests: str,
    output: str,
    *,
    enrol: str | None = None,
    models: str | None = None,
    trials: Sequence[str] = (),
    same: Sequence[str] | None = None,
    given: Mapping[str, str] | None = None,
    shard_size: int | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    progress: bool = False,
) -> int:
    """Score trials in shards, and write each shard to a Parquet file.

    A shard is one list of `trials`; without lists, it is a range of models against all tests. Its file has the columns
    enrol, test, score and, if the list has kinds, kind. The files are bit-identical for any number of workers. After
    an interruption, a call with the same arguments computes only the missing shards.

    Parameters
    ----------
    model : file of the model
    tests, enrol : file with the vectors of the tests, and file with those of the models; either may be a pattern of
        several files, such as ``vectors/part-*.npz``. `enrol` None: the models are enrolled from the test vectors.
        Every worker reads all vectors
    models : enrolment list; None: every vector of `enrol` is a model
    output : path of the shards (.parquet), with ``{shard}`` for their numbers
    trials : lists of trials; empty: all pairs of models and tests
    same, given : the question, see `mvplda.Question`
    shard_size : number of models per shard; None: as many as give about ten million pairs of model and test
    workers : number of processes; 1 runs in this process
    scheduler : address of a Dask scheduler, whose workers replace the processes
    progress : write a line per shard to standard error

    Returns
    -------
    number of trials of all shards
    """
    if suffix_of(output) != PARQUET_SUFFIX:
        raise ParameterError(
            f"shards of scores are written to files with the suffix {PARQUET_SUFFIX}; got the name {output}"
        )
    if trials and shard_size is not None:
        raise ParameterError(
            "shard_size applies only without lists of trials: with lists, every list is one shard; leave out "
            "shard_size (--shard-size) or trials (--trials)"
        )
    _check_lists_differ(trials)
    job = ScoringJob(
        os.path.abspath(model),
        os.path.abspath(tests),
        None if enrol is None else os.path.abspath(enrol),
        None if models is None else os.path.abspath(models),
        tuple(same) if same else None,
        tuple(given.items()) if given else None,
    )
    if trials:
        paths = shard_paths(output, len(trials))
        shards = [
            ScoreShard(path, os.path.abspath(listed), 0, 0)
            for path, listed in zip(paths, trials, strict=True)
        ]
    else:
        sides = _load_sides(job, job.file_states())
        size = shard_size or max(1, PAIRS_PER_SHARD // len(sides.tests))
        starts = range(0, len(sides.enrolled), size)
        paths = shard_paths(output, len(starts))
        shards = [
            ScoreShard(path, None, first, min(first + size, len(sides.enrolled)))
            for path, first in zip(paths, starts, strict=True)
        ]
    bar = Progress("shards", len(shards))
    total = 0
    work = partial(score_shard, job)
    results = ordered_map(work, shards, workers=workers, scheduler=scheduler)
    for number, count in enumerate(results, 1):
        total += count
        if progress:
            bar.step(number, f"{total} trials")
    return total


def _check_lists_differ(trials: Sequence[str]) -> None:
    """Raise `ParameterError` if two paths are the same file, because its trials would be scored twice."""
    path_by_file: dict[str, str] = {}
    for path in trials:
        file = os.path.realpath(path)
        if file in path_by_file:
            names = " and ".join(dict.fromkeys([path_by_file[file], path]))
            raise ParameterError(
                f"the same list of trials is passed twice ({names}), and its trials would be counted twice: pass every "
                "list once"
            )
        path_by_file[file] = path


class Sides(NamedTuple):
    """Model of a scoring job, its enrolled profiles, and the vectors of its tests."""

    system: Bundle
    enrolled: Profiles
    tests: VectorSet


@lru_cache(maxsize=1)
def _load_sides(job: ScoringJob, states: FileStates) -> Sides:
    """Return the model, the profiles and the test vectors of a job; they are cached in the process.

    states : result of `ScoringJob.file_states`; if it differs from that of the last call, the files have changed and
        are loaded again
    """
    # with one BLAS thread the profiles do not depend on the number of cores
    with one_blas_thread():
        system = load_model(job.model)
        tests = read_checked_vectors(system, job.tests)
        return Sides(system, enrolled_profiles(system, job.enrol, job.models, tests), tests)


def _score(job: ScoringJob, states: FileStates, shard: ScoreShard) -> tuple[Trials, FloatArray]:
    """Return the trials of a shard, and their scores (n,).

    states : result of `ScoringJob.file_states`, by which files that have changed are loaded again
    """
    system, enrolled, tests = _load_sides(job, states)
    if shard.trials is None:
        enrolled = enrolled[shard.first : shard.end]
        tested = system.enrol(tests.X)
        listed = all_pairs(enrolled, tests)
    else:
        listed = read_trials(shard.trials)
        if not len(listed):
            return listed, np.empty(0)
        enrolled = enrolled.select(listed.enrol.names)
        tested = system.enrol(tests.select(listed.test.names).X)
    return listed, score_trials(system, enrolled, tested, listed, job.question)


def score_shard(job: ScoringJob, shard: ScoreShard) -> int:
    """Score the trials of one shard and write its file; return the number of trials.

    A file that an earlier run wrote from the same inputs and settings is kept.
    """
    states = job.file_states()
    listed_state = None if shard.trials is None else file_state(shard.trials)
    digest = settings_digest(
        asdict(job), states, shard.trials, listed_state, shard.first, shard.end
    )
    finished = finished_summary(shard.path, digest)
    if finished is not None:
        return int(finished)
    # with one BLAS thread the scores do not depend on the number of cores
    with one_blas_thread():
        listed, scores = _score(job, states, shard)
    columns = {"enrol": listed.enrol, "test": listed.test, "score": scores}
    if listed.kind is not None:
        columns["kind"] = listed.kind
    write_columns(shard.path, columns)
    write_note(shard.path, digest, len(listed))
    return len(listed)
