"""Ranks and shrinkage chosen by scikit-learn's grid search, on classes that were held out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from problems import crossed, draw, random_parameters
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, GroupKFold

from mvplda import PLDA, MultiviewPLDA
from mvplda.labels import label_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_plentiful_data_get_their_own_ranks_and_no_shrinkage() -> None:
    rng = np.random.default_rng(0)
    codes = list(crossed(60, 20, 2))
    X = draw(rng, codes, random_parameters(rng, 10, (3, 2), "diagonal"))
    labels = dict(zip("ab", codes, strict=True))
    grid = {
        "views": [{"a": a, "b": b} for a in (1, 3) for b in (1, 2)],
        "noise_shrinkage": [0.0, 0.2],
    }
    search = GridSearchCV(MultiviewPLDA(max_iter=20), grid, cv=GroupKFold(3))
    search.fit(X, label_rows(labels), groups=labels["a"])
    assert search.best_params_ == {"views": {"a": 3, "b": 2}, "noise_shrinkage": 0.0}
    assert search.best_estimator_.views_ == {"a": 3, "b": 2}


def test_few_classes_in_many_dimensions_get_shrinkage() -> None:
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(25), 10)
    scales = 1.0 / np.sqrt(1 + np.arange(60))
    X = (scales * rng.normal(size=(25, 60)))[y] + 0.3 * scales * rng.normal(size=(250, 60))
    grid = {"noise_shrinkage": [0.0, 0.05]}
    search = GridSearchCV(PLDA(10), grid, cv=GroupKFold(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(X, y, groups=y)
    assert search.best_params_["noise_shrinkage"] == 0.05
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] > scores[0] + 1.0
