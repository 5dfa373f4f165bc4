"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mvplda import PLDA, MultiviewPLDA

ESTIMATORS = [
    PLDA(),
    PLDA(2, noise="full"),
    MultiviewPLDA({"class": 2}),
    MultiviewPLDA(),
]


@pytest.mark.filterwarnings("ignore::mvplda.exceptions.MvpldaWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
