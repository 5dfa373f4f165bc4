"""Read ten thousand damaged recordings: ``python -m benchmarks.damaged AudioMNIST/ -x campplus``.

Each file is made from a clean recording of a voice, at a rate from 8 to 48 kHz, with one or two channels, in any
format that libsndfile writes or PyAV encodes. Some sounds get a fault (noise, a tone, clipping, near silence, a
constant, NaN). Then the file is damaged: changed bits, bytes, headers, sections, sizes or suffixes, or a missing end.
It is read from a path or from its bytes, its quality is measured, and a vector is extracted.

The result must be an error of this package, or a vector. A vector far from that of the clean recording must come with
a warning. *Far* means a cosine below that of 99 of 100 pairs of clean recordings of one speaker, one of which has as
much speech as the damaged recording has left.

The work is divided among processes, so that crashes, and files that take over a minute, are counted and do not end
the measurement.
"""

from __future__ import annotations

import argparse
import csv
import faulthandler
import functools
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
import soxr

from mvplda.distributed.ordered import ordered_map
from mvplda.exceptions import MvpldaError
from mvplda.paper.provenance import provenance, write_results
from mvplda.voice.audio.decode import golden_signal, read_sound
from mvplda.voice.audio.quality import measure
from mvplda.voice.extractors import Extractor, load_extractor

RATE = 16000
RATES = (8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000)
STREAMS = {
    "webm": ("webm", "libopus"),
    "mka": ("matroska", "flac"),
    "mp4": ("mp4", "aac"),
    "m4a": ("mp4", "alac"),
    "aac": ("adts", "aac"),
    "wma": ("asf", "wmav2"),
    "oga": ("ogg", "libopus"),
}
SHARE, HANGS_S = 50, 60.0
PEAK = 0.3
SPEECH_S = (0.0, 1.0, 2.0, 4.0)
"""Far depends on net speech: a shorter recording lies further from a whole one without any damage."""
Bytes = bytearray
Draw = np.random.Generator


JOINED = (1, 2, 4, 8, 16)
"""Clips of one speaker in a recording."""


def joined_clips(folder: Path, seed: int) -> list[tuple[Any, str, str]]:
    """Samples, speaker and phrase of recordings that are drawn: a few of every length of every speaker."""
    rng = np.random.default_rng(seed)
    with open(folder / "index.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = []
    for name in sorted({row["file"] for row in rows}):
        sound, _ = soundfile.read(folder / name, dtype="float32")
        own = [row for row in rows if row["file"] == name]
        drawn = [rng.choice(len(own), count, replace=False) for count in JOINED for _ in range(4)]
        for chosen in drawn:
            clips = [sound[int(own[i]["start"]) :][: int(own[i]["length"])] for i in chosen]
            found.append((np.concatenate(clips), own[0]["speaker"], own[chosen[0]]["phrase"]))
    return found


def voices(
    extractor: Extractor, folder: Path | None, speakers: int = 12
) -> tuple[list[Any], list[float]]:
    """Clean recordings of different speakers, 2 to 4 s at a usual level, and what is far from them, by net speech.

    Without a corpus: the code's own signal at other speeds.
    """
    if folder is None:
        base = np.tile(golden_signal(RATE), 3)
        return [soxr.resample(base, RATE, round(RATE * speed)) for speed in (0.85, 1.0, 1.2)], [
            0.9
        ] * len(SPEECH_S)
    drawn = joined_clips(folder, seed=0)
    chosen = sorted({who for _, who, _ in drawn})[:: 60 // speakers][:speakers]
    heard = [
        (PEAK * x / np.abs(x).max(), who, extractor.utterance(x, RATE))
        for x, who, _ in drawn
        if who in chosen
    ]
    X = np.array([one.vector for _, _, one in heard], dtype=np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    who, speech = (
        np.array([who for _, who, _ in heard]),
        np.array([one.quality.speech_s for _, _, one in heard]),
    )
    i, j = np.triu_indices(len(X), 1)
    own = (who[i] == who[j]) & (np.maximum(speech[i], speech[j]) > 3)
    cosine, shorter = np.einsum("ij,ij->i", X[i], X[j])[own], np.minimum(speech[i], speech[j])[own]
    where = np.digitize(shorter, SPEECH_S) - 1
    far = [float(np.percentile(cosine[where == k], 1)) for k in range(len(SPEECH_S))]
    whole = {
        name: x for x, name, one in heard if 1.8 < len(x) / RATE < 4 and not one.quality.warnings
    }
    return list(whole.values()), far


def encoded(samples: Any, rate: int, form: tuple[str, str]) -> bytes:
    """(n, channels) samples as a file: a format and subtype of libsndfile, or a container and codec of PyAV."""
    out = io.BytesIO()
    if form[0] not in STREAMS:
        soundfile.write(out, samples, rate, format=form[0], subtype=form[1])
        return out.getvalue()
    layout = "stereo" if samples.shape[1] == 2 else "mono"
    with av.open(out, "w", format=STREAMS[form[0]][0]) as container:
        stream: Any = container.add_stream(form[1], rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples.T, np.float32), format="fltp", layout=layout
        )
        frame.sample_rate = rate
        plain = av.AudioResampler(
            format=stream.format.name if form[1] != "libopus" else "flt", layout=layout, rate=rate
        )
        for piece in [*plain.resample(frame), *plain.resample(None), None]:
            for packet in stream.encode(piece):
                container.mux(packet)
    return out.getvalue()


@functools.cache
def forms() -> list[tuple[str, str]]:
    """All that can be written here, and read without being told more than the file."""
    # raw samples have no header; the other has its header in a second file
    kinds = [kind for kind in soundfile.available_formats() if kind not in ("RAW", "SD2")]
    listed = [(kind, sub) for kind in kinds for sub in soundfile.available_subtypes(kind)]
    return [*listed, *((name, codec) for name, (_, codec) in STREAMS.items())]


def _tone(x: Any, rng: Draw) -> Any:
    hz = rng.uniform(80, 3500)
    return np.broadcast_to(
        0.3 * np.sin(2 * np.pi * hz * np.arange(len(x)) / RATE)[:, None], x.shape
    ).copy()


def _numbers(x: Any, rng: Draw) -> Any:
    x = x.copy()
    x[rng.integers(len(x), size=rng.integers(1, 50))] = rng.choice([np.nan, np.inf, -np.inf])
    return x


def _silenced(x: Any, rng: Draw) -> Any:
    x, start = x.copy(), rng.integers(len(x))
    x[start : start + rng.integers(len(x))] = 0
    return x


SOUND: dict[str, Callable[[Any, Draw], Any]] = {
    "noise alone": lambda x, rng: 10 ** rng.uniform(-3, 0) * rng.uniform(-1, 1, size=x.shape),
    "noise added": lambda x, rng: (
        x + x.std() * 10 ** rng.uniform(-1.5, 1) * rng.normal(size=x.shape)
    ),
    "tone": _tone,
    "tone added": lambda x, rng: x + rng.uniform(0.1, 10) * _tone(x, rng) * x.std(),
    "clipped": lambda x, rng: np.clip(x * 10 ** rng.uniform(0, 3), -1, 1),
    "near silence": lambda x, rng: x * 10 ** rng.uniform(-5, -1),
    "constant": lambda x, rng: x + rng.uniform(-1, 1),
    "constant alone": lambda x, rng: np.full_like(x, rng.uniform(-1, 1)),
    "not numbers": _numbers,
    "silence": lambda x, rng: np.zeros_like(x),
    "partly silent": _silenced,
    "a scale too large": lambda x, rng: x * 32768,
    "one click": lambda x, rng: np.where(np.arange(len(x))[:, None] == len(x) // 2, 1.0, 1e-4 * x),
}
"""Faults of the sound."""


def _header(data: Bytes, rng: Draw) -> Bytes:
    for _ in range(rng.integers(1, 8)):
        data[rng.integers(0, min(400, len(data)))] = rng.integers(256)
    return data


def _bits(data: Bytes, rng: Draw) -> Bytes:
    for place in rng.integers(0, len(data), size=int(10 ** rng.uniform(0, 3))):
        data[place] ^= 1 << int(rng.integers(8))
    return data


def _bytes(data: Bytes, rng: Draw) -> Bytes:
    for place in rng.integers(0, len(data), size=rng.integers(1, 40)):
        data[place] = rng.integers(256)
    return data


def _replaced(data: Bytes, rng: Draw) -> Bytes:
    start = int(rng.integers(len(data)))
    stretch = len(data[start : start + int(rng.integers(1, 20_000))])
    data[start : start + stretch] = rng.bytes(stretch)
    return data


def _missing(data: Bytes, rng: Draw) -> Bytes:
    start, stretch = int(rng.integers(len(data))), int(rng.integers(1, 20_000))
    return data[:start] + data[start + stretch :]


def _doubled(data: Bytes, rng: Draw) -> Bytes:
    start, stretch = int(rng.integers(len(data))), int(rng.integers(1, 20_000))
    return data[: start + stretch] + data[start:]


def _lying(data: Bytes, rng: Draw) -> Bytes:
    """Four or eight bytes of the header say something huge, or nothing."""
    width, start = int(rng.choice([4, 8])), int(rng.integers(0, min(100, len(data))))
    data[start : start + width] = rng.choice([b"\xff", b"\x7f", b"\x00"]) * width
    return data


FILE: dict[str, Callable[[Bytes, Draw], Bytes]] = {
    "header": _header,
    "bits": _bits,
    "bytes": _bytes,
    "cut off": lambda data, rng: data[: int(rng.integers(len(data)))],
    "replaced": _replaced,
    "missing": _missing,
    "doubled": _doubled,
    "sizes that lie": _lying,
    "begins late": lambda data, rng: data[int(rng.integers(1, min(2000, len(data)))) :],
    "behind other bytes": lambda data, rng: Bytes(rng.bytes(int(rng.integers(1, 2000)))) + data,
    "two in one": lambda data, rng: data + data[: int(rng.integers(len(data)))],
    "bytes after the first": lambda data, rng: data[:64] + Bytes(rng.bytes(len(data) // 2)),
}
"""Damage of the file."""


def damaged(number: int, clean: list[Any], seed: int) -> tuple[bytes, str, dict[str, Any]]:
    """A file, its suffix, and what was done to it; always the same of the same number and seed."""
    rng = np.random.default_rng([seed, number])
    who = int(rng.integers(len(clean)))
    browser = rng.random() < 0.2  # seven forms among many
    form = (
        forms()[-len(STREAMS) :][rng.integers(len(STREAMS))]
        if browser
        else forms()[rng.integers(len(forms()))]
    )
    rate, channels = int(rng.choice(RATES)), int(rng.integers(1, 3))
    x = np.repeat(clean[who][:, None], channels, axis=1)
    if channels == 2:
        x[:, 1] *= rng.choice([0.0, 0.3, 1.0, -0.5])
    fault = str(rng.choice(list(SOUND))) if rng.random() < 0.4 else ""
    if fault:
        x = SOUND[fault](x.astype(np.float64), rng)
    if fault in (
        "not numbers",
        "a scale too large",
    ):  # which others cannot hold, and some encoders crash of
        form = [one for one in forms() if one[1] in ("FLOAT", "DOUBLE")][rng.integers(8)]
    harm = str(rng.choice(list(FILE))) if rng.random() < (0.2 if fault else 0.95) else ""
    if rate != RATE:
        x = soxr.resample(x, RATE, rate)
    try:
        data = encoded(x, rate, form)
    except (
        RuntimeError,
        ValueError,
        OSError,
        av.FFmpegError,
    ):  # of another rate or number of channels than it takes
        form = ("WAV", str(rng.choice(["PCM_16", "PCM_24", "FLOAT"])))
        data = encoded(x, rate, form)
    if harm and data:
        data = bytes(FILE[harm](Bytes(data), rng))
    right = rng.random() < 0.7
    suffix = (
        form[0].lower()
        if right
        else str(rng.choice(["wav", "flac", "mp3", "webm", "txt", "raw", "aiff"]))
    )
    told = {
        "number": number,
        "voice": who,
        "form": "/".join(form),
        "rate": rate,
        "channels": channels,
    }
    return data, suffix, {**told, "sound": fault, "file": harm, "suffix": suffix}


def state(
    extractor: Extractor,
    file: Path,
    data: bytes,
    clean: Any,
    far: list[float],
    from_path: bool,
) -> dict[str, Any]:
    """What came: an error, or a vector with its cosine to the clean one and its warnings."""
    file.write_bytes(data)
    try:
        found = (
            extractor.utterance(file)
            if from_path
            else extractor.utterance(*read_sound(data, extractor.rate))
        )
    except (MvpldaError, OSError) as error:
        return {"state": "error", "said": str(error).replace(str(file), "FILE")[:200]}
    except Exception as error:  # the very thing that is looked for
        return {"state": "not our error", "said": repr(error)[:300]}
    x = found.vector.astype(np.float64)
    if not np.isfinite(x).all():
        return {"state": "not finite"}
    cosine = float(x @ clean / np.linalg.norm(x) / np.linalg.norm(clean))
    near = (
        "near" if cosine >= far[int(np.digitize(found.quality.speech_s, SPEECH_S)) - 1] else "far"
    )
    warnings = found.quality.warnings
    told = {
        "cosine": round(cosine, 3),
        "speech": round(found.quality.speech_s, 2),
        "warnings": warnings,
    }
    return {"state": f"{near}, {'warned' if warnings else 'not warned'}", **told}


def share(
    place: str, kept_clean: str, far: list[float], seed: int, kept: Path | None, numbers: list[int]
) -> list[dict[str, Any]]:
    """Some files, one after the other."""
    extractor, clean, vectors = _prepared(place, kept_clean)
    found = []
    for number in numbers:
        data, suffix, told = damaged(number, clean, seed)
        path = Path(kept_clean).with_name(f"{number}.{suffix}")
        faulthandler.dump_traceback_later(HANGS_S, exit=True)
        came = state(extractor, path, data, vectors[told["voice"]], far, number % 2 == 0)
        faulthandler.cancel_dump_traceback_later()
        path.unlink()
        status = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
        found.append({**told, **came, "peak, MiB": round(peak)})
        if kept is not None and came["state"] == "far, not warned":
            kept.mkdir(parents=True, exist_ok=True)
            (kept / f"{number}.{suffix}").write_bytes(data)
    return found


@functools.lru_cache(maxsize=1)
def _prepared(place: str, kept_clean: str) -> tuple[Extractor, list[Any], list[Any]]:
    extractor = load_extractor(place)
    with np.load(kept_clean) as file:
        clean = [file[name] for name in file.files]
    return extractor, clean, [extractor(x, RATE).astype(np.float64) for x in clean]


def run(
    place: str,
    folder: Path | None,
    count: int,
    seed: int = 0,
    workers: int = 1,
    kept: Path | None = None,
) -> dict[str, Any]:
    """Counts by what was done, and every vector that is far and not warned of."""
    clean, far = voices(load_extractor(place), folder)
    shares = [list(range(start, min(count, start + SHARE))) for start in range(0, count, SHARE)]
    lost: list[list[int]] = []
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        file = f"{scratch}/clean.npz"
        np.savez(file, *clean)
        work = functools.partial(share, place, file, far, seed, kept)
        done = 0
        while done < len(shares):
            try:
                for part in ordered_map(work, shares[done:], workers=max(2, workers)):
                    done += 1
                    found += part
                    print(f"{len(found)} of {count}", file=sys.stderr, flush=True)
            except BrokenProcessPool:
                lost.append(shares[done])
                done += 1
    by: dict[str, dict[str, Counter[str]]] = {"sound": {}, "file": {}, "form": {}}
    for one in found:
        for what, table in by.items():
            table.setdefault(one[what] or "as it was", Counter())[one["state"]] += 1
    bad = [
        one for one in found if one["state"] in ("far, not warned", "not our error", "not finite")
    ]
    return {
        "far below": {
            f"from {s:g} s of speech": round(limit, 3)
            for s, limit in zip(SPEECH_S, far, strict=True)
        },
        "states": dict(Counter(one["state"] for one in found)),
        "lost, with the process": [f"{part[0]} to {part[-1]}" for part in lost],
        "peak memory, MiB": max(one["peak, MiB"] for one in found),
        "by": {
            what: {key: dict(row) for key, row in sorted(table.items())}
            for what, table in by.items()
        },
        "bad": [
            {k: v for k, v in one.items() if k != "peak, MiB"}
            for one in sorted(bad, key=lambda one: one["number"])
        ],
    }


def false_alarms(folder: Path) -> dict[str, Any]:
    """How many of the corpus's clips, all of them whole, are warned of, by name; every one is shorter than a second."""
    with open(folder / "index.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found: Counter[str] = Counter()
    for name in sorted({row["file"] for row in rows}):
        sound, rate = soundfile.read(folder / name, dtype="float32")
        for row in (row for row in rows if row["file"] == name):
            found.update(measure(sound[int(row["start"]) :][: int(row["length"])], rate).warnings)
    return {
        "clips": len(rows),
        "warned of": dict(found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="AudioMNIST; without it, the code's own signal"
    )
    parser.add_argument("-x", "--extractor", default="campplus")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="write files that are far and not warned of into this folder"
    )
    parser.add_argument(
        "--clean",
        action="store_true",
        help="damage nothing: count warnings of the corpus's own clips",
    )
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.clean:
        print(json.dumps(false_alarms(given.folder), indent=2))
        return
    from benchmarks.damaged import (
        run as in_processes,
    )  # which find it by this name, not as __main__

    record = provenance([given.folder] if given.folder else [])
    figures = in_processes(
        given.extractor, given.folder, given.count, given.seed, given.workers, given.keep
    )
    print(json.dumps({k: v for k, v in figures.items() if k not in ("by", "bad")}, indent=2))
    if given.output is not None:
        write_results(given.output, "Damaged recordings", **figures, provenance=record)


if __name__ == "__main__":
    main()
