"""Checks of the settings of `MultiviewPLDA` and `PLDA`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_random_state

from .._typing import RandomState, Ranks
from ..exceptions import ParameterError
from ..inference.parameters import NOISES
from ..inference.priors import PRIORS
from .checks import check_whole_number

if TYPE_CHECKING:
    from .multiview import MultiviewPLDA

DEFAULT_STRENGTH = 0.6
"""Default strength of a prior; on AudioMNIST, the only data it was chosen on, costs are equal from 0.5 to 0.7."""


def random_generator(random_state: RandomState) -> np.random.Generator:
    """Return a NumPy generator from any random state that scikit-learn accepts."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        state = check_random_state(random_state)
    except ValueError as error:
        raise ParameterError(f"random_state cannot be used: {error}") from error
    return np.random.default_rng(state.randint(2**31))


def check_settings(model: MultiviewPLDA) -> None:
    """Raise `ParameterError` for unknown or inconsistent settings of a model."""
    choices: dict[str, Sequence[str | None]] = {
        "noise": list(NOISES),
        "algorithm": ["exact", "paper"],
        "init": ["moments", "random"],
        "prior": list(PRIORS),
    }
    for name, allowed in choices.items():
        if getattr(model, name) not in allowed:
            raise ParameterError(f"{name} must be one of {allowed}; got {getattr(model, name)!r}")
    if model.views is not None and not (
        isinstance(model.views, Mapping | list | tuple) and model.views
    ):
        raise ParameterError(
            f"views must be a non-empty dict of {{name: rank}} or list of names; got {model.views!r}"
        )
    # below 1e-10 the likelihood is lost in rounding errors
    for name, lower, upper in (
        ("noise_shrinkage", 0, 1),
        ("noise_floor", 1e-10, 1),
        ("tol", 0, np.inf),
    ):
        value = getattr(model, name)
        if not isinstance(value, Real) or not lower <= float(value) < upper:
            raise ParameterError(f"{name} must be a number in [{lower}, {upper}); got {value!r}")
    if model.callback is not None and not callable(model.callback):
        raise ParameterError(f"callback must be a function or None; got {model.callback!r}")
    check_whole_number("max_iter", model.max_iter, 0)
    check_whole_number("verbose", model.verbose, 0)
    if not PRIORS[model.prior].full_rank:
        return
    ranks = [*requested_ranks(model.views).values(), getattr(model, "n_components", None)]
    if any(rank is not None for rank in ranks):
        raise ParameterError(
            "prior= makes all loadings of full rank, so ranks cannot be chosen: leave every rank None, "
            "or use prior=None"
        )
    # two priors of the noise would act twice
    if model.noise_shrinkage or model.algorithm == "paper":
        raise ParameterError(
            "prior= cannot be combined with noise_shrinkage= or with algorithm='paper': leave them out, "
            "or use prior=None"
        )


def prior_strengths(
    strength: float | Mapping[str, float], views: Sequence[str]
) -> dict[str, float]:
    """Return the strength of the prior for each view and for the noise.

    strength : one strength, or {view or "noise": strength}; missing entries get the default
    views : names of the views
    """
    names = (*views, "noise")
    strengths: dict[str, object] = dict.fromkeys(names, strength)
    if isinstance(strength, Mapping):
        strengths = {**dict.fromkeys(names, DEFAULT_STRENGTH), **strength}
    checked = {}
    for name, value in strengths.items():
        if name not in names:
            raise ParameterError(
                f"prior_strength has a strength for {name!r}, which is not a view of the model; "
                f"expected some of {list(names)}"
            )
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise ParameterError(
                "prior_strength must be a number in [0, 1], or a dict of such numbers by view and 'noise'; "
                f"got {value!r} for {name!r}"
            )
        checked[name] = float(value)
    return checked


def requested_ranks(views: Ranks | Sequence[str] | None) -> Ranks:
    """Return the rank of each named view, {view: rank or None}; empty without views."""
    return dict(views) if isinstance(views, Mapping) else dict.fromkeys(views or ())
