"""Preprocessing of vectors by scikit-learn transformers.

The usual order is: centring, whitening (with a reduction to principal axes), length normalisation. Centring and
whitening are linear and could be part of a Gaussian model; length normalisation is not, and comes last.
`standard_chain` returns the steps in this order.
"""

# mypy: disallow-subclassing-any=False

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._typing import Array, FloatArray, Labels
from .exceptions import DataError, ParameterError, RankCappedWarning
from .persistence import Persistent, check_answers, get_component, put_component
from .statistics.record import HARDLY_VARIES, hardly_vary
from .tensor_files import Tensors
from .vector_checks import checked_vectors

__all__ = ["standard_chain"]


class Step(Persistent, TransformerMixin, BaseEstimator):
    """Base class of the preprocessing steps; float32 vectors stay float32."""

    KIND = "preprocessing step"
    FITTED: ClassVar[tuple[str, ...]] = ("n_features_in_",)

    def _training_vectors(self, X: ArrayLike, least: int = 1) -> FloatArray:
        """Return checked training vectors (n, D), and store their number of columns D.

        least : smallest number of vectors
        """
        return checked_vectors(self, X, reset=True, least=least)

    def _vectors(self, X: ArrayLike) -> FloatArray:
        """Return checked vectors (n, D); raise `DataError` unless they have D columns as in `fit`."""
        check_is_fitted(self, "n_features_in_")
        return checked_vectors(self, X, reset=False)

    @property
    def width_out(self) -> int:
        """Number of columns of the transformed vectors."""
        return int(self.n_features_in_)

    def check_state(self) -> None:
        check_answers(self, self.transform, self.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Centring(OneToOneFeatureMixin, Step):
    """Subtract the mean of the training vectors.

    Attributes
    ----------
    mean_ : (D,) mean of the training vectors
    """

    FITTED = (*Step.FITTED, "mean_")

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        self.mean_ = self._training_vectors(X).mean(axis=0, dtype=np.float64)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._vectors(X)
        return X - self.mean_.astype(X.dtype)


class Reduction(ClassNamePrefixFeaturesOutMixin, Step):
    """Project onto the first principal axes, largest variance first, without scaling.

    Parameters
    ----------
    dim : int or None
        Maximum number of axes. None keeps all axes along which the training vectors vary by more than rounding.

    Attributes
    ----------
    mean_ : (D,) mean of the training vectors
    matrix_ : (D, axes) principal axes, as orthonormal columns
    variances_ : (axes,) variance of the training vectors along each axis, descending
    """

    FITTED = (*Step.FITTED, "mean_", "matrix_", "variances_")
    FLOOR = HARDLY_VARIES

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        X = self._training_vectors(X, least=2)
        if self.dim is not None and not 1 <= self.dim <= X.shape[1]:
            raise ParameterError(
                f"dim must lie between 1 and {X.shape[1]}, the number of columns; got {self.dim!r}"
            )
        self.mean_, self.variances_, axes = _varying_axes(X, self.dim, self.FLOOR)
        self.matrix_ = np.ascontiguousarray(axes)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._vectors(X)
        return (X - self.mean_.astype(X.dtype)) @ self.matrix_.astype(X.dtype)

    @property
    def width_out(self) -> int:
        return int(self.matrix_.shape[1])

    @property
    def _n_features_out(self) -> int:
        return self.width_out


class Whitening(Reduction):
    """Project onto the principal axes, and scale the variance of the training vectors along each axis to 1.

    Axes with less than a millionth of the largest variance are left out: scaling them to unit variance would amplify
    rounding errors. The variances are compared after scaling every column to unit variance, so that the choice of axes
    does not depend on the units of the columns.

    Parameters
    ----------
    dim : int or None
        Maximum number of axes. None keeps all axes along which the training vectors vary.

    Attributes
    ----------
    mean_ : (D,) mean of the training vectors
    matrix_ : (D, axes) principal axes, each divided by the standard deviation along it
    variances_ : (axes,) variance of the training vectors along each axis before scaling, descending

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.preprocessing import Whitening
    >>> X = np.random.default_rng(0).normal(size=(500, 3)) * [1, 5, 20]
    >>> np.cov(Whitening().fit_transform(X).T).round(6) + 0.0
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """

    FLOOR = 1e-6

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        super().fit(X)
        self.matrix_ /= np.sqrt(self.variances_)
        return self


def _varying_axes(X: FloatArray, limit: int | None, floor: float) -> tuple[Array, Array, Array]:
    """Compute the principal axes along which vectors vary.

    Whether the vectors vary along an axis is decided with columns scaled to unit variance, so that it does not depend
    on their units. The axes are those of the covariance of the unscaled columns. The covariance itself is not computed,
    because columns in small units would lose digits beside columns in large units. Let

        s      standard deviations of the columns, as a diagonal matrix
        U, l   principal axes and variances of the correlation matrix
        B      s U sqrt(l), so that the covariance is B B'
        V      right singular vectors of B

    The axes of the covariance are the columns of s^-1 U sqrt(1 / l) V, projected onto the range of B and normalised.

    Parameters
    ----------
    X : (n, D) vectors
    limit : largest number of axes; None: all
    floor : smallest variance of an axis of the correlation matrix, relative to the largest

    Returns
    -------
    mean (D,), variances in descending order (axes,), axes as columns (D, axes)
    """
    mean, centred, variance = _centred(X)
    constant = hardly_vary(variance, (1e-13 * mean) ** 2)
    if constant.all():
        raise DataError("all training vectors are equal: pass vectors that differ")
    deviation = np.where(constant, 0.0, np.sqrt(variance))
    inverse = np.divide(1.0, deviation, where=~constant, out=np.zeros(len(constant)))
    centred *= inverse / np.sqrt(len(X) - 1)

    shares, U = _correlation_axes(centred)
    sufficient = shares > floor * shares[0]
    roots, U = np.sqrt(shares[sufficient]), U[:, sufficient]

    # Back to the units of the data.
    B = deviation[:, None] * U * roots
    rotation = np.linalg.eigh(B.T @ B)[1]
    axes = (inverse[:, None] * U / roots) @ rotation
    if len(roots) < np.count_nonzero(~constant):
        # Division by s leaves the range of B if axes were dropped: project back onto it.
        basis = np.linalg.qr(deviation[:, None] * U)[0]
        axes = basis @ (basis.T @ axes)
    lengths = np.linalg.norm(axes, axis=0)
    # The length of an axis is the inverse of its standard deviation.
    order = np.argsort(lengths)[:limit]
    axes = axes[:, order] / lengths[order]

    if limit is not None and len(order) < limit:
        warnings.warn(
            f"only {len(order)} of the {limit} requested principal axes are used, because the training vectors hardly "
            "vary along the others: there are few vectors, or columns that are constant or depend on other columns",
            RankCappedWarning,
            stacklevel=3,
        )
    # The sign of an axis is arbitrary; a positive largest entry makes it reproducible.
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(len(order))]
    return mean, lengths[order] ** -2.0, axes * np.where(largest < 0, -1.0, 1.0)


def _centred(X: FloatArray) -> tuple[Array, Array, Array]:
    """Return the mean (D,) of vectors (n, D), the vectors minus their mean, and the variance of each column (D,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0, dtype=np.float64)
        centred = np.subtract(X, mean, dtype=np.float64)
        variance = np.square(centred).sum(axis=0) / (len(X) - 1)
    if not np.isfinite(variance).all():
        raise DataError(
            "the numbers of the vectors are too large, so that their squares overflow float64: divide the vectors by a "
            "constant"
        )
    return mean, centred, variance


def _correlation_axes(scaled: Array) -> tuple[Array, Array]:
    """Return the variances, descending, and the principal axes (columns) of a correlation matrix.

    scaled : (n, D) centred vectors whose product scaled' scaled is the correlation matrix
    """
    n = len(scaled)
    if n > scaled.shape[1]:
        shares, axes = np.linalg.eigh(scaled.T @ scaled)
    else:
        # For fewer vectors than columns the decomposition of the vectors is far faster than that of their covariance.
        axes, roots, _ = np.linalg.svd(scaled.T, full_matrices=False)
        shares = np.square(roots)[::-1]
        axes = axes[:, ::-1]
    # Ascending so far; n vectors vary along at most n - 1 axes.
    shares = np.maximum(shares[::-1], 0.0)[: n - 1]
    return shares, axes[:, ::-1][:, : n - 1]


class LengthNormalisation(OneToOneFeatureMixin, Step):
    """Scale every vector to the same length; a zero vector stays zero.

    Parameters
    ----------
    length : {"sqrt", "unit"}
        Length of the vectors. ``"sqrt"``: the square root of the dimension, so that whitened columns keep a variance of
        about 1; ``"unit"``: 1.
    """

    def __init__(self, length: Literal["sqrt", "unit"] = "sqrt") -> None:
        self.length = length

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        if self.length not in ("sqrt", "unit"):
            raise ParameterError(f"length must be 'sqrt' or 'unit'; got {self.length!r}")
        self._training_vectors(X)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._vectors(X)
        largest = np.abs(X).max(axis=1, keepdims=True)
        X = X / np.where(largest > 0, largest, 1)  # no overflow of squares
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        length = X.dtype.type(1.0)
        if self.length == "sqrt":
            length = np.sqrt(X.dtype.type(X.shape[1]))
        return X * (length / np.where(norms > 0, norms, 1))


class RectifiedRoot(OneToOneFeatureMixin, Step):
    """Take the square root of each number of non-negative vectors, such as the output of a rectified linear layer.

    Such outputs have a skewed distribution with a long tail, so that a few large numbers dominate the angles between
    vectors. Their square roots are closer to a symmetric distribution, which a Gaussian model assumes. If any training
    vector has a negative number, vectors are not changed.

    Attributes
    ----------
    rectified_ : bool, whether all numbers of the training vectors are non-negative
    """

    FITTED = (*Step.FITTED, "rectified_")

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        self.rectified_ = bool(self._training_vectors(X).min() >= 0)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._vectors(X)
        if self.rectified_:
            X = np.asarray(np.sign(X) * np.sqrt(np.abs(X)))
        return X


def put_pipeline(arrays: Tensors, prefix: str, pipeline: Pipeline) -> list[list[Any]] | None:
    """Add the arrays of a pipeline's steps to those of the object that contains the pipeline.

    arrays : arrays of the containing object, changed in place; the new names begin with ``PREFIX/``

    Returns
    -------
    [name, plain values] of each step; None if there are no steps
    """
    steps = [
        [name, put_component(arrays, f"{prefix}/{i}", step, Step)]
        for i, (name, step) in enumerate(pipeline.steps)
    ]
    return steps or None


def get_pipeline(arrays: Tensors, prefix: str, steps: Iterable[Sequence[Any]]) -> Pipeline:
    """Return the pipeline that `put_pipeline` stored under a prefix.

    arrays : arrays of the object that contains the pipeline
    steps : [name, plain values] of each step, which `put_pipeline` returned
    """
    return Pipeline(
        [
            (name, get_component(arrays, f"{prefix}/{i}", about, Step))
            for i, (name, about) in enumerate(steps)
        ]
    )


def pyannote_chain(dim: int | None = None) -> Pipeline:
    """Return the preprocessing of pyannote.audio's VBx: centring, length sqrt(D), whitening, length sqrt(dim).

    D is the dimension of the vectors.

    Parameters
    ----------
    dim : number of principal axes after whitening; None: all
    """
    steps = (Centring(), LengthNormalisation(), Whitening(dim), LengthNormalisation())
    return Pipeline([(f"step{number}", step) for number, step in enumerate(steps)])


def unit_chain(dim: int | None = None) -> Pipeline:
    """Return the preprocessing for models with an isotropic prior: `RectifiedRoot`, centring, unit length.

    Vectors are not whitened: the prior assumes that their scale is meaningful in all directions.

    Parameters
    ----------
    dim : number of principal components to project onto, without scaling; None: keep all columns
    """
    steps: list[tuple[str, Step]] = [("root", RectifiedRoot()), ("centre", Centring())]
    if dim is not None:
        steps.append(("reduce", Reduction(dim)))
    return Pipeline([*steps, ("length", LengthNormalisation("unit"))])


def standard_chain(
    dim: int | None = None,
    *,
    whiten: bool = True,
    length: Literal["sqrt", "unit"] | None = "sqrt",
) -> Pipeline:
    """Return a pipeline of centring, whitening and length normalisation.

    Parameters
    ----------
    dim : int or None
        Number of principal axes after whitening; None: all.
    whiten : bool
        Whether to whiten.
    length : {"sqrt", "unit"} or None
        Length of the vectors, see `LengthNormalisation`; None: leave it unchanged.

    Examples
    --------
    >>> from mvplda.preprocessing import standard_chain
    >>> [name for name, _ in standard_chain(200).steps]
    ['centre', 'whiten', 'length']
    """
    steps: list[tuple[str, Step]] = [("centre", Centring())]
    if whiten:
        steps.append(("whiten", Whitening(dim)))
    if length is not None:
        steps.append(("length", LengthNormalisation(length)))
    return Pipeline(steps)
