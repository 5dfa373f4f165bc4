"""Frames of many utterances: in parallel, with progress, past damaged files, and cached."""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..._progress import Progress
from ...exceptions import AudioError, DataError, ParameterError
from .augmentation import Recipe, augment
from .frames import features_and_note
from .reading import SoundReader
from .settings import FeatureSettings
from .store import FeatureCache, FeatureSet, entry_key

if TYPE_CHECKING:
    from ..corpora.corpus import Clip


JOB = 200
"""Utterances a job: short enough for progress and an interrupt, long enough to hide what a job costs."""

SERIAL = 300
"""Fewer utterances are done here: the start of other processes costs more."""


@dataclass(frozen=True)
class Augmentation:
    """How utterances of a batch are changed before their frames are made.

    What is drawn for an utterance depends on the seed and its id only, not on the others.

    Attributes
    ----------
    recipe : what is done
    seed : another seed, other recordings of the same speech
    babble : utterances from which babble is made, where the recipe has it
    """

    recipe: Recipe
    seed: int = 0
    babble: tuple[Clip, ...] = ()


@dataclass(frozen=True)
class Extracted:
    """Frames of the utterances that could be used, and what became of the others.

    Attributes
    ----------
    features : in the order that was asked for
    skipped : (id, reason) of utterances without frames
    notes : (id, note) of utterances with frames that are odd in some way
    """

    features: FeatureSet
    skipped: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


def extract_features(
    ids: Sequence[Any] | NDArray[Any],
    clips: Sequence[Clip | str | os.PathLike[str]],
    settings: FeatureSettings | None = None,
    *,
    cache: FeatureCache | str | os.PathLike[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    workers: int | None = None,
    progress: bool | Progress = False,
    augment: Augmentation | None = None,
    dtype: DTypeLike = np.float32,
) -> Extracted:
    """Frames of many utterances.

    The result depends neither on the number of workers nor on what the cache holds, nor an
    utterance's frames on the other utterances. Utterances that lie in one file are read in
    one go.

    Parameters
    ----------
    ids : unique names of the utterances
    clips : where each one's sound lies
    settings : how frames are made; the paper's 39 by default
    cache : a folder to keep frames in; interrupted work goes on from there
    on_error : "raise" stops at the first utterance that cannot be used, "skip" names it in the
        result and goes on
    workers : processes; None means as many as there are cores, and this one alone for few utterances
    progress : report it on standard error
    augment : make frames of other recordings of the same speech
    dtype : float16 halves the memory

    Raises
    ------
    AudioError
        An utterance cannot be used (it is named with its file and the reason), or none can.
    """
    settings = settings or FeatureSettings()
    names = _checked(ids, clips, on_error, workers)
    places = [_place(clip) for clip in clips]
    report = _Report(progress, len(names))
    store = FeatureCache(cache) if isinstance(cache, (str, os.PathLike)) else cache
    work = Work(settings, *((augment.recipe, augment.seed, _places(augment)) if augment else (None, 0, ())))
    read_babble(work.babble, settings.rate)  # a fault there is no utterance's

    shelf, keys = _shelf(store, work, names, places)
    kept = store.find(shelf, (key for key in keys if key)) if store else {}
    frames: list[NDArray[Any] | None] = [None] * len(names)
    for row, key in enumerate(keys):
        if key in kept:
            frames[row] = kept[key].astype(dtype)
    kept.clear()
    missing = [row for row in range(len(names)) if frames[row] is None]
    report.add(len(names) - len(missing), f"{len(names) - len(missing)} cached" if store else "")

    skipped, notes = dict[int, str](), dict[int, str]()
    jobs = list(_jobs(missing, names, places))
    count = workers or (1 if len(missing) < SERIAL else _cores())
    try:
        for job, results in finished_jobs(jobs, work, min(count, len(jobs) or 1)):
            fresh: dict[str, NDArray[np.float32]] = {}
            for row, result in zip(job.rows, results, strict=True):
                if result.error is not None or result.frames is None:
                    reason = result.error or "gave no frames"
                    if on_error == "raise":
                        raise AudioError(f"utterance {names[row]!r}: {reason}")
                    skipped[row] = reason
                    continue
                frames[row] = result.frames.astype(dtype)
                key = keys[row]
                if result.note is not None:
                    notes[row] = result.note
                elif key:  # what is odd is made anew, so that it is said anew
                    fresh[key] = result.frames
            if store:
                store.keep(shelf, fresh)
            report.add(len(job.rows), f"{len(skipped)} skipped" if skipped else "")
    finally:
        report.close()
    return _gathered(names, frames, skipped, notes, settings)


def _gathered(
    names: list[str],
    frames: list[NDArray[Any] | None],
    skipped: dict[int, str],
    notes: dict[int, str],
    settings: FeatureSettings,
) -> Extracted:
    rows = [row for row in range(len(names)) if frames[row] is not None]
    if not rows:
        first = min(skipped)
        raise AudioError(
            f"none of {len(names)} utterance(s) can be used; the first, {names[first]!r}: {skipped[first]}"
        )
    parts = [part for part in frames if part is not None]
    features = FeatureSet.from_utterances(np.asarray([names[row] for row in rows]), parts, settings)
    return Extracted(
        features,
        tuple((names[row], skipped[row]) for row in sorted(skipped)),
        tuple((names[row], notes[row]) for row in sorted(notes)),
    )


def _checked(ids: Any, clips: Sequence[Any], on_error: str, workers: int | None) -> list[str]:
    names = [str(name) for name in ids]
    if on_error not in ("raise", "skip"):
        raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
    if workers is not None and workers < 1:
        raise ParameterError(f"there is at least one worker; got {workers}")
    if not names:
        raise DataError("there are no utterances")
    if len(names) != len(clips):
        raise DataError(f"{len(names)} ids but {len(clips)} clips")
    if len(set(names)) < len(names):
        seen = set[str]()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"ids of utterances are unique; {twice!r} is there twice")
    return names


def _place(clip: Any) -> Place:
    if isinstance(clip, (str, os.PathLike)):
        return Place(os.fspath(clip))
    return Place(os.fspath(clip.path), clip.start, clip.length, clip.channel)


def _places(augment: Augmentation) -> tuple[Place, ...]:
    return tuple(_place(clip) for clip in augment.babble)


def _shelf(
    store: FeatureCache | None, work: Work, names: list[str], places: list[Place]
) -> tuple[str, list[str | None]]:
    """The folder of the cache for this work, and every utterance's key; None where a file cannot be read."""
    if store is None:
        return "", [None] * len(names)
    hashes = store.content_hashes(place.path for place in (*places, *work.babble))
    shelf = work.settings.key
    if work.recipe is not None:
        babble = [(hashes[place.path], place.start, place.length, place.channel) for place in work.babble]
        shelf = f"{shelf}-{entry_key(str(work.seed), work.recipe.to_dict(), babble)}"
    keys: list[str | None] = []
    for name, place in zip(names, places, strict=True):
        content = hashes[place.path]
        drawn = () if work.recipe is None else (name,)
        key = None if content is None else entry_key(content, place.start, place.length, place.channel, *drawn)
        keys.append(key)
    return shelf, keys


def _jobs(rows: list[int], names: list[str], places: list[Place]) -> Iterator[Job]:
    """Utterances in the order of their files and places: as few openings and seeks as can be."""
    order = sorted(rows, key=lambda row: (places[row].path, places[row].start, row))
    for start in range(0, len(order), JOB):
        part = order[start : start + JOB]
        yield Job(tuple(part), tuple(names[row] for row in part), tuple(places[row] for row in part))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Report:
    """Progress that speaks once a second at most, or ten times where the line is rewritten."""

    def __init__(self, progress: bool | Progress, total: int) -> None:
        self.line = progress if isinstance(progress, Progress) else Progress("features", total) if progress else None
        self.total, self.done, self.last = total, 0, -np.inf

    def add(self, count: int, text: str = "") -> None:
        self.done += count
        if self.line is None or not count:
            return
        now, pause = time.monotonic(), 0.1 if self.line.in_place else 1.0
        if now - self.last >= pause or self.done >= self.total:
            self.last = now
            self.line.step(self.done, text)

    def close(self) -> None:
        if self.line is not None and self.done < self.total:
            self.line.close()


# Jobs of a batch, here or in other processes.
#
# Processes, not threads: kaldi-native-fbank holds the interpreter's lock. They are loky's (a
# part of joblib, which scikit-learn brings), which start clean, need no guard around the main
# module, and leave a word when one dies.


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
