"""Frames of many utterances: in parallel, with progress, past damaged files, and cached."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..._progress import Progress
from ..._typing import FloatArray
from ...backend import cores
from ...distributed.engines import ordered_map
from ...exceptions import AudioError, DataError, ParameterError
from ...io.files import repeated
from .augmentation import Recipe, augment
from .frames import FeatureSettings, features_and_note
from .reading import Clip, SoundReader, read_audio
from .store import FeatureCache, FeatureSet, entry_key

JOB = 200
"""Utterances a job: short enough for progress and an interrupt, long enough to hide what a job costs."""

SERIAL = 300
"""Fewer utterances are done here: the start of other processes costs more."""


@dataclass(frozen=True)
class Augmentation:
    """How utterances of a batch are changed before their frames are made.

    What is drawn for an utterance depends on the random state and its id only, not on the others.

    Attributes
    ----------
    recipe : what is done
    random_state : another one, other recordings of the same speech
    babble : utterances from which babble is made, where the recipe has it
    """

    recipe: Recipe
    random_state: int = 0
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
    verbose: bool | Progress = False,
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
    verbose : report progress on standard error
    augment : make frames of other recordings of the same speech
    dtype : float16 halves the memory

    Raises
    ------
    AudioError
        An utterance cannot be used (it is named with its file and the reason), or none can.
    """
    settings = settings or FeatureSettings()
    names = _checked(ids, clips, on_error, workers)
    places = [clip if isinstance(clip, Clip) else Clip(Path(clip)) for clip in clips]
    report = _Report(verbose, len(names))
    store = FeatureCache(cache) if isinstance(cache, (str, os.PathLike)) else cache
    babble = augment.babble if augment else ()
    read_babble(babble, settings.rate)  # a fault there is no utterance's

    shelf, keys = _shelf(store, settings, augment, names, places)
    kept = store.find(shelf, (key for key in keys if key)) if store else {}
    frames: list[FloatArray | None] = [None] * len(names)
    for row, key in enumerate(keys):
        if key in kept:
            frames[row] = kept[key].astype(dtype)
    kept.clear()
    missing = [row for row in range(len(names)) if frames[row] is None]
    report.add(len(names) - len(missing), f"{len(names) - len(missing)} cached" if store else "")

    skipped, notes = dict[int, str](), dict[int, str]()
    jobs = list(_jobs(missing, names, places))
    count = min(workers or (1 if len(missing) < SERIAL else cores()), len(jobs))
    try:
        for job, results in zip(jobs, finished_jobs(jobs, settings, augment, count), strict=True):
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
    frames: list[FloatArray | None],
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
    if repeated(names)[0]:
        raise DataError(f"ids of utterances are unique; {repeated(names)[1]!r} is there twice")
    return names


def _shelf(
    store: FeatureCache | None,
    settings: FeatureSettings,
    augment: Augmentation | None,
    names: list[str],
    places: list[Clip],
) -> tuple[str, list[str | None]]:
    """The folder of the cache for this work, and every utterance's key; None where a file cannot be read."""
    if store is None:
        return "", [None] * len(names)
    babble = augment.babble if augment else ()
    hashes = store.content_hashes(clip.path for clip in (*places, *babble))
    shelf = settings.key
    if augment is not None:
        voices = [(hashes[str(clip.path)], *clip.stretch) for clip in babble]
        shelf = f"{shelf}-{entry_key(str(augment.random_state), augment.recipe.to_dict(), voices)}"
    keys: list[str | None] = []
    for name, clip in zip(names, places, strict=True):
        content = hashes[str(clip.path)]
        drawn = () if augment is None else (name,)
        keys.append(None if content is None else entry_key(content, *clip.stretch, *drawn))
    return shelf, keys


def _jobs(rows: list[int], names: list[str], places: list[Clip]) -> Iterator[Job]:
    """Utterances in the order of their files and places: as few openings and seeks as can be."""
    order = sorted(rows, key=lambda row: (places[row].path, places[row].start, row))
    for start in range(0, len(order), JOB):
        part = order[start : start + JOB]
        yield Job(
            tuple(part), tuple(names[row] for row in part), tuple(places[row] for row in part)
        )


class _Report:
    """Progress that speaks once a second at most, or ten times where the line is rewritten."""

    def __init__(self, verbose: bool | Progress, total: int) -> None:
        self.line = (
            verbose
            if isinstance(verbose, Progress)
            else Progress("features", total)
            if verbose
            else None
        )
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


@dataclass(frozen=True)
class Job:
    """Some utterances: their rows in the batch, ids and places."""

    rows: tuple[int, ...]
    ids: tuple[str, ...]
    places: tuple[Clip, ...]

    def __getitem__(self, part: slice) -> Job:
        return Job(self.rows[part], self.ids[part], self.places[part])


@dataclass(frozen=True)
class Result:
    """Frames of an utterance with a note perhaps, or the reason that there are none."""

    frames: NDArray[np.float32] | None = None
    note: str | None = None
    error: str | None = None


def finished_jobs(
    jobs: list[Job], settings: FeatureSettings, augment: Augmentation | None, workers: int
) -> Iterator[list[Result]]:
    """Results of every job, in the order of the jobs.

    In processes, not threads: kaldi-native-fbank holds the interpreter's lock. A job with a file
    that ends the process which reads it is halved until that file is found.
    """
    work = partial(do, settings=settings, augment=augment)

    def halves(job: Job) -> list[Result]:
        middle = len(job.rows) // 2
        if not middle:
            reason = f"{job.places[0].path} ended the process that read it: it is damaged, or too large for the memory"
            return [Result(error=reason)]
        parts = [job[:middle], job[middle:]]
        return [result for part in parts for result in alone(part)]

    def alone(job: Job) -> list[Result]:
        return next(
            ordered_map(work, [job], engine="processes", workers=1, retries=0, on_lost=halves)
        )

    engine: Literal["serial", "processes"] = "processes" if workers > 1 else "serial"
    return ordered_map(
        work, jobs, engine=engine, workers=max(workers, 1), retries=1, on_lost=halves
    )


def do(job: Job, settings: FeatureSettings, augment: Augmentation | None) -> list[Result]:
    """The results of a job; an utterance that cannot be used does not touch the next."""
    results: list[Result] = []
    reader: SoundReader | None = None
    try:
        for name, clip in zip(job.ids, job.places, strict=True):
            try:
                if reader is not None and reader.path != clip.path:
                    reader.close()
                    reader = None
                if reader is None:
                    reader = SoundReader(clip.path, settings.rate)
                results.append(_result(reader.read(*clip.stretch), name, clip, settings, augment))
            except (AudioError, MemoryError) as error:
                results.append(Result(error=str(error) or f"{clip.path} does not fit in memory"))
                if reader is not None:  # after a fault its state is unknown
                    reader.close()
                    reader = None
    finally:
        if reader is not None:
            reader.close()
    return results


def _result(
    samples: NDArray[np.float32],
    name: str,
    clip: Clip,
    settings: FeatureSettings,
    change: Augmentation | None,
) -> Result:
    try:
        if change is not None:
            # The check value of the id: an integer that is the same in every process.
            rng = np.random.default_rng([change.random_state, zlib.crc32(name.encode())])
            others = read_babble(change.babble, settings.rate)
            samples = augment(samples, change.recipe, rng, rate=settings.rate, others=others)
        return Result(*features_and_note(samples, settings))
    except AudioError as error:
        return Result(error=f"{clip.path}: {error}")


@lru_cache(maxsize=2)
def read_babble(clips: tuple[Clip, ...], rate: int) -> tuple[NDArray[np.float32], ...]:
    """Samples of the utterances that babble is made from, read once a process."""
    return tuple(read_audio(clip, rate) for clip in clips)
