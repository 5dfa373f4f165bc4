"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mvplda import PLDA, MultiviewPLDA


class _Hidden:
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise AttributeError("takes pairs of vectors")


# `decision_function` and `predict` judge pairs, (n, 2, D). The checks would call them with
# vectors, (n, D); without them they check everything that takes vectors.


class VectorsPLDA(PLDA):
    decision_function = predict = _Hidden()


class VectorsMultiviewPLDA(MultiviewPLDA):
    decision_function = predict = _Hidden()


ESTIMATORS = [
    VectorsPLDA(2),
    VectorsPLDA(2, noise="full"),
    VectorsMultiviewPLDA({"class": 2}),
    VectorsMultiviewPLDA(),
]


@pytest.mark.filterwarnings("ignore::mvplda.exceptions.MvpldaWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
