"""Sufficient statistics of labelled vectors: the only input of training."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .._typing import AnyArray, Array, BoolArray, Device, IntArray, Json, Labels, PathLike, Views
from ..backend import diagonal_of, is_torch, on_device, to_host
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..labels import (
    Classes,
    LabelTable,
    ViewClasses,
    base_columns,
    encode_labels,
    interaction,
    parts_of,
)
from ..persistence import Persistent
from ..tensor_files import DESCRIPTION_KEY, State, Tensors, read_metadata
from ..vector_checks import as_vectors
from .accumulator import Accumulator, SecondMoment, Sums
from .classes import merge, selected, subtract, without_empty_classes

HARDLY_VARIES = 1e-12
"""Largest variance that counts as rounding of float32 numbers, as a fraction of the median variance."""


@dataclass(frozen=True)
class SufficientStatistics(Persistent):
    """Counts, sums and second moments of labelled vectors.

    Statistics of two shards (parts of a data set) can be added (``+``): the result is that of all
    their vectors, even if the shards have different classes. ``origin``, a point near the data, is
    subtracted from all vectors before they are summed, so that vectors far from zero keep their
    precision.

    Attributes
    ----------
    views : names of the views
    n : number of vectors
    origin : (D,) reference point of sums and second moments
    total : (D,) sum of x - origin
    scatter : (D, D) sum of (x - origin)(x - origin)', or its diagonal (D,)
    classes : {view or label column: its classes}
    counts : {view: (classes,) number of vectors in each class}
    sums : {view: (classes, D) sum of x - origin in each class}; tensors if the vectors were tensors
    cooccurrence : {(view, other view): sparse table, number of vectors with each pair of classes}
    sources : description of the files that the vectors came from, in plain values
    """

    KIND: ClassVar[str] = "statistics"

    views: Views
    n: int
    origin: Array
    total: Array
    scatter: Array
    classes: Classes
    counts: dict[str, Array]
    sums: Mapping[str, AnyArray]
    cooccurrence: dict[tuple[str, str], sparse.csr_array]
    sources: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        labels: Labels | LabelTable,
        *,
        views: Sequence[str] | None = None,
        second_moment: SecondMoment = "full",
    ) -> SufficientStatistics:
        """Compute the statistics of vectors in one pass, in blocks, accumulating in float64.

        Parameters
        ----------
        X : array (n, D); float32 is multiplied as float32 and summed as float64. A torch tensor is
            summed on its device, and its class sums stay there until they are read
        labels : dict, DataFrame or array, one label per vector and view
        views : the views, interactions included (default: every label column)
        second_moment : ``"full"`` for any noise; ``"diagonal"`` suffices for diagonal noise

        Returns
        -------
        SufficientStatistics

        Examples
        --------
        >>> import numpy as np
        >>> from mvplda import SufficientStatistics
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> labels = {"speaker": list("aabbcc"), "phrase": [1, 2, 1, 2, 1, 2]}
        >>> whole = SufficientStatistics.from_arrays(X, labels)
        >>> whole.n, whole.counts["speaker"]
        (6, array([2., 2., 2.]))
        """
        table = labels if isinstance(labels, LabelTable) else encode_labels(labels, views)
        kind: type[Accumulator] = Accumulator
        if is_torch(X):
            from .device import DeviceAccumulator  # torch is slow to import

            kind = DeviceAccumulator
        sizes = {view: len(table.classes[view]) for view in table.views}
        vectors = X if is_torch(X) else as_vectors(X)
        width = int(vectors.shape[-1])
        sums = kind(width, sizes, second_moment=second_moment)
        sums.add(vectors, table.codes)
        return cls.of(sums, table.classes)

    @classmethod
    def of(
        cls,
        accumulator: Accumulator,
        classes: Classes | None = None,
        order: Mapping[str, IntArray] | None = None,
    ) -> SufficientStatistics:
        """Return the statistics of all vectors that were added to an accumulator, and reset it.

        Class sums on a GPU stay there until they are read. Classes without vectors are left out.

        Parameters
        ----------
        accumulator : accumulator with at least one vector
        classes : {view or label column: its classes}; required for interactions and their base
            views. Default: class numbers are the names
        order : {view: (classes,) number in the accumulator of each class in `classes`}. Default: 0,
            1, ...

        Returns
        -------
        SufficientStatistics
        """
        if accumulator.n == 0:
            raise DataError("the accumulator is empty: add vectors before computing statistics")
        views = accumulator.views
        origin = accumulator.origin
        assert origin is not None
        result = accumulator.result()
        counts = dict(zip(views, result.counts, strict=True))
        numbered = {v: ViewClasses(np.arange(len(counts[v]))) for v in views if ":" not in v}
        all_classes = {**numbered, **(classes or {})}
        for view in (*views, *base_columns(views)):
            if view not in all_classes:
                raise LabelError(
                    f"classes= must contain {view!r}: pass the classes of every interaction, with their cells, and of "
                    "its base views"
                )
        whole = cls(
            views,
            result.n,
            origin,
            to_host(result.total),
            to_host(result.scatter),
            all_classes,
            counts,
            dict(zip(views, result.sums, strict=True)),
            {(views[k], views[l]): table for (k, l), table in result.cooccurrence.items()},
        )
        if order is not None:
            whole = selected(whole, {view: order[view] for view in views}, all_classes)
        return without_empty_classes(whole)

    @property
    def dimension(self) -> int:
        """Number of dimensions D of the vectors."""
        return len(self.total)

    @property
    def variance(self) -> Array:
        """Variance of every dimension, (D,)."""
        mean = self.total / self.n
        return np.maximum(diagonal_of(self.scatter) / self.n - mean**2, 0.0)

    @property
    def constant_columns(self) -> IntArray:
        """Indices of the dimensions whose variance is at most that of rounding errors.

        The model ignores these dimensions, even in new vectors that vary there.
        """
        rounding = (1e-13 * self.origin) ** 2 + 1e-13 * (self.total / self.n) ** 2
        return np.flatnonzero(hardly_vary(self.variance, rounding))

    @property
    def second_moment(self) -> SecondMoment:
        """Form of `scatter`: "full" for a matrix, "diagonal" for its diagonal only."""
        return "full" if self.scatter.ndim == 2 else "diagonal"

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        return merge([self, other])

    def __sub__(self, other: SufficientStatistics) -> SufficientStatistics:
        """Return the statistics without the vectors of `other`.

        All vectors of `other` must be among those of these statistics and have labels. Classes
        without remaining vectors are removed, so that a fit equals one without these vectors.
        """
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        return subtract(self, other)

    def together(self, a: str, b: str) -> sparse.csr_array:
        """Return how many vectors have each pair of classes of views a and b.

        return : (classes of a, classes of b) sparse; a and b may be given in any order
        """
        if (a, b) in self.cooccurrence:
            return self.cooccurrence[a, b]
        return self.cooccurrence[b, a].T.tocsr()

    def about(self, origin: Array) -> SufficientStatistics:
        """Return the statistics of the same vectors with another origin (D,) subtracted."""
        shift = self.origin - origin
        if not shift.any():
            return self
        if self.second_moment == "diagonal":
            scatter = self.scatter + 2 * shift * self.total + self.n * shift**2
        else:
            cross = np.outer(shift, self.total)
            scatter = self.scatter + cross + cross.T + self.n * np.outer(shift, shift)
        sums = {v: to_host(self.sums[v]) + self.counts[v][:, None] * shift for v in self.views}
        return replace(
            self, origin=origin, total=self.total + self.n * shift, scatter=scatter, sums=sums
        )

    @property
    def device(self) -> Device:
        """Torch device of the class sums; None if they are NumPy arrays."""
        sums = self.sums[self.views[0]]
        return sums.device if is_torch(sums) else None

    def for_views(
        self, views: Sequence[str], second_moment: SecondMoment, device: Device = None
    ) -> Sums:
        """Return the sums that EM needs.

        Parameters
        ----------
        views : names of the views in the model, in its order
        second_moment : "full" or "diagonal", depending on the noise of the model
        device : torch device, on which the sums are then float64 tensors; None: the sums stay where
            the class sums of the statistics are

        Returns
        -------
        Sums
        """
        missing = [v for v in views if v not in self.counts]
        if missing:
            raise LabelError(
                f"the statistics have no view {missing[0]!r}, only {list(self.views)}: "
                "include it in views= when you compute them"
            )
        if second_moment == "full" and self.second_moment == "diagonal":
            raise ParameterError(
                "full noise needs statistics with second_moment='full'; these have 'diagonal': compute them again, "
                "or use diagonal noise"
            )
        scatter = self.scatter if second_moment == "full" else diagonal_of(self.scatter)
        pairs = {
            (k, l): self.together(views[k], views[l]) for k, l in combinations(range(len(views)), 2)
        }
        target = self.device if device is None else device
        convert = np.asarray if target is None else partial(on_device, device=target)
        return Sums(
            self.n,
            convert(self.total),
            convert(scatter),
            tuple(self.counts[view] for view in views),
            tuple(convert(self.sums[view]) for view in views),
            pairs,
        )

    # -- files

    def get_state(self) -> State:
        tensors: Tensors = {"origin": self.origin, "total": self.total, "scatter": self.scatter}
        classes: Json = {}
        for column in base_columns(self.views):
            names = np.ascontiguousarray(self.classes[column].names)
            classes[column] = {
                "dtype": names.dtype.str,
                "anonymous": self.classes[column].anonymous,
            }
            tensors[f"names/{column}"] = (
                names.view(np.uint8) if len(names) else np.empty(0, np.uint8)
            )
        for view in self.views:
            tensors[f"counts/{view}"] = self.counts[view]
            tensors[f"sums/{view}"] = to_host(self.sums[view])
            cells = self.classes[view].cells
            if cells is not None:
                tensors[f"cells/{view}"] = cells
        for i, table in enumerate(self.cooccurrence.values()):
            tensors |= {
                f"pair/{i}/{key}": getattr(table, key) for key in ("indptr", "indices", "data")
            }
        about: Json = {
            "views": list(self.views),
            "n": self.n,
            "classes": classes,
            "pairs": [list(pair) for pair in self.cooccurrence],
            "sources": self.sources,
        }
        return {name: np.ascontiguousarray(value) for name, value in tensors.items()}, about

    @classmethod
    def from_state(cls, tensors: Tensors, about: dict[str, Any]) -> Self:
        views = tuple(about["views"])
        classes = {}
        for column, known in about["classes"].items():
            names = tensors[f"names/{column}"].view(known["dtype"])
            if names.dtype.kind == "U" and (names.view(np.uint32) > MAX_CHARACTER).any():
                raise ValueError(
                    f"class names of {column!r} contain characters outside Unicode: the file is damaged"
                )
            classes[column] = ViewClasses(names, known["anonymous"])
        for view in views:
            if ":" in view:
                classes[view] = interaction(tensors[f"cells/{view}"])
        counts = {view: tensors[f"counts/{view}"] for view in views}
        pairs = {}
        for i, (a, b) in enumerate(about["pairs"]):
            data, indices, ends = (
                tensors[f"pair/{i}/{key}"] for key in ("data", "indices", "indptr")
            )
            # SciPy does not check row ends; wrong ones would make it read and write outside the arrays.
            if ends[0] != 0 or ends[-1] != len(indices) or np.diff(ends).min() < 0:
                raise ValueError(
                    f"the table of vectors shared by {a!r} and {b!r} is damaged: restore the file from a copy"
                )
            shape = (len(counts[a]), len(counts[b]))
            pairs[a, b] = sparse.csr_array((data, indices, ends), shape=shape)
        return cls(
            views,
            int(about["n"]),
            tensors["origin"],
            tensors["total"],
            tensors["scatter"],
            classes,
            counts,
            {view: tensors[f"sums/{view}"] for view in views},
            pairs,
            about["sources"],
        )

    def check_state(self) -> None:
        """Raise `ValueError` if the arrays of a loaded file do not fit together.

        A fit would crash or give wrong results. The fingerprint of a file proves that it is
        complete, not that its content is valid.
        """
        D = len(self.total)
        arrays: list[tuple[str, AnyArray, tuple[int, ...]]] = [
            ("origin", self.origin, (D,)),
            ("total", self.total, (D,)),
            ("scatter", self.scatter, (D,) * self.scatter.ndim),
        ]
        for view in self.views:
            size = len(self.classes[view])
            arrays.append((f"counts of {view!r}", self.counts[view], (size,)))
            arrays.append((f"sums of {view!r}", self.sums[view], (size, D)))
        for (a, b), table in self.cooccurrence.items():
            arrays.append((f"counts of {a!r} and {b!r}", table.data, table.indices.shape))
            # Sparse products do not check whether indices lie inside the table.
            table.check_format(full_check=True)
        for name, array, shape in arrays:
            if array.shape != shape or array.dtype != np.float64:
                raise ValueError(
                    f"{name} must be float64 of shape {shape}; got {array.dtype} of shape {array.shape}"
                )
        if set(self.cooccurrence) != set(combinations(self.views, 2)):
            raise ValueError(
                "the file lacks the table of shared vectors for at least one pair of views"
            )
        for view in self.views:
            cells = self.classes[view].cells
            if cells is not None:
                sizes = [len(self.classes[column]) for column in parts_of(view)]
                if ((cells < 0) | (cells >= sizes)).any():
                    raise ValueError(f"a class of {view!r} combines base classes that do not exist")
        numbers = [*self.counts.values(), *(table.data for table in self.cooccurrence.values())]
        if self.n < 1 or any(counts.min(initial=1) <= 0 for counts in numbers):
            raise ValueError(
                "every class and every stored pair of classes must have at least one vector; some have 0 or fewer"
            )

    def describe(self) -> Json:
        unlabelled = {view: classes.anonymous for view, classes in self.classes.items()}
        labelled = {view: len(classes) - unlabelled[view] for view, classes in self.classes.items()}
        return {
            "vectors": self.n,
            "dimension": self.dimension,
            "second moment": self.second_moment,
            "classes": labelled,
            "vectors without label": unlabelled,
            "sources": self.sources,
        }


def hardly_vary(variances: Array, rounding: Array) -> BoolArray:
    """Return a mask of the dimensions whose variance is at most that of rounding errors, (D,).

    variances : (D,) variances of the data
    rounding : (D,) variance of the rounding errors that a dimension's own numbers cause. To allow
        for those from other dimensions, `HARDLY_VARIES` times the median variance is added
    """
    varying = variances[variances > rounding]
    floor = HARDLY_VARIES * np.median(varying) if len(varying) else 0.0
    return variances <= rounding + floor


MAX_CHARACTER = 0x10FFFF
"""Largest code point of Unicode."""


def holds_statistics(path: PathLike) -> bool:
    """Return whether a file contains statistics, according to its metadata.

    A path that is not a regular file, such as a pipe, is read only if it ends in .safetensors; else
    the result is False. Raise `FileFormatError` for an unreadable file that ends in .safetensors.
    """
    has_suffix = str(path).endswith(".safetensors")
    if not has_suffix and not Path(path).is_file():
        return False
    try:
        return (
            read_metadata(path)
            .get(DESCRIPTION_KEY, "")
            .startswith('{"class": "SufficientStatistics"')
        )
    except FileFormatError:
        if has_suffix:
            raise
        return False
