"""Checks of the settings of `MultiviewPLDA` and `PLDA`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from .._typing import Ranks
from ..exceptions import ParameterError
from ..inference.parameters import NOISES
from ..inference.priors import PRIORS

if TYPE_CHECKING:
    from .multiview import MultiviewPLDA

DEFAULT_STRENGTH = 0.6
"""Of a prior. Costs are flat from 0.5 to 0.7 on the one set it was tried on, AudioMNIST."""


def random_generator(random_state: Any) -> np.random.Generator:
    """A generator of NumPy's: itself, or one that follows from whatever scikit-learn takes for a random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        state = check_random_state(random_state)
    except ValueError as error:
        raise ParameterError(f"random_state cannot be used: {error}") from error
    return np.random.default_rng(state.randint(2**31))


def check_settings(model: MultiviewPLDA) -> None:
    """Refuse settings of an estimator that do not exist or do not fit."""
    choices: dict[str, list[Any]] = {
        "noise": list(NOISES),
        "algorithm": ["exact", "paper"],
        "init": ["moments", "random"],
        "prior": list(PRIORS),
    }
    for name, allowed in choices.items():
        if getattr(model, name) not in allowed:
            raise ParameterError(f"{name} is one of {allowed}; got {getattr(model, name)!r}")
    if model.views is not None and not (
        isinstance(model.views, Mapping | list | tuple) and model.views
    ):
        raise ParameterError(
            f"views is a dict of {{name: rank}} or a list of names, not empty; got {model.views!r}"
        )
    # below 1e-10 rounding drowns the likelihood
    for name, least, most in (
        ("noise_shrinkage", 0, 1),
        ("noise_floor", 1e-10, 1),
        ("tol", 0, np.inf),
    ):
        value = getattr(model, name)
        if not isinstance(value, Real) or not least <= float(value) < most:
            raise ParameterError(f"{name} is a number in [{least}, {most}); got {value!r}")
    if model.callback is not None and not callable(model.callback):
        raise ParameterError(f"callback is a function, or None; got {model.callback!r}")
    # True is an Integral, too
    whole = isinstance(model.max_iter, Integral) and not isinstance(model.max_iter, bool)
    if not whole or model.max_iter < 0:
        raise ParameterError(f"max_iter is a whole number, at least 0; got {model.max_iter!r}")
    if not PRIORS[model.prior].full_rank:
        return
    ranks = [*requested_ranks(model.views).values(), getattr(model, "n_components", None)]
    if any(rank is not None for rank in ranks):
        raise ParameterError("a prior makes loadings of full rank: leave every rank None")
    # two priors of one noise would count twice
    if model.noise_shrinkage or model.algorithm == "paper":
        raise ParameterError("a prior goes with no other shrinkage, and not with algorithm='paper'")


def prior_strengths(strength: Any, views: Sequence[str]) -> dict[str, float]:
    """Of every view and of the noise, from one number or a dict."""
    names = (*views, "noise")
    each = dict.fromkeys(names, strength)
    if isinstance(strength, Mapping):
        each = {**dict.fromkeys(names, DEFAULT_STRENGTH), **strength}
    for name, value in each.items():
        if name not in names:
            raise ParameterError(f"prior_strength names {name!r}; there are {list(names)}")
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise ParameterError(
                "prior_strength is a number in [0, 1], or a dict of them by view and 'noise'; "
                f"got {value!r} for {name!r}"
            )
    return {name: float(value) for name, value in each.items()}


def requested_ranks(views: Ranks | Sequence[str] | None) -> Ranks:
    """The rank asked for of every view that is named."""
    return dict(views) if isinstance(views, Mapping) else dict.fromkeys(views or ())
