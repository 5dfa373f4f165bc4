"""Choice of views, interaction, noise and ranks of a model by trials of held-out classes.

Each candidate is fitted without some of the speakers (the classes of the first view), a fold, and
scores trials among them. The candidate with the lowest loss over all folds is chosen; an
interaction must gain more than chance could.
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
"""Structures of a model: only the combined label is a view; all labels are views; these views and their interaction."""

TITLES = {
    "combined": "combined label",
    "views": "views without interaction",
    "interaction": "views with interaction",
}
"""Structures in words."""

NOISES = ("full", "diagonal", "prior")
"""Kinds of noise: full covariance; diagonal; or full with isotropic priors of all covariances, whose ranks are full."""

SMALLEST_RANK = 5
FIRST_RANK = 20
MIN_RATIO = 1.25
"""Default grid of ranks: it starts at SMALLEST_RANK, and each rank is twice the one before.

The grid ends with the largest rank that the classes allow, at least MIN_RATIO times the rank before
it. The search begins near FIRST_RANK.
"""

ROUNDS = 2
"""Largest number of rounds in which the search varies the rank of each view."""

STRENGTHS = (0.1, 0.2, 0.4, 0.6, 0.8)
"""Default strengths of the isotropic prior that `select_model` compares."""

SIGNIFICANT = 2.0
"""Number of standard errors of the difference by which a loss must be lower to count as a gain.

On data drawn without interaction, an interaction often gains one standard error by chance. On ten
divisions of five corpora, two gave fewer errors than none or one.
"""

ENOUGH_SPEAKERS = 200
"""Number of held-out speakers after which no further folds are fitted, to save time."""

ITERATIONS = 5
"""Iterations of EM per candidate and fold; with a start from moments, more hardly change the order of candidates."""


@dataclass(frozen=True)
class ModelCandidate:
    """Settings of a `MultiviewPLDA`, and their loss on held-out trials.

    structure : "views": each label is a view; "interaction": these views and their interaction;
        "combined": a single view, whose classes are the combinations of labels
    noise : "full", "diagonal", or "prior": full with isotropic priors of all covariances
    ranks : {view: rank}; None with a prior, which makes all ranks full
    prior_strength : strength of the prior; None without a prior
    loss : in bits, see `select_model`
    standard_error : standard error of the loss over held-out speakers
    influence : (speakers,) effect of each held-out speaker's trials on the loss. Its norm is the
        standard error of the loss; for the difference of two candidates' losses, the norm of the
        difference of their influences
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
        """Return an unfitted model with these settings."""
        return _make_model(self.noise, self.ranks, self.prior_strength, max_iter, tol)


@dataclass(frozen=True)
class Selection:
    """Result of `select_model`.

    chosen : candidate with the lowest loss. A candidate with an interaction is chosen only if its
        loss is at least two standard errors lower than that of the best candidate without
        interaction
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

    The loss is the minimum Cllr (bits) of "same in every view?", averaged over the kinds of
    non-targets. For speakers and phrases these are target speakers with another phrase, and
    impostors with the right or another phrase. Ranks are searched view by view, in the direction in
    which the loss falls. Equal arguments give equal results.

    Parameters
    ----------
    X : (n, D) vectors
    labels : {view: (n,) labels}; the classes of the first view, such as speakers, are held out in
        turn
    structures : among "combined", "views" and "interaction", see `ModelCandidate`; None: all that
        the labels allow
    noises : among "full", "diagonal" and "prior"
    ranks : ranks to compare; None: from 5, each twice the one before
    strengths : strengths of the prior to compare
    enrolment : vectors per profile in the held-out trials
    folds : largest number of folds of held-out speakers
    preprocessing : transformer that is fitted to the training vectors of each fold; None: vectors
        are used unchanged
    progress : called with each candidate

    Returns
    -------
    Selection

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
    """Return the best candidate of a table that is sorted by loss, lowest first.

    This is the first candidate without interaction, unless one with interaction is the first in
    the table and its loss is lower by at least two standard errors (`gains`).
    """
    best = table[0]
    simpler = [candidate for candidate in table if candidate.structure != "interaction"]
    if best.structure == "interaction" and simpler and not gains(best, simpler[0]):
        return simpler[0]
    return best


def gains(candidate: ModelCandidate, other: ModelCandidate) -> bool:
    """Return whether a candidate's loss is lower than the other's by at least two standard errors of the difference."""
    error = float(np.linalg.norm(candidate.influence - other.influence))
    return other.loss - candidate.loss >= SIGNIFICANT * error


def _check_choice(name: str, chosen: Sequence[str] | None, allowed: Sequence[str]) -> Sequence[str]:
    """Return the values of an argument; `allowed` for None.

    Raise `ParameterError` unless they are a list of some of the values `allowed`.

    name : name of the argument, for the message
    """
    if chosen is None:
        return allowed
    if not chosen or isinstance(chosen, str) or not set(chosen) <= set(allowed):
        raise ParameterError(f"{name} must be a list with some of {list(allowed)}; got {chosen!r}")
    return chosen


def are_crossed(labels: Labels, views: Sequence[str]) -> bool:
    """Return whether enough combinations of classes occur to separate an interaction from its views.

    labels : labels of the vectors
    views : views whose interaction is considered
    """
    table = encode_labels(labels, [*views, ":".join(views)])
    *each, cells = (len(table.classes[view]) for view in table.views)
    return cells - sum(size - 1 for size in each) - 1 >= each[0] / 2


def _make_model(
    noise: str, ranks: Ranks, prior_strength: float | None, max_iter: int, tol: float = 1e-3
) -> MultiviewPLDA:
    """Return an unfitted model with these settings; with a prior strength, `noise` is not used."""
    if prior_strength is None:
        return MultiviewPLDA(ranks, noise=noise, max_iter=max_iter, tol=tol)
    return MultiviewPLDA(
        ranks, prior="isotropic", prior_strength=prior_strength, max_iter=max_iter, tol=tol
    )


class _Fold:
    """Training statistics of one fold, and the vectors of its held-out trials."""

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
        """Fit a model, and return the LLR of "same in every view?" of each held-out trial."""
        model.fit_statistics(self.statistics)
        profiles = model.enrol(self.enrol, self.trials.ids)
        return np.asarray(model.llr_trials(profiles, self.test, self.trials.pairs))


class _Search:
    """Search over candidates, all assessed on the same held-out trials.

    candidates : assessed candidates by their settings
    structures : structures that the labels allow
    views : {structure: views}
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
                "no speakers can be held out: expected at least 8 speakers, each with two vectors of the same labels. "
                "Add speakers or vectors"
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
        """Assess one candidate of a structure per strength of the isotropic prior."""
        for strength in strengths:
            self.assess(structure, "prior", dict.fromkeys(self.views[structure]), strength)

    def climb(self, structure: str, noise: str, ranks: Sequence[int] | None) -> None:
        """Search the ranks with the lowest loss for a structure and a noise, and assess them.

        Each view starts at its `first_rank`. Then the rank of one view at a time is raised, or if
        that does not help lowered, as long as the loss falls.

        ranks : ranks to compare; None: the default grid
        """
        grids = {view: self.grid(view, ranks) for view in self.views[structure]}
        best = {view: self.first_rank(view, grid) for view, grid in grids.items()}
        least = self.assess(structure, noise, best).loss
        for _ in range(ROUNDS):
            before = best
            for view, grid in grids.items():
                step = grid.index(best[view])
                # try larger ranks, nearest first; if none is better, smaller ones
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
        """Return the rank of a view from which the search starts.

        It is the view's rank in the best candidate so far, or `FIRST_RANK` without any; if the grid
        lacks it, the nearest rank of the grid.
        """
        ranked = [each for each in self.candidates.values() if each.ranks.get(view)]
        wanted: int = FIRST_RANK
        if ranked:
            wanted = min(ranked, key=lambda candidate: candidate.loss).ranks[view] or FIRST_RANK
        return min(grid, key=lambda rank: abs(rank - wanted))

    def grid(self, view: str, ranks: Sequence[int] | None) -> list[int]:
        """Return the ascending ranks to compare for a view: `ranks`, or the default grid, limited
        to what all folds allow.
        """
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
        """Return the candidate with these settings and its loss; each candidate is computed once."""
        key = (structure, noise, tuple(ranks.items()), strength)
        if key in self.candidates:
            return self.candidates[key]
        # with a prior, the moment start is accurate enough without EM
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
    """Return the minimum Cllr, averaged over the kinds of non-targets, and its influences.

    The influence of a speaker, (speakers,), is the effect of the speaker's trials on the result,
    see `ModelCandidate`.

    Parameters
    ----------
    scores : (n,) scores of the trials
    kinds : (n,) number of the kind of each trial; 0: target
    people : (2, n) number of the speaker of the enrolment and of the test
    """
    n_people = int(people.max()) + 1
    is_target = kinds == 0
    nontargets = np.unique(kinds[~is_target])
    if not is_target.any() or not len(nontargets):
        raise DataError(
            "the held-out trials have no targets or no non-targets, so models cannot be compared: pass more speakers, "
            "with at least two vectors of the same labels each"
        )
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
    """Return the minimum Cllr, and the deviation of each trial (n,) from the mean cost.

    The deviation is the cost of the trial minus the mean cost of targets or of non-targets, times
    the weight of the trial.

    scores : (n,)
    is_target : (n,)
    """
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
