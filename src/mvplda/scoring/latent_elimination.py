"""Elimination of the latents that a profile does not share with the other side of a comparison."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._typing import AnyArray, Array, BoolArray, IntArray
from ..backend import NUMPY, like
from .latent_space import Layout
from .pair_matrices import symmetric_part


class LatentElimination(NamedTuple):
    """Step that integrates some latents out of evidence y: y[coupled] -= y[eliminated] gain.

    eliminated : indices of the latents that are integrated out
    coupled : indices of the remaining latents whose evidence changes
    gain : (eliminated, coupled) matrix of the step
    """

    eliminated: IntArray
    coupled: IntArray
    gain: Array


@dataclass(frozen=True, eq=False)
class EvidenceReduction:
    """Map from the evidence on all latents of a side to the evidence on some of them.

    The other latents are integrated out in steps (V2 in docs/math.md). Latents of a single cell,
    such as those of its phrase, are coupled only with latents of that cell. They are integrated out
    cell by cell with small matrices, so that no matrix is as wide as the side.

    steps : eliminations, in order
    keep : indices of the latents that are not integrated out
    scale : (width, width) matrix by which the evidence is multiplied before the steps, see
        `Substitution.scale`; None: it is not
    loading : (keep, w) matrix by which the evidence is multiplied after the steps; None: it is not
    """

    steps: tuple[LatentElimination, ...]
    keep: IntArray
    scale: Array | None = None
    loading: Array | None = None

    def apply(self, y: AnyArray) -> AnyArray:
        """Return the reduced evidence, (n, kept latents), or (n, w) if there is a loading.

        y : (n, width) evidence on all latents of the side
        """
        scaled = y + 0 if self.scale is None else y @ like(self.scale, y)
        for step in self.steps:
            correction = scaled[:, like(step.eliminated, y)] @ like(step.gain, y)
            coupled = like(step.coupled, y)
            scaled[:, coupled] = scaled[:, coupled] - correction  # (V2)
        reduced = scaled[:, like(self.keep, y)]
        return reduced if self.loading is None else reduced @ like(self.loading, y)

    @property
    def size(self) -> int:
        """Number of array elements in memory; an array that several steps share counts once."""
        gains = {id(step.gain): step.gain.size for step in self.steps}
        matrices = [m.size for m in (self.scale, self.loading) if m is not None]
        return sum(gains.values()) + sum(matrices)

    @classmethod
    def of(
        cls, cells: Sequence[Array], layout: Layout, keep: IntArray
    ) -> tuple[Array, EvidenceReduction]:
        """Integrate out all latents of a side except those in `keep`.

        cells : (r, r) evidence matrix of each cell
        layout : positions of the side's latents
        keep : indices of the latents to keep, ascending
        return : evidence matrix of the kept latents, (keep, keep), and the map that reduces
            evidence to them
        """
        is_kept = np.zeros(layout.width, dtype=bool)
        is_kept[keep] = True
        is_private = ~is_kept & (layout.cells_of == 1)
        remaining = np.flatnonzero(~is_private)
        position = np.full(layout.width, -1)
        position[remaining] = np.arange(len(remaining))

        # first the latents that belong to a single cell, cell by cell
        precision = np.zeros((len(remaining), len(remaining)))
        steps = []
        eliminations: dict[Hashable, tuple[Array | None, Array]] = {}
        for latents, cell in zip(layout.latents, cells, strict=True):
            is_cell_private = is_private[latents]
            # cells of equal weight share an evidence matrix, and then the gain
            key = (id(cell), is_cell_private.tobytes())
            if key not in eliminations:
                eliminations[key] = _eliminate(cell, is_cell_private)
            gain, reduced = eliminations[key]
            coupled = latents[~is_cell_private]
            if gain is not None:
                steps.append(LatentElimination(latents[is_cell_private], coupled, gain))
            rows = position[coupled]
            precision[np.ix_(rows, rows)] += reduced  # (V5)

        # then the latents that several cells share, at once
        is_common = ~is_kept[remaining]
        gain, reduced = _eliminate(precision, is_common)
        if gain is not None:
            steps.append(LatentElimination(remaining[is_common], remaining[~is_common], gain))
        # in the order of `keep`
        order = np.searchsorted(remaining[~is_common], keep)
        return symmetric_part(reduced[np.ix_(order, order)]), cls(tuple(steps), keep)


def _eliminate(N: Array, is_eliminated: BoolArray) -> tuple[Array | None, Array]:
    """Integrate latents out of an evidence matrix N (V2 in docs/math.md).

    N : (m, m) evidence matrix
    is_eliminated : (m,) mask of the latents to integrate out
    return : gain of the elimination step, (eliminated, others), or None if nothing is eliminated;
        and the evidence matrix of the other latents, (others, others)
    """
    if not is_eliminated.any():
        return None, N
    others = N[~is_eliminated][:, ~is_eliminated]
    cross = N[is_eliminated][:, ~is_eliminated]
    lower = NUMPY.cholesky(np.eye(len(cross)) + N[is_eliminated][:, is_eliminated])
    gain = NUMPY.cho_solve(lower, cross)
    return gain, others - cross.T @ gain
