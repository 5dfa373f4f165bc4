"""What a fit is asked for, and whether it can be had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..exceptions import DataError, LabelError, ParameterError
from ..inference.noise import NOISES, DiagonalNoise, NoiseModel, noise_of
from ..inference.parameters import Parameters
from ..statistics import SufficientStatistics


@dataclass(frozen=True)
class Settings:
    """What a fit is asked for: ranks (None: as large as possible) and shrinkage."""

    ranks: dict[str, int | None]
    noise_shrinkage: float
    loading_shrinkage: float

    @property
    def loading_penalty(self) -> float:
        """Penalty a class, in whose terms a shrinkage s stands for s / (1 - s), as it does of the noise."""
        return self.loading_shrinkage / (1 - self.loading_shrinkage)


def check_settings(model: Any) -> None:
    """Refuse settings of an estimator that do not exist or do not fit."""

    def choice(name: str, allowed: tuple[str, ...]) -> None:
        if getattr(model, name) not in allowed:
            raise ParameterError(f"{name} is one of {list(allowed)}; got {getattr(model, name)!r}")

    choice("noise", tuple(NOISES))
    choice("algorithm", ("auto", "exact", "variational", "paper"))
    choice("init", ("moments", "random"))
    if model.views is not None and not isinstance(model.views, Mapping):
        raise ParameterError(f"views is a dict of {{name: rank}}; got {model.views!r}")
    if model.views is not None and len(model.views) == 0:
        raise ParameterError("views is empty: name at least one view")
    if model.prior is not None:
        choice("prior", ("isotropic",))
        ranked = {view: rank for view, rank in (model.views or {}).items() if rank is not None}
        if ranked or getattr(model, "n_components", None) is not None:
            raise ParameterError("a prior makes loadings of full rank: leave every rank None")
        if isinstance(model.prior_strength, str) and model.prior_strength != "auto":
            raise ParameterError(f"prior_strength is a number, a dict of them or 'auto'; got {model.prior_strength!r}")
        if model.noise_shrinkage or model.loading_shrinkage or model.algorithm == "paper":
            raise ParameterError("a prior goes with no other shrinkage, and not with algorithm='paper'")
    if not 0 <= model.noise_shrinkage < 1:
        raise ParameterError(f"noise_shrinkage lies in [0, 1); got {model.noise_shrinkage}")
    if not 0 <= model.loading_shrinkage < 1:
        raise ParameterError(f"loading_shrinkage lies in [0, 1); got {model.loading_shrinkage}")
    if not 1e-10 <= model.noise_floor < 1:
        raise ParameterError(
            f"noise_floor lies in [1e-10, 1), below which rounding drowns the likelihood; got {model.noise_floor}"
        )
    if isinstance(model.max_iter, bool) or not isinstance(model.max_iter, Integral) or model.max_iter < 0:
        raise ParameterError(f"max_iter is a whole number, at least 0; got {model.max_iter!r}")
    if not model.tol >= 0:
        raise ParameterError(f"tol is at least 0; got {model.tol}")


def generator(random_state: Any) -> np.random.Generator:
    """A generator of NumPy's: itself, or one that follows from whatever scikit-learn takes for a random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def noise_model(kind: str, floor: float, statistics: SufficientStatistics, shrinkage: float) -> NoiseModel:
    """Floor, and target and weight of the prior, of the noise of some data."""
    variance, constant = statistics.variance, statistics.constant_columns
    if len(constant) == len(variance):
        raise DataError(
            "all vectors are the same, or so small that their squares vanish: there is no variance to explain"
        )
    varying = np.delete(variance, constant)
    if varying.max() < 1e-280:
        raise DataError(f"the largest variance of a column is {varying.max()}: scale the vectors up")
    variance[constant] = np.median(varying)
    target = noise_of(NOISES[kind].nearest(DiagonalNoise(variance))).variances
    weight = statistics.n * shrinkage / (1 - shrinkage)
    return NoiseModel(kind, floor * target, target, weight)


def given_parameters(mean: Any, loadings: Mapping[str, Any], noise: Any) -> Parameters:
    """Parameters from arrays that were checked to fit together."""
    m, n = np.array(mean, dtype=np.float64), np.array(noise, dtype=np.float64)
    B = {view: np.array(loading, dtype=np.float64) for view, loading in loadings.items()}
    D = len(m) if m.ndim == 1 else 0
    if D == 0:
        raise DataError(f"the mean has shape (D,); got {m.shape}")
    if not B:
        raise DataError("there is no loading: give {view: (D, rank)} for at least one view")
    for view, loading in B.items():
        if loading.ndim != 2 or len(loading) != D or not 1 <= loading.shape[1] <= D:
            raise DataError(f"the loading of {view!r} has shape ({D}, rank), rank 1 to {D}; got {loading.shape}")
    if n.shape not in ((D,), (D, D)):
        raise DataError(f"the noise has shape ({D},) or ({D}, {D}), as the mean has width {D}; got {n.shape}")
    if not all(np.isfinite(array).all() for array in (m, n, *B.values())):
        raise DataError("the parameters are not all finite")
    return Parameters(m, tuple(B.values()), noise_of(n).checked().array)


def choose_ranks(
    statistics: SufficientStatistics, wanted: Mapping[str, int | None]
) -> tuple[dict[str, int], dict[str, int]]:
    """The rank asked for and the rank used of every view: at most classes - 1, and at most the dimension."""
    asked, used = {}, {}
    for view, wish in wanted.items():
        most = largest_rank(statistics, view)
        rank = most if wish is None else wish
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ParameterError(
                f"the rank of view {view!r} is a positive whole number; got {rank!r} (MultiviewPLDACV chooses ranks)"
            )
        asked[view], used[view] = int(rank), min(int(rank), most)
    return asked, used


def largest_rank(statistics: SufficientStatistics, view: str) -> int:
    """As much rank as the classes of a view can hold."""
    if view not in statistics.counts:
        raise LabelError(f"the statistics have no view {view!r}, only {list(statistics.views)}")
    classes = len(statistics.counts[view])
    if classes == 1:
        names = statistics.classes[view].names
        name = f" ({names.tolist()[0]!r})" if len(names) else ""
        raise LabelError(
            f"view {view!r} has one class{name}; a view needs at least 2 classes to be told from the mean. "
            "Leave it out, or add data"
        )
    return min(classes - 1, statistics.dimension)
