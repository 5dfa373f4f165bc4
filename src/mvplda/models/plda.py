"""PLDA: one view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from ..exceptions import LabelError
from ..inference.em import Iteration
from ..labels import LabelTable, are_named, encode_labels
from .multiview import MultiviewPLDA
from .settings import Settings


class PLDA(MultiviewPLDA):
    """Probabilistic linear discriminant analysis: `MultiviewPLDA` with one view.

    Parameters
    ----------
    n_components : int or None
        Rank of the class loading; None means as large as the classes allow.
    noise, noise_shrinkage, ... : as in `MultiviewPLDA`

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda import PLDA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(50), 10)
    >>> X = rng.normal(size=(50, 6))[y] + rng.normal(size=(500, 6))
    >>> PLDA(n_components=3, noise="full").fit(X, y).transform(X).shape
    (500, 3)
    """

    NAME = "plda"

    def __init__(
        self,
        n_components: int | None = None,
        *,
        noise: str = "diagonal",
        noise_shrinkage: float = 0.0,
        loading_shrinkage: float = 0.0,
        prior: Literal["isotropic"] | None = None,
        prior_strength: float | Mapping[str, float] | Literal["auto"] = "auto",
        noise_floor: float = 1e-6,
        algorithm: Literal["auto", "exact", "variational", "paper"] = "auto",
        init: Literal["moments", "random"] = "moments",
        max_iter: int = 100,
        tol: float = 1e-3,
        missing: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        callback: Callable[[Iteration], object] | None = None,
    ) -> None:
        super().__init__(
            None,
            noise=noise,
            noise_shrinkage=noise_shrinkage,
            loading_shrinkage=loading_shrinkage,
            prior=prior,
            prior_strength=prior_strength,
            noise_floor=noise_floor,
            algorithm=algorithm,
            init=init,
            max_iter=max_iter,
            tol=tol,
            missing=missing,
            random_state=random_state,
            verbose=verbose,
            callback=callback,
        )
        self.n_components = n_components

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        if len(ranks) != 1:
            raise LabelError(f"PLDA has one view; got {len(ranks)}: {list(ranks)}. Use MultiviewPLDA")
        return cls(next(iter(ranks.values())), **settings)

    def _encode(self, y: Any) -> LabelTable:
        return encode_labels(y, None if are_named(y) else ("class",), missing=self.missing)

    def _settings(self, views: tuple[str, ...]) -> Settings:
        if len(views) != 1:
            raise LabelError(f"PLDA has one view, the labels have {len(views)}: {list(views)}. Use MultiviewPLDA")
        return Settings({views[0]: self.n_components}, self.noise_shrinkage, self.loading_shrinkage)
