"""What is done to vectors before a model sees them, as scikit-learn transformers.

The order is: centre, reduce by LDA (if wanted), whiten (and reduce by PCA), normalise the
length. Whitening after LDA keeps every direction on one scale; the length comes last, for
it is what a Gaussian model cannot undo. `standard_chain` puts them in that order.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._typing import Array, FloatArray
from .backend import checked_vectors, diagonal_of
from .exceptions import DataError, LabelError, ParameterError, RankCappedWarning
from .labels import encode_labels, label_columns
from .persistence import Persistent, check_answers
from .statistics.record import HARDLY_VARIES, hardly_vary

__all__ = [
    "LDA",
    "Centring",
    "LengthNormalisation",
    "RectifiedRoot",
    "Reduction",
    "Whitening",
    "standard_chain",
    "unit_chain",
]


class Step(Persistent, TransformerMixin, BaseEstimator):
    """Vectors in, vectors out, float32 staying float32."""

    KIND: ClassVar[str] = "preprocessing step"
    FITTED: ClassVar[Mapping[str, str]] = {"n_features_in_": "= D"}

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
        super().check_state()
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

    FITTED: ClassVar[Mapping[str, str]] = {**Step.FITTED, "mean_": "D"}

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        self.mean_ = self._new(X).mean(axis=0, dtype=np.float64)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._seen(X)
        return np.asarray(X - self.mean_.astype(X.dtype))


class _Affine(ClassNamePrefixFeaturesOutMixin, Step):
    """(x - mean_) @ matrix_."""

    FITTED: ClassVar[Mapping[str, str]] = {**Step.FITTED, "mean_": "D", "matrix_": "D K"}

    mean_: Array
    matrix_: Array

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._seen(X)
        return np.asarray((X - self.mean_.astype(X.dtype)) @ self.matrix_.astype(X.dtype))

    @property
    def width_out(self) -> int:
        return int(self.matrix_.shape[1])

    @property
    def _n_features_out(self) -> int:
        return self.width_out


class Whitening(_Affine):
    """Make the covariance of the training vectors the identity.

    Parameters
    ----------
    kind : {"pca", "zca"}
        ``"pca"`` turns to the principal axes, largest variance first, and can keep only
        some. ``"zca"`` changes the vectors as little as possible, and keeps all.
    dim : int or None
        Axes that ``"pca"`` keeps, at most; None: all that the vectors can show.
    floor : float
        Axes whose variance, in columns of unit variance, is below this fraction of the largest are left out, whatever
        the units of the columns: to bring them to unit variance would blow up rounding, and whatever of a new vector
        falls into a direction in which the training vectors had nothing.

    Attributes
    ----------
    mean_ : (D,)
    matrix_ : (D, axes kept), or (D, D) of that rank for ``"zca"``
    variances_ : (axes kept,) descending

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

    FITTED: ClassVar[Mapping[str, str]] = {**_Affine.FITTED, "variances_": "M > 0"}

    def __init__(
        self, kind: Literal["pca", "zca"] = "pca", dim: int | None = None, floor: float = 1e-6
    ) -> None:
        self.kind = kind
        self.dim = dim
        self.floor = floor

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        if self.kind not in ("pca", "zca"):
            raise ParameterError(f"kind is 'pca' or 'zca'; got {self.kind!r}")
        if not 0 < self.floor < 1:
            raise ParameterError(f"floor lies in (0, 1); got {self.floor}")
        X = self._new(X, least=2)
        D = X.shape[1]
        if self.dim is not None and (self.kind == "zca" or not 1 <= self.dim <= D):
            raise ParameterError(
                f"dim is for kind='pca', between 1 and the {D} columns; got {self.dim!r}, {self.kind!r}"
            )
        self.mean_, self.variances_, axes = _varying_axes(X, self.dim, self.floor)
        scaled = axes / np.sqrt(self.variances_)
        self.matrix_ = np.ascontiguousarray(scaled if self.kind == "pca" else scaled @ axes.T)
        return self


class Reduction(_Affine):
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

    FITTED: ClassVar[Mapping[str, str]] = {**_Affine.FITTED, "variances_": "M > 0"}

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        X = self._new(X, least=2)
        if self.dim is not None and not 1 <= self.dim <= X.shape[1]:
            raise ParameterError(
                f"dim lies between 1 and the {X.shape[1]} columns; got {self.dim!r}"
            )
        self.mean_, self.variances_, axes = _varying_axes(X, self.dim, HARDLY_VARIES)
        self.matrix_ = np.ascontiguousarray(axes)
        return self


def _varying_axes(X: FloatArray, wanted: int | None, floor: float) -> tuple[Array, Array, Array]:
    """Mean, variances and axes (as columns) of the first principal axes, without those that hardly vary.

    What hardly varies is seen in columns of unit variance: in those of the data a small variance may be a large unit.
    With s the deviations of the columns and U, l axes and variances of the correlation, the covariance is B B^T,
    B = s U sqrt(l), and its principal axes are U sqrt(1 / l) / s in the range of B, turned by the right singular
    vectors of B, and normed. Small units are not lost in large ones this way, as they would be in B B^T.
    """
    n, D = X.shape
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0, dtype=np.float64)
        centred = np.subtract(X, mean, dtype=np.float64)
        squares = centred.T @ centred if n >= D else np.einsum("ij,ij->j", centred, centred)
    variance = diagonal_of(squares) / (n - 1)
    if not np.isfinite(variance).all():
        raise DataError(
            "the vectors are too large: their squares overflow float64; scale the vectors down"
        )
    dead = hardly_vary(variance, (1e-13 * mean) ** 2)
    if dead.all():
        raise DataError("all vectors are the same: there is no axis along which they vary")
    deviation = np.where(dead, 0.0, np.sqrt(variance))
    inverse = np.divide(1.0, deviation, where=~dead, out=np.zeros(len(dead)))
    if n >= D:
        shares, turned = np.linalg.eigh(squares * inverse * inverse[:, None] / (n - 1))
        shares, turned = np.maximum(shares[::-1], 0.0)[: n - 1], turned[:, ::-1][:, : n - 1]
    else:  # fewer vectors than columns: n - 1 axes are all that there are, and cheaper from n products
        centred *= inverse
        shares, left = np.linalg.eigh(centred @ centred.T / (n - 1))
        shares = np.maximum(shares[:0:-1], 0.0)
        turned = centred.T @ left[:, :0:-1]
        turned /= np.maximum(np.linalg.norm(turned, axis=0), np.finfo(np.float64).tiny)
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
        _warn_of_fewer("principal axes", len(order), wanted)
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(len(order))]
    return mean, lengths[order] ** -2.0, axes * np.where(largest < 0, -1.0, 1.0)


def _warn_of_fewer(what: str, kept: int, wanted: int) -> None:
    warnings.warn(
        f"{kept} of the {wanted} {what} that were asked for are kept: along the others the training vectors hardly "
        "vary (there are few vectors, or columns that are constant or depend on others)",
        RankCappedWarning,
        stacklevel=4,
    )


class LengthNormalisation(OneToOneFeatureMixin, Step):
    """Scale every vector to one length; a zero vector stays zero.

    Parameters
    ----------
    length : {"sqrt", "unit"}
        ``"sqrt"`` is the root of the dimension, which keeps whitened columns at unit variance; ``"unit"`` is 1.
    """

    def __init__(self, length: Literal["sqrt", "unit"] = "sqrt") -> None:
        self.length = length

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        if self.length not in ("sqrt", "unit"):
            raise ParameterError(f"length is 'sqrt' or 'unit'; got {self.length!r}")
        self._new(X)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        X = self._seen(X)
        largest = np.abs(X).max(axis=1, keepdims=True)
        X = X / np.where(largest > 0, largest, 1)  # no overflow of squares
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        wanted = X.dtype.type(np.sqrt(X.shape[1]) if self.length == "sqrt" else 1.0)
        return np.asarray(X * (wanted / np.where(norms > 0, norms, 1)))


class RectifiedRoot(OneToOneFeatureMixin, Step):
    """Square root of vectors that are never negative, such as those of a rectified layer; others stay as they are.

    What a rectifier leaves is skewed, with a long tail: large numbers rule its angles. Roots are about as
    symmetric as a Gaussian model would have them.

    Attributes
    ----------
    rectified_ : bool, whether no training vector has a negative number
    """

    FITTED: ClassVar[Mapping[str, str]] = {**Step.FITTED, "rectified_": "flag"}

    def fit(self, X: Any, y: Any = None) -> Self:
        self.rectified_ = bool(self._new(X).min() >= 0)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        X = self._seen(X)
        return np.asarray(np.sign(X) * np.sqrt(np.abs(X))) if self.rectified_ else X


class LDA(_Affine):
    """Linear discriminant analysis: the directions in which classes differ most, within-class white.

    Parameters
    ----------
    dim : int or None
        Directions to keep; at most classes - 1, which None takes. Columns and directions in
        which the training vectors hardly vary are left out first.
    view : str or None
        Which labels make the classes: a view, or several with colons (``"speaker:phrase"``,
        a class for every combination). None: all views together, the cell.
    shrinkage : float in [0, 1] or "auto"
        Of the within-class covariance towards a multiple of the identity ("auto" is Ledoit and Wolf's).

    Attributes
    ----------
    mean_ : (D,)
    matrix_ : (D, directions kept)

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.preprocessing import LDA
    >>> labels = {"speaker": np.arange(60) % 4, "phrase": np.arange(60) // 12}
    >>> X = np.random.default_rng(0).normal(size=(60, 8)) + labels["speaker"][:, None]
    >>> LDA(view="speaker").fit(X, labels).matrix_.shape
    (8, 3)
    """

    def __init__(
        self, dim: int | None = None, view: str | None = None, shrinkage: Any = 0.0
    ) -> None:
        self.dim = dim
        self.view = view
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        if y is None:
            raise LabelError(
                "LDA requires y to be passed, but the target y is None: give one label a vector and view"
            )
        X = self._new(X, least=2)
        classes = self._classes(y)
        if len(classes) != len(X):
            raise LabelError(
                f"there are {len(X)} vectors and {len(classes)} labels: give one label a vector"
            )
        n_classes = int(classes.max()) + 1
        if n_classes == 1 or n_classes == len(X):
            raise LabelError(
                f"LDA needs at least 2 classes, some with several vectors; got {n_classes} of {len(X)}"
            )
        most = min(n_classes - 1, X.shape[1])
        if self.dim is not None and not 1 <= self.dim <= most:
            raise ParameterError(
                f"dim lies between 1 and {most} ({n_classes} classes); got {self.dim}"
            )
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        centred = np.subtract(X, self.mean_, dtype=np.float64)
        columns = ~hardly_vary(_variances(centred), (1e-13 * self.mean_) ** 2)
        scalings = np.zeros((X.shape[1], 0))
        if columns.any():
            found = self._directions(centred if columns.all() else centred[:, columns], classes)
            scalings = np.zeros(
                (X.shape[1], min(found.shape[1], most if self.dim is None else self.dim))
            )
            scalings[columns] = found[:, : scalings.shape[1]]
        if scalings.shape[1] == 0 or not np.isfinite(scalings).all():
            raise DataError(
                "LDA found no direction in which the classes differ: the vectors are alike or dependent"
            )
        variances = _variances(centred @ scalings)
        self.matrix_ = np.ascontiguousarray(
            scalings[:, variances > HARDLY_VARIES * variances.max()]
        )
        if self.dim is not None and self.matrix_.shape[1] < self.dim:
            _warn_of_fewer("directions", self.matrix_.shape[1], self.dim)
        return self

    def _directions(self, centred: Array, classes: NDArray[np.int64]) -> Array:
        """Directions as columns, those in which the classes differ most first."""
        if self.shrinkage == 0:
            return np.asarray(
                LinearDiscriminantAnalysis(solver="svd").fit(centred, classes).scalings_
            )
        solver = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=self.shrinkage).fit(
            centred, classes
        )
        weighted = solver.means_ * np.sqrt(solver.priors_)[:, None]
        # scikit-learn's own "eigen" shrinks the total covariance too, and takes what it adds to directions
        # without any data for differences between classes.
        return np.asarray(eigh(weighted.T @ weighted, solver.covariance_)[1][:, ::-1])

    def _classes(self, y: Any) -> NDArray[np.int64]:
        view = ":".join(label_columns(y, None)) if self.view is None else self.view
        return encode_labels(y, (view,)).codes[view]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def unit_chain(dim: int | None = None) -> Pipeline:
    """What an isotropic prior wants: roots of rectified vectors, centred, unit length; not whitened.

    dim : principal components to keep, which turns the vectors and shortens them, no more; None: all
    """
    kept = [] if dim is None else [("reduce", Reduction(dim))]
    return Pipeline(
        [
            ("root", RectifiedRoot()),
            ("centre", Centring()),
            *kept,
            ("length", LengthNormalisation("unit")),
        ]
    )


def _variances(centred: Array) -> Array:
    """(D,) of vectors whose mean was taken off."""
    variances: Array = np.einsum("ij,ij->j", centred, centred) / len(centred)
    return variances


def standard_chain(
    dim: int | None = None,
    *,
    lda: int | None = None,
    view: str | None = None,
    shrinkage: Any = 0.0,
    whitening: Literal["pca", "zca"] | None = "pca",
    floor: float = 1e-6,
    length: Literal["sqrt", "unit"] | None = "sqrt",
) -> Pipeline:
    """Centring, LDA if wanted, whitening, length normalisation, in this order.

    Parameters
    ----------
    dim : int or None
        Principal axes kept by the whitening.
    lda, view, shrinkage :
        Directions kept by `LDA` (None: no LDA), and its settings.
    whitening, length : None leaves the step out
    floor : as in `Whitening`

    Examples
    --------
    >>> from mvplda.preprocessing import standard_chain
    >>> [name for name, _ in standard_chain(200).steps]
    ['centre', 'whiten', 'length']
    """
    steps: list[tuple[str, Any]] = [("centre", Centring())]
    if lda is not None:
        steps.append(("lda", LDA(lda, view, shrinkage)))
    if whitening is not None:
        steps.append(("whiten", Whitening(whitening, dim, floor)))
    elif dim is not None:
        raise ParameterError("dim is kept by whitening='pca': give it, or leave dim out")
    if length is not None:
        steps.append(("length", LengthNormalisation(length)))
    return Pipeline(steps)
