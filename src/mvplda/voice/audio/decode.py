"""The one reader of sound: files, what browsers record, bytes and arrays, as samples of one channel."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._typing import FloatArray, PathLike
from ...exceptions import AudioError, DataError

if TYPE_CHECKING:
    from av.container import InputContainer
    from soundfile import SoundFile

Sound = NDArray[np.float32]
AudioFile = PathLike | bytes

CONTAINERS = {
    b"\x1a\x45\xdf\xa3": "matroska",
    b"ftyp": "mp4",
    b"#!AMR": "amr",
    b"\x30\x26\xb2\x75": "asf",
    b"\xff\xf1": "aac",
    b"\xff\xf9": "aac",
    b"fLaC": "flac",
}
"""How containers begin that libsndfile does not read (that of MP4 stands after four bytes), and PyAV's names for them:
it is given the name, for some that it would choose by itself make it open other files."""
FLAC_LENGTH = slice(21, 26)
"""Where a FLAC file has its number of samples, in the last 36 bits; a stream has zeros there."""
SUFFIXES = (".webm", ".mka", ".mkv", ".m4a", ".mp4", ".amr", ".wma", ".aac")

LOST_S = 0.25
"""So much less than the header promises may come of a whole file: encoders round, and begin before the sound."""
HEAD = 1024
"""Bytes that a header of NIST SPHERE has."""
GOLDEN_S = 2.4
LEAST_RATE = 4000
MOST_RATE = 768_000
"""Half of a telephone's 8000 is below any speech; the other is the highest that converters have."""
STREAMED = 2**31 - 2**16
"""A length that programs write into the header when they do not know it yet."""
CANCELLED = 1e-3
"""A mean of channels so far below them is what their rounding leaves."""
LARGEST = 1e10
"""Samples beyond any scale that programs use; the squares of larger ones are not finite."""
_OGG_CUT = re.compile(r"^Ogg ?: (Last page lacks|Junk after the last page)", re.M)
_CUT = re.compile(r"^\s*(?:data|SSND) : (\d+) \(should be (\d+)\)", re.M)


@dataclass(frozen=True)
class FileSegment:
    """Where the samples of an utterance lie: a file, or a stretch of one.

    start, length : in samples at the file's own rate; a length of None means to the end
    """

    path: Path
    start: int = 0
    length: int | None = None


Source = PathLike | FloatArray | FileSegment


def read_sound(
    source: AudioFile | bytearray | memoryview,
    rate: int = 16000,
    *,
    longest_s: float = 600.0,
    most_bytes: int = 2**28,
) -> tuple[Sound, int]:
    """Samples of one channel and their rate, of a file or of its bytes: whatever can be read, and WebM and MP4 too.

    Parameters
    ----------
    source : a path, or the bytes of a file, such as a browser's recording that was sent
    rate : samples a second of the result; sound of another rate is resampled (soxr, HQ)
    longest_s, most_bytes : a longer or larger recording is an error; what is packed small and is long is not unpacked
        beyond this

    Returns
    -------
    (n,) float32 samples, full scale being 1, and the rate: ``extractor.utterance(*read_sound(body))``

    Raises
    ------
    AudioError
        The recording is empty, silent, damaged, truncated, too long, too large, or of a kind that is not read here.
    """
    if not isinstance(source, (str, os.PathLike)):
        if not isinstance(source, (bytes, bytearray, memoryview)):
            raise DataError(
                f"a sound is a path, or the bytes of a file: file.read(); got {type(source).__name__}"
            )
        source = bytes(source)
    return _of_file(source, rate, most_s=longest_s, most_bytes=most_bytes), rate


def read_audio(source: FileSegment | PathLike, rate: int = 16000) -> Sound:
    """Samples of a file, or of a stretch of one, however long: one channel, at the rate asked for."""
    if isinstance(source, FileSegment):
        return _of_file(source.path, rate, source)
    return _of_file(source, rate)


def read_segments(
    source: Source, rate: int, longest_s: float, source_rate: int | None = None
) -> list[Sound]:
    """The sound in equal parts of at most so many seconds; silent ones are left out.

    Parameters
    ----------
    source : a file, a `FileSegment`, or samples (n,) or (n, channels) whose full
        scale is 1
    rate : samples a second of what comes
    source_rate : of an array
    """
    if isinstance(source, (FileSegment, str, os.PathLike)):
        sound = read_audio(source, rate)
    else:
        sound = sound_from_array(source, rate, source_rate)
    parts = np.array_split(sound, ceil(len(sound) / (longest_s * rate)))
    return [part for part in parts if part.any()]


def _of_file(
    source: AudioFile,
    rate: int,
    clip: FileSegment | None = None,
    most_s: float = inf,
    most_bytes: float = inf,
) -> Sound:
    try:
        with _opened(source) as opened:
            head = opened.read(HEAD)
            size = opened.seek(0, os.SEEK_END)
    except OSError as error:
        _fail(source, f"cannot be read: {error.strerror}", error)
    if not head:
        _fail(source, "is empty: it has no bytes")
    if size > most_bytes:
        _fail(source, f"is too large: {size} bytes, at most {most_bytes} are taken")
    kind = container_format(head)
    if kind and (clip is None or clip == FileSegment(clip.path)):
        samples, own_rate = _by_av(source, kind, most_s)
    else:
        samples, own_rate = _by_soundfile(source, head, clip or FileSegment(Path()), most_s)
    return _as_sound(samples, source, own_rate, rate)


def _by_soundfile(
    source: AudioFile, head: bytes, clip: FileSegment, most_s: float
) -> tuple[Sound, int]:
    """(n, channels) samples of a stretch and their rate, where header, file and limits do not contradict each other."""
    sphere = sphere_header(head)
    coding = sphere.get("sample_coding", "")
    if re.search("shorten|wavpack|shortpack", coding):
        # libsndfile would take the packed bytes for samples, and give noise
        _fail(
            source,
            f"is a compressed NIST SPHERE file ({coding}), which is not read here: unpack it first, such as with "
            f"sph2pipe -f wav",
        )
    promised = sphere.get("sample_count", "")
    with _open(source) as file:
        rate = int(file.samplerate)
        _check_rate(rate, source)
        length = file.frames - clip.start if clip.length is None else clip.length
        end = clip.start + length
        if clip.length is None or end > file.frames:
            sizes = _CUT.search(file.extra_info)
            cut = sizes is not None and int(sizes[2]) < int(sizes[1]) < STREAMED
            missing = promised.isdigit() and int(promised) > file.frames
            if cut or missing or _OGG_CUT.search(file.extra_info):
                _fail(source, "is truncated: its header promises more than there is")
        if file.frames and (clip.start < 0 or length < 1 or end > file.frames):
            reason = f"the stretch from {clip.start} to {end} is not in it"
            _fail(source, f"has {file.frames} samples, {reason}")
        if length > most_s * rate:
            _fail(source, f"is too long: {length / rate:.0f} s, at most {most_s:g} s are taken")
        try:
            if file.tell() != clip.start:
                file.seek(clip.start)
            samples: Sound = file.read(length, dtype="float32", always_2d=True)
        except (RuntimeError, OSError, MemoryError, ValueError) as error:
            reason = f"is damaged, or promises more than memory holds ({length} samples): {error}"
            _fail(source, reason, error)
    if len(samples) != length:
        _fail(source, f"is damaged or truncated: {len(samples)} of {length} samples could be read")
    return samples, rate


def sphere_header(head: bytes) -> dict[str, str]:
    """The fields of a NIST SPHERE header; none if a file begins otherwise."""
    if not head.startswith(b"NIST_1A\n"):
        return {}
    lines = head.partition(b"end_head")[0].decode("latin-1").splitlines()[2:]
    fields = (line.split(None, 2) for line in lines)
    return {field[0]: field[2].strip() for field in fields if len(field) == 3}


def _open(source: AudioFile) -> SoundFile:
    # names need not be UTF-8
    readable = io.BytesIO(source) if isinstance(source, bytes) else os.fsencode(source)
    try:
        return need("soundfile").SoundFile(readable)
    # soundfile takes the suffix .raw to mean samples without a header, and misses their rate
    except (RuntimeError, OSError, TypeError) as error:
        _fail(
            source,
            f"is damaged or not a sound file: {getattr(error, 'error_string', error)}",
            error,
        )


def container_format(head: bytes) -> str:
    """Which container that libsndfile does not read a file is, by its first bytes; empty for others.

    The suffix does not count.
    """
    if head.startswith(b"fLaC") and int.from_bytes(head[FLAC_LENGTH]) % 2**36:
        return ""
    return next(
        (kind for magic, kind in CONTAINERS.items() if magic in (head[: len(magic)], head[4:8])), ""
    )


def _opened(source: AudioFile) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _fail(source: AudioFile, reason: str, cause: Exception | None = None) -> NoReturn:
    name = "the recording" if isinstance(source, bytes) else os.fspath(source)
    raise AudioError(f"{name} {reason}") from cause


def _check_rate(rate: int, source: AudioFile) -> None:
    """A damaged header may have any rate; a few samples at a very low one would be hours."""
    if not LEAST_RATE <= rate <= MOST_RATE:
        _fail(
            source,
            f"has {rate} samples a second, and a voice needs {LEAST_RATE} to {MOST_RATE}: it may be damaged",
        )


def _as_sound(samples: FloatArray, source: AudioFile, rate: int, wanted: int) -> Sound:
    """Samples (n,) or (n, channels), which must hold sound, as one channel at a rate."""
    if not np.isfinite(samples).all():
        _fail(source, "has samples that are not finite")
    loudest = float(np.abs(samples).max(initial=0.0))
    if not len(samples):
        _fail(source, "is empty: it has no samples")
    if loudest > LARGEST:
        _fail(source, f"has samples as large as {loudest:.0e}, where full scale is 1")
    if not loudest:
        _fail(source, "is silent: all samples are zero")
    sound = samples
    if samples.ndim == 2:
        sound = samples.mean(axis=1)
        if np.abs(sound).max() <= CANCELLED * loudest:
            _fail(source, "has channels that cancel each other: give one of them")
    sound = np.ascontiguousarray(sound, dtype=np.float32)
    if rate != wanted:
        sound = need("soxr").resample(sound, rate, wanted, quality="HQ")
    if not len(sound):
        _fail(source, f"is too short: {len(samples)} samples give none at {wanted} a second")
    return sound


def sound_from_array(samples: FloatArray, rate: int, source_rate: int | None) -> Sound:
    """Samples (n,) or (n, channels) whose full scale is 1, as one channel at a rate."""
    array = np.asarray(samples)
    if source_rate is None:
        raise DataError("samples in an array need their rate: extractor(samples, rate=16000)")
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        raise DataError(
            "samples are (n,) or (n, channels) floats whose full scale is 1 (divide 16-bit numbers by 32768); got "
            f"shape {array.shape} of {array.dtype}"
        )
    _check_rate(source_rate, "the sound")
    return _as_sound(array, "the sound", source_rate, rate)


def _by_av(source: AudioFile, kind: str, most_s: float) -> tuple[Sound, int]:
    """(n,) samples of one channel and their rate, of a container that PyAV reads."""
    av = need("av")
    try:
        with _opened(source) as file, av.open(file, "r", format=kind) as opened:
            blocks, rate = _blocks(source, opened, most_s)
            # damage within a file is skipped in silence; its header has, where it is there, how long it was
            alone = kind == "matroska" and len(opened.streams) == 1
            promised = (opened.duration or 0) / av.time_base
    except AudioError:
        raise
    except (av.FFmpegError, IndexError, TypeError, ValueError, RuntimeError) as error:
        _fail(source, f"is damaged: {error}", error)
    samples = np.concatenate([np.empty(0, np.float32), *blocks])
    if alone and blocks and len(samples) < (promised - LOST_S) * rate:
        _fail(source, f"is damaged: {promised:.1f} s could not all be read")
    return samples, rate


def _blocks(source: AudioFile, opened: InputContainer, most_s: float) -> tuple[list[Sound], int]:
    """Blocks of one channel at the file's own rate, and that rate."""
    streams = opened.streams.audio
    # a stream in a codec that is not known has no decoder
    if not streams or streams[0].codec_context is None:
        _fail(source, "is damaged, or has no sound in it")
    rate = int(streams[0].rate)
    plain = need("av").AudioResampler(format="fltp")
    blocks: list[Sound] = []
    length = 0
    for frame in opened.decode(audio=0):
        if frame.sample_rate != rate:
            _fail(source, f"changes its rate from {rate} Hz: not read here")
        length += frame.samples
        if length > most_s * rate:
            _fail(source, f"is too long: at most {most_s:g} s are taken")
        blocks += [one.to_ndarray().mean(axis=0, dtype=np.float32) for one in plain.resample(frame)]
    return blocks, rate


@lru_cache(maxsize=4)
def golden_signal(rate: int = 16000) -> Sound:
    """A made voice of 2.4 s: pulses of a moving pitch through three resonances, in syllables, over a little noise."""
    t = np.arange(round(GOLDEN_S * rate)) / rate
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * t) - 15 * t
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = np.zeros_like(t)
    for harmonic in range(1, 31):
        hz = harmonic * pitch
        gain = sum(
            height / (1 + ((hz - centre * (1 + 0.12 * np.sin(2 * np.pi * speed * t))) / width) ** 2)
            for centre, width, height, speed in (
                (550, 120, 1.0, 1.1),
                (1500, 180, 0.5, 1.7),
                (2600, 250, 0.25, 0.6),
            )
        )
        voice += gain * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 2.2 * t), 0, None) ** 0.5
    numbers = np.arange(1, len(t) + 1, dtype=np.uint64)
    mixed = (
        numbers * np.uint64(2654435761) ^ (numbers * np.uint64(40503) >> np.uint64(7))
    ) % np.uint64(65536)
    signal = 0.05 * voice * syllables + 2e-3 * (mixed.astype(np.float64) / 32768 - 1)
    rounded = signal.astype(np.float32)
    rounded.setflags(write=False)
    return rounded
