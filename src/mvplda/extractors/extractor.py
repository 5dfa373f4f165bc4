"""The protocol: samples and their rate in, a vector out; and how an extractor is loaded."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from ..exceptions import AudioError, FileFormatError, NumericalError, ParameterError
from .quality import Quality, QualitySettings, frame_levels, is_speech, measure_parts
from .sound import Sound, Source, segments

Vector = NDArray[np.float32]
OnError = Literal["raise", "skip"]
LONGEST_S = 30.0
"""Seconds that are read at once: vectors of voices gain nothing from more, and memory stays small."""


@dataclass(frozen=True, eq=False)
class Utterance:
    """A vector, and how good the recording was that it was made of."""

    vector: Vector
    quality: Quality


@dataclass(frozen=True, eq=False)
class Extracted:
    """Vectors of many recordings.

    X : (n, dimension)
    rows : which of the sources they are of
    qualities : one a vector
    skipped : (source, reason) of those that have none
    """

    X: Vector
    rows: list[int]
    qualities: list[Quality]
    skipped: list[tuple[str, str]]


@runtime_checkable
class Extractor(Protocol):
    """From sound to a vector.

    name : what it is, and the start of its fingerprint: what stands beside vectors as their extractor
    dimension : numbers in a vector
    fingerprint : SHA-256 of the weights and of all that is done before and after them
    views : what its vectors tell apart
    """

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def views(self) -> tuple[str, ...]: ...

    def __call__(self, source: Source, rate: int | None = None) -> Vector: ...
    def utterance(self, source: Source, rate: int | None = None) -> Utterance: ...
    def extract(self, sources: Sequence[Source], *, progress: bool = False) -> Vector: ...


class SoundExtractor(ABC):
    """What every extractor does alike: long sound in parts, many files, quality beside every vector."""

    rate: int
    segment_s: float = LONGEST_S

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def dimension(self) -> int: ...

    @property
    @abstractmethod
    def fingerprint(self) -> str: ...

    @property
    @abstractmethod
    def views(self) -> tuple[str, ...]: ...

    @abstractmethod
    def embed(self, samples: Sound) -> Vector:
        """The vector of samples of one channel at the extractor's rate."""

    def __call__(self, source: Source, rate: int | None = None) -> Vector:
        """The vector (dimension,) of a file, or of samples whose full scale is 1 and their rate."""
        return self.utterance(source, rate).vector

    def utterance(self, source: Source, rate: int | None = None, settings: QualitySettings | None = None) -> Utterance:
        """The vector, and the quality of the recording.

        A sound longer than the extractor takes at once is cut into equal parts; their vectors are
        averaged, each counting for the speech that is in it.
        """
        total = np.zeros(self.dimension)
        weight = 0.0

        def each() -> Iterator[Sound]:
            nonlocal weight
            for part in segments(source, self.rate, self.segment_s, rate):
                speech = float(is_speech(frame_levels(part, self.rate), settings).sum()) or 1e-3
                total[:] += speech * self.embed(part)
                weight += speech
                yield part

        try:
            quality = measure_parts(each(), self.rate, settings)
        except AudioError as error:
            if isinstance(source, (str, os.PathLike)) and str(source) not in str(error):
                raise AudioError(f"{source}: {error}") from error
            raise
        vector = np.asarray(total / weight, dtype=np.float32)
        if not np.isfinite(vector).all() or not vector.any():
            where = f" of {source}" if isinstance(source, (str, os.PathLike)) else ""
            raise NumericalError(f"{self.name} gave a vector{where} that is zero or not finite")
        return Utterance(vector, quality)

    def extract(self, sources: Sequence[Source], *, progress: bool = False, workers: int = 1) -> Vector:
        """(n, dimension) vectors of files; one that cannot be used is an error. `extract_all` skips them instead."""
        return self.extract_all(sources, progress=progress, workers=workers).X

    def extract_all(
        self,
        sources: Sequence[Source],
        *,
        on_error: OnError = "raise",
        progress: bool = False,
        workers: int = 1,
    ) -> Extracted:
        """Vectors and qualities of files.

        Parameters
        ----------
        on_error : stop at a file that cannot be used, or leave it out and say so in the result
        workers : processes; only an extractor that was loaded from a file can work in several
        """
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
        line = Progress("vectors", len(sources)) if progress else None
        done: list[tuple[int, Utterance | str]] = []
        for found in self._each(list(enumerate(sources)), on_error, workers):
            done.append(found)
            if line is not None and (len(done) % 50 == 0 or len(done) == len(sources)):
                line.step(len(done))
        good = [(row, value) for row, value in done if isinstance(value, Utterance)]
        return Extracted(
            np.array([value.vector for _, value in good], dtype=np.float32).reshape(len(good), self.dimension),
            [row for row, _ in good],
            [value.quality for _, value in good],
            [(str(sources[row]), value) for row, value in done if isinstance(value, str)],
        )

    def _each(
        self, items: list[tuple[int, Source]], on_error: OnError, workers: int
    ) -> Iterator[tuple[int, Utterance | str]]:
        place = self._place()
        if workers <= 1 or len(items) < 2:
            for item in items:
                yield _one(self, on_error, item)
            return
        if place is None:
            raise ParameterError(f"{self.name} was not loaded from a file: it works in one process, workers=1")
        from ..distributed.engines import map_reduce

        found: list[list[tuple[int, Utterance | str]]] = []
        step = max(1, min(32, len(items) // (4 * workers)))
        shares = [items[i : i + step] for i in range(0, len(items), step)]
        map_reduce(
            partial(_share, place, self.fingerprint, on_error),
            shares,
            _join,
            engine="processes",
            workers=workers,
            done=lambda part: None if part is None else found.append(part),
        )
        for part in sorted(found):
            yield from part

    def _place(self) -> str | None:
        """From where another process can load the same extractor."""
        return None


def _one(extractor: SoundExtractor, on_error: OnError, item: tuple[int, Source]) -> tuple[int, Utterance | str]:
    row, source = item
    try:
        return row, extractor.utterance(source)
    except (AudioError, NumericalError, OSError) as error:
        if on_error == "raise":
            raise
        return row, str(error)


def _share(
    place: str, fingerprint: str, on_error: OnError, items: list[tuple[int, Source]]
) -> list[tuple[int, Utterance | str]]:
    extractor = _loaded(place, fingerprint)
    return [_one(extractor, on_error, item) for item in items]


def _join(parts: list[list[tuple[int, Utterance | str]]]) -> list[tuple[int, Utterance | str]]:
    return []  # results are taken one by one; the tree has nothing to add


@lru_cache(maxsize=4)
def _loaded(place: str, fingerprint: str) -> SoundExtractor:
    from .loading import load_extractor

    extractor = load_extractor(place, check=False)
    if extractor.fingerprint != fingerprint:
        raise FileFormatError(f"{place} has changed while it was used: start again")
    return extractor


class JointExtractor(SoundExtractor):
    """Several extractors side by side, each part of the vector of length one, so that none outweighs another."""

    def __init__(self, parts: Sequence[SoundExtractor]) -> None:
        if len(parts) < 2:
            raise ParameterError(f"extractors side by side are two or more; got {len(parts)}")
        rates = {part.rate for part in parts}
        if len(rates) > 1:
            raise ParameterError(f"extractors side by side take one rate; these take {sorted(rates)}")
        self.parts = list(parts)
        self.rate = rates.pop()
        self.segment_s = min(part.segment_s for part in parts)

    @property
    def name(self) -> str:
        return "+".join(part.name for part in self.parts)

    @property
    def dimension(self) -> int:
        return sum(part.dimension for part in self.parts)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(part.fingerprint for part in self.parts).encode()).hexdigest()

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(view for part in self.parts for view in part.views))

    def embed(self, samples: Sound) -> Vector:
        vectors = [part.embed(samples) for part in self.parts]
        return np.concatenate([vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors])

    def _place(self) -> str | None:
        places = [part._place() for part in self.parts]
        return None if None in places else JOINED.join(str(place) for place in places)


JOINED = "\n+\n"
"""Between the files of extractors that stand side by side: no name holds it."""
