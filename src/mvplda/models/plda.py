"""PLDA (probabilistic linear discriminant analysis): `MultiviewPLDA` with a single view."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from inspect import Signature, signature
from typing import Any, Self

from .._typing import Json, Labels, Ranks, Views
from ..exceptions import LabelError
from ..labels import (
    LabelTable,
    are_named,
    encode_labels,
)
from .checks import check_setting_names
from .multiview import MultiviewPLDA


class PLDA(MultiviewPLDA):
    """Probabilistic linear discriminant analysis: `MultiviewPLDA` with one view.

    Parameters
    ----------
    n_components : int or None
        Rank of the class loading; None: the largest rank that the classes allow.
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

    def __init__(self, n_components: int | None = None, **settings: Any) -> None:
        super().__init__(None, **settings)
        self.n_components = n_components

    __init__.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            *list(signature(__init__).parameters.values())[:2],
            *list(signature(MultiviewPLDA).parameters.values())[1:],  # but for the views
        ]
    )

    @classmethod
    def with_ranks(cls, ranks: Ranks, settings: Json) -> Self:
        if len(ranks) != 1:
            raise LabelError(
                f"PLDA has one view; got {len(ranks)}: {list(ranks)}. Use MultiviewPLDA"
            )
        check_setting_names(cls, settings, ("n_components",))
        return cls(next(iter(ranks.values())), **settings)

    def _encode(self, y: Labels | None) -> LabelTable:
        is_named = y is not None and are_named(y)
        return encode_labels(y, None if is_named else ("class",))

    def _ranks(self, views: Views) -> Ranks:
        if len(views) != 1:
            raise LabelError(
                f"PLDA has one view, the labels have {len(views)}: {list(views)}. Use MultiviewPLDA"
            )
        return {views[0]: self.n_components}
