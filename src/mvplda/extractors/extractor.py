"""The protocol: samples and their rate in, a vector out; and how an extractor is loaded."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from ..exceptions import AudioError, FileFormatError, NumericalError, ParameterError
from .quality import Meter, Quality, QualitySettings, is_speech
from .sound import Sound, Source, segments

Vector = NDArray[np.float32]
OnError = Literal["raise", "skip"]
LONGEST_S = 30.0
"""Seconds that are read at once: vectors of voices gain nothing from more, and memory stays small."""
TOGETHER = 32
"""Recordings whose parts may wait for others of their length."""


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
    waits_s: float = 0.0
    """Seconds of sound that wait for others of their length, to go through the network together."""

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

    def ready(self, samples: Sound) -> Any:
        """What `vectors` makes vectors of; whatever is wrong with the samples is an error here."""
        return self.embed(samples)

    def vectors(self, ready: list[Any]) -> list[Vector]:
        """Vectors of several sounds, those of one length at once."""
        return ready

    def __call__(self, source: Source, rate: int | None = None) -> Vector:
        """The vector (dimension,) of a file, or of samples whose full scale is 1 and their rate."""
        return self.utterance(source, rate).vector

    def utterance(
        self, source: Source, rate: int | None = None, settings: QualitySettings | None = None
    ) -> Utterance:
        """The vector, and the quality of the recording.

        A sound longer than the extractor takes at once is cut into equal parts; their vectors are
        averaged, each counting for the speech that is in it.
        """
        return Waiting(self).heard(source, rate, settings)()

    def extract(
        self, sources: Sequence[Source], *, progress: bool = False, workers: int = 1
    ) -> Vector:
        """(n, dimension) vectors of files; one that cannot be used is an error. `extract_all` skips them instead."""
        return self.extract_all(sources, progress=progress, workers=workers).X

    def extract_all(
        self,
        sources: Sequence[Source],
        *,
        on_error: OnError = "raise",
        progress: bool = False,
        workers: int = 1,
        settings: QualitySettings | None = None,
    ) -> Extracted:
        """Vectors and qualities of files.

        Parameters
        ----------
        on_error : stop at a file that cannot be used, or leave it out and say so in the result
        workers : processes; only an extractor that was loaded from a file can work in several
        settings : when a recording is warned of, or has too little speech to be used
        """
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
        line = Progress("vectors", len(sources)) if progress else None
        done: list[tuple[int, Utterance | str]] = []
        for found in self._each(list(enumerate(sources)), on_error, workers, settings):
            done.append(found)
            if line is not None and (len(done) % 50 == 0 or len(done) == len(sources)):
                line.step(len(done))
        good = [(row, value) for row, value in done if isinstance(value, Utterance)]
        return Extracted(
            np.array([value.vector for _, value in good], dtype=np.float32).reshape(
                len(good), self.dimension
            ),
            [row for row, _ in good],
            [value.quality for _, value in good],
            [(str(sources[row]), value) for row, value in done if isinstance(value, str)],
        )

    def _each(
        self,
        items: list[tuple[int, Source]],
        on_error: OnError,
        workers: int,
        settings: QualitySettings | None,
    ) -> Iterator[tuple[int, Utterance | str]]:
        place = self._place()
        if workers <= 1 or len(items) < 2:
            yield from _some(self, on_error, settings, items)
            return
        if place is None:
            raise ParameterError(
                f"{self.name} was not loaded from a file: it works in one process, workers=1"
            )
        from ..distributed.engines import map_reduce

        found: list[list[tuple[int, Utterance | str]]] = []
        step = max(1, min(32, len(items) // (4 * workers)))
        shares = [items[i : i + step] for i in range(0, len(items), step)]
        map_reduce(
            partial(_share, place, self.fingerprint, on_error, settings),
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


class Waiting:
    """Parts of recordings that wait for others of their length; a few at most, however long the recordings are."""

    def __init__(self, extractor: SoundExtractor) -> None:
        self.extractor = extractor
        self._parts: list[tuple[NDArray[np.float64], float, Any]] = []
        self._seconds = 0.0

    def heard(
        self, source: Source, rate: int | None, settings: QualitySettings | None
    ) -> Callable[[], Utterance]:
        """Read and measure a recording; what comes back gives its vector."""
        extractor = self.extractor
        total = np.zeros(extractor.dimension)
        weight, meter = 0.0, Meter(extractor.rate, settings)
        named = isinstance(source, (str, os.PathLike))
        try:
            for part in segments(source, extractor.rate, extractor.segment_s, rate):
                speech = float(is_speech(meter.add(part), settings).sum()) or 1e-3
                self._parts.append((total, speech, extractor.ready(part)))
                self._seconds += len(part) / extractor.rate
                if self._seconds > extractor.waits_s:
                    self.flush()
                weight += speech
            quality = meter.quality()
        except AudioError as error:
            self._parts = [part for part in self._parts if part[0] is not total]
            if named and str(source) not in str(error):
                raise AudioError(f"{source}: {error}") from error
            raise

        def finished() -> Utterance:
            self.flush()
            vector = np.asarray(total / weight, dtype=np.float32)
            if not np.isfinite(vector).all() or not vector.any():
                where = f" of {source}" if named else ""
                raise NumericalError(
                    f"{extractor.name} gave a vector{where} that is zero or not finite"
                )
            return Utterance(vector, quality)

        return finished

    def flush(self) -> None:
        """Vectors of all that wait, added to their recordings."""
        found = self.extractor.vectors([ready for _, _, ready in self._parts])
        for (total, speech, _), vector in zip(self._parts, found, strict=True):
            total += speech * vector
        self._parts, self._seconds = [], 0.0


def _some(
    extractor: SoundExtractor,
    on_error: OnError,
    settings: QualitySettings | None,
    items: list[tuple[int, Source]],
) -> Iterator[tuple[int, Utterance | str]]:
    """A few recordings together, in their order."""
    for start in range(0, len(items), TOGETHER):
        waiting = Waiting(extractor)
        heard: list[tuple[int, Callable[[], Utterance] | str]] = []
        for row, source in items[start : start + TOGETHER]:
            try:
                heard.append((row, waiting.heard(source, None, settings)))
            except (AudioError, NumericalError, OSError) as error:
                if on_error == "raise":
                    raise
                heard.append((row, str(error)))
        for row, found in heard:
            try:
                yield row, found if isinstance(found, str) else found()
            except NumericalError as error:
                if on_error == "raise":
                    raise
                yield row, str(error)


def _share(
    place: str,
    fingerprint: str,
    on_error: OnError,
    settings: QualitySettings | None,
    items: list[tuple[int, Source]],
) -> list[tuple[int, Utterance | str]]:
    extractor = _loaded(place, fingerprint)
    return list(_some(extractor, on_error, settings, items))


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
            raise ParameterError(
                f"extractors side by side take one rate; these take {sorted(rates)}"
            )
        self.parts = list(parts)
        self.rate = rates.pop()
        self.segment_s = min(part.segment_s for part in parts)
        self.waits_s = max(part.waits_s for part in parts)

    @property
    def name(self) -> str:
        return "+".join(part.name for part in self.parts)

    @property
    def dimension(self) -> int:
        return sum(part.dimension for part in self.parts)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(
            "\n".join(part.fingerprint for part in self.parts).encode()
        ).hexdigest()

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(view for part in self.parts for view in part.views))

    def embed(self, samples: Sound) -> Vector:
        return self.vectors([self.ready(samples)])[0]

    def ready(self, samples: Sound) -> Any:
        return [part.ready(samples) for part in self.parts]

    def vectors(self, ready: list[Any]) -> list[Vector]:
        found = [part.vectors([one[i] for one in ready]) for i, part in enumerate(self.parts)]
        unit = [
            [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in each]
            for each in found
        ]
        return [np.concatenate(parts) for parts in zip(*unit, strict=True)]

    def _place(self) -> str | None:
        places = [part._place() for part in self.parts]
        return None if None in places else JOINED.join(str(place) for place in places)


JOINED = "\n+\n"
"""Between the files of extractors that stand side by side: no name holds it."""
