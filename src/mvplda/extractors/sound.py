"""Sound of any kind as samples of one channel: files that libsndfile reads, and what browsers record."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import AudioError, DataError

if TYPE_CHECKING:
    from ..speech.features.reading import Clip

Sound = NDArray[np.float32]
Source = Union[str, os.PathLike[str], NDArray[Any], "Clip"]

CONTAINERS = {
    b"\x1a\x45\xdf\xa3": "WebM or Matroska",
    b"ftyp": "MP4 or M4A",
    b"#!AMR": "AMR",
    b"\x30\x26\xb2\x75": "WMA",
}
"""How containers begin that libsndfile does not read; that of MP4 stands after four bytes."""
SUFFIXES = (".webm", ".mka", ".mkv", ".m4a", ".mp4", ".amr", ".wma")


def segments(source: Source, rate: int, longest_s: float, source_rate: int | None = None) -> Iterator[Sound]:
    """The sound in equal parts of at most so many seconds, one after the other; a short one in one part.

    Parameters
    ----------
    source : a file, a `Clip` (a stretch of one), or samples of one channel (n,) or several (n, channels), full scale
        being 1
    rate : samples a second of what comes
    source_rate : of an array
    """
    from ..speech.features.reading import Clip, SoundReader, read_audio

    if isinstance(source, Clip) and source.stretch != (0, None, None):
        yield from _parts(read_audio(source, rate), rate, longest_s)
        return
    if isinstance(source, Clip):
        source = source.path
    if not isinstance(source, (str, os.PathLike)):
        yield from _parts(_from_array(source, rate, source_rate), rate, longest_s)
        return

    foreign = container(source)
    if foreign:
        yield from _parts(_decoded(Path(source), rate, foreign), rate, longest_s)
        return
    with SoundReader(source, rate) as reader:
        frames = reader.frames
        count = max(1, int(np.ceil(frames / (longest_s * reader.file_rate))))
        bounds = np.linspace(0, frames, count + 1).round().astype(np.int64)
        silent = 0
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            try:
                # to the end without a length: a truncated file is then told from a whole one
                yield reader.read(start, None if count == 1 else end - start)
            except AudioError as error:
                if count == 1 or "silent" not in str(error):
                    raise
                silent += 1
        if silent == count:
            raise AudioError(f"{source} is silent: all samples are zero")


def container(path: str | os.PathLike[str]) -> str:
    """Which container that libsndfile does not read a file is, by its first bytes; empty for others."""
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except OSError:
        return ""  # the reader has the words for it
    return next((name for magic, name in CONTAINERS.items() if magic in (head[: len(magic)], head[4:8])), "")


def _parts(samples: Sound, rate: int, longest_s: float) -> Iterator[Sound]:
    count = max(1, int(np.ceil(len(samples) / (longest_s * rate))))
    for part in np.array_split(samples, count):
        if count == 1 or part.any():
            yield part


def _from_array(samples: NDArray[Any], rate: int, source_rate: int | None) -> Sound:
    array = np.asarray(samples)
    if source_rate is None:
        raise DataError("samples in an array need their rate: extractor(samples, rate=16000)")
    if array.ndim == 2:
        array = array.mean(axis=1)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise DataError(f"samples are (n,) or (n, channels) numbers; got shape {array.shape} of {array.dtype}")
    if array.dtype.kind in "iu":
        raise DataError("samples are floats whose full scale is 1: divide 16-bit numbers by 32768")
    if not len(array):
        raise AudioError("the sound is empty: there are no samples")
    if not np.isfinite(array).all():
        raise AudioError(f"{int((~np.isfinite(array)).sum())} of {len(array)} samples are not finite")
    if not array.any():
        raise AudioError("the sound is silent: all samples are zero")
    found = np.ascontiguousarray(array, dtype=np.float32)
    return found if source_rate == rate else need("soxr").resample(found, source_rate, rate, quality="HQ")


def _decoded(path: Path, rate: int, what: str) -> Sound:
    """By PyAV where it is installed, else by ffmpeg where that is."""
    try:
        import av
    except ImportError:
        program = shutil.which("ffmpeg")
        if program is None:
            raise AudioError(
                f"{path} is {what}, which libsndfile does not read: pip install av, or install ffmpeg, or convert it "
                f"to WAV, FLAC or Ogg"
            ) from None
        samples = _by_ffmpeg(program, path, rate)
    else:
        samples = _by_av(av, path, rate)
    if not len(samples):
        raise AudioError(f"{path} is empty: it has a header but no samples")
    if not samples.any():
        raise AudioError(f"{path} is silent: all samples are zero")
    return samples


def _by_av(av: Any, path: Path, rate: int) -> Sound:
    parts = []
    try:
        with av.open(str(path)) as opened:
            if not opened.streams.audio:
                raise AudioError(f"{path} has no sound in it")
            resampler = av.AudioResampler(format="flt", layout="mono", rate=rate)
            for frame in opened.decode(audio=0):
                parts += [piece.to_ndarray().reshape(-1) for piece in resampler.resample(frame)]
            parts += [piece.to_ndarray().reshape(-1) for piece in resampler.resample(None)]
    except (av.FFmpegError, ValueError, RuntimeError) as error:
        raise AudioError(f"{path} is damaged: {error}") from error
    return np.concatenate(parts).astype(np.float32) if parts else np.empty(0, np.float32)


def _by_ffmpeg(program: str, path: Path, rate: int) -> Sound:
    command = [program, "-v", "error", "-nostdin", "-i", f"file:{path}", "-map", "0:a:0", "-ac", "1", "-ar", str(rate)]
    done = subprocess.run([*command, "-f", "f32le", "-"], capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise AudioError(f"{path} is damaged: {said[-1] if said else 'ffmpeg could not read it'}")
    return np.frombuffer(done.stdout[: len(done.stdout) // 4 * 4], dtype="<f4").astype(np.float32)
