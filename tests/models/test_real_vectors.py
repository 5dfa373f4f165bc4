"""On real vectors: preprocessing and score normalisation lower the error, calibration the cost.

AudioMNIST (Becker et al., 2018), two embeddings side by side; 40 speakers to train on and 20
others in the trials: three sessions to enrol, the rest to test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mvplda import Bundle, MultiviewPLDA
from mvplda.calibration.scores import LinearCalibrator
from mvplda.metrics import cllr, evaluate, trial_kinds
from mvplda.metrics.curves import min_cllr
from mvplda.preprocessing import standard_chain

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "audiomnist_embeddings.npz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not DATA.is_file(), reason="the AudioMNIST embeddings are not beside the repository"
    ),
    pytest.mark.filterwarnings("ignore::mvplda.exceptions.MvpldaWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


class Corpus(NamedTuple):
    X: np.ndarray
    speaker: np.ndarray
    phrase: np.ndarray
    session: np.ndarray
    training: np.ndarray

    def labels(self, where: np.ndarray) -> dict[str, np.ndarray]:
        return {"speaker": self.speaker[where], "phrase": self.phrase[where]}


class Trials(NamedTuple):
    profiles: Any
    test: np.ndarray
    kinds: dict[str, np.ndarray]
    phrases: np.ndarray


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    data = np.load(DATA)
    known = np.load(DATA.with_name("audiomnist_jvectors.npz"))["training_speakers"]
    training = np.isin(data["speaker"], known)
    parts = [data[name].astype(np.float64) for name in ("voice", "words")]
    parts = [part - part[training].mean(axis=0) for part in parts]
    X = np.hstack([part / np.linalg.norm(part[training], axis=1).mean() for part in parts])
    return Corpus(X, data["speaker"], data["phrase"], data["session"], training)


def fitted(corpus: Corpus, **chain: Any) -> Bundle:
    views = {"speaker": 30, "phrase": 9, "speaker:phrase": 120}
    bundle = Bundle(standard_chain(200, **chain), MultiviewPLDA(views, noise="full", max_iter=20))
    return bundle.fit(corpus.X[corpus.training], corpus.labels(corpus.training))


@pytest.fixture(scope="module")
def bundles(corpus: Corpus) -> dict[str, Bundle]:
    # whitening alone changes no likelihood ratio: it is an invertible map of the 200 components
    return {"plain": fitted(corpus, length=None), "length": fitted(corpus)}


def trials(corpus: Corpus, bundle: Bundle, speakers: Any = None) -> Trials:
    chosen = ~corpus.training if speakers is None else np.isin(corpus.speaker, speakers)
    enrol, test = chosen & (corpus.session < 3), chosen & (corpus.session >= 3)
    profiles = bundle.enrol(corpus.X[enrol], corpus.speaker[enrol] * 10 + corpus.phrase[enrol])
    names = {"speaker": profiles.ids // 10, "phrase": profiles.ids % 10}
    return Trials(
        profiles, corpus.X[test], trial_kinds(names, corpus.labels(test)), names["phrase"]
    )


def total(scores: Any, kinds: dict[str, np.ndarray]) -> float:
    return 100 * evaluate(scores, kinds)["Total"]["eer"]


def test_length_normalisation_lowers_the_error(corpus: Corpus, bundles: dict[str, Bundle]) -> None:
    found = {}
    for name, bundle in bundles.items():
        some = trials(corpus, bundle)
        found[name] = total(bundle.llr(some.profiles, some.test), some.kinds)
    assert found["plain"] < 1.2
    assert found["length"] < 0.8 * found["plain"]


def test_calibration_on_other_speakers_reaches_the_least_cost(
    corpus: Corpus, bundles: dict[str, Bundle]
) -> None:
    bundle = bundles["length"]
    halves = np.split(
        np.random.default_rng(0).permutation(np.unique(corpus.speaker[~corpus.training])), 2
    )
    train, test = (trials(corpus, bundle, half) for half in halves)
    scores = [
        np.asarray(bundle.llr(some.profiles, some.test), dtype=np.float64) for some in (train, test)
    ]
    kinds = np.select(list(train.kinds.values()), list(train.kinds), default="").ravel()
    targets = test.kinds["TC"]

    def calibrated(calibrator: Any) -> np.ndarray:
        return (
            calibrator.fit(scores[0].ravel(), kinds)
            .transform(scores[1].ravel())
            .reshape(targets.shape)
        )

    def by_kind(llrs: np.ndarray) -> float:
        others = np.mean(
            [np.logaddexp(0, llrs[test.kinds[kind]]).mean() for kind in ("TW", "IC", "IW")]
        )
        return float((np.logaddexp(0, -llrs[targets]).mean() + others) / (2 * np.log(2)))

    linear, kind = calibrated(LinearCalibrator()), calibrated(LinearCalibrator(by_kind=True))
    least = min_cllr(scores[1][targets], scores[1][~targets])
    assert cllr(scores[1][targets], scores[1][~targets]) > 5 * least
    assert cllr(linear[targets], linear[~targets]) < 1.25 * least
    assert by_kind(kind) < 0.95 * by_kind(linear)
