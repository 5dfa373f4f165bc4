"""Where EM goes on from: the parameters of an earlier fit, for data that have changed since."""

from __future__ import annotations

import numpy as np

from ..exceptions import DataError
from ..kernel.em import NoiseKind
from ..kernel.records import Array, Parameters

NEW_COLUMN = 0.1
"""Length of a loading's new columns, against the noise: EM cannot leave zero."""


def warm_parameters(
    earlier: Parameters, ranks: tuple[int, ...], kind: NoiseKind, origin: Array, rng: np.random.Generator
) -> Parameters:
    """Earlier parameters about an origin, with these ranks and this kind of noise.

    The weakest columns are left out where the ranks are smaller now, and small ones of chance
    are added where they are larger.
    """
    if len(earlier.mean) != len(origin):
        raise DataError(f"the statistics have width {len(origin)}, the model {len(earlier.mean)}")
    variances = earlier.noise if earlier.noise.ndim == 1 else np.diag(earlier.noise)
    scale = np.sqrt(variances)[:, None]
    loadings = []
    for loading, rank in zip(earlier.loadings, ranks, strict=True):
        strongest = np.argsort(-np.linalg.norm(loading / scale, axis=0), kind="stable")[:rank]
        more = NEW_COLUMN * scale * rng.standard_normal((len(loading), rank - len(strongest)))
        loadings.append(np.concatenate([loading[:, np.sort(strongest)], more], axis=1))
    if kind == "full":
        noise = earlier.noise if earlier.noise.ndim == 2 else np.diag(variances)
    else:
        noise = np.full_like(variances, variances.mean()) if kind == "isotropic" else variances.copy()
    return Parameters(earlier.mean - origin, tuple(loadings), noise)
