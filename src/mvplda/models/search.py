"""MultiviewPLDACV: ranks and shrinkage chosen on classes that were not trained on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from numbers import Integral
from operator import add
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from .._progress import Progress
from .._typing import RandomState
from ..backend import checked_vectors
from ..exceptions import LabelError, MvpldaWarning, ParameterError
from ..inference.diagnostics import largest_rank
from ..kinds import trial_kinds
from ..labels import as_array, encode_labels, label_columns
from ..statistics import SufficientStatistics
from .heldout import deal_folds
from .multiview import PLDA, MultiviewPLDA, check_settings

HELD_OUT_VECTORS = 600
"""Of every fold, so many vectors make the pairs that ``criterion="cllr"`` is judged by."""

Judge = Callable[[MultiviewPLDA], tuple[float, float]]
"""What a candidate is worth on a fold, the more the better, and the weight of the fold."""

LADDER = (5, 10, 20, 40, 80, 160)

Ranks = int | Sequence[int] | Literal["auto"] | None


class MultiviewPLDACV(BaseEstimator):
    """A search for the `MultiviewPLDA` whose ranks and shrinkage are the best for classes that were held out.

    What it finds is `model_`, a `MultiviewPLDA` fitted to everything: score with that, save that.

    The classes of one view (speakers, say) are dealt into folds; every candidate is trained on all folds but one and
    judged on that one, whose classes it has never seen: by its exact log-likelihood, or by the cost of the likelihood
    ratios between its vectors. The likelihood asks how well vectors are described, the cost how well trials are
    decided, and only the cost punishes ratios that are too sure of themselves. Candidates are tried one setting at a
    time, again and again, until no change helps. The statistics of a fold are gathered once, so the vectors are read
    once.

    Parameters
    ----------
    views : dict of {name: rank, sequence of ranks, or "auto"}
        ``"auto"`` tries 5, 10, 20, 40, ... as far as the classes allow.
    model : MultiviewPLDA or None
        Every setting besides ranks and shrinkage, which are the search's to choose. None: the defaults.
    noise_shrinkages : sequence of float
    cv : int
        Number of folds.
    criterion : {"likelihood", "cllr"}
        ``"cllr"``: Cllr of "same in every view?" over pairs of held-out vectors, every kind
        of impostor pair weighing the same.
    held_out : str or None
        View whose classes are dealt into folds; default: the one with most classes.
    random_state : int, numpy.random.Generator, RandomState or None
        Deals the classes into folds.
    n_jobs : int or None
        Folds that are tried at the same time, as in scikit-learn: -1 takes all processors. The
        choice does not depend on it.

    Attributes
    ----------
    model_ : MultiviewPLDA, with the settings that were chosen
    best_settings_ : dict, what was chosen
    best_score_ : held-out log-likelihood a vector of the choice, or minus its Cllr in bits
    cv_results_ : list of dict, every candidate with its score in every fold
    """

    def __init__(
        self,
        views: Mapping[str, Ranks] | None = None,
        *,
        model: MultiviewPLDA | None = None,
        noise_shrinkages: Sequence[float] = (0.0, 0.02, 0.05, 0.1, 0.2),
        cv: int = 5,
        criterion: Literal["likelihood", "cllr"] = "likelihood",
        held_out: str | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.views = views
        self.model = model
        self.noise_shrinkages = noise_shrinkages
        self.cv = cv
        self.criterion = criterion
        self.held_out = held_out
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Choose the settings on folds of classes, then fit to everything."""
        if y is None:
            raise LabelError("MultiviewPLDACV requires y to be passed, but the target y is None")
        base = self._checked()
        if self.criterion not in ("likelihood", "cllr"):
            raise ParameterError(f"criterion is 'likelihood' or 'cllr'; got {self.criterion!r}")
        X = checked_vectors(self, X, reset=True, least=2)
        views = None if self.views is None else tuple(self.views)
        columns = {name: as_array(column) for name, column in label_columns(y, views).items()}
        table = encode_labels(columns, views, missing=base.missing)
        if len(table) != len(X):
            raise LabelError(
                f"there are {len(X)} vectors and {len(table)} labels: give one label a vector"
            )
        sizes = {name: len(table.classes[name]) for name in columns}
        held_out = (
            self.held_out if self.held_out is not None else max(sizes, key=lambda name: sizes[name])
        )
        if held_out not in sizes:
            raise LabelError(
                f"held_out names no label column: {held_out!r}; there are {list(sizes)}"
            )
        if not isinstance(self.cv, Integral) or not 2 <= self.cv <= sizes[held_out]:
            raise ParameterError(
                f"cv is a whole number between 2 and the {sizes[held_out]} classes of {held_out!r}; got {self.cv!r}"
            )
        seeded = isinstance(self.random_state, np.random.Generator)
        rng = self.random_state if seeded else check_random_state(self.random_state)
        dealt = deal_folds(table.codes[held_out], int(self.cv), rng)
        folds = [
            SufficientStatistics.from_arrays(
                X[fold.rows],
                {name: column[fold.rows] for name, column in columns.items()},
                views=table.views,
                second_moment=base._second_moment(),
                missing=base.missing,
                origin=X[:4096].mean(axis=0, dtype=np.float64),
            )
            for fold in dealt
        ]
        judges: list[Judge] = [_likelihood_of(s) for s in folds]
        if self.criterion == "cllr":
            chosen = np.random.default_rng(0)
            some = [fold.some_rows(HELD_OUT_VECTORS, chosen) for fold in dealt]
            judges = [
                _cost_of(X[rows], {name: table.codes[name][rows] for name in columns})
                for rows in some
            ]
        return self._choose(folds, judges)

    def fit_folds(self, folds: Sequence[SufficientStatistics]) -> Self:
        """Choose the settings and fit, from the statistics of folds that share no held-out class."""
        self._checked()
        if len(folds) < 2:
            raise ParameterError(f"there must be at least 2 folds; got {len(folds)}")
        self.n_features_in_ = folds[0].dimension
        if self.criterion != "likelihood":
            raise ParameterError("criterion='cllr' needs vectors, not statistics: use fit(X, y)")
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self._choose(folds, [_likelihood_of(s) for s in folds])

    def _choose(self, folds: Sequence[SufficientStatistics], judges: Sequence[Judge]) -> Self:
        views = folds[0].views if self.views is None else tuple(self.views)
        trained = [
            reduce(add, (s for g, s in enumerate(folds) if g != f)) for f in range(len(folds))
        ]
        axes = self._axes(trained, views)
        search = _Search(self, views, trained, judges, axes)
        best = search.climb()
        self.best_settings_ = search.named(best)
        self.best_score_ = search.score(best)
        self.cv_results_ = search.results
        self.model_ = self._base().set_params(**search.settings(best))
        self.model_.fit_statistics(trained[0] + folds[0])
        if hasattr(self, "feature_names_in_"):
            self.model_.feature_names_in_ = self.feature_names_in_
        return self

    def _base(self) -> MultiviewPLDA:
        """A model with every setting that is not searched."""
        base: MultiviewPLDA = clone(self.model or MultiviewPLDA())
        return base

    def _checked(self) -> MultiviewPLDA:
        if self.model is not None and (
            not isinstance(self.model, MultiviewPLDA) or isinstance(self.model, PLDA)
        ):
            raise ParameterError(
                f"model is a MultiviewPLDA with the other settings, or None; got {self.model!r}"
            )
        base = self._base()
        if base.prior is not None:
            raise ParameterError(
                "a prior makes loadings of full rank and goes with no shrinkage, so that nothing is left to choose: "
                "use MultiviewPLDA, whose prior_strength='auto' asks held-out classes"
            )
        base.set_params(views=self.views)
        check_settings(base)
        if base.algorithm == "paper":
            raise ParameterError("algorithm='paper' has no settings to choose: use MultiviewPLDA")
        return base

    def _axes(
        self, trained: Sequence[SufficientStatistics], views: tuple[str, ...]
    ) -> dict[str, tuple[Any, ...]]:
        """The candidates of every setting, in rising order."""
        axes: dict[str, tuple[Any, ...]] = {"noise_shrinkage": _in_order(self.noise_shrinkages)}
        for view in views:
            most = min(largest_rank(s, view) for s in trained)
            wish = "auto" if self.views is None else self.views[view]
            if wish is None:
                ranks: Sequence[int] = (most,)
            elif isinstance(wish, str):
                if wish != "auto":
                    raise ParameterError(
                        f"the rank of view {view!r} is a number, a sequence of them, or 'auto'"
                    )
                ranks = (*(r for r in LADDER if r < most), min(most, LADDER[-1]))
            else:
                ranks = np.atleast_1d(wish).tolist()
            broken = [r for r in ranks if isinstance(r, bool) or not isinstance(r, Integral)]
            if broken:
                raise ParameterError(
                    f"the ranks of view {view!r} are whole numbers; got {broken[0]!r}"
                )
            axes[view] = tuple(sorted({min(int(r), most) for r in ranks}))
        if not all(axes.values()):
            raise ParameterError("every setting needs at least one candidate")
        return axes


def _in_order(candidates: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted(np.atleast_1d(candidates).tolist()))


def _likelihood_of(held_out: SufficientStatistics) -> Judge:
    """Log-likelihood a vector; folds weigh as their vectors."""
    return lambda candidate: (
        candidate.log_likelihood_statistics(held_out) / held_out.n,
        held_out.n,
    )


def _cost_of(X: NDArray[Any], codes: dict[str, NDArray[np.int64]]) -> Judge:
    """Minus the Cllr of all pairs of vectors, every kind of impostor pair weighing the same."""
    once = np.triu(np.ones((len(X), len(X)), dtype=bool), 1)
    kinds = [mask & once for mask in trial_kinds(codes, codes).values()]
    present = [mask for mask in kinds[1:] if mask.any()]
    if not kinds[0].any() or not present:
        raise ParameterError(
            "criterion='cllr' needs pairs of the same and of different classes in every fold"
        )

    def judge(candidate: MultiviewPLDA) -> tuple[float, float]:
        scores = candidate.llr(X, X, dtype=np.float64)
        misses = np.logaddexp(0, -scores[kinds[0]]).mean()
        alarms = np.mean([np.logaddexp(0, scores[mask]).mean() for mask in present])
        return -float((misses + alarms) / (2 * np.log(2))), 1.0

    return judge


def _try(
    candidate: MultiviewPLDA, training: SufficientStatistics, judge: Judge
) -> tuple[float, float]:
    """What one candidate is worth on one fold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        candidate.fit_statistics(training)
        return judge(candidate)


class _Search:
    """Coordinate ascent over a grid of candidates; every point is tried once."""

    def __init__(
        self,
        asked: MultiviewPLDACV,
        views: tuple[str, ...],
        trained: Sequence[SufficientStatistics],
        judges: Sequence[Judge],
        axes: dict[str, tuple[Any, ...]],
    ) -> None:
        self.asked, self.views, self.trained, self.judges, self.axes = (
            asked,
            views,
            trained,
            judges,
            axes,
        )
        self.results: list[dict[str, Any]] = []
        self._scores: dict[tuple[int, ...], float] = {}
        self._progress = Progress("candidates", 0) if asked.verbose else None

    def climb(self) -> tuple[int, ...]:
        point = tuple(len(candidates) // 2 for candidates in self.axes.values())
        moved = True
        while moved:
            moved = False
            for axis in range(len(point)):
                for direction in (1, -1):
                    while (further := self._step(point, axis, direction)) is not None and (
                        self.score(further) > self.score(point)
                    ):
                        point, moved = further, True
        return point

    def _step(self, point: tuple[int, ...], axis: int, direction: int) -> tuple[int, ...] | None:
        index = point[axis] + direction
        if not 0 <= index < len(list(self.axes.values())[axis]):
            return None
        return (*point[:axis], index, *point[axis + 1 :])

    def named(self, point: tuple[int, ...]) -> dict[str, Any]:
        return {name: axis[i] for (name, axis), i in zip(self.axes.items(), point, strict=True)}

    def settings(self, point: tuple[int, ...]) -> dict[str, Any]:
        """What a point sets of a model."""
        chosen = self.named(point)
        return {"views": {v: chosen.pop(v) for v in self.views}, **chosen}

    def score(self, point: tuple[int, ...]) -> float:
        """What one candidate is worth on held-out classes, over all folds."""
        if point not in self._scores:
            settings = {**self.settings(point), "random_state": 0, "verbose": 0, "callback": None}
            judged = Parallel(n_jobs=self.asked.n_jobs)(
                delayed(_try)(self.asked._base().set_params(**settings), training, judge)
                for training, judge in zip(self.trained, self.judges, strict=True)
            )
            values, weights = (list(column) for column in zip(*judged, strict=True))
            self._scores[point] = float(np.average(values, weights=weights))
            named = self.named(point)
            self.results.append({**named, "fold_scores": values, "score": self._scores[point]})
            if self._progress is not None:
                self._progress.total = len(self.results)
                self._progress.step(
                    len(self.results), f"{named}: {self.asked.criterion} {self._scores[point]:.4f}"
                )
        return self._scores[point]
