"""Estimators that are defined without scikit-learn, and work with it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from problems import speakers_and_phrases
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.utils import get_tags

from mvplda import PLDA, Bundle, CosineScorer, MultiviewPLDA, make_two_views
from mvplda.calibration import AmountCalibrator, HypothesisCalibrator, LinearCalibrator
from mvplda.labels import label_rows
from mvplda.preprocessing import standard_chain
from mvplda.sklearn_interface import Estimator, check_is_fitted
from mvplda.voice.domain import DomainPLDA

ESTIMATORS = [
    AmountCalibrator(errors=0.25),
    HypothesisCalibrator(),
    LinearCalibrator(by_kind=True),
    DomainPLDA({"voice": (4, "speaker")}),
    Bundle(standard_chain(3), MultiviewPLDA({"speaker": 2})),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_a_clone_has_the_parameters_of_its_original(estimator: Estimator) -> None:
    copy = clone(estimator)
    assert type(copy) is type(estimator)
    assert copy is not estimator
    assert repr(copy) == repr(estimator)
    assert set(copy.get_params()) == set(estimator.get_params())
    assert get_tags(estimator).requires_fit
    assert type(estimator).__name__ in estimator._repr_html_()


def test_parameters_of_nested_estimators_are_read_and_set() -> None:
    bundle = Bundle(standard_chain(3), MultiviewPLDA({"speaker": 2}))
    parameters = bundle.get_params()
    assert parameters["scorer__noise"] == "diagonal"
    assert parameters["preprocessing__whiten__dim"] == 3
    assert set(bundle.get_params(deep=False)) < set(parameters)
    assert bundle.set_params(scorer__noise="full", extractor="campplus") is bundle
    assert bundle.scorer.noise == "full"
    assert bundle.extractor == "campplus"
    with pytest.raises(ValueError, match="Invalid parameter 'nose'"):
        bundle.set_params(nose="full")


def test_the_representation_shows_what_differs_from_the_defaults() -> None:
    assert repr(HypothesisCalibrator()) == "HypothesisCalibrator()"
    assert repr(AmountCalibrator(quantile=0.9)) == "AmountCalibrator(quantile=0.9)"


def test_a_search_fits_bundles() -> None:
    X, labels = speakers_and_phrases()
    folds = GroupKFold(2).split(X, groups=labels["speaker"])
    bundle = Bundle(None, MultiviewPLDA({"speaker": 2, "phrase": 2}))

    def score(fitted: Bundle, X: np.ndarray, y: np.ndarray) -> float:
        return float(fitted.scorer.score(X, y))

    search = GridSearchCV(
        bundle, {"scorer__noise": ["diagonal", "full"]}, cv=list(folds), scoring=score
    )
    search.fit(X, label_rows(labels))
    assert search.best_params_["scorer__noise"] in ("diagonal", "full")
    assert search.best_estimator_.scorer.noise == search.best_params_["scorer__noise"]


@pytest.mark.parametrize("attribute", ["mean_", None])
def test_an_estimator_without_fit_is_refused_as_by_scikit_learn(attribute: str | None) -> None:
    with pytest.raises(NotFittedError, match="This PLDA instance is not fitted yet"):
        check_is_fitted(PLDA(), attribute)
    with pytest.raises(NotFittedError):
        check_is_fitted(LinearCalibrator(), "slope_")
    check_is_fitted(CosineScorer().fit(np.eye(3)), attribute)


DECISION = """
import sys
import numpy as np
from types import SimpleNamespace
from mvplda.model_files import load_model
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.extractors.extractor import ExtractedVectors
from mvplda.voice.verification import VoiceModel
bundle = load_model(DEFAULT_MODEL)
voices = VoiceModel(bundle, SimpleNamespace(name=bundle.extractor, dimension=bundle.width_in))
X = np.abs(np.random.default_rng(0).normal(size=(4, bundle.width_in))).astype(np.float32)
enrolled, tested = (ExtractedVectors(x, list(range(len(x))), [], []) for x in (X[:3], X[3:]))
print(voices.verify(enrolled, tested).answer)
slow = ("sklearn", "scipy.stats", "scipy.optimize", "pandas", "matplotlib", "torch")
print("LOADED", *(name for name in slow if name in sys.modules))
"""


def test_a_decision_of_the_default_model_imports_no_scikit_learn() -> None:
    """These imports took half of the time of ``mvplda verify a.wav b.wav``."""
    done = subprocess.run(
        [sys.executable, "-c", DECISION], capture_output=True, text=True, check=True
    )
    answer, loaded = done.stdout.splitlines()
    assert answer in ("accept", "reject", "inconclusive")
    assert loaded == "LOADED"


def test_a_search_takes_labels_as_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, labels = make_two_views(12, 3, 3, 10, (3, 2), random_state=0)
    grid = {"noise_shrinkage": [0.0, 0.5]}
    scores = []
    for y in (label_rows(labels), pandas.DataFrame(labels)):
        search = GridSearchCV(MultiviewPLDA(max_iter=2, tol=1.0), grid, cv=GroupKFold(3))
        scores.append(search.fit(X, y, groups=labels["speaker"]).cv_results_["mean_test_score"])
    np.testing.assert_array_equal(*scores)
