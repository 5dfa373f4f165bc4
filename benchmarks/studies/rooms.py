"""AudioMNIST put into rooms: turns of two to four digits, in meetings that share a room and a codec.

    python -m benchmarks.studies.rooms ../shared/data/audiomnist -o work/rooms.npz

Sixty people meet in twenty-four rooms, five at a time, each in two of them. A room is one impulse response (T60 0.2 to
0.6 s, direct sound 0 to 12 dB above the tail), one microphone and one channel: none, or a telephone's. In every
room everybody says twelve turns of three to five digits, about two to three seconds. No take is used twice. Vectors of
all extractors of the default model; `benchmarks.studies.people` and `benchmarks.studies.sessions` read them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.report import study_arguments
from mvplda.paper.corpora import load_corpus
from mvplda.paper.frames import in_room, over_channel, with_noise
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.extractors import load_extractor
from tools.default_model.recordings import EXTRACTORS, RATE, join_recordings, over_telephone

TURNS = 12
TOGETHER = 5


def main() -> None:
    (audiomnist,), output = study_arguments(__doc__, ["audiomnist"], Path("work/rooms.npz"))
    corpus = load_corpus("audiomnist", audiomnist)
    extractor = load_extractor(list(EXTRACTORS))
    # names as the shared data have them
    names = ("camp", *EXTRACTORS[1:])
    blocks = extractor.blocks.values()
    columns = {name: slice(*ends) for name, ends in zip(names, blocks, strict=True)}
    speakers = corpus.labels["speaker"]
    rng = np.random.default_rng(0)
    people = np.unique(speakers)
    meetings = [part for _ in range(2) for part in rng.permutation(people).reshape(-1, TOGETHER)]
    left = {who: rng.permutation(np.flatnonzero(speakers == who)).tolist() for who in people}
    made: dict[str, list] = {name: [] for name in (*columns, "speaker", "room", "channel")}
    for number, members in enumerate(meetings):
        t60, direct = rng.uniform(0.2, 0.6), rng.uniform(0.0, 12.0)
        low, high = rng.uniform(20, 300), rng.uniform(3400, 8000)
        channel = ("none", "telephone")[number % 2]
        for who in members:
            for _ in range(TURNS):
                rows = [left[who].pop() for _ in range(rng.integers(3, 6))]
                wave = join_recordings([read_audio(corpus.files[row], RATE) for row in rows], rng)
                wave = wave.astype(np.float64) * 0.5 / np.abs(wave).max()
                # the same seed is the same room and the same microphone
                wave = in_room(wave, t60, direct, RATE, np.random.default_rng(number))
                wave = over_channel(wave, low, high, RATE, np.random.default_rng(number))
                wave = with_noise(wave, 25.0, True, rng)
                if channel == "telephone":
                    wave = over_telephone(wave)
                vector = extractor(wave.astype(np.float32), RATE)
                vectors = [vector[own] for own in columns.values()]
                row = (*vectors, who, f"room {number}", channel)
                for key, value in zip(made, row, strict=True):
                    made[key].append(value)
        print(number + 1, "of", len(meetings), flush=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(output, **{key: np.array(column) for key, column in made.items()})


if __name__ == "__main__":
    main()
