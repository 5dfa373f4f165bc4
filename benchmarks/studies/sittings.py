"""Takes of one sitting, counted as independent and with a view for sittings: C-VAU's campaigns, AudioMNIST in rooms.

    python -m benchmarks.studies.sittings ../shared/data/cvau.npz work/rooms.npz

The second file is made by `benchmarks.studies.rooms`. Profiles have 1, 3 or 10 takes of one campaign or room, tests are
single takes of the others. People are dealt into four folds. For every fold, models are trained on the voice vectors
(CAM++, of length one) of all others; one calibration for all numbers of takes comes from the other folds, each held
out in turn. The default model is not trained again and has a calibration of its own. On C-VAU, of which there are no
vectors of `resnet`, it takes part without that block, with people whom it was not trained on. The digits of AudioMNIST,
without rooms, trained it: its people are not new to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import CVAU_SECONDS, as_default, default_for, people_with_sound
from benchmarks.report import study_command
from mvplda import MultiviewPLDA
from mvplda.calibration.scores import LinearCalibrator
from mvplda.metrics.curves import cllr, min_cllr
from mvplda.paper.provenance import DATA, WORK
from mvplda.voice.evidence import session_labels

TAKES = (1, 3, 10)
FOLDS = 4
VIEWS = {"takes independent": ["speaker"], "sittings": ["speaker", "speaker:recording"]}


class Corpus:
    """Vectors with their speakers and sittings; `seen` are people of the default model."""

    def __init__(self, data: Mapping[str, np.ndarray], sittings: np.ndarray, seen: list[str]):
        self.data = data
        voice = data["camp"].astype(np.float64)
        self.voice = voice / np.linalg.norm(voice, axis=1, keepdims=True)
        self.speakers = data["speaker"].astype(str)
        self.sessions = sittings.astype(str)
        self.seen = seen

    def folds(self, among: np.ndarray) -> list[np.ndarray]:
        """Those with several sittings, dealt."""
        several = [p for p in among if len(np.unique(self.sessions[self.speakers == p])) > 1]
        people = np.random.default_rng(0).permutation(several)
        return [people[fold::FOLDS] for fold in range(FOLDS)]

    def trials(self, people: np.ndarray, takes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """(profiles, takes) rows of profiles, and rows of tests."""
        rng = np.random.default_rng(seed)
        enrolled, tests = [], []
        for person in people:
            for sitting in np.unique(self.sessions[self.speakers == person]):
                rows = np.flatnonzero((self.speakers == person) & (self.sessions == sitting))
                if len(rows) >= takes:
                    enrolled += [rng.permutation(rows)[:takes] for _ in range(3)]
                    tests.append(rng.permutation(rows)[:10])
        return np.stack(enrolled), np.concatenate(tests)


Score = Callable[[np.ndarray, np.ndarray, tuple[int, ...]], np.ndarray]
"""LLRs of profiles and tests, by a model without some folds."""


def plda(corpus: Corpus, folds: list[np.ndarray], views: list[str]) -> Score:
    made: dict[tuple[int, ...], MultiviewPLDA] = {}

    def score(enrolled: np.ndarray, tests: np.ndarray, left_out: tuple[int, ...]) -> np.ndarray:
        key = tuple(sorted(left_out))
        if key not in made:
            rows = ~np.isin(corpus.speakers, np.concatenate([folds[fold] for fold in key]))
            labels = {"speaker": corpus.speakers[rows], "recording": corpus.sessions[rows]}
            labels = {view: labels[view] for view in ("speaker", "recording")[: len(views)]}
            fresh = MultiviewPLDA(dict.fromkeys(views), prior="isotropic", prior_strength=0.7)
            made[key] = fresh.fit(corpus.voice[rows], labels)
        model = made[key]
        sides = []
        for rows in (enrolled, tests[:, None]):
            flat = rows.ravel()
            labels = {"recording": corpus.sessions[flat]} if len(views) > 1 else None
            ids = np.repeat(np.arange(len(rows)), rows.shape[1])
            sides.append(model.enrol(corpus.voice[flat], ids, labels))
        return model.llr(*sides, same="speaker")

    return score


def default(corpus: Corpus) -> Score:
    bundle = default_for(corpus.data)
    X = as_default(corpus.data, seconds=CVAU_SECONDS)

    def score(enrolled: np.ndarray, tests: np.ndarray, left_out: tuple[int, ...]) -> np.ndarray:
        flat = enrolled.ravel()
        people = bundle.enrol(X[flat], corpus.speakers[flat])
        ids = np.repeat(np.arange(len(enrolled)), enrolled.shape[1])
        labels = session_labels(bundle, corpus.sessions[flat])
        profiles = bundle.enrol(X[flat], ids, labels)
        answer = bundle.deployed(people).answer(profiles, X[tests], {"same": "speaker"})
        return np.asarray(answer.llr)

    return score


def measure(corpus: Corpus, folds: list[np.ndarray], score: Score) -> dict[int, dict[str, float]]:
    def scored(fold: int, takes: int, left_out: tuple[int, ...], seed: int):
        """LLRs of profiles and tests of other sittings, and whether they are of one person."""
        enrolled, tests = corpus.trials(folds[fold], takes, seed)
        first = enrolled[:, :1]
        other = corpus.sessions[first] != corpus.sessions[tests]
        llrs = score(enrolled, tests, left_out)
        return llrs[other], (corpus.speakers[first] == corpus.speakers[tests])[other]

    pooled: dict[int, tuple[list, list, list]] = {takes: ([], [], []) for takes in TAKES}
    for fold in range(FOLDS):
        others = [other for other in range(FOLDS) if other != fold]
        held = [scored(o, n, (fold, o), o) for o in others for n in TAKES]
        calibrator = LinearCalibrator().fit(*(np.concatenate(p) for p in zip(*held, strict=True)))
        for takes in TAKES:
            llrs, targets = scored(fold, takes, (fold,), 100 + fold)
            calibrated = np.asarray(calibrator.transform(llrs)).reshape(-1)
            for part, values in zip(pooled[takes], (llrs, calibrated, targets), strict=True):
                part.append(values)
    results = {}
    for takes, parts in pooled.items():
        raw, calibrated, targets = (np.concatenate(part) for part in parts)
        least = min_cllr(calibrated[targets], calibrated[~targets])
        actual = cllr(calibrated[targets], calibrated[~targets])
        as_it_is = cllr(raw[targets], raw[~targets])
        results[takes] = {
            "Cllr as it is": as_it_is,
            "ratio as it is": as_it_is / min_cllr(raw[targets], raw[~targets]),
            "Cllr, one calibration": actual,
            "minimum": least,
            "ratio": actual / least,
        }
    return results


def study(campaigns: Path, meetings: Path) -> dict[str, Any]:
    """Errors by corpus, model and number of takes."""
    cvau = dict(np.load(campaigns))
    rooms = dict(np.load(meetings))
    seen = people_with_sound(campaigns)
    # half of the people of AudioMNIST
    heard = np.unique(rooms["speaker"])[::2].tolist()
    corpora = {
        "C-VAU, campaigns": Corpus(cvau, cvau["session"], seen),
        "AudioMNIST in rooms": Corpus(rooms, rooms["room"], heard),
    }
    results: dict[str, Any] = {}
    for title, corpus in corpora.items():
        every = np.unique(corpus.speakers)
        folds = corpus.folds(every)
        fresh = corpus.folds(every[~np.isin(every, corpus.seen)])
        rows = {name: (folds, plda(corpus, folds, views)) for name, views in VIEWS.items()}
        rows["the default model"] = (fresh, default(corpus))
        for name, (dealt, score) in rows.items():
            for takes, row in measure(corpus, dealt, score).items():
                row["people"] = sum(map(len, dealt))
                results[f"{title}, {name}, {takes} takes"] = row
                print(title, name, takes, {k: round(v, 3) for k, v in row.items()}, flush=True)
    return results


if __name__ == "__main__":
    files = {"cvau": f"{DATA}/cvau.npz", "rooms": f"{WORK}/rooms.npz"}
    study_command("sittings", __doc__, study, inputs=files, title="Takes of one sitting")
