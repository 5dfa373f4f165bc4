"""People across recordings, of the default model: C-VAU's campaigns, AudioMNIST, and AudioMNIST put into rooms.

    python -m benchmarks.studies.people ../shared/data/cvau.npz ../shared/data/audiomnist work/rooms.npz

The last file is made by `benchmarks.studies.rooms`. C-VAU: eight turns of every campaign of those people whom the
default model was not trained on, without `resnet`: the shared data have no vectors of it. AudioMNIST: six digits of
everybody in either of two recordings (half a second each), one by one and with the names that a diariser gives within
one. In rooms: six turns of two to three seconds of everybody in either of two meetings, each of which shares a room, a
microphone and a channel. The digits of AudioMNIST, without rooms, trained the default model: its people are not new to
it. Evaluated by pairs of turns: precision (merged and of one person; 0 if none is merged) and recall (of one person and
merged); and by what is asked.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import CVAU_SECONDS, as_default, default_for, people_with_sound
from benchmarks.report import study_command
from mvplda.bundle import Bundle
from mvplda.model_files import load_model
from mvplda.paper.corpora import load_corpus
from mvplda.paper.provenance import DATA, WORK
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.extractors import load_extractor
from mvplda.voice.people import find_people
from mvplda.voice.turns import Turn
from tools.default_model.recordings import EXTRACTORS, RATE

DIGITS = 6


def judge(
    bundle: Bundle,
    X: np.ndarray,
    truth: np.ndarray,
    rooms: np.ndarray,
    *,
    named: bool,
    meets: bool = False,
) -> dict[str, float]:
    """named : turns of a person in a recording have one name; meets : several people are in one recording"""
    begin = time.perf_counter()
    turns = [
        Turn(
            str(room) if meets else f"{who} {room}",
            10.0 * i,
            10.0 * i + 3,
            str(who) if named else "",
        )
        for i, (who, room) in enumerate(zip(truth, rooms, strict=True))
    ]
    people = find_people(bundle, X, turns)
    pairs = np.equal.outer(people.person, people.person) & ~np.eye(len(truth), dtype=bool)
    same = np.equal.outer(truth, truth) & ~np.eye(len(truth), dtype=bool)
    first = {person: truth[people.person == person][0] for person in range(people.person.max() + 1)}
    right = [first[i] == first[j] for _, i, j in people.undecided_pairs]
    return {
        "turns": len(truth),
        "people": len(np.unique(truth)),
        "found": int(people.person.max()) + 1,
        "precision, %": 100 * float((pairs & same).sum() / max(pairs.sum(), 1)),
        "recall, %": 100 * float((pairs & same).sum() / same.sum()),
        "asked": len(people.undecided_pairs),
        "asked of one person": int(sum(right)),
        "seconds": time.perf_counter() - begin,
    }


def digits_of(folder: Path, rng: np.random.Generator) -> tuple[Any, ...]:
    """The model, vectors, speakers and recordings of six digits of everybody in either of two recordings."""
    corpus = load_corpus("audiomnist", folder)
    assert corpus.files is not None
    assert corpus.sessions is not None
    speakers = corpus.labels["speaker"].astype(str)
    recordings = corpus.sessions.astype(int) // 10
    rows = []
    for who in np.unique(speakers):
        for half in np.unique(recordings):
            own = np.flatnonzero((speakers == who) & (recordings == half))
            rows.append(rng.permutation(own)[:DIGITS])
    chosen = np.concatenate(rows)
    extractor = load_extractor(list(EXTRACTORS))
    vectors = np.stack([extractor(read_audio(corpus.files[row], RATE), RATE) for row in chosen])
    return load_model(DEFAULT_MODEL), vectors, speakers[chosen], recordings[chosen]


def study(of_cvau: Path, of_audiomnist: Path, of_rooms: Path) -> dict[str, Any]:
    """How well people are found, by corpus."""
    rng = np.random.default_rng(0)
    results: dict[str, Any] = {}

    def draw(data: dict, among: np.ndarray, rooms: np.ndarray, n: int) -> tuple[Any, ...]:
        rows = []
        for who in np.unique(data["speaker"][among]):
            for where in np.unique(rooms):
                here = among & (data["speaker"] == who) & (rooms == where)
                rows.append(rng.permutation(np.flatnonzero(here))[:n])
        chosen = np.concatenate(rows)
        speakers = data["speaker"][chosen].astype(str)
        X = as_default(data, chosen, seconds=CVAU_SECONDS)
        return default_for(data), X, speakers, rooms[chosen]

    cvau = dict(np.load(of_cvau))
    seen = people_with_sound(of_cvau)
    campaigns = draw(cvau, ~np.isin(cvau["speaker"], seen), cvau["session"], 8)
    results["C-VAU"] = judge(*campaigns, named=False)
    halves = digits_of(of_audiomnist, rng)
    results["AudioMNIST"] = judge(*halves, named=False)
    results["AudioMNIST, diarised"] = judge(*halves, named=True)
    rooms = dict(np.load(of_rooms))
    # half of the people of AudioMNIST
    fresh = np.isin(rooms["speaker"], np.unique(rooms["speaker"])[1::2])
    meetings = draw(rooms, fresh, rooms["room"], 6)
    results["AudioMNIST in rooms"] = judge(*meetings, named=False, meets=True)
    results["AudioMNIST in rooms, diarised"] = judge(*meetings, named=True, meets=True)
    return results


if __name__ == "__main__":
    files = {
        "cvau": f"{DATA}/cvau.npz",
        "audiomnist": f"{DATA}/audiomnist",
        "rooms": f"{WORK}/rooms.npz",
    }
    study_command("people", __doc__, study, inputs=files, title="People across recordings")
