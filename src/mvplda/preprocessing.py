"""What is done to vectors before a model sees them, as scikit-learn transformers.

The order is: centre, whiten (and reduce to principal axes), normalise the length. The length comes last, for it is
what a Gaussian model cannot undo. `standard_chain` puts them in that order.
"""

# mypy: disallow-subclassing-any=False

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import warnings
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
from .backend import checked_vectors
from .exceptions import DataError, ParameterError, RankCappedWarning
from .persistence import Persistent, check_answers
from .statistics.record import HARDLY_VARIES, hardly_vary

__all__ = ["standard_chain"]


class Step(Persistent, TransformerMixin, BaseEstimator):
    """Vectors in, vectors out, float32 staying float32."""

    KIND = "preprocessing step"
    FITTED: ClassVar[tuple[str, ...]] = ("n_features_in_",)

    def _new(self, X: ArrayLike, least: int = 1) -> FloatArray:
        return checked_vectors(self, X, reset=True, least=least)

    def _seen(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self, "n_features_in_")
        return checked_vectors(self, X, reset=False)

    @property
    def width_out(self) -> int:
        """Width of the vectors that come out."""
        return int(self.n_features_in_)

    def check_state(self) -> None:
        check_answers(self, self.transform, self.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Centring(OneToOneFeatureMixin, Step):
    """Take away the mean of the training vectors.

    Attributes
    ----------
    mean_ : (D,)
    """

    FITTED = (*Step.FITTED, "mean_")

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        self.mean_ = self._new(X).mean(axis=0, dtype=np.float64)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._seen(X)
        return X - self.mean_.astype(X.dtype)


class Reduction(ClassNamePrefixFeaturesOutMixin, Step):
    """Turn to the principal axes, largest variance first, and keep the first ones as they are.

    Parameters
    ----------
    dim : int or None
        Axes to keep, at most; None: all that the vectors can show, but not those along which only rounding varies.

    Attributes
    ----------
    mean_ : (D,)
    matrix_ : (D, axes kept), orthonormal columns
    variances_ : (axes kept,) descending
    """

    FITTED = (*Step.FITTED, "mean_", "matrix_", "variances_")
    FLOOR = HARDLY_VARIES

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        X = self._new(X, least=2)
        if self.dim is not None and not 1 <= self.dim <= X.shape[1]:
            raise ParameterError(
                f"dim lies between 1 and the {X.shape[1]} columns; got {self.dim!r}"
            )
        self.mean_, self.variances_, axes = _varying_axes(X, self.dim, self.FLOOR)
        self.matrix_ = np.ascontiguousarray(axes)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._seen(X)
        return (X - self.mean_.astype(X.dtype)) @ self.matrix_.astype(X.dtype)

    @property
    def width_out(self) -> int:
        return int(self.matrix_.shape[1])

    @property
    def _n_features_out(self) -> int:
        return self.width_out


class Whitening(Reduction):
    """Turn to the principal axes, and make the variance of the training vectors 1 along each.

    Axes whose variance, in columns of unit variance, is below a millionth of the largest are left out, whatever the
    units of the columns: to bring them to unit variance would blow up rounding, and whatever of a new vector falls
    into a direction in which the training vectors had nothing.

    Parameters
    ----------
    dim : int or None
        Axes to keep, at most; None: all that the vectors can show.

    Attributes
    ----------
    mean_ : (D,)
    matrix_ : (D, axes kept)
    variances_ : (axes kept,) before, descending

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


def _varying_axes(X: FloatArray, wanted: int | None, floor: float) -> tuple[Array, Array, Array]:
    """Mean, variances and axes (as columns) of the first principal axes, without those that hardly vary.

    What hardly varies is seen in columns of unit variance: in those of the data a small variance may be a large unit.
    With s the deviations of the columns and U, l axes and variances of the correlation, the covariance is B B^T,
    B = s U sqrt(l), and its principal axes are U sqrt(1 / l) / s in the range of B, turned by the right singular
    vectors of B, and normed. Small units are not lost in large ones this way, as they would be in B B^T.
    """
    n = len(X)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0, dtype=np.float64)
        centred = np.subtract(X, mean, dtype=np.float64)
        variance = np.square(centred).sum(axis=0) / (n - 1)
    if not np.isfinite(variance).all():
        raise DataError(
            "the vectors are too large: their squares overflow float64; scale the vectors down"
        )
    dead = hardly_vary(variance, (1e-13 * mean) ** 2)
    if dead.all():
        raise DataError("all vectors are the same: there is no axis along which they vary")
    deviation = np.where(dead, 0.0, np.sqrt(variance))
    inverse = np.divide(1.0, deviation, where=~dead, out=np.zeros(len(dead)))
    centred *= inverse / np.sqrt(n - 1)
    if n > X.shape[1]:
        shares, turned = np.linalg.eigh(centred.T @ centred)
    else:
        # few vectors: far quicker than the covariance of many columns
        turned, roots, _ = np.linalg.svd(centred.T, full_matrices=False)
        shares = np.square(roots)[::-1]
        turned = turned[:, ::-1]
    # ascending until here; n vectors show n - 1 axes at most
    shares = np.maximum(shares[::-1], 0.0)[: n - 1]
    turned = turned[:, ::-1][:, : n - 1]
    shown = shares > floor * shares[0]
    roots, turned = np.sqrt(shares[shown]), turned[:, shown]
    together = deviation[:, None] * turned * roots
    rotation = np.linalg.eigh(together.T @ together)[1]
    axes = (inverse[:, None] * turned / roots) @ rotation
    if len(roots) < np.count_nonzero(~dead):
        basis = np.linalg.qr(deviation[:, None] * turned)[0]
        axes = basis @ (basis.T @ axes)
    lengths = np.linalg.norm(axes, axis=0)
    order = np.argsort(lengths)[:wanted]  # short where the variance is large
    axes = axes[:, order] / lengths[order]
    if wanted is not None and len(order) < wanted:
        warnings.warn(
            f"{len(order)} of the {wanted} principal axes that were asked for are kept: along the others the training "
            "vectors hardly vary (there are few vectors, or columns that are constant or depend on others)",
            RankCappedWarning,
            stacklevel=3,
        )
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(len(order))]
    return mean, lengths[order] ** -2.0, axes * np.where(largest < 0, -1.0, 1.0)


class LengthNormalisation(OneToOneFeatureMixin, Step):
    """Scale every vector to one length; a zero vector stays zero.

    Parameters
    ----------
    length : {"sqrt", "unit"}
        ``"sqrt"`` is the root of the dimension, which keeps whitened columns at unit variance; ``"unit"`` is 1.
    """

    def __init__(self, length: Literal["sqrt", "unit"] = "sqrt") -> None:
        self.length = length

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        if self.length not in ("sqrt", "unit"):
            raise ParameterError(f"length is 'sqrt' or 'unit'; got {self.length!r}")
        self._new(X)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._seen(X)
        largest = np.abs(X).max(axis=1, keepdims=True)
        X = X / np.where(largest > 0, largest, 1)  # no overflow of squares
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        wanted = X.dtype.type(1.0)
        if self.length == "sqrt":
            wanted = np.sqrt(X.dtype.type(X.shape[1]))
        return X * (wanted / np.where(norms > 0, norms, 1))


class RectifiedRoot(OneToOneFeatureMixin, Step):
    """Square root of vectors that are never negative, such as those of a rectified layer; others stay as they are.

    What a rectifier leaves is skewed, with a long tail: large numbers rule its angles. Roots are about as
    symmetric as a Gaussian model would have them.

    Attributes
    ----------
    rectified_ : bool, whether no training vector has a negative number
    """

    FITTED = (*Step.FITTED, "rectified_")

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        self.rectified_ = bool(self._new(X).min() >= 0)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._seen(X)
        if self.rectified_:
            X = np.asarray(np.sign(X) * np.sqrt(np.abs(X)))
        return X


def unit_chain(dim: int | None = None) -> Pipeline:
    """What an isotropic prior wants: roots of rectified vectors, centred, unit length; not whitened.

    dim : principal components to keep, which turns the vectors and shortens them, no more; None: all
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
    """Centring, whitening, length normalisation, in this order.

    Parameters
    ----------
    dim : int or None
        Principal axes kept by the whitening.
    whiten, length : False and None leave the step out

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
