"""Choice of views, interaction, noise and ranks on held-out classes.

Each candidate is fitted without the speakers (the classes of the first view) of a fold, and scores trials among them.
The candidate with the lowest loss in the trials of all folds is chosen; an interaction must gain more than chance does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression
from sklearn.base import TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning

from .._typing import Array, BoolArray, Columns, FloatArray, IntArray, Labels, Ranks
from ..exceptions import DataError, MvpldaWarning, ParameterError, RankCappedWarning
from ..inference.design import largest_rank
from ..labels import encode_labels
from ..statistics import SufficientStatistics
from .heldout import HeldOutTrials, held_out_trials
from .multiview import MultiviewPLDA

STRUCTURES = ("combined", "views", "interaction")
"""Views of a model: the combined label alone; the views of the labels; these and their interaction."""

TITLES = {
    "combined": "combined label",
    "views": "views without interaction",
    "interaction": "views with interaction",
}

NOISES = ("full", "diagonal", "prior")
"""Noise covariances: full; diagonal; full with isotropic priors of all covariances, whose ranks are then full."""

SMALLEST_RANK = 5
FIRST_RANK = 20
MIN_RATIO = 1.25
"""Smallest rank of the grid, and rank that the search begins with. Each rank is twice the one before, and the last is
the largest possible, at least this many times the one before."""

ROUNDS = 2
"""Most rounds over the views of a structure."""

STRENGTHS = (0.1, 0.2, 0.4, 0.6, 0.8)
"""Strengths of the prior that are compared."""

SIGNIFICANT = 2.0
"""Standard errors of the difference by which a loss must be lower to count as a gain. On data drawn without interaction
an interaction often gains one by chance; on ten divisions of five corpora two gave fewer errors than none or one."""

ENOUGH_SPEAKERS = 200
"""Number of held-out speakers after which no further folds are fitted, for speed."""

ITERATIONS = 5
"""Iterations of EM for each candidate and fold: from moments, more hardly change the order of candidates."""


@dataclass(frozen=True)
class ModelCandidate:
    """Settings of a `MultiviewPLDA`, and their loss on held-out trials.

    structure : "combined": the combined label is the only view; "views": the views of the labels; "interaction": these
        and their interaction
    noise : "full", "diagonal", or "prior": full with isotropic priors of all covariances
    ranks : {view: rank}; None with a prior, which makes all ranks full
    prior_strength : None without a prior
    loss : in bits, see `select_model`
    standard_error : of the loss, over held-out speakers
    influence : (speakers,) contribution of each held-out speaker to the deviation of the loss; the standard error of
        the difference of two losses is the norm of the difference of their influences
    """

    structure: str
    noise: str
    ranks: Ranks
    prior_strength: float | None
    loss: float
    standard_error: float
    influence: Array = field(repr=False, compare=False)

    @property
    def title(self) -> str:
        """Settings in words, such as "views without interaction, full noise, ranks: speaker 20, phrase 10"."""
        views = TITLES[self.structure]
        if len(self.ranks) == 1 and self.structure == "views":
            views = "one view"
        if self.prior_strength is not None:
            return f"{views}, prior {self.prior_strength:g}"
        ranks = ", ".join(f"{view} {rank}" for view, rank in self.ranks.items())
        return f"{views}, {self.noise} noise, ranks: {ranks}"

    def make_model(self, max_iter: int = 100, tol: float = 1e-3) -> MultiviewPLDA:
        """Return an unfitted model."""
        return _make_model(self.noise, self.ranks, self.prior_strength, max_iter, tol)


@dataclass(frozen=True)
class Selection:
    """Result of `select_model`.

    chosen : candidate with the lowest loss. A candidate with an interaction is chosen only if it is better by at least
        two standard errors of the difference than the best candidate without one
    table : all candidates, lowest loss first
    speakers : number of held-out speakers
    """

    chosen: ModelCandidate
    table: tuple[ModelCandidate, ...]
    speakers: int


def select_model(
    X: ArrayLike,
    labels: Columns,
    *,
    structures: Sequence[str] | None = None,
    noises: Sequence[str] = NOISES,
    ranks: Sequence[int] | None = None,
    strengths: Sequence[float] = STRENGTHS,
    enrolment: int = 1,
    folds: int = 4,
    preprocessing: TransformerMixin | None = None,
    progress: Callable[[ModelCandidate], object] | None = None,
) -> Selection:
    """Choose the views, noise and ranks of a model by its loss in trials of held-out speakers.

    The loss is the minimum Cllr (bits) of "same in every view?", averaged over the kinds of non-targets: for speakers
    and phrases, target speakers with another phrase and impostors with the right or another phrase. Ranks are searched
    view by view, in the direction in which the loss falls. The result depends on nothing but the arguments.

    Parameters
    ----------
    X : (n, D) vectors
    labels : {view: (n,) labels}; the classes of the first view, such as speakers, are held out in turn
    structures : among "combined", "views" and "interaction", see `ModelCandidate`; None: all that the labels allow
    noises : among "full", "diagonal" and "prior"
    ranks : ranks to compare; None: from 5, each twice the one before
    strengths : strengths of the prior to compare
    enrolment : vectors per profile in the held-out trials
    folds : largest number of folds of held-out speakers
    preprocessing : transformer that is fitted to the training vectors of each fold; None: vectors as they are
    progress : called with each candidate

    Examples
    --------
    >>> from mvplda import make_two_views, select_model
    >>> X, labels = make_two_views(40, 8, 4, dimension=12, ranks=(4, 4), random_state=0)
    >>> selection = select_model(X, labels, noises=["diagonal"])
    >>> selection.chosen.structure
    'views'
    >>> model = selection.chosen.make_model().fit(X, labels)
    """
    vectors = np.asarray(X)
    columns = {view: np.asarray(column) for view, column in labels.items()}
    search = _Search(vectors, columns, enrolment, folds, preprocessing, progress)
    for noise in _check_choice("noises", noises, NOISES):
        for structure in _check_choice("structures", structures, search.structures):
            if noise == "prior":
                search.compare_strengths(structure, strengths)
            else:
                search.climb(structure, noise, ranks)
    table = sorted(search.candidates.values(), key=lambda candidate: candidate.loss)
    return Selection(best_candidate(table), tuple(table), search.n_speakers)


def best_candidate(table: Sequence[ModelCandidate]) -> ModelCandidate:
    """Return the first candidate of a sorted table, unless its interaction gains no more than chance could."""
    best = table[0]
    simpler = [candidate for candidate in table if candidate.structure != "interaction"]
    if best.structure == "interaction" and simpler and not gains(best, simpler[0]):
        return simpler[0]
    return best


def gains(candidate: ModelCandidate, other: ModelCandidate) -> bool:
    """Return whether a loss is lower than another on the same trials by two standard errors of the difference."""
    error = float(np.linalg.norm(candidate.influence - other.influence))
    return other.loss - candidate.loss >= SIGNIFICANT * error


def _check_choice(name: str, chosen: Sequence[str] | None, allowed: Sequence[str]) -> Sequence[str]:
    if chosen is None:
        return allowed
    if not chosen or isinstance(chosen, str) or not set(chosen) <= set(allowed):
        raise ParameterError(f"{name} must be a list with some of {list(allowed)}; got {chosen!r}")
    return chosen


def are_crossed(labels: Labels, views: Sequence[str]) -> bool:
    """Return whether there are enough combinations of classes to separate an interaction from its views."""
    table = encode_labels(labels, [*views, ":".join(views)])
    *each, cells = (len(table.classes[view]) for view in table.views)
    return cells - sum(size - 1 for size in each) - 1 >= each[0] / 2


def _make_model(
    noise: str, ranks: Ranks, prior_strength: float | None, max_iter: int, tol: float = 1e-3
) -> MultiviewPLDA:
    if prior_strength is None:
        return MultiviewPLDA(ranks, noise=noise, max_iter=max_iter, tol=tol)
    return MultiviewPLDA(
        ranks, prior="isotropic", prior_strength=prior_strength, max_iter=max_iter, tol=tol
    )


class _Fold:
    """Statistics of the training vectors of a fold, and the vectors of its trials."""

    def __init__(
        self,
        X: FloatArray,
        labels: Columns,
        views: Sequence[str],
        trials: HeldOutTrials,
        preprocessing: TransformerMixin | None,
    ) -> None:
        train = X[trials.train]
        self.enrol = X[trials.enrol]
        self.test = X[trials.test]
        self.trials = trials
        if preprocessing is not None:
            chain = clone(preprocessing)
            with warnings.catch_warnings():
                # a fold has fewer vectors than the data, so that its chain may keep fewer axes
                warnings.simplefilter("ignore", RankCappedWarning)
                train = chain.fit_transform(train)
            self.enrol = chain.transform(self.enrol)
            self.test = chain.transform(self.test)
        table = encode_labels(
            {view: column[trials.train] for view, column in labels.items()}, views
        )
        self.statistics = SufficientStatistics.from_arrays(train, table, second_moment="full")

    def scores(self, model: MultiviewPLDA) -> Array:
        """Fit a model, and return the LLR of "same in every view?" of each trial."""
        model.fit_statistics(self.statistics)
        profiles = model.enrol(self.enrol, self.trials.ids)
        return np.asarray(model.llr_trials(profiles, self.test, self.trials.pairs))


class _Search:
    """Losses of candidates in the same held-out trials.

    candidates : assessed candidates by their settings
    structures : structures that the labels allow
    """

    def __init__(
        self,
        X: FloatArray,
        labels: Columns,
        enrolment: int,
        folds: int,
        preprocessing: TransformerMixin | None,
        progress: Callable[[ModelCandidate], object] | None,
    ) -> None:
        base = list(labels)
        cell = ":".join(base)
        self.progress = progress
        self.candidates: dict[object, ModelCandidate] = {}
        self.views = {"views": base}
        if len(base) > 1:
            self.views = {"combined": [cell], "views": base}
            if are_crossed(labels, base):
                self.views["interaction"] = [*base, cell]
        self.structures = tuple(self.views)

        fold_trials = held_out_trials(labels, folds=folds, enrolment=enrolment)
        if not fold_trials:
            raise DataError(
                "no speakers can be held out: expected at least 8 speakers, each with two vectors of the same labels"
            )
        speakers = encode_labels({base[0]: labels[base[0]]}).codes[base[0]]
        n_tested = [len(np.unique(speakers[trials.test])) for trials in fold_trials]
        n_folds = int(np.searchsorted(np.cumsum(n_tested), ENOUGH_SPEAKERS)) + 1
        fold_trials = fold_trials[:n_folds]
        self.kinds = np.concatenate([trials.kinds for trials in fold_trials])
        people = []
        for trials in fold_trials:
            enrolled = trials.profiles[trials.pairs[:, 0]]
            tested = trials.test[trials.pairs[:, 1]]
            people.append(np.stack([speakers[enrolled], speakers[tested]]))
        names, numbers = np.unique(np.concatenate(people, axis=1), return_inverse=True)
        self.people = numbers.reshape(2, -1)
        self.n_speakers = len(names)
        every_view = list(dict.fromkeys([*base, cell]))
        self.folds = [_Fold(X, labels, every_view, trials, preprocessing) for trials in fold_trials]

    def compare_strengths(self, structure: str, strengths: Sequence[float]) -> None:
        """Assess priors of several strengths."""
        for strength in strengths:
            self.assess(structure, "prior", dict.fromkeys(self.views[structure]), strength)

    def climb(self, structure: str, noise: str, ranks: Sequence[int] | None) -> None:
        """Assess neighbours in the grids of ranks, view by view, as long as the loss falls."""
        grids = {view: self.grid(view, ranks) for view in self.views[structure]}
        best = {view: self.first_rank(view, grid) for view, grid in grids.items()}
        least = self.assess(structure, noise, best).loss
        for _ in range(ROUNDS):
            before = best
            for view, grid in grids.items():
                step = grid.index(best[view])
                # the nearest ranks first: larger ones, or else smaller ones
                for path in (grid[step + 1 :], grid[:step][::-1]):
                    start = best
                    for rank in path:
                        ranks_tried = {**best, view: rank}
                        loss = self.assess(structure, noise, ranks_tried).loss
                        if loss >= least:
                            break
                        best, least = ranks_tried, loss
                    if best != start:
                        break
            # a single view has no other whose rank could have changed
            if best == before or len(grids) == 1:
                break

    def first_rank(self, view: str, grid: Sequence[int]) -> int:
        """Return the rank to start from: that of the view in the best candidate so far, or else `FIRST_RANK`.

        If the grid lacks this rank, the nearest one in the grid is returned.
        """
        ranked = [each for each in self.candidates.values() if each.ranks.get(view)]
        wanted: int = FIRST_RANK
        if ranked:
            wanted = min(ranked, key=lambda candidate: candidate.loss).ranks[view] or FIRST_RANK
        return min(grid, key=lambda rank: abs(rank - wanted))

    def grid(self, view: str, ranks: Sequence[int] | None) -> list[int]:
        """Return the ascending ranks that the classes of a view allow in every fold."""
        largest = min(largest_rank(fold.statistics, view) for fold in self.folds)
        if ranks is None:
            ranks = [largest]
            rank = SMALLEST_RANK
            while rank * MIN_RATIO <= largest:
                ranks.append(rank)
                rank *= 2
        return sorted({min(rank, largest) for rank in ranks})

    def assess(
        self, structure: str, noise: str, ranks: Ranks, strength: float | None = None
    ) -> ModelCandidate:
        """Return a candidate with its loss, which is computed once."""
        key = (structure, noise, tuple(ranks.items()), strength)
        if key in self.candidates:
            return self.candidates[key]
        # moments suffice for a prior
        max_iter = ITERATIONS if strength is None else 0
        scores = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MvpldaWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            for fold in self.folds:
                scores.append(fold.scores(_make_model(noise, ranks, strength, max_iter)))
        loss, influence = held_out_loss(np.concatenate(scores), self.kinds, self.people)
        error = float(np.linalg.norm(influence))
        candidate = ModelCandidate(structure, noise, dict(ranks), strength, loss, error, influence)
        self.candidates[key] = candidate
        if self.progress is not None:
            self.progress(candidate)
        return candidate


def held_out_loss(scores: Array, kinds: IntArray, people: IntArray) -> tuple[float, Array]:
    """Return the minimum Cllr averaged over the kinds of non-targets, and the influence of each speaker on it.

    Parameters
    ----------
    scores : (n,)
    kinds : (n,) number of the kind of each trial; 0: target
    people : (2, n) number of the speaker of the enrolment and of the test
    """
    n_people = int(people.max()) + 1
    is_target = kinds == 0
    nontargets = np.unique(kinds[~is_target])
    if not is_target.any() or not len(nontargets):
        raise DataError("held-out trials lack targets or non-targets: record more per speaker")
    loss = 0.0
    influence = np.zeros(n_people)
    for kind in nontargets:
        rows = np.flatnonzero(is_target | (kinds == kind))
        costs, deviations = _least_costs(scores[rows], is_target[rows])
        loss += costs / len(nontargets)
        enrolled, tested = people[:, rows]
        influence += np.bincount(enrolled, deviations, n_people) / len(nontargets)
        # a trial of two speakers depends on both
        differ = enrolled != tested
        influence += np.bincount(tested[differ], deviations[differ], n_people) / len(nontargets)
    return loss, influence  # (V15)


def _least_costs(scores: Array, is_target: BoolArray) -> tuple[float, Array]:
    """Return the minimum Cllr, and the deviation of each trial's weighted cost from the mean of its side."""
    sizes = np.array([np.count_nonzero(~is_target), np.count_nonzero(is_target)])
    side = is_target.astype(np.int64)
    weights = 0.5 / sizes[side]
    # equal scores are one group
    group = np.unique(scores, return_inverse=True)[1].reshape(-1)
    total = np.bincount(group, weights)
    share = np.bincount(group, weights * is_target) / total
    posterior = isotonic_regression(share, weights=total).x[group]
    costs = -np.log2(np.where(is_target, posterior, 1 - posterior))
    means = np.bincount(side, costs) / sizes
    return float(means.mean()), weights * (costs - means[side])  # (V14)
