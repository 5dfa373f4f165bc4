"""Fitted models as arrays and plain values, in a file and back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._files import BUNDLE_FORMAT, FORMAT, file_format, plain_settings, seal, unseal, write_atomically
from ..exceptions import FileFormatError
from ..inference.parameters import Parameters

if TYPE_CHECKING:
    from .multiview import MultiviewPLDA


KEPT_CLASSES = 10_000
"""Views with at most so many classes keep their training posteriors in the file (for known classes)."""


def save_model(model: MultiviewPLDA, path: str | os.PathLike[str]) -> None:
    """Write a fitted model, atomically: the file is whole or not there."""
    tensors, about = model_parts(model)
    write_atomically(path, seal(FORMAT, "model", tensors, about))


def load_model(path: str | os.PathLike[str]) -> MultiviewPLDA:
    """Read a model, or that of a bundle without preprocessing; other files give a `FileFormatError`."""
    if file_format(path) == BUNDLE_FORMAT:
        from ..bundle import load_bundle

        bundle = load_bundle(path)
        if bundle.preprocessing is not None:
            steps = ", ".join(bundle.describe()["preprocessing"])
            raise FileFormatError(
                f"{path} holds a bundle, whose model takes vectors after {steps}: use mvplda.load or Bundle.load"
            )
        return bundle.fitted_model
    tensors, about = unseal(path, FORMAT, "model")
    return restore_model(tensors, about, path)


def model_parts(model: MultiviewPLDA) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Everything of a fitted model that a file keeps: arrays by name, and plain values."""
    tensors: dict[str, NDArray[Any]] = {"mean": model.mean_, "noise": model.noise_}
    for view, loading in model.loadings_.items():
        tensors[f"loading/{view}"] = loading
    tensors["log_likelihoods"] = model.log_likelihoods_
    kept = [v for v in model.class_covariances_ if len(model.classes_[v]) <= KEPT_CLASSES]
    for view in kept:
        named = slice(0, len(model.classes_[view]))
        tensors[f"class_means/{view}"] = model.class_means_[view][named]
        tensors[f"class_covariances/{view}"] = model.class_covariances_[view][named]
    about = {
        "class": type(model).__name__,
        "settings": plain_settings(model.get_params(deep=False)),
        "views": model.views_,
        "dimension": len(model.mean_),
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "algorithm_used": getattr(model, "algorithm_used_", None),
        "classes": {view: model.classes_[view].tolist() for view in kept},
    }
    return {name: np.ascontiguousarray(value, dtype=np.float64) for name, value in tensors.items()}, about


def restore_model(
    tensors: dict[str, NDArray[Any]], about: dict[str, Any], path: str | os.PathLike[str]
) -> MultiviewPLDA:
    """The model that `model_parts` took apart."""
    from .multiview import MultiviewPLDA
    from .plda import PLDA
    from .search import MultiviewPLDACV

    kinds: dict[str, type[MultiviewPLDA]] = {c.__name__: c for c in (MultiviewPLDA, PLDA, MultiviewPLDACV)}
    try:
        model = kinds[about["class"]](**about["settings"])
        loadings = tuple(tensors[f"loading/{view}"] for view in about["views"])
        model._take(tuple(about["views"]), Parameters(tensors["mean"], loadings, tensors["noise"]))
        model.views_ = {view: int(rank) for view, rank in about["views"].items()}
        model.log_likelihoods_ = tensors["log_likelihoods"]
        model.n_iter_, model.converged_ = about["n_iter"], about["converged"]
        if about.get("algorithm_used") is not None:
            model.algorithm_used_ = about["algorithm_used"]
        model.classes_ = {view: np.asarray(names) for view, names in about["classes"].items()}
        model.class_means_ = {view: tensors[f"class_means/{view}"] for view in model.classes_}
        model.class_covariances_ = {view: tensors[f"class_covariances/{view}"] for view in model.classes_}
        model.n_features_in_ = int(about["dimension"])
        model._n_features_out = sum(model.views_.values())
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} lacks parts of a model: {error}") from error
    return model
