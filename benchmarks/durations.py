"""Does it help to say how long an utterance is? Noise of a vector by a + b / seconds, on cut and joined spoken digits.

``python -m benchmarks.durations DATA [-o results/durations] [--work FOLDER]``. DATA holds audiomnist/ and
audiomnist_jvectors.npz (whose training speakers are taken): spoken digits of 60 speakers, of which 40 train and 20
evaluate. Vectors are those of CAM++ of the first 0.3 s of a digit, of a digit, and of 3 and 6 different digits in a
row, all of them in training and evaluation. The model has one view, the speaker, under the isotropic prior; a and b
are chosen on training speakers that are held out. Profiles are of three utterances of one length, tests of one
utterance of each. The last row is of whole digits alone, 0.29 to 1.00 s, and a model that was trained on nothing else:
profiles of three utterances of one digit, tests of all. Scores are natural-log likelihood ratios as they come, not
calibrated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.backends import read
from benchmarks.clips import Clips, split, vectors_of
from benchmarks.report import study_command
from mvplda import Bundle, MultiviewPLDA
from mvplda.metrics import evaluate
from mvplda.metrics.evaluation import markdown_rows
from mvplda.preprocessing import unit_chain

KINDS = {"0.3 s": (1, 12), "digit": (1, 12), "3 digits": (3, 8), "6 digits": (6, 8)}
"""How many digits an utterance is joined of, and how many utterances a speaker has of the kind."""
CUT = 0.3
ENROLMENT = 3
DIGITS = "digits alone"


def utterances(
    clips: Clips, speakers: list[int]
) -> list[tuple[int, str, list[tuple[int, int, int]]]]:
    """Speaker, kind and clips of every utterance; no clip is in two."""
    rng = np.random.default_rng(0)
    found = []
    for speaker in speakers:
        order = [(speaker, int(p), s) for s in range(20) for p in rng.permutation(10)]
        for kind, (digits, count) in KINDS.items():
            for _ in range(count):
                found.append((speaker, kind, [order.pop(0) for _ in range(digits)]))
    return found


def study(data: Path, work: Path) -> dict[str, Any]:
    clips = Clips(data / "audiomnist")
    own, others = split(
        np.load(data / "audiomnist_jvectors.npz")["training_speakers"], [k[0] for k in clips.rows]
    )
    listed = utterances(clips, own + others)

    def sound(i: int) -> np.ndarray:
        _, kind, keys = listed[i]
        joined = np.concatenate([clips[key] for key in keys])
        return joined[: int(CUT * 16_000)] if kind == "0.3 s" else joined

    X = vectors_of(sound, len(listed), "campplus", work / "durations.npy")
    seconds = np.array(
        [
            min(sum(map(clips.seconds, keys)), CUT if kind == "0.3 s" else 99)
            for _, kind, keys in listed
        ]
    )
    who = np.array([speaker for speaker, _, _ in listed])
    kinds = np.array([kind for _, kind, _ in listed])
    train = np.isin(who, own)
    labels = {"speaker": who[train]}

    plain = model().fit(X[train], labels)
    by_length = model().fit(X[train], labels, seconds=seconds[train])
    assert by_length.durations is not None
    found: dict[str, Any] = {
        "a": by_length.durations.a,
        "b": by_length.durations.b,
        "seconds": {
            kind: [float(seconds[kinds == kind].min()), float(seconds[kinds == kind].max())]
            for kind in KINDS
        },
    }
    place = np.concatenate([np.arange(count) for _ in own + others for _, count in KINDS.values()])
    profiles = {
        kind: np.flatnonzero(~train & (kinds == kind) & (place < ENROLMENT)) for kind in KINDS
    }
    tests = {
        kind: np.flatnonzero(~train & (kinds == kind) & (place >= ENROLMENT)) for kind in KINDS
    }
    for name, bundle in (("without seconds", plain), ("with seconds", by_length)):
        pooled: list[np.ndarray] = []
        truth: list[np.ndarray] = []
        cells: dict[str, Any] = {}
        for kind, rows in profiles.items():
            told = {} if name == "without seconds" else {"seconds": seconds[rows]}
            enrolled = bundle.enrol(X[rows], who[rows], **told)
            for other, columns in tests.items():
                told = {} if name == "without seconds" else {"seconds": seconds[columns]}
                llr = bundle.llr(enrolled, bundle.enrol(X[columns], **told), dtype=np.float64)
                same = np.equal.outer(enrolled.ids, who[columns])
                cells[f"{kind} / {other}"] = measured(llr, same)
                pooled.append(llr.ravel())
                truth.append(same.ravel())
        cells["all"] = measured(np.concatenate(pooled), np.concatenate(truth))
        found[name] = cells
    for name, row in digits_alone(data, clips, set(own)).items():
        found[name][DIGITS] = row
    return found


def model() -> Bundle:
    scorer = MultiviewPLDA({"speaker": None}, prior="isotropic", prior_strength=0.6, max_iter=0)
    return Bundle(unit_chain(), scorer)


def digits_alone(data: Path, clips: Clips, own: set[int]) -> dict[str, dict[str, float]]:
    """With vectors of whole digits that are there."""
    vectors = read(data)
    keys = list(
        zip(
            *(vectors.labels[name].astype(int) for name in ("speaker", "phrase", "session")),
            strict=True,
        )
    )
    X, seconds = vectors.X["campplus"], np.array([clips.seconds(key) for key in keys])
    who, session = np.array([key[0] for key in keys]), np.array([key[2] for key in keys])
    train = np.isin(who, list(own)) & (session < 10)
    enrols = np.flatnonzero(~np.isin(who, list(own)) & (session < ENROLMENT))
    tests = np.flatnonzero(~np.isin(who, list(own)) & (session >= ENROLMENT) & (session < 10))
    names = [f"{key[0]} {key[1]}" for key in keys]
    found = {}
    for name in ("without seconds", "with seconds"):
        told = [
            {} if name == "without seconds" else {"seconds": seconds[some]}
            for some in (train, enrols, tests)
        ]
        bundle = model().fit(X[train], {"speaker": who[train]}, **told[0])
        enrolled = bundle.enrol(X[enrols], [names[i] for i in enrols], **told[1])
        llr = bundle.llr(enrolled, bundle.enrol(X[tests], **told[2]), dtype=np.float64)
        same = np.equal.outer([int(str(i).split()[0]) for i in enrolled.ids], who[tests])
        found[name] = measured(llr, same)
        if bundle.durations is not None:
            found[name] |= {"a": bundle.durations.a, "b": bundle.durations.b}
    return found


def measured(scores: np.ndarray, same: np.ndarray) -> dict[str, float]:
    row = evaluate(scores, same, far=())["Total"]
    impostors = scores[~same]
    return {
        **{metric: float(row[metric]) for metric in ("eer", "cllr", "min_cllr")},
        "impostors above log 10": float((impostors > np.log(10)).mean()),
    }


def table(found: dict[str, Any]) -> str:
    head = [
        "profile / test",
        *(f"{m}, {n}" for m in ("EER %", "Cllr", "minCllr") for n in ("without", "with")),
    ]
    rows = [head]
    for cell, before in found["without seconds"].items():
        after = found["with seconds"][cell]
        rows.append([cell, *(f"{100 * x['eer']:.2f}" for x in (before, after))])
        rows[-1] += [f"{x[metric]:.3f}" for metric in ("cllr", "min_cllr") for x in (before, after)]
    noise = f"The noise of t seconds is {found['a']:.2f} + {found['b']:.3f} / t times the model's."
    of_digits = found["with seconds"][DIGITS]
    noise += f" With digits alone: {of_digits['a']:.2f} + {of_digits['b']:.3f} / t."
    return "\n".join([*markdown_rows(rows), "", noise]) + "\n"


if __name__ == "__main__":
    study_command("durations", __doc__, study, table, keeps_vectors=True)
