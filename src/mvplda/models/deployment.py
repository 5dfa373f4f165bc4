"""Models that adapt to the recordings of a deployment."""

from __future__ import annotations

from typing import Any, Protocol, Self

from numpy.typing import ArrayLike

from .._typing import Array, Columns, Labels
from ..scoring.profiles import Profiles


class Deployable(Protocol):
    """A fitted scorer that adapts to the recordings of a deployment."""

    @property
    def views_(self) -> dict[str, int]: ...

    def enrol(self, X: ArrayLike, ids: ArrayLike, labels: Labels = None) -> Profiles:
        """Return profiles of vectors; see `BaseScorer.enrol`."""

    def deployed(self, profiles: Profiles | None) -> Self:
        """Return the model in the domain of these profiles."""

    def settled(self) -> Self:
        """Return the model with the domain in use as the one before enrolment."""


class AdaptedExpert:
    """A deployable model as an expert of a committee: fitting moves it to the domain of the vectors."""

    def __init__(self, model: Deployable) -> None:
        self.model = model

    def __sklearn_clone__(self) -> AdaptedExpert:
        return self

    def fit(self, X: Array, y: Columns) -> Any:
        people, *others = y
        labels = {view: y[view] for view in others}
        return self.model.deployed(self.model.enrol(X, y[people], labels or None)).settled()
