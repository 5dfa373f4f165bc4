"""People across recordings, of the default model: C-VAU's campaigns, and AudioMNIST put into rooms.

    python -m benchmarks.studies.people cvau.npz vectors/audiomnist.npz --out results/people/results.json

C-VAU: eight turns of every campaign of those people whom the default model was not trained on. AudioMNIST: six single
digits of everybody as they are and six in a simulated room. Judged by pairs of turns: precision (merged and of one person)
and recall (of one person and merged); and by what is asked.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from mvplda.people import Turn, find_people
from mvplda.voices import DEFAULT_MODEL, load_model


def judge(X: np.ndarray, truth: np.ndarray, recordings: np.ndarray) -> dict[str, float]:
    begin = time.perf_counter()
    turns = [Turn(f"{who} {where}", 10.0 * i, 10.0 * i + 3) for i, (who, where) in enumerate(zip(truth, recordings, strict=True))]  # fmt: skip
    people = find_people(load_model(DEFAULT_MODEL), X, turns)
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cvau", type=Path)
    parser.add_argument("audiomnist", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    results: dict = {"command": "python -m benchmarks.studies.people"}

    def draw(data: dict, among: np.ndarray, column: str, n: int) -> dict[str, float]:
        rows = []
        for who in np.unique(data["speaker"][among]):
            for where in np.unique(data[column]):
                here = among & (data["speaker"] == who) & (data[column] == where)
                rows.append(rng.permutation(np.flatnonzero(here))[:n])
        chosen = np.concatenate(rows)
        X = np.hstack([data["camp"][chosen], data["words"][chosen]]).astype(np.float64)
        return judge(X, data["speaker"][chosen].astype(str), data[column][chosen].astype(str))

    cvau = dict(np.load(options.cvau))
    folder = options.cvau.with_suffix("")
    seen = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    results["C-VAU"] = draw(cvau, ~np.isin(cvau["speaker"], seen), "session", 8)
    print(results, flush=True)
    digits = dict(np.load(options.audiomnist))
    rooms = np.isin(digits["condition"], ["clean", "room"])
    results["AudioMNIST in rooms"] = draw(digits, rooms, "condition", 6)
    print(results, flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
