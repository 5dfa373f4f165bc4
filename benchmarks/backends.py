"""Back-ends on vectors of public extractors, few training speakers: cosine, PLDA, joint models, priors, committees.

``python benchmarks/backends.py DATA [-o results/backends] [--only TABLE]``. DATA holds audiomnist_campplus.npz,
audiomnist_embeddings.npz and audiomnist_jvectors.npz: spoken digits of 60 speakers, of which 40 train and 20 evaluate.
Profiles are of three sessions of a (speaker, phrase), tests are the sessions after them, all against all. Nothing is
chosen by these tables, but the fixed strength was set when its curve on the evaluation speakers had been seen; the row
"strengths chosen" is free of that. Factors come from training speakers that are held out. The network of the j-vectors
has met these, so its factors are too large.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from mvplda import PLDA, Bundle, Committee, CosineScorer, MultiviewPLDA
from mvplda.metrics import evaluate, speaker_intervals, trial_kinds
from mvplda.preprocessing import LDA, Centring, LengthNormalisation, Reduction

ENROLMENT = 3
VIEWS: dict[str, int | None] = {"speaker": None, "phrase": None, "speaker:phrase": None}
STRENGTH = 0.6
ACROSS = {"same": "speaker", "given": {"phrase": "different"}}


@dataclass(frozen=True)
class Trials:
    """Training vectors with labels, vectors to enrol with their profiles, tests, and the labels of both."""

    train: np.ndarray
    labels: dict[str, np.ndarray]
    enrol: np.ndarray
    ids: np.ndarray
    test: np.ndarray
    model_labels: dict[str, np.ndarray]
    test_labels: dict[str, np.ndarray]


def trials_of(X: np.ndarray, labels: dict[str, np.ndarray], training: np.ndarray) -> Trials:
    train = np.isin(labels["speaker"], training)
    rest = np.flatnonzero(~train)
    own = {name: column[rest] for name, column in labels.items()}
    enrols = own["session"] < ENROLMENT
    cells, ids = np.unique(np.stack([own["speaker"], own["phrase"]])[:, enrols], axis=1, return_inverse=True)
    views = ("speaker", "phrase")
    return Trials(
        X[train],
        {view: labels[view][train] for view in views},
        X[rest[enrols]],
        ids.reshape(-1),
        X[rest[~enrols]],
        dict(zip(views, cells, strict=True)),
        {view: own[view][~enrols] for view in views},
    )


# Back-ends: each takes trials, and gives scores for "the same in both?" and for "the same speaker, other phrase?".

Scores = tuple[Any, Any]
Backend = Callable[[Trials], Scores]


def unit_length(*first: Any) -> Pipeline:
    steps = [*first, Centring(), LengthNormalisation("unit")]
    return Pipeline([(str(i), step) for i, step in enumerate(steps)])


def joint(strength: Any = STRENGTH, views: dict[str, int | None] | None = None) -> MultiviewPLDA:
    return MultiviewPLDA(views or VIEWS, prior="isotropic", prior_strength=strength, max_iter=3)


def single(scorer: Callable[[], Any], view: str | None, *, known: bool = False, ranks: bool = False) -> Backend:
    """A scorer of all views (view None), of one, or of cells: after centring and length normalisation."""

    def run(t: Trials) -> Scores:
        bundle = Bundle(unit_length(), scorer())
        labels: Any = t.labels
        if view == "cell":
            labels = t.labels["speaker"] * 1000 + t.labels["phrase"]
        elif view is not None:
            labels = t.labels[view]
        bundle.fit(t.train, labels)
        profiles = bundle.enrol(t.enrol, t.ids)
        if view is not None:
            scores = bundle.llr(profiles, t.test)
            return scores, scores
        asked = {"known": {"phrase": t.model_labels["phrase"]}} if known else {}
        return bundle.llr(profiles, t.test, **asked), bundle.llr(profiles, t.test, **ACROSS, **asked)

    return run


def cosine(t: Trials) -> Scores:
    bundle = Bundle(unit_length(), CosineScorer(centre=False)).fit(t.train)
    scores = bundle.llr(bundle.enrol(t.enrol, t.ids), t.test)
    return scores, scores


def committee(
    parts: dict[str, int],
    *,
    models: bool = True,
    cosines: bool = False,
    factors: Any = "learnt",
    known: bool = False,
    strength: Any = STRENGTH,
) -> Backend:
    """Experts of extractors that stand side by side, by width; those of words speak of the phrase alone."""

    def run(t: Trials) -> Scores:
        experts: dict[str, Any] = {}
        columns: dict[str, tuple[int, int]] = {}
        speaks: dict[str, list[str]] = {}
        start = 0
        for name, width in parts.items():
            place = (start, start + width)
            start += width
            if models:
                views = {"phrase": None} if name == "words" else VIEWS
                experts[name] = Bundle(unit_length(), joint(strength, views))
                columns[name] = place
            if cosines:
                for of in (["phrase"],) if name == "words" else (["speaker"], ["phrase"], ["speaker", "phrase"]):
                    of_name = f"cosine of {name} for {' and '.join(of)}"
                    experts[of_name] = Bundle(unit_length(), CosineScorer(centre=False))
                    columns[of_name], speaks[of_name] = place, of
        both = Committee(
            experts,
            columns=columns,
            speaks_of=speaks,
            factors=factors,
            known=["phrase"] if known else [],
            enrolment=ENROLMENT,
        ).fit(t.train, t.labels)
        profiles = both.enrol(t.enrol, t.ids)
        asked = {"known": {"phrase": t.model_labels["phrase"]}} if known else {}
        return both.llr(profiles, t.test, **asked), both.llr(profiles, t.test, **ACROSS, **asked)

    return run


def tables(widths: dict[str, int]) -> dict[str, dict[str, tuple[list[str], Backend]]]:
    """Rows of every table: which extractors they see, and the back-end."""
    voice, two = ["campplus"], ["campplus", "words"]
    three, four = [*two, "resemblyzer"], [*two, "jvector"]

    def of(names: list[str], **settings: Any) -> Backend:
        return committee({name: widths[name] for name in names}, **settings)

    every: dict[str, dict[str, tuple[list[str], Backend]]] = {
        "campplus": {
            "cosine": (voice, cosine),
            "PLDA by speaker": (voice, single(lambda: PLDA(noise="full", max_iter=20), "speaker")),
            "PLDA by cell": (voice, single(lambda: PLDA(noise="full", max_iter=20), "cell")),
            "joint, interaction": (voice, single(lambda: MultiviewPLDA(VIEWS, noise="full", max_iter=20), None)),
            "PLDA by speaker, prior": (
                voice,
                single(lambda: PLDA(prior="isotropic", prior_strength=STRENGTH, max_iter=3), "speaker"),
            ),
            "PLDA by cell, prior": (
                voice,
                single(lambda: PLDA(prior="isotropic", prior_strength=STRENGTH, max_iter=3), "cell"),
            ),
            "joint, prior": (voice, single(joint, None)),
            "joint, prior, strengths chosen": (voice, single(lambda: joint("auto"), None)),
            "joint, prior, phrase known": (voice, single(joint, None, known=True)),
        },
    }
    for title, names in (("campplus + words", two), ("campplus + words + resemblyzer", three)):
        every[title] = {
            "cosines, fused": (names, of(names, models=False, cosines=True)),
            "experts, summed": (names, of(names, factors=None)),
            "experts": (names, of(names)),
            "experts and cosines": (names, of(names, cosines=True)),
            "experts, phrase known": (names, of(names, known=True)),
        }
    every["campplus + words + jvector"] = {
        "cosines, fused": (four, of(four, models=False, cosines=True)),
        "experts, summed": (four, of(four, factors=None)),
        "experts": (four, of(four)),
    }
    return every


def judge(scores: Scores, t: Trials) -> dict[str, tuple[float, float, float]]:
    """EER in %, with its interval over speakers, by column."""
    kinds = trial_kinds(t.model_labels, t.test_labels)
    speakers = t.model_labels["speaker"], t.test_labels["speaker"]
    found = {}
    both, across = (np.asarray(s, dtype=np.float64) for s in scores)
    result = evaluate(both, kinds)
    ends = speaker_intervals(both, kinds, *speakers)
    for kind in ("IW", "IC", "TW", "Total"):
        end = ends.of(kind, "eer")
        found[kind] = (100 * result[kind]["eer"], *(100 * np.asarray([end.low, end.high])))
    told = {"TC": kinds["TW"], "IC": kinds["IW"]}
    end = speaker_intervals(across, told, *speakers).of("Total", "eer")
    found["other phrase"] = (100 * evaluate(across, told)["Total"]["eer"], 100 * end.low, 100 * end.high)
    return found


def read(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Vectors by extractor, all in the order of one set of labels, and the training speakers."""
    embeddings = np.load(folder / "audiomnist_embeddings.npz")
    others = {
        "campplus": np.load(folder / "audiomnist_campplus.npz"),
        "jvector": np.load(folder / "audiomnist_jvectors.npz"),
    }
    names = ("session", "phrase", "speaker")
    order = np.lexsort([embeddings[name] for name in names])
    labels = {name: embeddings[name][order] for name in names}
    X = {"resemblyzer": embeddings["voice"][order], "words": embeddings["words"][order]}
    for name, file in others.items():
        X[name] = file["X" if name == "jvector" else "voice"][np.lexsort([file[n] for n in names])]
    training = others["jvector"]["training_speakers"]
    own = np.isin(labels["speaker"], training)
    X = {name: x.astype(np.float32) for name, x in X.items()}
    X["jvector"] = Reduction(150).fit(X["jvector"][own]).transform(X["jvector"]).astype(np.float32)
    return X, labels, training


# Speakers who say few phrases: the phrase as a nuisance.


def nuisance(
    X: np.ndarray, labels: dict[str, np.ndarray], training: np.ndarray, only: str = ""
) -> dict[str, dict[str, float]]:
    """EER in % of "same speaker, other phrase", by how many phrases a training speaker says."""

    def by_condition(t: Trials) -> Scores:
        phrases = np.unique(t.labels["phrase"])
        means = np.stack([t.train[t.labels["phrase"] == p].mean(axis=0) for p in phrases])
        # the phrase of an enrolment or a test is told: this row knows more than the others
        enrol = t.enrol - means[np.searchsorted(phrases, t.model_labels["phrase"][t.ids])]
        test = t.test - means[np.searchsorted(phrases, t.test_labels["phrase"])]
        train = t.train - means[np.searchsorted(phrases, t.labels["phrase"])]
        return cosine(Trials(train, t.labels, enrol, t.ids, test, t.model_labels, t.test_labels))

    def discriminant(t: Trials) -> Scores:
        lda = LDA(view="speaker", shrinkage=0.1)
        bundle = Bundle(unit_length(Centring(), lda), CosineScorer(centre=False)).fit(t.train, t.labels)
        scores = bundle.llr(bundle.enrol(t.enrol, t.ids), t.test)
        return scores, scores

    rows: dict[str, Backend] = {
        "cosine": cosine,
        "cosine, centred by phrase": by_condition,
        "LDA of speaker": discriminant,
        "PLDA of speaker": single(lambda: PLDA(noise="full", max_iter=20), "speaker"),
        "PLDA of speaker, prior": single(
            lambda: PLDA(prior="isotropic", prior_strength=STRENGTH, max_iter=3), "speaker"
        ),
        "joint, interaction": single(lambda: MultiviewPLDA(VIEWS, noise="full", max_iter=20), None),
        "joint, prior": single(joint, None),
    }
    rows = {name: backend for name, backend in rows.items() if only in name}
    whole = trials_of(X, labels, training)
    kinds = trial_kinds(whole.model_labels, whole.test_labels)
    found: dict[str, dict[str, float]] = {name: {} for name in rows}
    for phrases in (10, 5, 3, 2, 1):
        code = np.searchsorted(np.unique(training), whole.labels["speaker"])
        kept = (whole.labels["phrase"] - code) % 10 < phrases
        some = Trials(
            whole.train[kept], {view: c[kept] for view, c in whole.labels.items()}, whole.enrol, whole.ids,
            whole.test, whole.model_labels, whole.test_labels,
        )  # fmt: skip
        for name, backend in rows.items():
            across = backend(some)[1]
            told = {"TC": kinds["TW"], "IC": kinds["IW"]}
            found[name][str(phrases)] = 100 * evaluate(across, told)["Total"]["eer"]
            print(f"nuisance {phrases:2d} {name:26s} {found[name][str(phrases)]:6.2f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/backends"))
    parser.add_argument("--only", action="append", help="a table, or table/row; may be repeated")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, labels, training = read(options.data)
    options.output.mkdir(parents=True, exist_ok=True)
    kept = options.output / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for table, rows in tables({name: x.shape[1] for name, x in X.items()}).items():
        for row, (names, backend) in rows.items():
            if options.only and not {table, f"{table}/{row}"} & set(options.only):
                continue
            began = time.perf_counter()
            t = trials_of(np.hstack([X[name] for name in names]), labels, training)
            found = judge(backend(t), t)
            results.setdefault(table, {})[row] = found
            shown = "  ".join(f"{k} {v[0]:.2f} [{v[1]:.2f}, {v[2]:.2f}]" for k, v in found.items())
            print(f"{table:32s} {row:32s} {shown}  ({time.perf_counter() - began:.0f} s)", flush=True)
            kept.write_text(json.dumps(results, indent=1))
    if not options.only or "nuisance" in options.only:
        results["nuisance"] = nuisance(X["campplus"], labels, training)
        kept.write_text(json.dumps(results, indent=1))
    (options.output / "table.md").write_text(markdown(results))


def markdown(results: dict[str, Any]) -> str:
    lines = [
        "EER in %, with the 95 % interval over speakers; 40 training and 20 evaluation speakers, 3 enrolments.",
        "",
    ]
    for table, rows in results.items():
        columns = list(next(iter(rows.values())))
        lines += [f"**{table}**", "", "| system | " + " | ".join(columns) + " |", "|:---|" + "---:|" * len(columns)]
        for row, found in rows.items():
            cells = [
                f"{v:.2f}" if isinstance(v, float) else f"{v[0]:.2f} [{v[1]:.2f}, {v[2]:.2f}]" for v in found.values()
            ]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
