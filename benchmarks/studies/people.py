"""People across recordings, of the default model: C-VAU's campaigns, AudioMNIST, and AudioMNIST put into rooms.

    python -m benchmarks.studies.people cvau.npz audiomnist.npz work/rooms.npz

The last file is made by `benchmarks.studies.rooms`. C-VAU: eight turns of every campaign of those people whom the
default model was not trained on. AudioMNIST: six digits of everybody in either of two recordings (half a second each),
one by one and with the names that a diariser gives within one. In rooms: six turns of two to three seconds of everybody
in either of two meetings, each of which shares a room, a microphone and a channel; people whom the default model was
not trained on. Evaluated by pairs of turns: precision (merged and of one person) and recall (of one person and merged);
and by what is asked.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import as_default, default_of_two, people_with_sound
from benchmarks.report import study_command
from mvplda.recordings import Turn, find_people


def judge(
    X: np.ndarray, truth: np.ndarray, rooms: np.ndarray, named: bool, meets: bool = False
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
    people = find_people(default_of_two(), X, turns)
    pairs = np.equal.outer(people.person, people.person) & ~np.eye(len(truth), dtype=bool)
    same = np.equal.outer(truth, truth) & ~np.eye(len(truth), dtype=bool)
    first = {person: truth[people.person == person][0] for person in range(people.person.max() + 1)}
    right = [first[i] == first[j] for _, i, j in people.ask]
    return {
        "turns": len(truth),
        "people": len(np.unique(truth)),
        "found": int(people.person.max()) + 1,
        "precision, %": 100 * float((pairs & same).sum() / max(pairs.sum(), 1)),
        "recall, %": 100 * float((pairs & same).sum() / same.sum()),
        "asked": len(people.ask),
        "asked of one person": int(sum(right)),
        "seconds": time.perf_counter() - begin,
    }


def study(of_cvau: Path, of_audiomnist: Path, of_rooms: Path) -> dict[str, Any]:
    """How well people are found, by corpus."""
    rng = np.random.default_rng(0)
    results: dict[str, Any] = {}

    def draw(data: dict, among: np.ndarray, rooms: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
        rows = []
        for who in np.unique(data["speaker"][among]):
            for where in np.unique(rooms):
                here = among & (data["speaker"] == who) & (rooms == where)
                rows.append(rng.permutation(np.flatnonzero(here))[:n])
        chosen = np.concatenate(rows)
        return as_default(data, chosen), data["speaker"][chosen].astype(str), rooms[chosen]

    cvau = dict(np.load(of_cvau))
    seen = people_with_sound(of_cvau)
    campaigns = draw(cvau, ~np.isin(cvau["speaker"], seen), cvau["session"], 8)
    results["C-VAU"] = judge(*campaigns, named=False)
    digits = dict(np.load(of_audiomnist))
    halves = draw(digits, digits["condition"] == "clean", digits["session"].astype(int) // 10, 6)
    results["AudioMNIST"] = judge(*halves, named=False)
    results["AudioMNIST, diarised"] = judge(*halves, named=True)
    rooms = dict(np.load(of_rooms))
    # the default model was trained on every second person of AudioMNIST
    fresh = np.isin(rooms["speaker"], np.unique(rooms["speaker"])[1::2])
    meetings = draw(rooms, fresh, rooms["room"], 6)
    results["AudioMNIST in rooms"] = judge(*meetings, named=False, meets=True)
    results["AudioMNIST in rooms, diarised"] = judge(*meetings, named=True, meets=True)
    return results


if __name__ == "__main__":
    files = ("cvau", "audiomnist", "rooms")
    study_command("people", __doc__, study, inputs=files, title="People across recordings")
