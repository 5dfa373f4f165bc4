"""A take of somebody else among the five of a profile: is it named, and what does it do? The default model, C-VAU.

    python -m benchmarks.studies.wrong_take ../shared/data/cvau.npz

Profiles are five takes of one campaign of people whom the default model was not trained on; in half of the profiles
one take is replaced by another person's of the same campaign. Tests are single takes of other campaigns. A take is
named where it weighs less than 1 (`mvplda.voice.evidence.recording_weights`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import CVAU_SECONDS, as_default, default_of_two, people_with_sound
from benchmarks.report import study_command
from mvplda.metrics import eer
from mvplda.paper.provenance import DATA
from mvplda.voice.evidence import leave_one_out, recording_weights, session_labels, speaker_question

TAKES = 5
PROFILES = 10


def study(vectors: Path) -> dict[str, Any]:
    """How often takes are named, and what is gained."""
    data = np.load(vectors)
    X = as_default(data, seconds=CVAU_SECONDS)
    speakers, campaigns = data["speaker"].astype(str), data["session"].astype(str)
    seen = people_with_sound(vectors)
    rng = np.random.default_rng(0)
    owners, rows, tests = [], [], []
    for who in np.unique(speakers[~np.isin(speakers, seen)]):
        for campaign in np.unique(campaigns[speakers == who]):
            here = campaigns == campaign
            own = np.flatnonzero(here & (speakers == who))
            others = np.flatnonzero(here & (speakers != who) & ~np.isin(speakers, seen))
            tests.append(rng.permutation(own)[:10])
            for _ in range(PROFILES):
                # four of the owner, then one more of the owner, then one of somebody else
                rows.append([*rng.permutation(own)[:TAKES], rng.choice(others)])
                owners.append(who)
    rows, owners, t = np.array(rows), np.array(owners), np.concatenate(tests)
    bundle = default_of_two()
    question = speaker_question(bundle)
    ids = np.repeat(np.arange(len(rows)), TAKES)
    clean = rows[:, :TAKES]
    wrong = rows[:, [0, 1, 2, 3, 5]]
    bundle = bundle.deployed(bundle.enrol(X[clean.ravel()], owners[ids]))
    same = owners[:, None] == speakers[t]
    counted = campaigns[clean[:, :1]] != campaigns[t]

    def weights_of(takes: np.ndarray) -> np.ndarray:
        fits = [
            leave_one_out(bundle, X[some], [0] * TAKES, campaigns[some].tolist()) for some in takes
        ]
        return recording_weights(np.stack(fits))

    def errors(takes: np.ndarray, weights: np.ndarray | None = None) -> float:
        names = np.repeat(np.arange(len(takes)), takes.shape[1])
        flat = takes.ravel()
        labels = session_labels(bundle, campaigns[flat])
        own = None if weights is None else weights.ravel()
        profiles = bundle.enrol(X[flat], names, labels, weights=own)
        llrs = np.asarray(bundle.answer(profiles, X[t], question).llr)
        return 100 * float(eer(llrs[same & counted], llrs[~same & counted]))

    right, with_wrong = weights_of(clean), weights_of(wrong)
    mixed = []
    for who in np.unique(owners):
        own = np.unique(campaigns[speakers == who])
        for _ in range(PROFILES if len(own) > 1 else 0):
            one, other = rng.permutation(own)[:2]
            parts = [np.flatnonzero((speakers == who) & (campaigns == c)) for c in (one, other)]
            mixed.append([*rng.permutation(parts[0])[:3], *rng.permutation(parts[1])[:2]])
    of_two = weights_of(np.array(mixed))
    return {
        "people": len(np.unique(owners)),
        "profiles": len(rows),
        "wrong take named, %": 100 * float(np.mean(with_wrong[:, -1] < 1)),
        "wrong take named and weighs least, %": 100
        * float(np.mean((with_wrong[:, -1] < 1) & (with_wrong.argmin(axis=1) == TAKES - 1))),
        "right takes named beside a wrong one, %": 100 * float(np.mean(with_wrong[:, :-1] < 1)),
        "right takes named without one, %": 100 * float(np.mean(right < 1)),
        "right takes of two campaigns named, %": 100 * float(np.mean(of_two < 1)),
        "EER, five right takes, %": errors(clean),
        "EER, five right takes, weighted, %": errors(clean, right),
        "EER, one wrong take, %": errors(wrong),
        "EER, one wrong take, weighted, %": errors(wrong, with_wrong),
        "EER, the wrong take left out, %": errors(clean[:, :4]),
    }


if __name__ == "__main__":
    inputs = {"vectors": f"{DATA}/cvau.npz"}
    study_command("wrong-take", __doc__, study, inputs=inputs, title="A wrong take")
