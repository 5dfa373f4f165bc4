"""Whose voice said the wake word? Households of 2 to 6 people, single words of one second, the default model.

    python -m benchmarks.studies.wake_word ../shared/data/speech_commands.npz

Every member enrols three takes of one word; tests are other takes of that word, by members and by strangers. People
whom the default model was trained on (those with sound beside the vectors) take no part. A member is named where
`mvplda.decisions.name_among` names one; for the cosine, where the best similarity is above a threshold that lets the
same share of strangers through, set on these very tests: to its advantage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import SPEECH_COMMANDS_SECONDS, as_default, default_of_two, people_with_sound
from benchmarks.report import study_command
from mvplda.decisions import name_among, naming_point
from mvplda.paper.provenance import DATA
from mvplda.scoring.question import Question

TAKES = 3
HOUSEHOLDS = 60
STRANGERS = 20


def study(vectors: Path) -> dict[str, Any]:
    """Shares of tests that are named, by the size of a household."""
    data = np.load(vectors)
    X = as_default(data, seconds=SPEECH_COMMANDS_SECONDS)
    speakers = data["speaker"].astype(str)
    phrases = data["phrase"].astype(str)
    seen = people_with_sound(vectors)
    bundle = default_of_two()
    question = Question("speaker")
    points = bundle.operating_points(question)
    rng = np.random.default_rng(0)
    cells: dict[str, list[np.ndarray]] = {}
    for word in np.unique(phrases):
        for person in np.unique(speakers[phrases == word]):
            rows = np.flatnonzero((speakers == person) & (phrases == word))
            if person not in seen and len(rows) > TAKES:
                cells.setdefault(word, []).append(rng.permutation(rows))
    words = [word for word, people in cells.items() if len(people) >= STRANGERS + 6]
    results: dict[str, Any] = {"words": words, "takes": TAKES, "sizes": {}}
    for size in range(2, 7):
        named = np.zeros(3)
        strangers = np.zeros(2)
        best_cosine, right_cosine, stranger_cosine = [], [], []
        for household in range(HOUSEHOLDS):
            people = cells[words[household % len(words)]]
            chosen = rng.permutation(len(people))
            members = [people[i] for i in chosen[:size]]
            enrolled = np.concatenate([rows[:TAKES] for rows in members])
            profiles = bundle.enrol(X[enrolled], np.repeat(np.arange(size), TAKES))
            here = bundle.deployed(profiles)
            others = [people[i][0] for i in chosen[size : size + STRANGERS]]
            own = np.concatenate([rows[TAKES:] for rows in members])
            truth = np.repeat(np.arange(size), [len(rows) - TAKES for rows in members])
            llrs = here.answer(profiles, X[np.concatenate([own, others])], question).inlier_llr
            d = here.outlier_probability(question)
            point = naming_point(points, size, outlier_probability=d)
            names = [name_among(column, point, outlier_probability=d).best for column in llrs.T]
            for name, person in zip(names, truth, strict=False):
                named += [name == person, name is not None and name != person, name is None]
            strangers += [sum(name is not None for name in names[len(own) :]), len(others)]
            voice = X[:, :192] / np.linalg.norm(X[:, :192], axis=1, keepdims=True)
            means = np.array([voice[rows[:TAKES]].mean(axis=0) for rows in members])
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            cosines = means @ voice[np.concatenate([own, others])].T
            best_cosine += cosines[:, : len(own)].max(axis=0).tolist()
            right_cosine += (cosines[:, : len(own)].argmax(axis=0) == truth).tolist()
            stranger_cosine += cosines[:, len(own) :].max(axis=0).tolist()
        share = strangers[0] / strangers[1]
        line = np.quantile(stranger_cosine, 1 - share)
        above = np.array(best_cosine) > line
        results["sizes"][size] = {
            "tests": int(named.sum()),
            "strangers": int(strangers[1]),
            "named rightly, %": 100 * named[0] / named.sum(),
            "named as somebody else, %": 100 * named[1] / named.sum(),
            "not named, %": 100 * named[2] / named.sum(),
            "strangers named, %": 100 * share,
            "cosine: named rightly, %": 100 * float(np.mean(above & np.array(right_cosine))),
            "cosine: named as somebody else, %": 100
            * float(np.mean(above & ~np.array(right_cosine))),
        }
        print(size, json.dumps(results["sizes"][size]), flush=True)
    return results


if __name__ == "__main__":
    inputs = {"vectors": f"{DATA}/speech_commands.npz"}
    study_command("wake-word", __doc__, study, inputs=inputs, title="Wake words")
