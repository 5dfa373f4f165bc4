"""What a data set is like, found before and during a fit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from ..exceptions import DisconnectedDesignWarning, RankCappedWarning, UnidentifiableViewWarning
from ..inference.design import Plan, refines
from ..labels import parts_of
from ..statistics import SufficientStatistics


@dataclass(frozen=True)
class ViewDiagnostics:
    """One view: its classes, their counts (least, median, most), and its rank."""

    classes: int
    unlabelled: int
    counts: tuple[int, float, int]
    singletons: int
    rank_asked: int
    rank: int
    effective_rank: float = float("nan")


@dataclass(frozen=True)
class Diagnostics:
    """What was found in the data and in the fit.

    cells : for every pair of base views, the fraction of its cells that hold a vector
    components : for every pair of base views, parts that share no class (1: connected)
    nested : pairs (a, b) where every class of a lies within one class of b
    constant_columns : columns of X with no variance but rounding
    noise_floored : columns or directions of the noise that lie on the floor
    solver : how the E step was solved
    bound_gap : about how much (nat a vector) the bound lies below the log-likelihood; 0 of an exact solution
    likelihood_fell : iterations that lowered the log-likelihood
    messages : every warning, in words
    """

    n_vectors: int
    dimension: int
    views: dict[str, ViewDiagnostics]
    cells: dict[tuple[str, str], float]
    components: dict[tuple[str, str], int]
    nested: tuple[tuple[str, str], ...]
    constant_columns: tuple[int, ...]
    noise_floored: int = 0
    solver: str = ""
    bound_gap: float = 0.0
    likelihood_fell: tuple[int, ...] = ()
    messages: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        lines = [f"{self.n_vectors} vectors of dimension {self.dimension}"]
        for name, view in self.views.items():
            least, median, most = view.counts
            unlabelled = f", {view.unlabelled} unlabelled" if view.unlabelled else ""
            lines.append(
                f"  {name}: {view.classes} classes{unlabelled}, {least}/{median:g}/{most} vectors each "
                f"(least/median/most), rank {view.rank}, effective {view.effective_rank:.1f}"
            )
        for (a, b), fraction in self.cells.items():
            parts = self.components[a, b]
            joined = "connected" if parts == 1 else f"{parts} separate parts"
            lines.append(f"  {a} x {b}: {fraction:.1%} of cells filled, {joined}")
        below = f", about {self.bound_gap:.1e} nat a vector below the log-likelihood" if self.bound_gap else ""
        lines.append(f"  solved by: {self.solver}{below}")
        lines += [f"  ! {message}" for message in self.messages]
        return "\n".join(lines)


def examine(
    statistics: SufficientStatistics, views: tuple[str, ...], asked: dict[str, int], ranks: dict[str, int]
) -> Diagnostics:
    """Look at the design, and warn of what a fit cannot tell apart."""
    messages: list[str] = []
    found: dict[str, ViewDiagnostics] = {}
    for view in views:
        counts = statistics.counts[view]
        found[view] = ViewDiagnostics(
            classes=len(counts),
            unlabelled=statistics.classes[view].anonymous,
            counts=(int(counts.min()), float(np.median(counts)), int(counts.max())),
            singletons=int((counts == 1).sum()),
            rank_asked=asked[view],
            rank=ranks[view],
        )
        if asked[view] > ranks[view]:
            why = f"{len(counts)} classes" if ranks[view] == len(counts) - 1 else f"{statistics.dimension} dimensions"
            _warn(
                messages,
                RankCappedWarning,
                f"view {view!r}: rank {asked[view]} lowered to {ranks[view]}, as much as {why} can hold",
            )
        if counts.max() <= 1:
            _warn(
                messages,
                UnidentifiableViewWarning,
                f"every class of view {view!r} has one vector: its loading cannot be told from the noise",
            )
    cells, components, nested = {}, {}, []
    for i, a in enumerate(views):
        for b in views[i + 1 :]:
            table = statistics.together(a, b)
            forward, backward = refines(table), refines(table.T.tocsr())
            nested += [(a, b)] if forward else []
            nested += [(b, a)] if backward else []
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
        tuple(nested),
        tuple(int(c) for c in statistics.constant_columns),
        messages=tuple(messages),
    )


def describe_plan(plan: Plan, views: tuple[str, ...]) -> str:
    """How the E step is solved, in words."""
    steps = [f"eliminating {views[plan.leaf]}"]
    if plan.root is not None:
        steps.append(f"then {views[plan.root]}")
    if plan.rest:
        names = ", ".join(views[k] for k in plan.rest)
        solved = "class by class (a bound)" if plan.factorised else f"one dense system of size {plan.dense_size}"
        steps.append(f"then {solved} ({names})")
    return ("variational, " if plan.factorised else "exact, ") + ", ".join(steps)


def effective_rank(singular_values: np.ndarray) -> float:
    """exp of the entropy of the shares of variance: 1 for one direction, r for r equal ones."""
    if not singular_values.any():
        return 0.0
    shares = (singular_values / singular_values.max()) ** 2
    shares /= shares.sum()
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _components(table: sparse.csr_array) -> int:
    edges = table.tocoo()
    size = sum(table.shape)
    graph = sparse.csr_array((edges.data, (edges.row, table.shape[0] + edges.col)), shape=(size, size))
    return int(connected_components(graph, directed=False)[0])


def _warn(messages: list[str], category: type[Warning], text: str) -> None:
    messages.append(text)
    warnings.warn(text, category, stacklevel=5)
