"""The one reader of sound: files, what browsers record, bytes and arrays, as samples of one channel."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._typing import FloatArray, PathLike
from ..exceptions import AudioError, DataError

if TYPE_CHECKING:
    from soundfile import SoundFile

Sound = NDArray[np.float32]
File = PathLike | bytes

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

SEGMENT = b"\x18\x53\x80\x67"
CLUSTER = b"\x1f\x43\xb6\x75"
"""Elements of Matroska that live streams leave open."""
LOST_S = 0.25
"""So much less than the header promises may come of a whole file: encoders round, and begin before the sound."""
HEAD = 1024
"""Bytes that a header of NIST SPHERE has."""
GOLDEN_S = 2.4
LEAST_RATE = 4000
MOST_RATE = 768_000
"""Half of a telephone's 8000 is below any speech; the other is the highest that converters have."""
MOST_A_SECOND = 192_000
"""Numbers in a second of sound, all channels together, up to which only its length counts against a limit."""
STREAMED = 2**31 - 2**16
"""A length that programs write into the header when they do not know it yet."""
CANCELLED = 1e-3
"""A mean of channels so far below them is what their rounding leaves."""
LARGEST = 1e10
"""Samples beyond any scale that programs use; the squares of larger ones are not finite."""
FEW_BITS = ("PCM_U8", "PCM_S8", "DPCM_8")
LEAST_LEVEL = 2.0**-4
"""Of the loudest sample of 8 bits: with fewer than four of them in use, what is in the file is no longer the voice."""
TINY = 1e-30

_RATES = re.compile(r"^\s*Block Align\s*: (\d+).*?^\s*Bytes/sec\s*: (\d+)", re.M | re.S)
_PLAIN = re.compile("PCM|FLOAT|DOUBLE|[AU]LAW")
_OGG_CUT = re.compile(r"^Ogg ?: (Last page lacks|Junk after the last page)", re.M)
_CUT = re.compile(r"^\s*(?:data|SSND) : (\d+) \(should be (\d+)\)", re.M)


@dataclass(frozen=True)
class Clip:
    """Where the samples of an utterance lie: a file, or a stretch of one.

    start, length : in samples at the file's own rate; a length of None means to the end
    channel : None: the mean of all channels
    """

    path: Path
    start: int = 0
    length: int | None = None
    channel: int | None = None


Source = PathLike | FloatArray | Clip


def read_sound(
    source: File | bytearray | memoryview | IO[bytes],
    rate: int = 16000,
    *,
    longest_s: float = 600.0,
    most_bytes: int = 2**28,
) -> tuple[Sound, int]:
    """Samples of one channel and their rate, of a file or of its bytes: whatever can be read, and WebM and MP4 too.

    Parameters
    ----------
    source : a path, the bytes of a file, such as a browser's recording that was sent, or an open file (``io.BytesIO``,
        ``open(path, "rb")``, an upload), which is read from where it stands
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
        contents = source.read(most_bytes + 1) if hasattr(source, "read") else source
        if not isinstance(contents, (bytes, bytearray, memoryview)):
            raise DataError(
                f'a sound is a path, bytes or an open file of mode "rb"; got {type(source).__name__}'
            )
        source = bytes(contents)
    parts = _of_file(source, rate, inf, most_s=longest_s, most_bytes=most_bytes)
    return np.concatenate(list(parts)), rate


def read_audio(source: Clip | PathLike, rate: int = 16000) -> Sound:
    """Samples of a file, or of a stretch of one, however long: one channel, at the rate asked for."""
    return np.concatenate(list(segments(source, rate, inf)))


def segments(
    source: Source, rate: int, longest_s: float, source_rate: int | None = None
) -> Iterator[Sound]:
    """The sound in equal parts of at most so many seconds, one after the other; silent ones are left out.

    Parameters
    ----------
    source : a file, a `Clip` (a stretch of one), or samples of one channel (n,) or several (n, channels), full scale
        being 1
    rate : samples a second of what comes
    source_rate : of an array
    """
    if isinstance(source, Clip):
        return _of_file(source.path, rate, longest_s, source)
    if isinstance(source, (str, os.PathLike)):
        return _of_file(source, rate, longest_s)
    return _parts(iter([of_array(source, rate, source_rate)]), longest_s * rate)


def _of_file(
    source: File,
    rate: int,
    longest_s: float,
    clip: Clip | None = None,
    most_s: float = inf,
    most_bytes: float = inf,
) -> Iterator[Sound]:
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
    clip = clip or Clip(Path())
    kind = container(head)
    if kind and clip == Clip(clip.path):
        yield from _parts(_decoded(source, rate, kind, most_s), longest_s * rate)
        return
    sphere = sphere_header(head)
    coding = sphere.get("sample_coding", "")
    if re.search("shorten|wavpack|shortpack", coding):
        # libsndfile would take the packed bytes for samples, and give noise
        _fail(
            source,
            f"is a compressed NIST SPHERE file ({coding}), which is not read here: unpack it first, such as with "
            f"sph2pipe -f wav",
        )
    with _open(source) as file:
        length = _checked_length(file, source, clip, most_s, sphere.get("sample_count", ""))
        count = max(1, ceil(length / (longest_s * file.samplerate)))
        least = LEAST_LEVEL if file.subtype in FEW_BITS else TINY
        heard = False
        # one after the other: a damaged header may promise millions of them
        for part in range(count):
            start = round(part * length / count)
            stop = round((part + 1) * length / count)
            samples = _decode(file, source, clip.start + start, stop - start)
            if clip.channel is not None:
                samples = samples[:, [clip.channel]]
            loudest = np.abs(samples).max()
            if loudest < least:
                continue
            heard = True
            mono = samples.mean(axis=1)
            if np.abs(mono).max() <= CANCELLED * loudest:
                _fail(source, "has channels that cancel each other: choose one of them")
            sound = _resampled(mono, file.samplerate, rate)
            if not len(sound):
                _fail(source, f"is too short: {len(mono)} samples give none at {rate} a second")
            yield sound
        if not heard:
            _fail(source, "is silent: all samples are zero, or few of 8 bits are in use")


def _checked_length(file: SoundFile, source: File, clip: Clip, most_s: float, promised: str) -> int:
    """Samples of the stretch, where the header does not contradict itself, the file or the limits."""
    rate = int(file.samplerate)
    _check_rate(rate, source)
    # a WAV header has its rate twice: in samples, and in bytes a second
    rates = _RATES.search(file.extra_info)
    if rates and _PLAIN.match(file.subtype) and int(rates[2]) not in (0, int(rates[1]) * rate):
        _fail(
            source,
            f"has a header that contradicts itself: {rate} samples a second of {rates[1]} bytes are not {rates[2]} "
            "bytes a second. Its rate may be wrong, or it is damaged: write it anew",
        )
    if (clip.channel or 0) not in range(file.channels):
        _fail(
            source,
            f"has {file.channels} channel(s), there is no channel {clip.channel} (they count from 0)",
        )
    length = file.frames - clip.start if clip.length is None else clip.length
    end = clip.start + length
    if clip.length is None or end > file.frames:
        sizes = _CUT.search(file.extra_info)
        cut = sizes is not None and int(sizes[2]) < int(sizes[1]) < STREAMED
        missing = promised.isdigit() and int(promised) > file.frames
        if cut or missing or _OGG_CUT.search(file.extra_info):
            _fail(source, "is truncated: its header promises more than there is")
    if not file.frames:
        _fail(source, "is empty: it has a header but no samples")
    if clip.start < 0 or length < 1 or end > file.frames:
        _fail(
            source,
            f"has {file.frames} samples, the stretch from {clip.start} to {end} is not in it",
        )
    if length > most_s * min(rate, MOST_A_SECOND / file.channels):
        _fail(
            source,
            f"is too long: {length / rate:.0f} s of {file.channels} channel(s) at {rate} Hz, at most {most_s:g} s are "
            "taken",
        )
    return int(length)


def _decode(file: SoundFile, source: File, start: int, count: int) -> Sound:
    """(count, channels) samples from a place on."""
    try:
        if file.tell() != start:
            file.seek(start)
        samples: Sound = file.read(count, dtype="float32", always_2d=True)
    except (RuntimeError, OSError, MemoryError, ValueError) as error:
        _fail(
            source,
            f"is damaged, or promises more than memory holds ({count} samples): {error}",
            error,
        )
    if len(samples) != count:
        _fail(source, f"is damaged or truncated: {len(samples)} of {count} samples could be read")
    _check_samples(samples, source)
    return samples


def sphere_header(head: bytes) -> dict[str, str]:
    """The fields of a NIST SPHERE header; none if a file begins otherwise."""
    if not head.startswith(b"NIST_1A\n"):
        return {}
    lines = head.partition(b"end_head")[0].decode("latin-1").splitlines()[2:]
    fields = (line.split(None, 2) for line in lines)
    return {field[0]: field[2].strip() for field in fields if len(field) == 3}


def _open(source: File) -> SoundFile:
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


def container(head: bytes) -> str:
    """Which container that libsndfile does not read a file is, by its first bytes; empty for others.

    The suffix does not count.
    """
    if head.startswith(b"fLaC") and int.from_bytes(head[FLAC_LENGTH]) % 2**36:
        return ""
    return next(
        (kind for magic, kind in CONTAINERS.items() if magic in (head[: len(magic)], head[4:8])), ""
    )


def _opened(source: File) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _fail(source: File, reason: str, cause: Exception | None = None) -> NoReturn:
    name = "the recording" if isinstance(source, bytes) else os.fspath(source)
    raise AudioError(f"{name} {reason}") from cause


def _check_rate(rate: int, source: File) -> None:
    """A damaged header may have any rate; a few samples at a very low one would be hours."""
    if not LEAST_RATE <= rate <= MOST_RATE:
        _fail(
            source,
            f"has {rate} samples a second, and a voice needs {LEAST_RATE} to {MOST_RATE}: it may be damaged",
        )


def _check_samples(samples: FloatArray, source: File) -> None:
    if not np.isfinite(samples).all():
        _fail(source, "has samples that are not finite")
    largest = float(np.abs(samples).max(initial=0.0))
    if largest > LARGEST:
        _fail(source, f"has samples as large as {largest:.0e}, where full scale is 1")


def _resampled(samples: Sound, rate: int, wanted: int) -> Sound:
    if rate == wanted:
        return samples
    resampled: Sound = need("soxr").resample(samples, rate, wanted, quality="HQ")
    return resampled


def _parts(blocks: Iterator[Sound], longest: float) -> Iterator[Sound]:
    """Parts of so many samples of a sound whose length is not known before its end; the last two share what is left."""
    held: list[Sound] = []
    for block in blocks:
        held.append(block)
        while sum(map(len, held)) > 2 * longest:
            whole = np.concatenate(held)
            held = [whole[int(longest) :]]
            if whole[: int(longest)].any():
                yield whole[: int(longest)]
    rest = np.concatenate(held)
    for part in np.array_split(rest, max(1, ceil(len(rest) / longest))):
        if part.any():
            yield part


def of_array(samples: FloatArray, rate: int, source_rate: int | None) -> Sound:
    """Samples (n,) or (n, channels) whose full scale is 1, as one channel at a rate."""
    array = np.asarray(samples)
    if source_rate is None:
        raise DataError("samples in an array need their rate: extractor(samples, rate=16000)")
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        raise DataError(
            "samples are (n,) or (n, channels) floats whose full scale is 1 (divide 16-bit numbers by 32768); got "
            f"shape {array.shape} of {array.dtype}"
        )
    if array.ndim == 2:
        array = array.mean(axis=1)
    name = "the sound"
    _check_rate(source_rate, name)
    _check_samples(array, name)
    if not len(array):
        _fail(name, "is empty: there are no samples")
    if not array.any():
        _fail(name, "is silent: all samples are zero")
    return _resampled(np.ascontiguousarray(array, dtype=np.float32), source_rate, rate)


def _decoded(source: File, rate: int, kind: str, most_s: float) -> Iterator[Sound]:
    """Blocks of one channel at the rate, of a container that PyAV reads."""
    length = 0
    heard = False
    av = need("av")
    try:
        for block in _by_av(source, rate, kind):
            _check_samples(block, source)
            length += len(block)
            if length > most_s * rate:
                _fail(source, f"is too long: at most {most_s:g} s are taken")
            heard = heard or bool(block.any())
            yield block
    except AudioError:
        raise
    except (av.FFmpegError, IndexError, TypeError, ValueError, RuntimeError) as error:
        _fail(source, f"is damaged: {error}", error)
    if not length:
        _fail(source, "is empty: it has a header but no samples")
    if not heard:
        _fail(source, "is silent: all samples are zero")


def _by_av(source: File, rate: int, kind: str) -> Iterator[Sound]:
    av = need("av")
    with _opened(source) as file:
        if kind == "matroska" and _cut_matroska(file, file.seek(0, os.SEEK_END)):
            _fail(source, "is truncated: its last part is not whole")
        file.seek(0)
        with av.open(file, "r", format=kind) as opened:
            if not opened.streams.audio:
                _fail(source, "is damaged, or has no sound in it")
            own_rate = int(opened.streams.audio[0].rate)
            resample = need("soxr").ResampleStream(own_rate, rate, 1, "float32", "HQ")
            plain = av.AudioResampler(format="fltp")
            length = 0
            for frame in opened.decode(audio=0):
                if frame.sample_rate != own_rate:
                    _fail(source, f"changes its rate from {own_rate} Hz: not read here")
                length += frame.samples
                for piece in plain.resample(frame):
                    yield resample.resample_chunk(piece.to_ndarray().mean(axis=0, dtype=np.float32))
            # damage within a file is skipped in silence; its header has, where it is there, how long it was
            alone = kind == "matroska" and len(opened.streams) == 1
            promised = (opened.duration or 0) / av.time_base
            if alone and length < (promised - LOST_S) * own_rate:
                _fail(source, f"is damaged: {promised:.1f} s could not all be read")
            yield resample.resample_chunk(np.empty(0, np.float32), last=True)


def _cut_matroska(file: BinaryIO, size: int) -> bool:
    """Whether an element goes on beyond the end; segments and clusters of a live stream do not tell their size."""
    place = 0
    while place < size:
        file.seek(place)
        head = file.read(12)
        width = 9 - head[0].bit_length()  # of the name
        if width > 4 or len(head) <= width:
            return place + len(head) >= size
        long = 9 - head[width].bit_length()  # of the size
        if long > 8 or len(head) < width + long:
            return True
        length = int.from_bytes(head[width : width + long]) & ((1 << 7 * long) - 1)
        place += width + long
        if length == (1 << 7 * long) - 1 and head[:width] in (SEGMENT, CLUSTER):
            continue
        place += length
    return place > size


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
