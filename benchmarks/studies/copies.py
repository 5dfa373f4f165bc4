"""Fingerprints of recordings: changed copies that are recognised, and honest recordings that are taken for copies.

``python -m benchmarks.studies.copies DATA [-o results/copies]``. DATA holds audiomnist/, cvau/, speech_commands/ and
wuw/. Honest pairs are all pairs of recordings of one phrase by one person. Copies are random recordings of each corpus,
changed in one way, in two ways one after the other, or played through a simulated loudspeaker. Codecs need the programs
ffmpeg and sox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.clips import Clips
from benchmarks.report import markdown_rows, study_command
from mvplda.voice.attacks.attack import RATE, Attack, Sound
from mvplda.voice.attacks.copies import COPIES, two_changes
from mvplda.voice.attacks.rooms import REPLAYS
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.fingerprint import CopyTest, Fingerprint

Recordings = Mapping[tuple[str, ...], Callable[[], Sound]]
"""Functions that read a recording, by (person, phrase, name of the recording)."""

COPIED = 50
"""Recordings per corpus that are changed in each way; three times as many in two ways."""


# -- recordings --------------------------------------------------------------------------


def digits(folder: Path) -> Recordings:
    """Return the recordings of AudioMNIST."""
    clips = Clips(folder)
    return {
        (f"{speaker:02d}", str(phrase), f"{session:02d}"): lambda key=key: 0.5 * clips[key]  # type: ignore[misc]
        for key in sorted(clips.rows)
        for speaker, phrase, session in [key]
    }


def files(folder: Path) -> Recordings:
    """Return the recordings PERSON/PHRASE/NAME.flac of a folder."""
    return {
        (*path.parts[-3:-1], path.stem): lambda path=path: read_audio(path, RATE)  # type: ignore[misc]
        for path in sorted(folder.glob("*/*/*.flac"))
    }


class Comparison(NamedTuple):
    """Comparison of two recordings: similarity, frames of speech of the shorter, and whether it is taken for a copy."""

    similarity: float
    frames: int
    is_copy: bool


def honest_similarities(recordings: Recordings) -> Iterator[Comparison]:
    """Yield the comparison of each pair of recordings of one phrase by one person."""
    for _, group in groupby(recordings, key=lambda key: key[:2]):
        tests = [CopyTest(recordings[key]()) for key in group]
        for number, test in enumerate(tests):
            others = [other.fingerprint for other in tests[number + 1 :]]
            if others:
                yield from compared(test, others)


def compared(test: CopyTest, others: Sequence[Fingerprint]) -> Iterator[Comparison]:
    """Yield the comparison of a recording with each other one."""
    results = zip(others, test.similarities(others), test.are_copies(others), strict=True)
    for other, similarity, is_copy in results:
        frames = min(test.fingerprint.frames, other.frames)
        yield Comparison(float(similarity), frames, bool(is_copy))


def copy_similarities(
    recordings: Recordings, change: Attack, count: int, seed: int
) -> Iterator[Comparison]:
    """Yield the comparison of changed copies with their recordings."""
    rng = np.random.default_rng(seed)
    keys = list(recordings)
    for number in rng.choice(len(keys), count, replace=count > len(keys)):
        sound = np.asarray(recordings[keys[number]](), np.float64)
        original = CopyTest(sound).fingerprint
        yield from compared(CopyTest(change(sound, rng)), [original])


# -- the study ---------------------------------------------------------------------------

HONEST = {
    "C-VAU, pass-phrases": ("cvau", files),
    "WUW, telephone": ("wuw", files),
    "Speech Commands": ("speech_commands", files),
    "AudioMNIST, one sitting": ("audiomnist", digits),
}


def study(data: Path) -> dict[str, Any]:
    """Measure honest pairs and changed copies."""
    corpora = {name: read(data / folder) for name, (folder, read) in HONEST.items()}
    found: dict[str, Any] = {"honest pairs": {}, "copies": {}}
    for name, recordings in corpora.items():
        found["honest pairs"][name] = summary(list(honest_similarities(recordings)))
    for name, recordings in corpora.items():
        for number, (title, change) in enumerate((COPIES | REPLAYS).items()):
            count = 3 * COPIED if change.make is two_changes else COPIED
            pairs = list(copy_similarities(recordings, change, count, number))
            found["copies"].setdefault(name, {})[title] = summary(pairs)
    found["all changed copies"] = {
        name: {
            key: sum(changes[title][key] for title in COPIES)
            for key in ("pairs", "recognised as copies")
        }
        for name, changes in found["copies"].items()
    }
    return found


def summary(pairs: Sequence[Comparison]) -> dict[str, float]:
    """Return how many of the pairs are taken for copies, and the distribution of their similarities."""
    similarities, frames, flagged = np.array(pairs).T
    return {
        "pairs": len(pairs),
        "recognised as copies": int(flagged.sum()),
        "smallest": float(similarities.min()),
        "median": float(np.median(similarities)),
        "largest": float(similarities.max()),
        "median frames": float(np.median(frames)),
    }


def table(found: dict[str, Any]) -> str:
    head = ["recordings", "", "pairs", "taken for copies", "similarity", "largest"]
    rows = []
    for name, row in found["honest pairs"].items():
        rows.append([name, "honest, same person and phrase", *_cells(row)])
    for name, changes in found["copies"].items():
        rows += [[name, change, *_cells(row)] for change, row in changes.items()]
    return "\n".join(markdown_rows([head, *rows])) + "\n"


def _cells(row: Mapping[str, float]) -> list[str]:
    numbers = [f"{row['pairs']:,}", f"{row['recognised as copies']:,}"]
    return [*numbers, f"{row['smallest']:.2f}, median {row['median']:.2f}", f"{row['largest']:.2f}"]


if __name__ == "__main__":
    study_command("copies", __doc__, study, table)
