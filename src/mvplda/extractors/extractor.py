"""From sound to a vector: the extractor, made of one network or of several side by side."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from ..exceptions import AudioError, FileFormatError, NumericalError, ParameterError
from .frontends import cached_file
from .network import OnnxNetwork
from .quality import Meter, Quality, QualitySettings
from .recipe import Recipe
from .sound import Sound, Source, segments
from .unfinished import Unfinished
from .weights import NAMES, is_stale

Vector = NDArray[np.float32]
OnError = Literal["raise", "skip"]
Places = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
LEAST_WEIGHT = 1e-3
"""Of a part in which there is no speech: a recording that has none still has a vector."""
PROGRESS_EVERY = 20


class Network(Protocol):
    """What an extractor needs of a network: those in ONNX files and our own have it.

    name : what it is, and the start of its fingerprint
    path : of its file
    recipe : what is done before and after it, where that is data
    rate : samples per second that it takes
    segment_s : longer sound is cut into parts
    dimension : of its vectors
    fingerprint : SHA-256 of the weights and of all that is done before and after them
    views : what its vectors tell apart
    """

    path: Path
    rate: int
    segment_s: float

    @property
    def recipe(self) -> Recipe | None: ...
    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def views(self) -> tuple[str, ...]: ...
    def embed(self, samples: Sound) -> Vector: ...


@dataclass(frozen=True, eq=False)
class Utterance:
    """A vector, and the quality of the recording that it was made of."""

    vector: Vector
    quality: Quality


@dataclass(frozen=True, eq=False)
class Extracted:
    """Vectors of many recordings.

    X : (n, dimension)
    rows : which of the sources they are of
    qualities : one per vector
    skipped : (source, reason) of those that have none
    """

    X: Vector
    rows: list[int]
    qualities: list[Quality]
    skipped: list[tuple[str, str]]


class Extractor:
    """Networks side by side: a recording in, a vector out.

    Of several networks each has its block of the vector, of length one, so that none outweighs another.

    Parameters
    ----------
    networks : one or more that take the same rate
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        if not networks:
            raise ParameterError("an extractor has at least one network")
        rates = sorted({network.rate for network in networks})
        if len(rates) > 1:
            raise ParameterError(f"networks side by side take one rate; these take {rates}")
        self.networks = list(networks)
        self.rate = rates[0]
        self.segment_s = min(network.segment_s for network in networks)

    @property
    def name(self) -> str:
        """What stands beside vectors as their extractor."""
        return "+".join(network.name for network in self.networks)

    @property
    def recipe(self) -> Recipe | None:
        """Of the network, where it is one alone."""
        return self.networks[0].recipe if len(self.networks) == 1 else None

    @property
    def dimension(self) -> int:
        return sum(network.dimension for network in self.networks)

    @property
    def fingerprint(self) -> str:
        if len(self.networks) == 1:
            return self.networks[0].fingerprint
        together = "\n".join(network.fingerprint for network in self.networks)
        return hashlib.sha256(together.encode()).hexdigest()

    @property
    def views(self) -> tuple[str, ...]:
        """What its vectors tell apart."""
        return tuple(dict.fromkeys(view for network in self.networks for view in network.views))

    @property
    def blocks(self) -> dict[str, tuple[int, int]]:
        """Which columns of a vector each network made."""
        ends = np.cumsum([network.dimension for network in self.networks]).tolist()
        starts = [0, *ends[:-1]]
        names = [network.name for network in self.networks]
        return {name: (start, end) for name, start, end in zip(names, starts, ends, strict=True)}

    def embed(self, samples: Sound) -> Vector:
        """The vector of samples of one channel at the extractor's rate, in one part."""
        vectors = [network.embed(samples) for network in self.networks]
        if len(vectors) == 1:
            return vectors[0]
        lengths = [max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors]
        return np.concatenate(
            [vector / length for vector, length in zip(vectors, lengths, strict=True)]
        )

    def __call__(self, source: Source, rate: int | None = None) -> Vector:
        """The vector (dimension,) of a file, or of samples whose full scale is 1 and their rate."""
        return self.utterance(source, rate).vector

    def utterance(
        self, source: Source, rate: int | None = None, settings: QualitySettings | None = None
    ) -> Utterance:
        """The vector, and the quality of the recording.

        A sound longer than the networks take at once is cut into equal parts; their vectors are averaged, each
        weighted by the speech that is in it.
        """
        total = np.zeros(self.dimension)
        meter = Meter(self.rate, settings)
        weights = 0.0
        named = isinstance(source, (str, os.PathLike))
        try:
            for part in segments(source, self.rate, self.segment_s, rate):
                weight = max(meter.add(part), LEAST_WEIGHT)
                total += weight * self.embed(part)
                weights += weight
            quality = meter.quality()
        except AudioError as error:
            if named and str(source) not in str(error):
                raise AudioError(f"{source}: {error}") from error
            raise
        vector = np.asarray(total / weights, dtype=np.float32)
        if not np.isfinite(vector).all() or not vector.any():
            where = f" of {source}" if named else ""
            raise NumericalError(f"{self.name} gave a vector{where} that is zero or not finite")
        return Utterance(vector, quality)

    def vectors(
        self, sources: Sequence[Source], *, progress: bool = False, workers: int = 1
    ) -> Vector:
        """(n, dimension) vectors of files; one that cannot be used is an error."""
        return self.extract(sources, progress=progress, workers=workers).X

    def extract(
        self,
        sources: Sequence[Source],
        *,
        on_error: OnError = "raise",
        progress: bool = False,
        workers: int = 1,
        settings: QualitySettings | None = None,
        unfinished: str | os.PathLike[str] | None = None,
    ) -> Extracted:
        """Vectors and qualities of files.

        Parameters
        ----------
        on_error : stop at a file that cannot be used, or leave it out and name it in the result
        workers : processes
        settings : when a recording is warned of, or has too little speech to be used
        unfinished : a file that every vector is written to as it is made. A run that was ended, also by a kill, goes
            on from it; the caller removes it
        """
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
        line = Progress("vectors", len(sources)) if progress else None
        task = Task([str(network.path) for network in self.networks], on_error, settings)
        kept = Unfinished(unfinished, f"{self.fingerprint} {settings}") if unfinished else None
        results: dict[int, Utterance | str] = {}
        if kept is not None:
            before = {row: kept.get(source) for row, source in enumerate(sources)}
            results = {row: Utterance(*made) for row, made in before.items() if made is not None}
        missing = [row for row in range(len(sources)) if row not in results]
        made_now = _results(self, task, [sources[row] for row in missing], workers)
        try:
            for row, result in zip(missing, made_now, strict=True):
                results[row] = result
                if kept is not None and isinstance(result, Utterance):
                    kept.add(sources[row], result.vector, result.quality)
                done = len(results)
                if line is not None and (done % PROGRESS_EVERY == 0 or done == len(sources)):
                    line.step(done)
        finally:
            made_now.close()
            if kept is not None:
                kept.close()
        good, bad = [], []
        for row, source in enumerate(sources):
            result = results[row]
            if isinstance(result, Utterance):
                good.append((row, result))
            else:
                bad.append((str(source), result))
        X = np.array([one.vector for _, one in good], dtype=np.float32)
        return Extracted(
            X.reshape(len(good), self.dimension),
            [row for row, _ in good],
            [one.quality for _, one in good],
            bad,
        )


@dataclass(frozen=True)
class Task:
    """What another process needs to make the same vectors."""

    paths: list[str]
    on_error: OnError
    settings: QualitySettings | None

    def one(self, extractor: Extractor, source: Source) -> Utterance | str:
        """The vector of a recording, or why it has none."""
        try:
            return extractor.utterance(source, settings=self.settings)
        except (AudioError, NumericalError, OSError) as error:
            if self.on_error == "raise":
                raise
            return str(error)


def _results(
    extractor: Extractor, task: Task, sources: Sequence[Source], workers: int
) -> Generator[Utterance | str, None, None]:
    """Results in the order of the sources."""
    if workers <= 1 or len(sources) < 2:
        for source in sources:
            yield task.one(extractor, source)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(
        workers, get_context("spawn"), _start, (task, extractor.fingerprint)
    ) as pool:
        try:
            yield from pool.map(
                _in_process, sources, chunksize=max(1, min(8, len(sources) // (4 * workers)))
            )
        finally:
            pool.shutdown(cancel_futures=True)


_ready: list[tuple[Task, Extractor]] = []
"""In another process: what it was started with."""


def _start(task: Task, fingerprint: str) -> None:
    # a terminal sends an interrupt to all processes; the first one ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    extractor = load_extractor(task.paths, check=False)
    if extractor.fingerprint != fingerprint:
        raise FileFormatError(f"{task.paths} have changed while they were used: start again")
    _ready[:] = [(task, extractor)]


def _in_process(source: Source) -> Utterance | str:
    ((task, extractor),) = _ready
    return task.one(extractor, source)


def load_extractor(path: Places, *, check: bool = True, threads: int = 1) -> Extractor:
    """Load an extractor, of one network or of several side by side.

    Parameters
    ----------
    path : an ONNX file of a family that is known or with a recipe beside it, such as ``mvplda network`` writes; or a
        name that ``mvplda extractor get`` fetched: campplus, words, resemblyzer.
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


def load_network(path: str | os.PathLike[str], *, check: bool, threads: int) -> Network:
    """One network by file, folder or name."""
    network = OnnxNetwork(_file_of(path), threads=threads)
    if check:
        network.check()
    return network


def _file_of(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    if not file.exists() and str(path) in NAMES:
        cached = cached_file(str(path))
        if is_stale(cached):
            raise FileFormatError(
                f"{path} was fetched by another version of mvplda, and would give other vectors than this one: "
                f"mvplda extractor get {path}"
            )
        return cached
    if file.is_dir():
        graphs = sorted(file.glob("*.onnx"))
        with_recipe = [graph for graph in graphs if graph.with_suffix(".toml").is_file()]
        chosen = with_recipe or graphs
        if len(chosen) != 1:
            raise FileFormatError(
                f"{file} is a folder with {len(graphs)} ONNX files: name the one that is meant"
            )
        return chosen[0]
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no extractor {str(path)!r}: expected an ONNX file or "
            f"one of {', '.join(NAMES)}"
        )
    return file
