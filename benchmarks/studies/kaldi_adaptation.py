"""Kaldi's unsupervised adaptation of a PLDA, and adaptive s-norm, beside centring on the new domain.

A PLDA of speakers is trained on single English words (Speech Commands, CAM++) and used for other corpora: German
pass-phrases with sessions months apart (C-VAU), and English digits of other microphones (AudioMNIST). The speakers of
such a corpus are dealt into two halves: unlabelled vectors of one half are the adaptation data and the cohort, trials
are made of the other half, and the scores of both halves are pooled. Trials are about the speaker, whatever is said.
Ratios of EERs are paired, with 95 % intervals over speakers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import markdown_rows, study_command
from benchmarks.studies.adaptation import recentred
from mvplda import PLDA, Bundle, CosineScorer
from mvplda._typing import Array, BoolArray, Names
from mvplda.metrics import compare_systems, evaluate
from mvplda.preprocessing import standard_chain, unit_chain
from mvplda.scoring.profiles import ProfilesLike

COMPONENTS = 150
ENROLMENT = 3
COHORT_TOP = 200
"""Scores of the cohort that adaptive s-norm uses per profile and test."""
WITHIN_SCALE, BETWEEN_SCALE = 0.3, 0.7
"""Kaldi's defaults: shares of the excess variance that are added within and between speakers."""
RESAMPLES = 400
REFERENCE = "PLDA, centred"
COMPARED = (
    "PLDA, Kaldi's adaptation",
    "PLDA, centred, s-norm",
    "PLDA, Kaldi's adaptation, s-norm",
)
"""Systems whose EER is compared with that of the reference."""
COLUMNS = {
    "eer": "EER, %",
    "ratio": f"ratio of EERs to {REFERENCE}",
    "min_cllr": "minCllr",
    "cllr": "Cllr",
}


class Corpus(NamedTuple):
    """Vectors of a corpus with speaker, phrase and session; sessions `enrol` enrol, sessions `test` test."""

    X: Array
    speaker: Names
    phrase: Names
    enrol: BoolArray
    test: BoolArray


class Half(NamedTuple):
    """Trials among half of the speakers, and unlabelled vectors of the others.

    owners, speakers : speaker of each profile and of each test
    """

    unlabelled: Array
    enrol: Array
    ids: Names
    test: Array
    owners: Names
    speakers: Names


def kaldi_adapted(model: PLDA, X: Array) -> PLDA:
    """Return a PLDA adapted to vectors X (n, D) of a new domain, as Kaldi's ``ivector-adapt-plda`` does.

    The mean becomes that of X. In directions in which X has more variance than the model, the excess is added to the
    variances within and between speakers.
    """
    (B,) = model.loadings_.values()
    between, within = B @ B.T, model.parameters_.sigma.covariance
    mean = X.mean(axis=0)
    deviations = X - mean
    shift = mean - model.mean_
    second_moment = deviations.T @ deviations / len(X) + np.outer(shift, shift)
    # coordinates in which the model has unit total variance, rotated to the principal axes of X
    lower = np.linalg.cholesky(between + within)
    projected = np.linalg.solve(lower, np.linalg.solve(lower, second_moment).T)
    variances, axes = np.linalg.eigh(projected)
    excess = (lower @ axes) * np.sqrt(np.maximum(variances - 1, 0.0))
    between = between + BETWEEN_SCALE * excess @ excess.T
    within = within + WITHIN_SCALE * excess @ excess.T
    sizes, vectors = np.linalg.eigh(between)
    loading = (vectors * np.sqrt(np.maximum(sizes, 0.0)))[:, ::-1]
    return PLDA.from_parameters(mean, {"speaker": loading}, within)


def s_norm(scores: Array, of_profiles: Array, of_tests: Array, top: int) -> Array:
    """Return scores (profiles, tests) normalised by the highest scores of a cohort, on both sides.

    of_profiles, of_tests : (profiles, cohort) and (cohort, tests) scores
    """
    best_e = np.sort(of_profiles, axis=1)[:, -top:]
    best_t = np.sort(of_tests, axis=0)[-top:]
    by_profile = (scores - best_e.mean(axis=1)[:, None]) / best_e.std(axis=1)[:, None]
    by_test = (scores - best_t.mean(axis=0)) / best_t.std(axis=0)
    return np.asarray((by_profile + by_test) / 2)


class System(NamedTuple):
    """A trained bundle, the change that unlabelled vectors make, and whether scores are normalised."""

    bundle: Bundle
    adapt: Callable[[Bundle, Array], Bundle]
    is_normalised: bool = False

    def scores(self, half: Half) -> Array:
        """Return the (profiles, tests) scores of a half."""
        bundle = self.adapt(self.bundle, half.unlabelled)
        profiles = bundle.enrol(half.enrol, half.ids)
        tests = bundle.enrol(half.test)

        def llr(enrol: ProfilesLike, test: ProfilesLike) -> Array:
            return np.asarray(bundle.llr(enrol, test, dtype="float64"))

        scores = llr(profiles, tests)
        if not self.is_normalised:
            return scores
        cohort = bundle.enrol(half.unlabelled)
        return s_norm(scores, llr(profiles, cohort), llr(cohort, tests), COHORT_TOP)


def unchanged(bundle: Bundle, X: Array) -> Bundle:
    """Return the bundle as it was trained."""
    return bundle


def centred(bundle: Bundle, X: Array) -> Bundle:
    """Return the bundle with the mean of its preprocessing moved to that of new raw vectors."""
    return Bundle(recentred(bundle.preprocessing, X, 1.0), bundle.scorer)


def adapted(bundle: Bundle, X: Array) -> Bundle:
    """Return the bundle centred on new raw vectors, with Kaldi's adaptation of its PLDA."""
    moved = centred(bundle, X)
    return Bundle(moved.preprocessing, kaldi_adapted(moved.scorer, np.asarray(moved.prepare(X))))


def systems(X: Array, speaker: Names) -> dict[str, System]:
    """Return the systems, trained on vectors of the old domain."""
    labels = {"speaker": speaker}
    cosine = Bundle(unit_chain(), CosineScorer(views=["speaker"])).fit(X, labels)
    plda = Bundle(standard_chain(COMPONENTS), PLDA(noise="full")).fit(X, labels)
    prior = Bundle(unit_chain(), PLDA(prior="isotropic")).fit(X, labels)
    return {
        "cosine": System(cosine, unchanged),
        "cosine, centred": System(cosine, centred),
        "cosine, centred, s-norm": System(cosine, centred, is_normalised=True),
        "PLDA": System(plda, unchanged),
        "PLDA, centred": System(plda, centred),
        "PLDA, Kaldi's adaptation": System(plda, adapted),
        "PLDA, centred, s-norm": System(plda, centred, is_normalised=True),
        "PLDA, Kaldi's adaptation, s-norm": System(plda, adapted, is_normalised=True),
        "PLDA with its prior, centred": System(prior, centred),
        "PLDA with its prior, centred, s-norm": System(prior, centred, is_normalised=True),
    }


def halves(corpus: Corpus) -> Iterator[Half]:
    """Deal the speakers into two halves; yield the trials of each, with the vectors of the other."""
    names = np.unique(corpus.speaker)
    order = np.random.default_rng(0).permutation(len(names))
    for part in (0, 1):
        evaluated = np.isin(corpus.speaker, names[order[part::2]])
        cells: dict[tuple[str, str], list[int]] = {}
        for row in np.flatnonzero(evaluated & corpus.enrol):
            cells.setdefault((corpus.speaker[row], corpus.phrase[row]), []).append(row)
        enrolled = [rows[:ENROLMENT] for rows in cells.values() if len(rows) >= ENROLMENT]
        used = np.concatenate(enrolled)
        tests = np.setdiff1d(np.flatnonzero(evaluated & corpus.test), used)
        owners = corpus.speaker[[rows[0] for rows in enrolled]]
        ids = np.repeat(np.arange(len(enrolled)), ENROLMENT)
        yield Half(
            corpus.X[~evaluated],
            corpus.X[used],
            ids,
            corpus.X[tests],
            owners,
            corpus.speaker[tests],
        )


def read_cvau(data: Path) -> Corpus:
    """Read pass-phrases of C-VAU: session 2014-11 enrols, session angles, months apart, tests."""
    with np.load(data / "cvau.npz") as file:
        session, speaker, phrase = file["session"], file["speaker"], file["phrase"]
        X = file["camp"].astype(np.float64)
    both = np.isin(speaker, speaker[session == "2014-11"]) & np.isin(
        speaker, speaker[session == "angles"]
    )
    rows = both & (phrase != "") & np.isin(session, ["2014-11", "angles"])
    return Corpus(
        X[rows], speaker[rows], phrase[rows], session[rows] == "2014-11", session[rows] == "angles"
    )


def read_audiomnist(data: Path) -> Corpus:
    """Read digits of AudioMNIST: repetitions 0 to 2 enrol, 3 to 7 test."""
    with np.load(data / "audiomnist_campplus.npz") as file:
        session = file["session"]
        X = file["voice"].astype(np.float64)
        return Corpus(
            X,
            file["speaker"],
            file["phrase"],
            session < ENROLMENT,
            (session >= ENROLMENT) & (session < 8),
        )


def measured(trained: Mapping[str, System], corpus: Corpus) -> dict[str, dict[str, Any]]:
    """Return the error rates of every system in the pooled trials of both halves."""
    dealt = list(halves(corpus))
    shapes = [(len(half.owners), len(half.speakers)) for half in dealt]
    enrolled = pooled(np.repeat(half.owners, n) for half, (_, n) in zip(dealt, shapes, strict=True))
    tested = pooled(np.tile(half.speakers, n) for half, (n, _) in zip(dealt, shapes, strict=True))
    targets = enrolled == tested
    scores = {
        title: pooled(system.scores(half).ravel() for half in dealt)
        for title, system in trained.items()
    }
    found: dict[str, dict[str, Any]] = {}
    for title, system in trained.items():
        row = evaluate(scores[title], targets).rows["Total"]
        is_llr = not system.is_normalised and not isinstance(system.bundle.scorer, CosineScorer)
        names = ("eer", "min_cllr", "cllr") if is_llr else ("eer", "min_cllr")
        found[title] = {name: round(float(row[name]), 5) for name in names}
    for title in COMPARED:
        pair = scores[title], scores[REFERENCE]
        comparison = compare_systems(
            *pair, targets, enrolled, tested, n_resamples=RESAMPLES, random_state=0
        )
        test = comparison.tests["Total"]["eer"]
        ratio = [test.ratio, test.ratio_low, test.ratio_high]
        found[title]["ratio"] = [round(float(value), 3) for value in ratio]
    return found


def pooled(parts: Iterable[Names]) -> Any:
    """Return arrays of both halves as one."""
    return np.concatenate(list(parts))


def study(data: Path) -> dict[str, Any]:
    """Return the error rates of every system on every corpus."""
    with np.load(data / "speech_commands.npz") as file:
        trained = systems(file["camp"].astype(np.float64), file["speaker"])
    corpora = {"C-VAU": read_cvau(data), "AudioMNIST": read_audiomnist(data)}
    return {name: measured(trained, corpus) for name, corpus in corpora.items()}


def cell(name: str, row: Mapping[str, Any]) -> str:
    """Format a value; a dash stands for scores that are no likelihood ratios, and for ratios that are not measured."""
    if name not in row:
        return "-"
    if name == "ratio":
        return "{:.2f} [{:.2f}, {:.2f}]".format(*row[name])
    return f"{100 * row[name]:.2f}" if name == "eer" else f"{row[name]:.3f}"


def table(found: Mapping[str, Any]) -> str:
    """Return one row per system with the columns of all corpora."""
    head = ["", *(f"{corpus}: {column}" for corpus in found for column in COLUMNS.values())]
    titles = next(iter(found.values()))
    rows = [
        [title, *(cell(name, rows[title]) for rows in found.values() for name in COLUMNS)]
        for title in titles
    ]
    return "\n".join(markdown_rows([head, *rows])) + "\n"


if __name__ == "__main__":
    study_command(
        "kaldi-adaptation",
        __doc__,
        study,
        table,
        reads=("speech_commands.npz", "cvau.npz", "audiomnist_campplus.npz"),
        title="Adaptation without labels, and score normalisation, as Kaldi's recipes do",
    )
