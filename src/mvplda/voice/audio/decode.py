"""Decoding of audio files, bytes and arrays to samples of one channel."""

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
"""{first bytes: PyAV's name} of the container formats that libsndfile does not read; MP4 has four bytes before them.

PyAV gets the name instead of detecting the format, because some formats that it detects make it open other files.
"""
FLAC_LENGTH = slice(21, 26)
"""Bytes of a FLAC file whose last 36 bits are the number of samples, or zero in a file that was written as a stream."""
SUFFIXES = (".webm", ".mka", ".mkv", ".m4a", ".mp4", ".amr", ".wma", ".aac")

MAX_MISSING_S = 0.25
"""Largest difference in seconds between the duration in a file's header and its sound, above which the file counts as
damaged. Encoders round durations, and start before the sound."""
HEADER_SIZE = 1024
"""Size of a NIST SPHERE header in bytes."""
GOLDEN_S = 2.4
MIN_SOUND_RATE = 4000
MAX_SOUND_RATE = 768_000
"""Limits of the sample rate of a file in Hz: half the rate of a telephone is too low for speech, and converters reach
at most 768 kHz."""
STREAM_LENGTH = 2**31 - 2**16
"""Smallest length in bytes that counts as a placeholder, which programs write into the header of a stream."""
CANCELLATION = 1e-3
"""Peak of the mean of the channels, relative to that of the channels, below which channels cancel each other."""
MAX_SAMPLE = 1e10
"""Largest valid sample (full scale is 1): no program uses a larger scale, and squares of larger samples overflow."""
_TRUNCATED_OGG = re.compile(r"^Ogg ?: (Last page lacks|Junk after the last page)", re.M)
_CHUNK_SIZES = re.compile(r"^\s*(?:data|SSND) : (\d+) \(should be (\d+)\)", re.M)


@dataclass(frozen=True)
class FileSegment:
    """Location of a recording: an audio file, or a segment of one.

    Attributes
    ----------
    path : audio file
    start : first sample of the segment, at the file's rate
    length : number of samples at the file's rate; None: up to the end of the file
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
    """Decode an audio file, or the bytes of one, to samples of one channel.

    Formats are those of libsndfile and, if PyAV is installed, WebM, MP4 and others. Pass the result to an extractor
    with ``extractor.utterance(*read_sound(file))``.

    Parameters
    ----------
    source : a path, or the bytes of a file, such as an uploaded recording of a browser
    rate : samples per second of the result; sound of another rate is resampled (soxr, HQ)
    longest_s : maximum duration in seconds; decoding stops there, because a small compressed file may be very long
    most_bytes : maximum size of the file in bytes

    Returns
    -------
    (n,) float32 samples (full scale 1), and the rate

    Raises
    ------
    AudioError
        The recording is empty, silent, damaged, truncated, too long, too large, or in a format that is not supported.
    """
    if not isinstance(source, (str, os.PathLike)):
        if not isinstance(source, (bytes, bytearray, memoryview)):
            raise DataError(
                f"expected a path or the bytes of a file (file.read()); got {type(source).__name__}"
            )
        source = bytes(source)
    return _of_file(source, rate, most_s=longest_s, most_bytes=most_bytes), rate


def read_audio(source: FileSegment | PathLike, rate: int = 16000) -> Sound:
    """Decode an audio file, or a segment of one, of any length to samples of one channel.

    Parameters
    ----------
    source : path of a file, or `FileSegment`
    rate : samples per second of the result

    Returns
    -------
    (n,) float32 samples (full scale 1)

    Raises
    ------
    AudioError
        The file is empty, silent, damaged, truncated, or in a format that is not supported.
    """
    if isinstance(source, FileSegment):
        return _of_file(source.path, rate, source)
    return _of_file(source, rate)


def read_segments(
    source: Source, rate: int, longest_s: float, source_rate: int | None = None
) -> list[Sound]:
    """Decode a recording and cut it into equal segments; segments of digital silence are left out.

    Parameters
    ----------
    source : path of a file, `FileSegment`, or array of samples (n,) or (n, channels) with full scale 1
    rate : samples per second of the segments
    longest_s : maximum duration of a segment in seconds
    source_rate : samples per second of an array

    Returns
    -------
    (n,) samples of one channel per segment, at least one
    """
    if isinstance(source, (FileSegment, str, os.PathLike)):
        sound = read_audio(source, rate)
    else:
        sound = sound_from_array(source, rate, source_rate)
    segments = np.array_split(sound, ceil(len(sound) / (longest_s * rate)))
    return [segment for segment in segments if segment.any()]


def _of_file(
    source: AudioFile,
    rate: int,
    segment: FileSegment | None = None,
    most_s: float = inf,
    most_bytes: float = inf,
) -> Sound:
    """Decode a file, or a segment of one, to (n,) samples of one channel.

    source : path or bytes of the file
    rate : samples per second of the result
    segment : position of the segment in the file; None: the whole file
    most_s : maximum duration in seconds
    most_bytes : maximum size of the file in bytes

    Raises
    ------
    AudioError
        The file cannot be decoded, is silent, or exceeds a maximum.
    """
    try:
        with _opened(source) as opened:
            header = opened.read(HEADER_SIZE)
            size = opened.seek(0, os.SEEK_END)
    except OSError as error:
        _fail(source, f"cannot be read: {error.strerror}", error)
    if not header:
        _fail(source, "is empty: it has no bytes. Record or copy it again")
    if size > most_bytes:
        _fail(source, f"is too large: {size} bytes, the limit is {most_bytes}. Cut or compress it")
    kind = container_format(header)
    if kind and (segment is None or segment == FileSegment(segment.path)):
        samples, file_rate = _by_av(source, kind, most_s)
    else:
        samples, file_rate = _by_soundfile(source, header, segment or FileSegment(Path()), most_s)
    return _as_sound(samples, source, file_rate, rate)


def _by_soundfile(
    source: AudioFile, head: bytes, segment: FileSegment, most_s: float
) -> tuple[Sound, int]:
    """Decode a file, or a segment of one, with libsndfile; raise `AudioError` if it is damaged or too long.

    Parameters
    ----------
    source : path or bytes of the file
    head : first bytes of the file, in which a NIST SPHERE header is looked for
    segment : position to decode
    most_s : maximum duration in seconds

    Returns
    -------
    (n, channels) samples (full scale 1), and their rate
    """
    sphere = sphere_header(head)
    coding = sphere.get("sample_coding", "")
    if re.search("shorten|wavpack|shortpack", coding):
        # libsndfile would return the compressed bytes as samples
        _fail(
            source,
            f"is a compressed NIST SPHERE file ({coding}), which is not supported: unpack it first, for "
            f"example with sph2pipe -f wav",
        )
    promised = sphere.get("sample_count", "")
    with _open(source) as file:
        rate = int(file.samplerate)
        _check_rate(rate, source)
        length = file.frames - segment.start if segment.length is None else segment.length
        end = segment.start + length
        if segment.length is None or end > file.frames:
            sizes = _CHUNK_SIZES.search(file.extra_info)
            cut = sizes is not None and int(sizes[2]) < int(sizes[1]) < STREAM_LENGTH
            missing = promised.isdigit() and int(promised) > file.frames
            if cut or missing or _TRUNCATED_OGG.search(file.extra_info):
                _fail(
                    source,
                    "is truncated: its header promises more samples than the file has. Copy it again",
                )
        if file.frames and (segment.start < 0 or length < 1 or end > file.frames):
            _fail(
                source,
                f"has {file.frames} samples, but the segment from {segment.start} to {end} is not within them: correct "
                "start and length of the segment",
            )
        if length > most_s * rate:
            problem = f"is too long: {length / rate:.0f} s, the limit is {most_s:g} s. Cut it"
            _fail(source, problem, reason="too_long")
        try:
            if file.tell() != segment.start:
                file.seek(segment.start)
            samples: Sound = file.read(length, dtype="float32", always_2d=True)
        except (RuntimeError, OSError, MemoryError, ValueError) as error:
            reason = f"is damaged, or its header promises more than fits in memory ({length} samples): {error}"
            _fail(source, reason, error)
    if len(samples) != length:
        _fail(
            source,
            f"is damaged or truncated: {len(samples)} of {length} samples could be read. Copy it again",
        )
    return samples, rate


def sphere_header(head: bytes) -> dict[str, str]:
    """Parse a NIST SPHERE header, {field: value}; the result is empty for files of another format.

    head : first bytes of a file
    """
    if not head.startswith(b"NIST_1A\n"):
        return {}
    lines = head.partition(b"end_head")[0].decode("latin-1").splitlines()[2:]
    fields = (line.split(None, 2) for line in lines)
    return {field[0]: field[2].strip() for field in fields if len(field) == 3}


def _open(source: AudioFile) -> SoundFile:
    # names of files need not be UTF-8
    readable = io.BytesIO(source) if isinstance(source, bytes) else os.fsencode(source)
    try:
        return need("soundfile").SoundFile(readable)
    # soundfile raises TypeError for the suffix .raw, because such files have no header with a rate
    except (RuntimeError, OSError, TypeError) as error:
        _fail(
            source,
            f"is damaged or not a sound file ({getattr(error, 'error_string', error)}): expected WAV, FLAC, Ogg, MP3, "
            "WebM, MP4 or another format of sound",
            error,
        )


def container_format(head: bytes) -> str:
    """Return PyAV's name of the container format of a file that libsndfile cannot read; "" for all other files.

    head : first bytes of the file
    """
    if head.startswith(b"fLaC") and int.from_bytes(head[FLAC_LENGTH]) % 2**36:
        return ""
    return next(
        (kind for magic, kind in CONTAINERS.items() if magic in (head[: len(magic)], head[4:8])), ""
    )


def _opened(source: AudioFile) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _fail(
    source: AudioFile, problem: str, cause: Exception | None = None, reason: str = "unreadable"
) -> NoReturn:
    """Raise an `AudioError` whose message is the name of the source followed by the problem.

    reason : code of the reason for a service's answer, such as "no_speech"
    """
    name = "the recording" if isinstance(source, bytes) else os.fspath(source)
    raise AudioError(f"{name} {problem}", reason) from cause


def _check_rate(rate: int, source: AudioFile) -> None:
    """Raise `AudioError` unless a sample rate is from `MIN_SOUND_RATE` to `MAX_SOUND_RATE`.

    A damaged header may contain any rate, and at a very low rate a few samples would be resampled
    to hours of sound.

    source : path or bytes of the file, for the error message
    """
    if not MIN_SOUND_RATE <= rate <= MAX_SOUND_RATE:
        _fail(
            source,
            f"has {rate} samples per second, expected {MIN_SOUND_RATE} to {MAX_SOUND_RATE}: it may be damaged",
        )


def _as_sound(samples: FloatArray, source: AudioFile, rate: int, target_rate: int) -> Sound:
    """Return samples as (m,) samples of one channel, the mean of all channels, at another rate.

    samples : (n,) or (n, channels) with full scale 1
    source : path or bytes of the file, for error messages
    rate, target_rate : samples per second before and after

    Raises
    ------
    AudioError
        Samples are missing, not finite, too large or all zero, or the channels cancel each other.
    """
    if not np.isfinite(samples).all():
        _fail(
            source, "has samples that are not finite (NaN or infinity): convert or record it again"
        )
    loudest = float(np.abs(samples).max(initial=0.0))
    if not len(samples):
        _fail(source, "is empty: it has no samples. Record it again")
    if loudest > MAX_SAMPLE:
        _fail(
            source,
            f"has samples as large as {loudest:.0e}, where full scale is 1: scale them to -1 to 1",
        )
    if not loudest:
        _fail(source, "is silent: all samples are zero. Check the microphone", reason="no_speech")
    sound = samples
    if samples.ndim == 2:
        sound = samples.mean(axis=1)
        if np.abs(sound).max() <= CANCELLATION * loudest:
            _fail(source, "has channels that cancel each other: pass one of its channels alone")
    sound = np.ascontiguousarray(sound, dtype=np.float32)
    if rate != target_rate:
        sound = need("soxr").resample(sound, rate, target_rate, quality="HQ")
    if not len(sound):
        _fail(
            source,
            f"is too short: {len(samples)} samples at {rate} Hz are less than one at {target_rate} Hz",
        )
    return sound


def sound_from_array(samples: FloatArray, rate: int, source_rate: int | None) -> Sound:
    """Convert an array of samples to one channel at another sample rate.

    Parameters
    ----------
    samples : (n,) or (n, channels) floats with full scale 1; channels are averaged
    rate : samples per second of the result
    source_rate : samples per second of `samples`; required, None raises `DataError`

    Raises
    ------
    DataError
        The array has another shape or type, or `source_rate` is missing.
    AudioError
        The samples are empty, silent, not finite or too large.
    """
    array = np.asarray(samples)
    if source_rate is None:
        raise DataError("an array of samples requires its rate: extractor(samples, rate=16000)")
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        raise DataError(
            "expected (n,) or (n, channels) floats with full scale 1 (divide 16-bit numbers by 32768); got "
            f"shape {array.shape} of {array.dtype}"
        )
    _check_rate(source_rate, "the sound")
    return _as_sound(array, "the sound", source_rate, rate)


def _by_av(source: AudioFile, kind: str, most_s: float) -> tuple[Sound, int]:
    """Decode a file with PyAV to (n,) samples of one channel, and return them with their rate.

    kind : PyAV's name of the container format
    most_s : maximum duration in seconds
    """
    av = need("av")
    try:
        with _opened(source) as file, av.open(file, "r", format=kind) as opened:
            blocks, rate = _blocks(source, opened, most_s)
            # PyAV skips damage without an error, so the duration is compared with that in the header, if there is one
            is_only_stream = kind == "matroska" and len(opened.streams) == 1
            promised = (opened.duration or 0) / av.time_base
    except AudioError:
        raise
    except (av.FFmpegError, IndexError, TypeError, ValueError, RuntimeError) as error:
        _fail(source, f"is damaged, or not of the format {kind}: {error}", error)
    samples = np.concatenate([np.empty(0, np.float32), *blocks])
    if is_only_stream and blocks and len(samples) < (promised - MAX_MISSING_S) * rate:
        _fail(
            source,
            f"is damaged: its header promises {promised:.1f} s, but only {len(samples) / rate:.1f} s could be read",
        )
    return samples, rate


def _blocks(source: AudioFile, opened: InputContainer, most_s: float) -> tuple[list[Sound], int]:
    """Decode the first audio stream of an opened file; channels are averaged.

    Returns
    -------
    consecutive blocks of samples of one channel, and their rate
    """
    streams = opened.streams.audio
    # a stream in an unsupported codec has no decoder
    if not streams or streams[0].codec_context is None:
        _fail(source, "is damaged, or has no sound that can be decoded: convert it to WAV or FLAC")
    rate = int(streams[0].rate)
    to_float = need("av").AudioResampler(format="fltp")
    blocks: list[Sound] = []
    length = 0
    for frame in opened.decode(audio=0):
        if frame.sample_rate != rate:
            _fail(source, f"changes its sample rate from {rate} Hz, which is not supported")
        length += frame.samples
        if length > most_s * rate:
            _fail(source, f"is too long: the limit is {most_s:g} s. Cut it", reason="too_long")
        blocks += [
            block.to_ndarray().mean(axis=0, dtype=np.float32) for block in to_float.resample(frame)
        ]
    return blocks, rate


@lru_cache(maxsize=4)
def golden_signal(rate: int = 16000) -> Sound:
    """Return the test signal by which extractors are verified: 2.4 s of a synthetic voice.

    It consists of the harmonics of a moving pitch, filtered by three moving resonances and divided into syllables, with
    faint noise. It is the same on all machines.

    rate : samples per second

    Returns
    -------
    (n,) read-only float32 samples
    """
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
    # noise of integer arithmetic, which is the same on all machines and versions of NumPy
    numbers = np.arange(1, len(t) + 1, dtype=np.uint64)
    mixed = (
        numbers * np.uint64(2654435761) ^ (numbers * np.uint64(40503) >> np.uint64(7))
    ) % np.uint64(65536)
    signal = 0.05 * voice * syllables + 2e-3 * (mixed.astype(np.float64) / 32768 - 1)
    rounded = signal.astype(np.float32)
    rounded.setflags(write=False)
    return rounded
