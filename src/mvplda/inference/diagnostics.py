"""What a data set is like, and what its fit shows: what classes can hold, and what no fit can tell apart."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
from .design import Plan, refines
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
    effective_rank: float = float("nan")


@dataclass(frozen=True)
class Diagnostics:
    """What was found in the data and in the fit.

    cells : for every pair of base views, the fraction of its cells that hold a vector
    components : for every pair of base views, parts that share no class (1: connected)
    constant_columns : columns of X with no variance but rounding
    noise_floored : columns or directions of the noise that lie on the floor
    solver : how the E step was solved
    likelihood_fell : iterations that lowered the log-likelihood
    messages : every warning, in words
    """

    n_vectors: int
    dimension: int
    views: dict[str, ViewDiagnostics]
    cells: dict[tuple[str, str], float]
    components: dict[tuple[str, str], int]
    constant_columns: tuple[int, ...]
    noise_floored: int = 0
    solver: str = ""
    likelihood_fell: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()

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


def examine(
    statistics: SufficientStatistics,
    views: tuple[str, ...],
    asked: dict[str, int],
    ranks: dict[str, int],
) -> Diagnostics:
    """Look at the design, and warn of what a fit cannot tell apart."""
    messages: list[str] = []
    found = {}
    for view in views:
        found[view] = _examine_view(statistics, view, asked[view], ranks[view], messages)
    cells = {}
    components = {}
    for i, a in enumerate(views):
        for b in views[i + 1 :]:
            table = statistics.together(a, b)
            forward = refines(table)
            backward = refines(table.T.tocsr())
            if forward and backward and min(table.shape) > 1:
                _warn(
                    messages,
                    UnidentifiableViewWarning,
                    f"views {a!r} and {b!r} sort the vectors into the same classes: only the sum of their "
                    "covariances is known, not its parts",
                )
            if len(parts_of(a)) > 1 or len(parts_of(b)) > 1:
                continue
            cells[a, b] = table.nnz / (table.shape[0] * table.shape[1])
            components[a, b] = _components(table)
            if components[a, b] > 1 and not (forward or backward):
                _warn(
                    messages,
                    DisconnectedDesignWarning,
                    f"views {a!r} and {b!r} fall into {components[a, b]} parts that share no class: what differs "
                    "between the parts cannot be divided between the two views",
                )
    return Diagnostics(
        statistics.n,
        statistics.dimension,
        found,
        cells,
        components,
        tuple(int(c) for c in statistics.constant_columns),
        messages=tuple(messages),
    )


def _examine_view(
    statistics: SufficientStatistics, view: str, asked: int, rank: int, messages: list[str]
) -> ViewDiagnostics:
    counts = statistics.counts[view]
    classes = labelled_classes(statistics, view)
    if asked > rank:
        holds = f"{statistics.dimension} dimensions"
        if rank == classes - 1:
            holds = f"{classes} classes"
        _warn(
            messages,
            RankCappedWarning,
            f"view {view!r}: rank {asked} lowered to {rank}, as much as {holds} can hold",
            frames=6,
        )
    if counts.max() <= 1:
        _warn(
            messages,
            UnidentifiableViewWarning,
            f"every class of view {view!r} has one vector: its loading cannot be told from the noise",
            frames=6,
        )
    return ViewDiagnostics(
        classes=classes,
        unlabelled=len(counts) - classes,
        counts=(int(counts.min()), float(np.median(counts)), int(counts.max())),
        rank=rank,
    )


def conclude(
    found: Diagnostics,
    fit: Fit,
    plan: Plan,
    noise: NoiseModel,
    *,
    max_iter: int,
    tol: float,
    published: bool = False,
) -> Diagnostics:
    """Complete the diagnostics with what the fit showed, and warn.

    published : whether it was fitted by the EM of the paper, which does not maximise the likelihood
    """
    messages = list(found.messages)
    sigma = fit.parameters.sigma
    floored = sigma.floored(noise.floor)
    if found.constant_columns:
        first = ", ".join(map(str, found.constant_columns[:5]))
        _warn(
            messages,
            NoiseFlooredWarning,
            f"{len(found.constant_columns)} column(s) of X are constant, or vary by no more than rounding "
            f"(first {first}): the model ignores them",
        )
    elif floored:
        _warn(
            messages,
            NoiseFlooredWarning,
            f"the noise lies on its floor in {floored} {sigma.axes}: columns are dependent, or there are too few "
            "vectors a class; use noise_shrinkage, fewer dimensions or another noise",
        )
    fell = _falls(fit.objectives)
    if fell:
        why = ": the printed algorithm does not maximise it" if published else ""
        _warn(
            messages,
            LikelihoodFellWarning,
            f"the {plan.measure} fell in {len(fell)} of {fit.n_iter} iterations{why}",
        )
    if not fit.converged and max_iter > 0 and tol > 0:
        _warn(
            messages,
            ConvergenceWarning,
            f"EM stopped at max_iter={max_iter} before gaining less than tol={tol} nat a vector",
        )
    views = {}
    for name, loading in zip(found.views, fit.parameters.loadings, strict=True):
        effective = effective_rank(np.linalg.norm(loading, axis=0))
        views[name] = replace(found.views[name], effective_rank=effective)
    return replace(
        found,
        views=views,
        noise_floored=floored,
        solver=plan.describe(tuple(found.views)),
        likelihood_fell=fell,
        messages=tuple(messages),
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


def _warn(messages: list[str], category: type[Warning], text: str, frames: int = 5) -> None:
    """Warn whoever called `fit`, so many frames above."""
    messages.append(text)
    warnings.warn(text, category, stacklevel=frames)
