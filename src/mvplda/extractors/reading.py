"""Samples from sound files: WAV, FLAC, OGG, NIST SPHERE and whatever else libsndfile reads."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import AudioError, ParameterError

Samples = NDArray[np.float32]

STREAMED = 2**31 - 2**16
"""A length that programs write into the header when they do not know it yet."""

CANCELLED = 1e-3
"""A mean of channels so far below them is what their rounding leaves."""

LARGEST = 1e10
"""Samples beyond any scale that programs use; the squares of larger ones are no numbers."""

FEW_BITS = {"PCM_U8": 8, "PCM_S8": 8, "DPCM_8": 8}
LEAST_BITS = 4
"""With fewer of its bits in use, what is in a file is no longer the voice."""

_RATES = re.compile(
    r"^\s*Block Align\s*: (\d+).*?^\s*Bytes/sec\s*: (\d+)", re.MULTILINE | re.DOTALL
)
_PLAIN = re.compile("PCM|FLOAT|DOUBLE|[AU]LAW")
_OGG_CUT = re.compile(r"^Ogg ?: (Last page lacks|Junk after the last page)", re.MULTILINE)
_CUT = re.compile(r"^\s*(?:data|SSND) : (\d+) \(should be (\d+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Clip:
    """Where the samples of an utterance lie: a file, or a stretch of one.

    ``start`` and ``length`` count samples at the file's own rate; a length of
    None means to the end. ``channel`` None means the mean of all channels.
    """

    path: Path
    start: int = 0
    length: int | None = None
    channel: int | None = None

    @property
    def stretch(self) -> tuple[int, int | None, int | None]:
        """Start, length and channel."""
        return self.start, self.length, self.channel


def read_audio(source: Clip | str | os.PathLike[str], rate: int = 16000) -> Samples:
    """Samples of a file, or of a stretch of one: one channel, at the rate asked for.

    Parameters
    ----------
    source : a path, or a `Clip` (a stretch of a file, a channel)
    rate : samples a second of the result; sound of another rate is resampled (soxr, HQ)

    Returns
    -------
    (n,) float32, full scale being 1

    Raises
    ------
    AudioError
        The file is missing, a folder, of no known format, damaged, truncated or empty; the
        stretch or the channel lies outside it; samples are not finite, or all zero.
    """
    clip = source if isinstance(source, Clip) else Clip(Path(source))
    with SoundReader(clip.path, rate) as reader:
        return reader.read(*clip.stretch)


class SoundReader:
    """An open sound file from which stretches are read.

    Stretches that follow one another cost no seek, and nothing else is decoded.

    Parameters
    ----------
    source : a path, or the bytes of a file
    rate : samples a second of what is read
    longest_s : a longer sound is an error before it is decoded, and so is one of so many channels or samples a second
        that it takes as much memory as two channels of this length at 96 kHz
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        rate: int = 16000,
        longest_s: float | None = None,
    ) -> None:
        if rate < 1:
            raise ParameterError(f"a rate is a number of samples a second; got {rate}")
        self.path, self.rate = sound_name(source), rate
        self._source, self._file = source, _open(source)
        channels = int(self._file.channels)
        if longest_s is not None and self.frames > longest_s * min(
            self.file_rate, 192_000 / channels
        ):
            self.close()
            self._fail(
                f"is too long: {self.frames / self.file_rate:.0f} s of {channels} channel(s) at {self.file_rate} Hz, "
                f"at most {longest_s:g} s are taken"
            )

    @property
    def frames(self) -> int:
        """Samples of each channel in the file."""
        return int(self._file.frames)

    @property
    def file_rate(self) -> int:
        """Samples a second in the file."""
        return int(self._file.samplerate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(
        self, start: int = 0, length: int | None = None, channel: int | None = None
    ) -> Samples:
        """A stretch in samples of the file's own rate, to the end if the length is None."""
        file = self._file
        if channel is not None and not 0 <= channel < file.channels:
            self._fail(
                f"has {file.channels} channel(s), there is no channel {channel} (they count from 0)"
            )
        if start < 0 or (length is not None and length < 1):
            self._fail(
                f"a stretch starts at 0 or later and has samples; got start {start} and length {length}"
            )
        self._check_rates()
        cut = self._cut()
        end = file.frames if length is None else start + length
        if cut and (length is None or end > file.frames):
            self._fail(f"is truncated: {cut}")
        if file.frames == 0:
            self._fail("is empty: it has a header but no samples")
        if start >= file.frames or end > file.frames:
            self._fail(f"has {file.frames} samples, the stretch from {start} to {end} is not in it")
        samples = self._decode(start, end - start)
        wrong = unusable(samples, start)
        if wrong:
            self._fail(f"has {wrong}")
        bits = FEW_BITS.get(file.subtype, 0)
        if bits and 0 < np.abs(samples).max() < 2.0 ** (LEAST_BITS - bits):
            self._fail(
                f"is all but silent: of its {bits} bits a sample, fewer than {LEAST_BITS} are in use"
            )
        mono = samples.mean(axis=1) if channel is None else samples[:, channel]
        if not mono.any() and (channel is not None or not samples.any()):
            self._fail("is silent: all samples are zero")
        if np.abs(mono).max() <= CANCELLED * np.abs(samples if channel is None else mono).max():
            self._fail("has channels that cancel each other: choose one of them")
        return self._resampled(np.ascontiguousarray(mono, dtype=np.float32))

    def _decode(self, start: int, count: int) -> NDArray[np.float32]:
        file = self._file
        try:
            if file.tell() != start:
                file.seek(start)
            samples: NDArray[np.float32] = file.read(count, dtype="float32", always_2d=True)
        except (RuntimeError, OSError) as error:
            self._fail(f"is damaged: {error}", error)
        except (MemoryError, ValueError) as error:
            self._fail(
                f"promises more than memory holds, {count} samples, and may be damaged", error
            )
        if len(samples) != count:
            self._fail(
                f"is damaged or truncated: {count} samples were to be read at {start}, {len(samples)} came"
            )
        return samples

    def _resampled(self, samples: Samples) -> Samples:
        if self._file.samplerate == self.rate:
            return samples
        resampled: Samples = need("soxr").resample(
            samples, self._file.samplerate, self.rate, quality="HQ"
        )
        if not len(resampled):
            self._fail(f"is too short: {len(samples)} samples give none at {self.rate} a second")
        return resampled

    def _check_rates(self) -> None:
        """A WAV header tells its rate twice: in samples, and in bytes a second."""
        told = _RATES.search(self._file.extra_info) if _PLAIN.match(self._file.subtype) else None
        if told and int(told[2]) and int(told[2]) != int(told[1]) * self.file_rate:
            self._fail(
                f"has a header that contradicts itself: {self.file_rate} samples a second of {told[1]} bytes are not "
                f"{told[2]} bytes a second. Its rate may be wrong, or it is damaged: write it anew"
            )

    def _cut(self) -> str:
        """What of the sound that the header promises is not in the file; empty if all is."""
        text = self._file.extra_info
        found = _CUT.search(text)
        if found and int(found[2]) < int(found[1]) < STREAMED:
            return f"its header promises {found[1]} bytes of sound, {found[2]} are there"
        if _OGG_CUT.search(text):
            return "the last page of the stream is not whole, or not the last"
        promised = (
            sphere_header(self._source).get("sample_count", "")
            if self._file.format == "NIST"
            else ""
        )
        if promised.isdigit() and int(promised) > self._file.frames:
            return f"its header promises {promised} samples, {self._file.frames} are there"
        return ""

    def _fail(self, reason: str, cause: Exception | None = None) -> NoReturn:
        raise AudioError(f"{self.path} {reason}") from cause


def unusable(samples: NDArray[Any], start: int = 0) -> str:
    """What of samples (n,) or (n, channels) is no sound, in words; empty if they are."""
    finite = np.isfinite(samples)
    if not finite.all():
        first = start + int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
        return f"samples that are not finite, the first at {first}"
    largest = float(np.abs(samples).max(initial=0.0))
    return f"samples as large as {largest:.0e}, where full scale is 1" if largest > LARGEST else ""


def sound_name(source: str | os.PathLike[str] | bytes) -> Path:
    """What errors call it."""
    return Path("the recording") if isinstance(source, bytes) else Path(source)


def sphere_header(source: str | os.PathLike[str] | bytes) -> dict[str, str]:
    """The fields of a NIST SPHERE header; none if the file is another."""
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
        head = file.read(1024)
        if not head.startswith(b"NIST_1A\n"):
            return {}
        size = head[8:16].strip()
        head += file.read(max(0, min(int(size), 2**16) - len(head))) if size.isdigit() else b""
    lines = head.partition(b"end_head")[0].decode("latin-1").splitlines()[2:]
    parts = (line.split(None, 2) for line in lines)
    return {part[0]: part[2].strip() for part in parts if len(part) == 3}


def _open(source: str | os.PathLike[str] | bytes) -> Any:
    soundfile = need("soundfile")
    path = sound_name(source)
    try:
        if not isinstance(source, bytes):
            if path.is_dir():
                raise AudioError(f"{path} is a folder, not a sound file")
            if not path.is_file():
                raise AudioError(f"there is no sound file {path}")
        if not (len(source) if isinstance(source, bytes) else path.stat().st_size):
            raise AudioError(f"{path} is empty: it has no bytes")
        coding = sphere_header(source).get("sample_coding", "")
        if "shorten" in coding or "wavpack" in coding or "shortpack" in coding:
            # libsndfile would take the packed bytes for samples, and give noise.
            raise AudioError(
                f"{path} is a compressed NIST SPHERE file ({coding}), which is not read here: unpack it first, "
                f"such as with sph2pipe -f wav {path.name} {path.stem}.wav"
            )
        # names need not be UTF-8
        return soundfile.SoundFile(
            io.BytesIO(source) if isinstance(source, bytes) else os.fsencode(path)
        )
    except (RuntimeError, OSError) as error:
        raise AudioError(
            f"{path} is damaged or not a sound file: {getattr(error, 'error_string', error)}"
        ) from error
    except TypeError as error:  # soundfile takes the suffix .raw to mean samples without a header
        raise AudioError(
            f"{path} has no header that tells its rate and format: convert it to WAV or FLAC"
        ) from error
