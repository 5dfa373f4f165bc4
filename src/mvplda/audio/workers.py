"""Jobs of a batch, here or in other processes.

Processes, not threads: kaldi-native-fbank holds the interpreter's lock. They are loky's (a
part of joblib, which scikit-learn brings), which start clean, need no guard around the main
module, and leave a word when one dies.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import AudioError
from .augmentation import Recipe, augment
from .frames import features_and_note
from .reading import SoundReader
from .settings import FeatureSettings


@dataclass(frozen=True)
class Place:
    """A stretch of a file, in plain values."""

    path: str
    start: int = 0
    length: int | None = None
    channel: int | None = None


@dataclass(frozen=True)
class Work:
    """What is done to every utterance."""

    settings: FeatureSettings
    recipe: Recipe | None = None
    seed: int = 0
    babble: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Job:
    """Some utterances: their rows in the batch, ids and places."""

    rows: tuple[int, ...]
    ids: tuple[str, ...]
    places: tuple[Place, ...]

    def __getitem__(self, part: slice) -> Job:
        return Job(self.rows[part], self.ids[part], self.places[part])


@dataclass(frozen=True)
class Result:
    """Frames of an utterance with a note perhaps, or the reason that there are none."""

    frames: NDArray[np.float32] | None = None
    note: str | None = None
    error: str | None = None


def finished_jobs(jobs: list[Job], work: Work, workers: int) -> Iterator[tuple[Job, list[Result]]]:
    """Every job with its results, in the order of the jobs."""
    waiting = deque(jobs)
    while waiting and workers > 1:
        try:
            for job, results in _in_pool(list(waiting), work, workers):
                waiting.popleft()
                yield job, results
        except BrokenProcessPool:
            if _careful(Job((), (), ()), work):
                workers = 1  # no process lives here
                continue
            # One of those under way had a file that ends the process that reads it.
            for _ in range(min(len(waiting), _under_way(workers))):
                job = waiting.popleft()
                yield job, _careful(job, work)
    for job in waiting:
        yield job, do(job, work)


def _careful(job: Job, work: Work) -> list[Result]:
    """A job in a process of its own; where that dies, each half of it."""
    try:
        for _, results in _in_pool([job], work, 1):
            return results
    except BrokenProcessPool:
        pass
    middle = len(job.rows) // 2
    if middle:
        return [result for half in (job[:middle], job[middle:]) for result in _careful(half, work)]
    path = job.places[0].path if job.places else "nothing"
    return [Result(error=f"{path} ended the process that read it: it is damaged, or too large for the memory")]


def do(job: Job, work: Work) -> list[Result]:
    """The results of a job; an utterance that cannot be used does not touch the next."""
    results: list[Result] = []
    reader: SoundReader | None = None
    opened = ""
    try:
        for name, place in zip(job.ids, job.places, strict=True):
            try:
                if reader is not None and opened != place.path:
                    reader.close()
                    reader = None
                if reader is None:
                    reader, opened = SoundReader(place.path, work.settings.rate), place.path
                results.append(_result(reader.read(place.start, place.length, place.channel), name, place, work))
            except (AudioError, MemoryError) as error:
                results.append(Result(error=str(error) or f"{place.path} does not fit in memory"))
                if reader is not None:  # after a fault its state is unknown
                    reader.close()
                    reader = None
    finally:
        if reader is not None:
            reader.close()
    return results


def _result(samples: NDArray[np.float32], name: str, place: Place, work: Work) -> Result:
    try:
        if work.recipe is not None:
            # The check value of the id: an integer that is the same in every process.
            rng = np.random.default_rng([work.seed, zlib.crc32(name.encode())])
            others = read_babble(work.babble, work.settings.rate)
            samples = augment(samples, work.recipe, rng, rate=work.settings.rate, others=others)
        return Result(*features_and_note(samples, work.settings))
    except AudioError as error:
        return Result(error=f"{place.path}: {error}")


@lru_cache(maxsize=2)
def read_babble(places: tuple[Place, ...], rate: int) -> tuple[NDArray[np.float32], ...]:
    """Samples of the utterances that babble is made from, read once a process."""
    voices = []
    for place in places:
        with SoundReader(place.path, rate) as reader:
            voices.append(reader.read(place.start, place.length, place.channel))
    return tuple(voices)


def _under_way(workers: int) -> int:
    """Jobs that a pool holds: no more than its own queue takes, for what waits beyond is not taken back in peace."""
    return 2 * workers + 1


def _in_pool(jobs: list[Job], work: Work, workers: int) -> Iterator[tuple[Job, list[Result]]]:
    from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    pool = ProcessPoolExecutor(max_workers=workers)
    running: deque[tuple[Job, Any]] = deque()
    upcoming = iter(jobs)
    try:
        for job in upcoming:
            running.append((job, pool.submit(do, job, work)))
            if len(running) == _under_way(workers):
                first, future = running.popleft()
                yield first, future.result()
        while running:
            first, future = running.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(wait=True, kill_workers=True)
