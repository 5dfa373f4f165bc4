"""Extractors, each of one or more networks that turn a recording into a vector, and extraction of many recordings."""

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
from ..fingerprint import CopyTest
from .download import cached_file, is_checked, is_stale, missing_extractor_message
from .onnx_network import OnnxNetwork
from .recipe import downloadable

Vector = NDArray[np.float32]
OnError = Literal["raise", "skip"]
MIN_SEGMENT_WEIGHT = 1e-3
"""Weight (in seconds of speech) of a segment without speech, so that a recording without speech has a vector too."""
PROGRESS_INTERVAL = 20
"""Number of recordings between two lines of progress."""


@dataclass(frozen=True, eq=False)
class Utterance:
    """Vector of a recording, (dimension,), and the measured quality of its sound."""

    vector: Vector
    quality: Quality


@dataclass(frozen=True, eq=False)
class ExtractedVectors:
    """Vectors of recordings.

    Attributes
    ----------
    X : (n, dimension) vectors
    rows : index of each vector's recording in the list of recordings
    qualities : quality of each vector's recording
    skipped : (recording, reason) for each recording without a vector
    sessions, phrases : names of each vector's session and phrase; empty if they were not named
    copy_tests : comparisons of each vector's recording with known recordings, which detect copies; empty if the vectors
        were not made from sound
    spoof_scores : score of each vector's recording by a detector of replays and synthetic voices, not calibrated; empty
        without a detector
    """

    X: Vector
    rows: list[int]
    qualities: list[Quality]
    skipped: list[tuple[str, str]]
    sessions: list[str] = field(default_factory=list)
    phrases: list[str] = field(default_factory=list)
    copy_tests: list[CopyTest] = field(default_factory=list)
    spoof_scores: list[float] = field(default_factory=list)

    def acquisition(self) -> str:
        """Return a line of text with the number of recordings without usable speech.

        ISO/IEC 19795-1 calls this the failure to acquire.
        """
        acquired = [quality.usable for quality in self.qualities] + [False] * len(self.skipped)
        return f"failure to acquire: {acquired.count(False)} of {len(acquired)} recordings"


class Extractor:
    """Extractor of vectors from recordings, by one or more networks.

    Calling the extractor with a recording returns a vector. If there are several networks, the vector of each is scaled
    to length 1, and the vectors are concatenated.

    Parameters
    ----------
    networks : one or more networks with the same sample rate

    Attributes
    ----------
    name : name that is stored beside vectors: names and fingerprints of the networks
    dimension : length of a vector
    blocks : {name of a network: (first, end)}, the columns of its vector: first <= column < end
    fingerprint : SHA-256 of the weights and recipes of the networks
    recipe : recipe of the network if there is one network, else None
    rate : samples per second of the input
    segment_s : longest duration that the networks process at once, in seconds
    """

    def __init__(self, networks: Sequence[OnnxNetwork]) -> None:
        self.networks = list(networks)
        rates = sorted({network.rate for network in networks})
        if len(rates) != 1:
            raise ParameterError(
                f"expected one network, or several with the same sample rate; the rates are {rates} Hz"
            )
        self.rate = rates[0]
        self.segment_s = min(network.segment_s for network in networks)
        self.name = "+".join(network.name for network in networks)
        self.recipe = networks[0].recipe if len(networks) == 1 else None
        self.fingerprint = networks[0].fingerprint
        if self.recipe is None:
            fingerprints = "\n".join(network.fingerprint for network in networks)
            self.fingerprint = hashlib.sha256(fingerprints.encode()).hexdigest()
        self.dimension = 0
        self.blocks: dict[str, tuple[int, int]] = {}
        for network in networks:
            end = self.dimension + network.dimension
            self.blocks[network.name] = (self.dimension, end)
            self.dimension = end

    def embed(self, sound: Sound | SoundSegment) -> Vector:
        """Return the (dimension,) vector of one segment.

        sound : (n,) samples of one channel at the extractor's rate with full scale 1, or a `SoundSegment`
        """
        segment = sound if isinstance(sound, SoundSegment) else SoundSegment(sound, self.rate)
        vectors = [network.embed(segment) for network in self.networks]
        if len(vectors) == 1:
            return vectors[0]
        return np.concatenate(
            [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors]
        )

    def __call__(self, source: Source, rate: int | None = None) -> Vector:
        """Return the (dimension,) vector of a recording.

        Parameters
        ----------
        source : path of an audio file, `FileSegment`, or samples (n,) or (n, channels) with full scale 1
        rate : samples per second of `source` if it is an array; default: the extractor's rate
        """
        return self.utterance(source, rate).vector

    def utterance(
        self, source: Source, rate: int | None = None, settings: QualitySettings | None = None
    ) -> Utterance:
        """Return the vector and the quality of a recording.

        A recording longer than `segment_s` seconds is cut into equal segments, whose vectors are averaged.

        Parameters
        ----------
        source : path of an audio file, `FileSegment`, or samples (n,) or (n, channels) with full scale 1
        rate : samples per second of `source` if it is an array; default: the extractor's rate
        settings : limits of usable quality; default: those of `QualitySettings()`

        Raises
        ------
        AudioError
            The recording cannot be decoded, or is silent or too short.
        """
        meter = QualityMeter(self.rate, settings)
        name = str(source) if isinstance(source, (str, os.PathLike)) else "the sound"
        try:
            segments = map(meter.add, self.segments(source, rate))
            return Utterance(self.average(segments, name), meter.quality())
        except AudioError as error:
            if name in str(error):
                raise
            raise AudioError(f"{name}: {error}") from error

    def segments(self, source: Source, rate: int | None = None) -> Iterator[SoundSegment]:
        """Decode a recording and yield its segments of at most `segment_s` seconds; parameters as in `utterance`."""
        for samples in read_segments(source, self.rate, self.segment_s, rate):
            yield SoundSegment(samples, self.rate)

    def average(self, segments: Iterable[SoundSegment], name: str = "the sound") -> Vector:
        """Return the (dimension,) mean of the vectors of segments, weighted by the seconds of speech in each.

        Parameters
        ----------
        segments : at least one segment
        name : name of the recording in error messages

        Raises
        ------
        NumericalError
            The vector is zero or not finite.
        """
        total = np.zeros(self.dimension)
        weights = 0.0
        for segment in segments:
            weight = max(segment.speech_s, MIN_SEGMENT_WEIGHT)
            total += weight * self.embed(segment)
            weights += weight
        vector = np.asarray(total / weights, dtype=np.float32)
        if not np.isfinite(vector).all() or not vector.any():
            raise NumericalError(
                f"{self.name} returned a vector for {name} that is zero or not finite: check that the sound contains "
                "speech, or leave the recording out"
            )
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
        """Extract the vectors of recordings and measure their quality.

        Parameters
        ----------
        sources : recordings: paths of audio files, `FileSegment` objects, or arrays of samples at the extractor's rate
        on_error : "raise" stops at an unusable recording; "skip" leaves it out and lists it in the result
        progress : write lines of progress to standard error
        workers : number of processes; 1 runs in this process
        unfinished : SQLite file that stores each vector when it is computed. After an interruption, a call with the
            same file continues; the caller deletes the file

        Returns
        -------
        vectors and qualities in the order of `sources`
        """
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
        with closing(sqlite3.connect(unfinished or ":memory:")) as database:
            # a kill of this process loses nothing; a crash of the machine loses a few vectors
            database.execute("PRAGMA synchronous = OFF")
            database.execute(
                "CREATE TABLE IF NOT EXISTS made (of TEXT PRIMARY KEY, vector, quality)"
            )
            keys = [f"{self.fingerprint} {_file_state(source)}" for source in sources]
            results = [_stored(database, key) for key in keys]
            missing = [row for row, result in enumerate(results) if result is None]
            done = len(sources) - len(missing)
            bar = Progress("vectors", len(sources))
            extracted = self._extract_missing([sources[row] for row in missing], on_error, workers)
            for row, result in zip(missing, extracted, strict=True):
                results[row] = result
                if isinstance(result, Utterance):
                    _store(database, keys[row], result)
                done += 1
                if progress and (done % PROGRESS_INTERVAL == 0 or done == len(sources)):
                    bar.step(done)

        usable = {row: item for row, item in enumerate(results) if isinstance(item, Utterance)}
        reasons = {row: item for row, item in enumerate(results) if isinstance(item, str)}
        vectors = np.array([item.vector for item in usable.values()], dtype=np.float32)
        return ExtractedVectors(
            vectors.reshape(len(usable), self.dimension),
            list(usable),
            [item.quality for item in usable.values()],
            [(str(sources[row]), reason) for row, reason in reasons.items()],
        )

    def _extract_missing(
        self, sources: Sequence[Source], on_error: OnError, workers: int
    ) -> Iterator[Utterance | str]:
        """Yield the vector and quality of each recording, or the reason why it has none, in the order of `sources`."""
        # other processes load the networks by their paths
        paths = tuple(str(network.path) for network in self.networks)
        is_single = min(workers, len(sources)) <= 1
        work = partial(_extract_one, self if is_single else paths, on_error)
        return iter(ordered_map(work, sources, workers=workers))


def _stored(database: sqlite3.Connection, key: str) -> Utterance | str | None:
    """Read the vector and quality of a recording that an interrupted run has stored; None if there are none."""
    row = database.execute("SELECT vector, quality FROM made WHERE of = ?", (key,)).fetchone()
    if row is None:
        return None
    quality = json.loads(row[1])
    quality["warnings"] = tuple(quality["warnings"])
    return Utterance(np.frombuffer(row[0], np.float32), Quality(**quality))


def _store(database: sqlite3.Connection, key: str, result: Utterance) -> None:
    values = (key, result.vector.tobytes(), json.dumps(result.quality.to_dict()))
    database.execute("INSERT OR REPLACE INTO made VALUES (?, ?, ?)", values)
    database.commit()


def _file_state(source: Source) -> str:
    """Return a text that changes if a recording does: path, segment, size and modification time.

    The text is "none" for a source that is not a file, such as an array.
    """
    path = source.path if isinstance(source, FileSegment) else Path(str(source))
    if not path.is_file():
        return "none"
    return f"{source!r} {path.stat().st_size} {path.stat().st_mtime_ns}"


def _extract_one(
    extractor: Extractor | tuple[str, ...],
    on_error: OnError,
    source: Source,
) -> Utterance | str:
    """Return the vector and quality of a recording, or the reason why there is no vector.

    extractor : an extractor, or the paths of its networks, which another process loads
    on_error : "raise" raises the error of an unusable recording; "skip" returns its text
    """
    if isinstance(extractor, tuple):
        extractor = _load_once(extractor)
    try:
        return extractor.utterance(source)
    except (AudioError, NumericalError, OSError) as error:
        if on_error == "raise":
            raise
        return str(error)


@lru_cache(maxsize=1)
def _load_once(paths: tuple[str, ...]) -> Extractor:
    """Load the extractor of the networks at the given paths, once per process."""
    return load_extractor(paths, check=False)


def load_extractor(
    path: PathLike | Sequence[PathLike], *, check: bool = True, threads: int = 1
) -> Extractor:
    """Load an extractor of one network, or of several whose vectors are concatenated.

    Parameters
    ----------
    path : an ONNX file with a recipe beside it, such as ``mvplda experiment`` writes; or a name that
        ``mvplda extractor get`` downloaded (``mvplda extractor list`` prints the names). A list loads several
        networks side by side.
    check : whether to compare the vector of the test signal with the recipe's golden vector. A
        download that passed this comparison with the installed libraries is not compared again
    threads : number of threads of onnxruntime

    Raises
    ------
    FileFormatError
        The file has no recipe (the error contains a draft), or it differs from the file that its recipe describes.
    FetchError
        A name was given whose files were not downloaded.
    NumericalError
        The vector of the test signal differs from the golden vector.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return Extractor([load_network(item, check=check, threads=threads) for item in paths])


def load_network(path: PathLike, *, check: bool, threads: int) -> OnnxNetwork:
    """Load one network by the path of its ONNX file, or by the name of a downloaded extractor; see `load_extractor`."""
    file = Path(path)
    # names take precedence over files and folders of the same name
    if str(path) in downloadable():
        file = cached_file(str(path))
        if is_stale(file):
            raise FileFormatError(
                f"{path} was fetched by another version of mvplda and gives other vectors than this version. Fetch it "
                f"again: mvplda extractor get {path}"
            )
    if not file.is_file():
        raise FileNotFoundError(missing_extractor_message(str(path)))
    try:
        network = OnnxNetwork(file, threads=threads)
    except FileFormatError as error:
        if str(path) not in downloadable():
            raise
        raise FileFormatError(f"{error}. Fetch it again: mvplda extractor get {path}") from error
    # `mvplda extractor get` has compared the golden vector of a download with the same libraries
    if check and not (str(path) in downloadable() and is_checked(network)):
        network.check()
    return network
