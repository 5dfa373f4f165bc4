"""The default calibrations of extractors, for ``mvplda verify`` without a model: fitted, and judged on other speakers.

    python -m benchmarks.default_calibrations AudioMNIST/ campplus words -o FILE.json

AudioMNIST/ has index.csv (file, start, length, speaker, phrase). Recordings are 1 to 16 clips of one speaker joined;
for an extractor of phrases, single clips. LLR = (a + b log s) cosine + c + d log s, s being the seconds of speech on
the shorter side, by logistic regression at even prior. It is fitted on one half of the speakers and judged on the
other, both ways, and then fitted on all; Cllr of the halves is what a stranger may hope for on recordings like these:
short, read, in one sitting each. Nothing is known of how it carries over to other recordings.
"""

from __future__ import annotations

import argparse
import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from mvplda.calibration import LinearCalibrator
from mvplda.extractors import load_extractor
from mvplda.extractors.recipe import Calibration
from mvplda.metrics import cllr, eer
from mvplda.metrics.curves import min_cllr

JOINED = (1, 2, 4, 8, 16)
EACH = 4
MOST = float(np.log(110))
"""No more than about 1 in 100: with 60 speakers, one who sounds like another once in 60 cannot be ruled out."""


def recordings(folder: Path, phrases: bool, seed: int) -> list[tuple[Any, str, str]]:
    """Samples, speaker and phrase of recordings that are drawn: a few of every length of every speaker."""
    rng = np.random.default_rng(seed)
    with open(folder / "index.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = []
    for name in sorted({row["file"] for row in rows}):
        sound, _ = soundfile.read(folder / name, dtype="float32")
        own = [row for row in rows if row["file"] == name]
        drawn: list[Any]
        if phrases:
            drawn = [[i] for i in rng.choice(len(own), 6 * EACH, replace=False)]
        else:
            drawn = [
                rng.choice(len(own), count, replace=False) for count in JOINED for _ in range(EACH)
            ]
        for chosen in drawn:
            clips = [sound[int(own[i]["start"]) :][: int(own[i]["length"])] for i in chosen]
            found.append((np.concatenate(clips), own[0]["speaker"], own[chosen[0]]["phrase"]))
    return found


def trials(X: Any, labels: Any, speech: Any, who: Any) -> tuple[Any, Any, Any]:
    """Cosine, whether it is a target, and log seconds of the shorter side, of all pairs among some recordings."""
    rows = np.flatnonzero(who)
    i, j = (rows[k] for k in np.triu_indices(len(rows), 1))
    cosine = np.einsum("ij,ij->i", X[i], X[j])
    return cosine, labels[i] == labels[j], np.log(np.minimum(speech[i], speech[j]))


def fit(cosine: Any, target: Any, log: Any, by_length: bool) -> dict[str, float]:
    """The numbers of a recipe's [calibration]."""
    if not by_length:
        plain = LinearCalibrator().fit(cosine, target)
        return {"slope": float(plain.slopes_[0]), "intercept": plain.intercept_}
    made = LinearCalibrator().fit(np.column_stack([cosine, log, cosine * log]), target)
    slope, offset, both = made.slopes_
    return {
        "slope": float(slope),
        "intercept": made.intercept_,
        "slope_by_log": float(both),
        "intercept_by_log": float(offset),
    }


def judged(
    numbers: dict[str, float], cosine: Any, target: Any, log: Any, limits: tuple[float, float]
) -> Any:
    """Cllr as the calibration gives it, the least that any could, and the EER, of all and by length."""
    settings: Any = numbers
    calibration = Calibration(**settings, shortest_s=limits[0], longest_s=limits[1], most=MOST)
    llr = np.empty(len(cosine))
    for value in np.unique(log):
        where = log == value
        seconds = np.clip(value, *np.log(limits))
        slope = calibration.slope + calibration.slope_by_log * seconds
        intercept = calibration.intercept + calibration.intercept_by_log * seconds
        llr[where] = np.clip(slope * cosine[where] + intercept, -MOST, MOST)
    parts = {"all": np.ones(len(log), dtype=bool)}
    edges = np.log([0.0001, 1.0, 2.0, 4.0, 1000.0])
    for low, high in pairwise(edges):
        parts[f"{max(0, np.exp(low)):.0f} to {np.exp(high):.0f} s"] = (log >= low) & (log < high)
    found = {}
    for name, part in parts.items():
        one, other = llr[part & target], llr[part & ~target]
        if len(one) and len(other):
            scores = {
                "Cllr": cllr(one, other),
                "minCllr": min_cllr(one, other),
                "EER %": 100 * eer(one, other),
            }
            found[name] = {key: round(value, 3) for key, value in scores.items()}
    return found


def calibrate(folder: Path, name: str, seed: int = 0) -> dict[str, Any]:
    """Halves both ways, and all speakers."""
    extractor = load_extractor(name)
    phrases = extractor.networks[0].views == ("phrase",)
    drawn = recordings(folder, phrases, seed)
    heard = [extractor.utterance(samples, 16000) for samples, _, _ in drawn]
    X = np.array([one.vector for one in heard], dtype=np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    speech = np.array([round(one.quality.speech_s, 1) for one in heard])
    speaker, phrase = (np.array([one[k] for one in drawn]) for k in (1, 2))
    labels = phrase if phrases else speaker
    names = np.random.default_rng(seed).permutation(np.unique(speaker))
    half = np.isin(speaker, names[: len(names) // 2])
    low, high = np.percentile(speech, [2, 98]).round(1).tolist() if not phrases else (1.0, 1.0)
    limits = (low, high)
    found: dict[str, Any] = {
        "recordings": len(X),
        "speakers": len(names),
        "speech, s": limits,
        "halves": [],
    }
    for who in (half, ~half):
        own, others = trials(X, labels, speech, who), trials(X, labels, speech, ~who)
        numbers = fit(*own, by_length=not phrases)
        found["halves"].append(
            {"fitted": judged(numbers, *own, limits), "others": judged(numbers, *others, limits)}
        )
    found["numbers"] = {
        k: round(v, 1) for k, v in fit(*trials(X, labels, speech, half | True), not phrases).items()
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("extractors", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    known = json.loads(given.output.read_text()) if given.output.is_file() else {}
    for name in given.extractors:
        known[name] = calibrate(given.folder, name)
        given.output.write_text(json.dumps(known, indent=2) + "\n")
        print(name, json.dumps(known[name], indent=2), flush=True)


if __name__ == "__main__":
    main()
