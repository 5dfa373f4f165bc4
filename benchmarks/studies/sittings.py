"""Takes of one sitting, counted as independent and with a view for sittings: C-VAU's campaigns.

    python -m benchmarks.studies.sittings ../shared/data/cvau.npz --out results/sittings/results.json

Voice vectors (CAM++) of length one. Profiles have 1, 3 or 10 takes of one campaign, tests are single takes of the
others. People are dealt into four folds. For every fold, models are trained on all others; one calibration for all
numbers of takes comes from the other folds, each held out in turn.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from mvplda import MultiviewPLDA
from mvplda.calibration import LinearCalibrator
from mvplda.metrics.curves import cllr, min_cllr
from mvplda.speech.results import provenance

TAKES = (1, 3, 10)
FOLDS = 4
VIEWS = {"takes independent": ["speaker"], "sittings": ["speaker", "speaker:recording"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data = np.load(options.vectors)
    X = data["camp"].astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    speakers = data["speaker"].astype(str)
    campaigns = data["session"].astype(str)
    several = [p for p in np.unique(speakers) if len(np.unique(campaigns[speakers == p])) > 1]
    people = np.random.default_rng(0).permutation(several)
    folds = [people[fold::FOLDS] for fold in range(FOLDS)]

    def trials(model: MultiviewPLDA, tested: np.ndarray, takes: int, seed: int):
        """LLRs of profiles and tests of other campaigns, and whether they are of one person."""
        rng = np.random.default_rng(seed)
        enrolled, ids, tests = [], [], []
        for person in tested:
            for campaign in np.unique(campaigns[speakers == person]):
                rows = np.flatnonzero((speakers == person) & (campaigns == campaign))
                if len(rows) < takes:
                    continue
                for number in range(3):
                    enrolled.append(rng.permutation(rows)[:takes])
                    ids += [f"{person} {campaign} {number}"] * takes
                tests.append(rng.permutation(rows)[:10])
        e, t = np.concatenate(enrolled), np.concatenate(tests)
        has_sittings = "speaker:recording" in model.views_
        labels = [{"recording": campaigns[rows]} if has_sittings else None for rows in (e, t)]
        profiles = model.enrol(X[e], ids, labels[0])
        llrs = model.llr(profiles, model.enrol(X[t], np.arange(len(t)), labels[1]), same="speaker")
        first = e[::takes]
        other = campaigns[first][:, None] != campaigns[t]
        return llrs[other], (speakers[first][:, None] == speakers[t])[other]

    results: dict = {"command": "python -m benchmarks.studies.sittings", "people": len(people)}
    for name, views in VIEWS.items():
        made: dict[tuple[int, ...], MultiviewPLDA] = {}

        def model_without(*left_out: int, views=views, made=made) -> MultiviewPLDA:
            key = tuple(sorted(left_out))
            if key not in made:
                rows = ~np.isin(speakers, np.concatenate([folds[fold] for fold in key]))
                labels = {"speaker": speakers[rows], "recording": campaigns[rows]}
                labels = {view: labels[view] for view in ("speaker", "recording")[: len(views)]}
                fresh = MultiviewPLDA(dict.fromkeys(views), prior="isotropic", prior_strength=0.7)
                made[key] = fresh.fit(X[rows], labels)
            return made[key]

        pooled = {takes: ([], [], []) for takes in TAKES}
        for fold in range(FOLDS):
            others = [other for other in range(FOLDS) if other != fold]
            held = [trials(model_without(fold, o), folds[o], n, o) for o in others for n in TAKES]
            joined = (np.concatenate(part) for part in zip(*held, strict=True))
            calibrator = LinearCalibrator().fit(*joined)
            for takes in TAKES:
                llrs, targets = trials(model_without(fold), folds[fold], takes, 100 + fold)
                pooled[takes][0].append(llrs)
                pooled[takes][1].append(np.asarray(calibrator.transform(llrs)).reshape(-1))
                pooled[takes][2].append(targets)
        for takes, parts in pooled.items():
            raw, calibrated, targets = (np.concatenate(part) for part in parts)
            least = min_cllr(calibrated[targets], calibrated[~targets])
            actual = cllr(calibrated[targets], calibrated[~targets])
            results[f"{name}, {takes} takes"] = {
                "Cllr as it is": cllr(raw[targets], raw[~targets]),
                "Cllr, one calibration": actual,
                "minimum": least,
                "ratio": actual / least,
            }
            print(name, takes, results[f"{name}, {takes} takes"], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    saved = {"title": "Takes of one sitting", "provenance": provenance(), "rows": results}
    options.out.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
