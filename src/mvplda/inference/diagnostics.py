"""What a data set is like, and what its fit shows: what classes can hold, and what no fit can tell apart."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import entr
from sklearn.exceptions import ConvergenceWarning

from .._typing import Array
from ..exceptions import (
    DisconnectedDesignWarning,
    LabelError,
    LikelihoodFellWarning,
    NoiseFlooredWarning,
    ParameterError,
    RankCappedWarning,
    UnidentifiableViewWarning,
)
from ..labels import parts_of
from ..statistics import SufficientStatistics
from .design import refines
from .em import Fit
from .parameters import NoiseModel


def choose_ranks(
    statistics: SufficientStatistics, wanted: Mapping[str, int | None], *, full: bool = False
) -> tuple[dict[str, int], dict[str, int]]:
    """The rank asked for and the rank used of every view: at most classes - 1, and at most the dimension.

    full : whether a prior makes the ranks as large as the dimension, whatever the classes
    """
    for view in wanted:
        if view not in statistics.counts:
            raise LabelError(f"the statistics have no view {view!r}, only {list(statistics.views)}")
    if full:
        every = dict.fromkeys(wanted, statistics.dimension)
        return every, every
    asked = {}
    used = {}
    for view, wish in wanted.items():
        most = largest_rank(statistics, view)
        rank = most if wish is None else wish
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ParameterError(
                f"the rank of view {view!r} is a positive whole number; got {rank!r}"
            )
        asked[view] = int(rank)
        used[view] = min(int(rank), most)
    return asked, used


def largest_rank(statistics: SufficientStatistics, view: str) -> int:
    """As much rank as the classes of a view can hold."""
    classes = labelled_classes(statistics, view)
    if classes < 2:
        names = statistics.classes[view].names
        number = "one class" if classes else "no class"
        name = f" ({names.tolist()[0]!r})" if len(names) else ""
        raise LabelError(
            f"view {view!r} has {number}{name}; a view needs at least 2 classes to be told from the mean. "
            "Leave it out, or add data"
        )
    return min(classes - 1, statistics.dimension)


def labelled_classes(statistics: SufficientStatistics, view: str) -> int:
    """How many classes of a view have a name, of an interaction in all its parts.

    A vector without a label is a class of its own, about which nothing else is known: such classes
    have one vector each, and hold no rank.
    """
    classes = statistics.classes[view]
    if classes.cells is None:
        return len(classes.names)
    named = np.ones(len(classes), dtype=bool)
    for column, part in enumerate(parts_of(view)):
        named &= classes.cells[:, column] < len(statistics.classes[part].names)
    return int(named.sum())


@dataclass(frozen=True)
class ViewDiagnostics:
    """One view: its labelled classes, vectors without a label, counts of all (least, median, most), and its rank."""

    classes: int
    unlabelled: int
    counts: tuple[int, float, int]
    rank: int
    effective_rank: float


@dataclass(frozen=True)
class Diagnostics:
    """What was found in the data and in the fit.

    cells : for every pair of base views, the fraction of its cells that hold a vector
    components : for every pair of base views, parts that share no class (1: connected)
    solver : how the E step was solved
    likelihood_fell : iterations that lowered the log-likelihood
    messages : every warning, in words
    """

    n_vectors: int
    dimension: int
    views: dict[str, ViewDiagnostics]
    cells: dict[tuple[str, str], float]
    components: dict[tuple[str, str], int]
    solver: str
    likelihood_fell: tuple[int, ...]
    messages: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.n_vectors} vectors of dimension {self.dimension}"]
        for name, view in self.views.items():
            least, median, most = view.counts
            unlabelled = f" and {view.unlabelled} without label" if view.unlabelled else ""
            lines.append(
                f"  {name}: {view.classes} classes{unlabelled}, {least}/{median:g}/{most} vectors each "
                f"(least/median/most), rank {view.rank}, effective {view.effective_rank:.1f}"
            )
        for (a, b), fraction in self.cells.items():
            parts = self.components[a, b]
            joined = "connected" if parts == 1 else f"{parts} separate parts"
            lines.append(f"  {a} x {b}: {fraction:.1%} of cells filled, {joined}")
        lines.append(f"  solved by: {self.solver}")
        lines += [f"  ! {message}" for message in self.messages]
        return "\n".join(lines)


Problem = tuple[type[Warning], str]


def diagnose(
    statistics: SufficientStatistics,
    asked: Mapping[str, int],
    fit: Fit,
    noise: NoiseModel,
    *,
    max_iter: int,
    tol: float,
    published: bool,
    needless: tuple[type[Warning], ...],
) -> Diagnostics:
    """What a data set is like and what its fit shows, with a warning of whatever a fit cannot tell apart.

    asked : ranks that were asked for
    published : whether it was fitted by the EM of the paper, which does not maximise the likelihood
    needless : warnings that do not hold here
    """
    names = tuple(asked)
    plan = fit.design.plan
    views = {}
    for view, loading in zip(names, fit.parameters.loadings, strict=True):
        counts = statistics.counts[view]
        classes = labelled_classes(statistics, view)
        views[view] = ViewDiagnostics(
            classes,
            len(counts) - classes,
            (int(counts.min()), float(np.median(counts)), int(counts.max())),
            loading.shape[1],
            effective_rank(np.linalg.norm(loading, axis=0)),
        )
    base = [view for view in names if len(parts_of(view)) == 1]
    tables = {pair: statistics.together(*pair) for pair in combinations(names, 2)}
    pairs = [pair for pair in tables if set(pair) <= set(base)]
    components = {pair: _components(tables[pair]) for pair in pairs}
    fell = _falls(fit.objectives)
    problems = [
        *_problems_of_views(views, asked, statistics.dimension),
        *_problems_of_pairs(tables, components),
        *_problems_of_noise(statistics, fit, noise),
    ]
    if fell:
        why = ": the printed algorithm does not maximise it" if published else ""
        text = f"the {plan.measure} fell in {len(fell)} of {fit.n_iter} iterations{why}"
        problems.append((LikelihoodFellWarning, text))
    if not fit.converged and max_iter > 0 and tol > 0:
        text = f"EM stopped at max_iter={max_iter} before gaining less than tol={tol} nat a vector"
        problems.append((ConvergenceWarning, text))
    problems = [problem for problem in problems if problem[0] not in needless]
    for category, text in problems:
        # of whoever called `fit`
        warnings.warn(text, category, stacklevel=4)
    return Diagnostics(
        statistics.n,
        statistics.dimension,
        views,
        {pair: tables[pair].nnz / np.prod(tables[pair].shape) for pair in pairs},
        components,
        plan.describe(names),
        fell,
        tuple(text for _, text in problems),
    )


def _problems_of_views(
    views: Mapping[str, ViewDiagnostics], asked: Mapping[str, int], dimension: int
) -> Iterator[Problem]:
    for name, view in views.items():
        if asked[name] > view.rank:
            holds = f"{dimension} dimensions"
            if view.rank == view.classes - 1:
                holds = f"{view.classes} classes"
            yield (
                RankCappedWarning,
                f"view {name!r}: rank {asked[name]} lowered to {view.rank}, as much as {holds} can hold",
            )
        if view.counts[-1] <= 1:
            yield (
                UnidentifiableViewWarning,
                f"every class of view {name!r} has one vector: its loading cannot be told from the noise",
            )


def _problems_of_pairs(
    tables: Mapping[tuple[str, str], sparse.csr_array], components: Mapping[tuple[str, str], int]
) -> Iterator[Problem]:
    for (a, b), table in tables.items():
        forward = refines(table)
        backward = refines(table.T.tocsr())
        if forward and backward and min(table.shape) > 1:
            yield (
                UnidentifiableViewWarning,
                f"views {a!r} and {b!r} sort the vectors into the same classes: only the sum of their "
                "covariances is known, not its parts",
            )
        parts = components.get((a, b), 1)
        if parts > 1 and not (forward or backward):
            yield (
                DisconnectedDesignWarning,
                f"views {a!r} and {b!r} fall into {parts} parts that share no class: what differs "
                "between the parts cannot be divided between the two views",
            )


def _problems_of_noise(
    statistics: SufficientStatistics, fit: Fit, noise: NoiseModel
) -> Iterator[Problem]:
    sigma = fit.parameters.sigma
    constant = statistics.constant_columns
    floored = sigma.floored(noise.floor)
    if len(constant):
        yield (
            NoiseFlooredWarning,
            f"{len(constant)} column(s) of X are constant, or vary by no more than rounding "
            f"(first {', '.join(map(str, constant[:5]))}): the model ignores them",
        )
    elif floored:
        yield (
            NoiseFlooredWarning,
            f"the noise lies on its floor in {floored} {sigma.axes}: columns are dependent, or there are too few "
            "vectors a class; use noise_shrinkage, fewer dimensions or another noise",
        )


def _falls(objectives: Array) -> tuple[int, ...]:
    """Iterations, from 1, after which an objective is lower than before by more than rounding."""
    if len(objectives) < 2:
        return ()
    scale = np.abs(objectives).max() + 1.0
    return tuple((np.flatnonzero(np.diff(objectives) < -1e-9 * scale) + 1).tolist())


def effective_rank(singular_values: Array) -> float:
    """exp of the entropy of the shares of variance: 1 for one direction, r for r equal ones."""
    if not singular_values.any():
        return 0.0
    squares = (singular_values / singular_values.max()) ** 2
    return float(np.exp(entr(squares / squares.sum()).sum()))


def _components(table: sparse.csr_array) -> int:
    graph: sparse.coo_array = sparse.block_array([[None, table], [table.T, None]])  # type: ignore[list-item]
    return int(connected_components(graph, directed=False)[0])
