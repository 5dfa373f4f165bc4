"""Sound of any kind as samples of one channel: files that libsndfile reads, and what browsers record."""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import AudioError, DataError
from .reading import Clip, SoundReader, read_audio, sound_name, unusable

Sound = NDArray[np.float32]
File = str | os.PathLike[str] | bytes
Bytes = bytes | bytearray | memoryview
Source = str | os.PathLike[str] | NDArray[Any] | Clip

CONTAINERS = {
    b"\x1a\x45\xdf\xa3": ("WebM or Matroska", "matroska"),
    b"ftyp": ("MP4 or M4A", "mp4"),
    b"#!AMR": ("AMR", "amr"),
    b"\x30\x26\xb2\x75": ("WMA", "asf"),
    b"\xff\xf1": ("AAC", "aac"),
    b"\xff\xf9": ("AAC", "aac"),
    b"fLaC": ("FLAC that does not tell its length", "flac"),
}
"""How containers begin that libsndfile does not read (that of MP4 stands after four bytes), and ffmpeg's names for
them: it is told which it is, for some that it would find by itself make it open other files."""
FLAC_LENGTH = slice(21, 26)
"""Where a FLAC file tells how many samples it has, in the last 36 bits; a stream has zeros there."""
SUFFIXES = (".webm", ".mka", ".mkv", ".m4a", ".mp4", ".amr", ".wma", ".aac")


SEGMENT, CLUSTER = b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75"
"""Elements of Matroska that live streams leave open."""
BLOCK = 2**16
LOST_S = 0.25
"""So much less than the header tells may come of a whole file: encoders round, and begin before the sound."""
GOLDEN_S = 2.4
LEAST_RATE, MOST_RATE = 4000, 768_000
"""Half of a telephone's 8000 is below any speech; the other is the highest that converters have."""


def read_sound(
    source: File | Bytes | IO[bytes],
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
    rate : samples a second of the result
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

    if isinstance(source, (bytearray, memoryview)):
        source = bytes(source)
    elif not isinstance(source, (str, os.PathLike, bytes)):
        source = _contents(source, most_bytes)
    what = sound_name(source)
    if not isinstance(source, bytes) and Path(source).is_file():
        size = Path(source).stat().st_size
    else:
        size = len(source) if isinstance(source, bytes) else 0
    if size > most_bytes:
        raise AudioError(f"{what} is too large: {size} bytes, at most {most_bytes} are taken")
    if not container(source):
        with SoundReader(source, rate, longest_s) as reader:
            _check_rate(reader.file_rate, what)
            return reader.read(), rate
    blocks, length = [], 0
    for block in _decoded(source, rate):
        blocks.append(block)
        length += len(block)
        if length > longest_s * rate:
            raise AudioError(f"{what} is too long: at most {longest_s:g} s are taken")
    return np.concatenate(blocks), rate


def segments(
    source: Source, rate: int, longest_s: float, source_rate: int | None = None
) -> Iterator[Sound]:
    """The sound in equal parts of at most so many seconds, one after the other; a short one in one part.

    Parameters
    ----------
    source : a file, a `Clip` (a stretch of one), or samples of one channel (n,) or several (n, channels), full scale
        being 1
    rate : samples a second of what comes
    source_rate : of an array
    """

    if isinstance(source, Clip) and source.stretch != (0, None, None):
        yield from _parts(read_audio(source, rate), rate, longest_s)
        return
    if isinstance(source, Clip):
        source = source.path
    if not isinstance(source, (str, os.PathLike)):
        yield from _parts(_from_array(source, rate, source_rate), rate, longest_s)
        return

    if container(source):
        yield from _streamed(_decoded(source, rate), round(longest_s * rate))
        return
    with SoundReader(source, rate) as reader:
        _check_rate(reader.file_rate, source)
        frames = reader.frames
        count = max(1, int(np.ceil(frames / (longest_s * reader.file_rate))))
        silent = 0
        for part in range(
            count
        ):  # one after the other: a damaged header may promise millions of them
            start, end = (round(k * frames / count) for k in (part, part + 1))
            try:
                # to the end without a length: a truncated file is then told from a whole one
                yield reader.read(start, None if count == 1 else end - start)
            except AudioError as error:
                if count == 1 or "silent" not in str(error):
                    raise
                silent += 1
        if silent == count:
            raise AudioError(f"{source} is silent: all samples are zero")


def container(source: File) -> str:
    """Which container that libsndfile does not read a file is, in ffmpeg's word, by its first bytes; empty for others.

    The suffix does not count.
    """
    try:
        if isinstance(source, bytes):
            head = source[:32]
        else:
            with open(source, "rb") as file:
                head = file.read(32)
    except OSError:
        return ""  # the reader has the words for it
    if head.startswith(b"fLaC") and int.from_bytes(head[FLAC_LENGTH]) % 2**36:
        return ""
    return next(
        (
            kind
            for magic, (_, kind) in CONTAINERS.items()
            if magic in (head[: len(magic)], head[4:8])
        ),
        "",
    )


def _contents(file: IO[bytes], most_bytes: int) -> bytes:
    """The bytes of an open file, one more than are taken at most."""
    try:
        found = file.read(most_bytes + 1)
    except (AttributeError, TypeError) as error:
        raise DataError(
            f"a sound is a path, bytes or an open file; got {type(file).__name__}"
        ) from error
    if not isinstance(found, bytes):
        raise DataError('a sound in an open file is bytes: open it with mode "rb"')
    return found


def _check_rate(rate: int, what: object) -> None:
    """A damaged header may tell any rate; a few samples at a very low one would be hours."""
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise AudioError(
            f"{what} has {rate} samples a second, and a voice needs {LEAST_RATE} to {MOST_RATE}: it may be damaged"
        )


def _parts(samples: Sound, rate: int, longest_s: float) -> Iterator[Sound]:
    count = max(1, int(np.ceil(len(samples) / (longest_s * rate))))
    for part in np.array_split(samples, count):
        if count == 1 or part.any():
            yield part


def _streamed(blocks: Iterator[Sound], longest: int) -> Iterator[Sound]:
    """Parts of so many samples of a sound whose length is not known before its end; the last two share what is left."""
    held: list[Sound] = []
    for block in blocks:
        held.append(block)
        while sum(map(len, held)) > 2 * longest:
            whole = np.concatenate(held)
            held = [whole[longest:]]
            if whole[:longest].any():
                yield whole[:longest]
    rest = np.concatenate(held)
    for part in np.array_split(rest, max(1, -(-len(rest) // longest))):
        if part.any():
            yield part


def _from_array(samples: NDArray[Any], rate: int, source_rate: int | None) -> Sound:

    array = np.asarray(samples)
    if source_rate is None:
        raise DataError("samples in an array need their rate: extractor(samples, rate=16000)")
    if array.ndim == 2:
        array = array.mean(axis=1)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise DataError(
            f"samples are (n,) or (n, channels) numbers; got shape {array.shape} of {array.dtype}"
        )
    if array.dtype.kind in "iu":
        raise DataError("samples are floats whose full scale is 1: divide 16-bit numbers by 32768")
    if not len(array):
        raise AudioError("the sound is empty: there are no samples")
    wrong = unusable(array)
    if wrong:
        raise AudioError(f"the sound has {wrong}")
    if not array.any():
        raise AudioError("the sound is silent: all samples are zero")
    _check_rate(source_rate, "the sound")
    found = np.ascontiguousarray(array, dtype=np.float32)
    return (
        found
        if source_rate == rate
        else need("soxr").resample(found, source_rate, rate, quality="HQ")
    )


def _decoded(source: File, rate: int) -> Iterator[Sound]:
    """Blocks of one channel at the rate, by PyAV where it is installed, else by ffmpeg where that is."""

    what, kind = str(sound_name(source)), container(source)
    cut = {"matroska": _cut_matroska, "mp4": _cut_mp4}.get(kind)
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
            if cut is not None and cut(file, file.seek(0, os.SEEK_END)):
                raise AudioError(f"{what} is truncated: its last part is not whole")
    except (OSError, IndexError) as error:
        raise AudioError(f"{what} is damaged: {error}") from error
    program = shutil.which("ffmpeg")
    if importlib.util.find_spec("av") is not None:
        blocks = _by_av(source, rate, kind, what)
    elif program is not None:
        blocks = _by_ffmpeg(program, source, rate, kind, what)
    else:
        name = next(name for name, word in CONTAINERS.values() if word == kind)
        raise AudioError(
            f"{what} is {name}, which libsndfile does not read: pip install 'mvplda[audio]', or install ffmpeg, or "
            "convert it to WAV, FLAC or Ogg"
        )
    length, heard = 0, False
    for block in blocks:
        wrong = unusable(block)
        if wrong:
            raise AudioError(f"{what} has {wrong}")
        length += len(block)
        heard = heard or bool(block.any())
        yield block
    if not length:
        raise AudioError(f"{what} is empty: it has a header but no samples")
    if not heard:
        raise AudioError(f"{what} is silent: all samples are zero")


def _by_av(source: File, rate: int, kind: str, what: str) -> Iterator[Sound]:
    import av

    try:
        with (
            io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file,
            av.open(file, "r", format=kind) as opened,
        ):
            if not opened.streams.audio:
                raise AudioError(f"{what} has no sound in it")
            resample, own, length = None, 0, 0
            plain = av.AudioResampler(format="fltp")
            for frame in opened.decode(audio=0):
                if resample is None:
                    own = frame.sample_rate
                    resample = need("soxr").ResampleStream(
                        own, rate, 1, dtype="float32", quality="HQ"
                    )
                if frame.sample_rate != own:
                    raise AudioError(
                        f"{what} changes its rate from {own} to {frame.sample_rate} Hz: not read here"
                    )
                length += frame.samples
                for piece in plain.resample(frame):
                    yield resample.resample_chunk(piece.to_ndarray().mean(axis=0, dtype=np.float32))
            # damage within a file is skipped without a word; its header tells, where it is there, how long it was
            told = (
                opened.duration / av.time_base
                if opened.duration and len(opened.streams) == 1
                else 0.0
            )
            if kind == "matroska" and length < (told - LOST_S) * own:
                raise AudioError(
                    f"{what} is damaged: {length / own:.1f} s of {told:.1f} s could be read"
                )
            if resample is not None:
                yield resample.resample_chunk(np.empty(0, np.float32), last=True)
    except (av.FFmpegError, ValueError, RuntimeError) as error:
        if isinstance(error, AudioError):
            raise
        raise AudioError(f"{what} is damaged: {error}") from error


def _by_ffmpeg(program: str, source: File, rate: int, kind: str, what: str) -> Iterator[Sound]:
    with tempfile.TemporaryDirectory(prefix="mvplda-") as place:
        if isinstance(
            source, bytes
        ):  # what is at the end of an MP4 file has to be read first: no pipe will do
            path = Path(place) / "recording"
            path.write_bytes(source)
        else:
            path = Path(source)
        # the plain mean of the channels, as of other files
        mono = f"aresample={rate}:ochl=mono:rematrix_maxval=1"
        command = [
            program,
            "-v",
            "error",
            "-nostdin",
            "-xerror",
            "-f",
            kind,
            "-i",
            f"file:{path}",
            "-map",
            "0:a:0",
        ]
        with (
            open(Path(place) / "said", "w+b") as said,
            subprocess.Popen(
                [*command, "-af", mono, "-f", "f32le", "-"], stdout=subprocess.PIPE, stderr=said
            ) as running,
        ):
            assert running.stdout is not None
            try:
                while block := running.stdout.read(4 * BLOCK):
                    yield np.frombuffer(block[: len(block) // 4 * 4], dtype="<f4").astype(
                        np.float32
                    )
            finally:
                running.stdout.close()  # who reads no further ends the program
                running.wait()
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            if running.returncode:
                why = (
                    lines[-1].replace(f"file:{path}: ", "") if lines else "ffmpeg could not read it"
                )
                raise AudioError(f"{what} is damaged: {why}")


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


def _cut_mp4(file: BinaryIO, size: int) -> bool:
    """Whether a box goes on beyond the end."""
    place = 0
    while place < size:
        file.seek(place)
        head = file.read(16)
        length = int.from_bytes(head[:4])
        if length == 1:
            length = int.from_bytes(head[8:])
        elif length == 0:  # to the end
            return False
        if length < 8:
            return True
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
        voice += np.where(hz < 0.45 * rate, gain, 0.0) * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 2.2 * t), 0, None) ** 0.5
    numbers = np.arange(1, len(t) + 1, dtype=np.uint64)
    mixed = (
        numbers * np.uint64(2654435761) ^ (numbers * np.uint64(40503) >> np.uint64(7))
    ) % np.uint64(65536)
    signal = 0.05 * voice * syllables + 2e-3 * (mixed.astype(np.float64) / 32768 - 1)
    rounded = signal.astype(np.float32)
    rounded.setflags(write=False)
    return rounded
