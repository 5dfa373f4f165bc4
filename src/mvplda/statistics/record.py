"""Sufficient statistics of labelled vectors: all that training ever sees of them."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .._typing import (
    Array,
    Block,
    BoolArray,
    Device,
    IntArray,
    Json,
    Labels,
    PathLike,
    Views,
)
from ..backend import as_vectors, diagonal_of, is_torch, on_device, to_host
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
from ..persistence import WHAT, Persistent, State, Tensors, read_metadata
from .accumulator import Accumulator, SecondMoment, Sums
from .classes import merge, selected, subtract, without_empty_classes

HARDLY_VARIES = 1e-12
"""A variance below this fraction of the others' is what rounding of float32 numbers leaves, not data."""


@dataclass(frozen=True)
class SufficientStatistics(Persistent):
    """Counts, sums and second moments of labelled vectors; they add up.

    The statistics of two shards added with ``+`` are those of all their vectors together, also where the shards know
    different classes. Sums are kept about ``origin``, a point amid the data, so that vectors far from zero lose no
    digits.

    Attributes
    ----------
    views : names of the views
    n : number of vectors
    origin : (D,) the point that sums and second moments are taken about
    total : (D,) sum of x - origin
    scatter : (D, D) or (D,) second moment of x - origin, or its diagonal
    classes : per view and label column, its classes
    counts, sums : per view, vectors and sum of x - origin in every class; sums are tensors on the device of the vectors
    cooccurrence : for every pair of views, a sparse table of counts
    sources : plain values about where they come from
    """

    KIND: ClassVar[str] = "statistics"

    views: Views
    n: int
    origin: Array
    total: Array
    scatter: Array
    classes: Classes
    counts: dict[str, Array]
    sums: Mapping[str, Block]
    cooccurrence: dict[tuple[str, str], sparse.csr_array]
    sources: Json = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        labels: Labels,
        *,
        views: Sequence[str] | None = None,
        second_moment: SecondMoment = "full",
    ) -> SufficientStatistics:
        """One pass over the vectors, in blocks, accumulating in float64.

        Parameters
        ----------
        X : array (n, D); float32 is multiplied as float32 and summed as float64. Of a torch tensor
            the sums are made on its device, and class sums stay there until they are read
        labels : dict, DataFrame or array, one label a vector and view
        views : the views, interactions included (default: every label column)
        second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise

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
        table = labels
        if not isinstance(labels, LabelTable):
            table = encode_labels(labels, views)
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
        """The statistics of everything that was added to an accumulator, which is empty afterwards.

        Class sums on a device stay there until they are read. Classes without a vector are left out.

        Parameters
        ----------
        classes : what the classes of every view are; default: their numbers. An interaction needs them,
            with its cells
        order : per view the number that every one of the classes has in the accumulator; default: their own
        """
        if accumulator.n == 0:
            raise DataError("no vector was added: there are no statistics")
        views = accumulator.views
        origin = accumulator.origin
        assert origin is not None
        found = accumulator.result()
        counts = dict(zip(views, found.counts, strict=True))
        numbered = {v: ViewClasses(np.arange(len(counts[v]))) for v in views if ":" not in v}
        named = {**numbered, **(classes or {})}
        for view in (*views, *base_columns(views)):
            if view not in named:
                raise LabelError(
                    f"what the classes of {view!r} are is not known: give classes= with its cells and parts"
                )
        whole = cls(
            views,
            found.n,
            origin,
            to_host(found.total),
            to_host(found.scatter),
            named,
            counts,
            dict(zip(views, found.sums, strict=True)),
            {(views[k], views[l]): table for (k, l), table in found.cooccurrence.items()},
        )
        if order is not None:
            whole = selected(whole, {view: order[view] for view in views}, named)
        return without_empty_classes(whole)

    @property
    def dimension(self) -> int:
        return len(self.total)

    @property
    def variance(self) -> Array:
        """(D,) variance of every column."""
        mean = self.total / self.n
        return np.maximum(diagonal_of(self.scatter) / self.n - mean**2, 0.0)

    @property
    def constant_columns(self) -> IntArray:
        """Columns with no variance but what rounding makes: of their own numbers, or of the others'.

        The model ignores them: a vector that is not constant there, after all, says nothing by it.
        """
        rounding = (1e-13 * self.origin) ** 2 + 1e-13 * (self.total / self.n) ** 2
        return np.flatnonzero(hardly_vary(self.variance, rounding))

    @property
    def second_moment(self) -> SecondMoment:
        return "full" if self.scatter.ndim == 2 else "diagonal"

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        return merge([self, other])

    def __sub__(self, other: SufficientStatistics) -> SufficientStatistics:
        """The statistics without the vectors of `other`, all of which must be among them, with labels.

        Classes that lose their last vector vanish: a fit is as though they had never been there.
        """
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        return subtract(self, other)

    def together(self, a: str, b: str) -> sparse.csr_array:
        """Co-occurrence counts of two views, in either order."""
        if (a, b) in self.cooccurrence:
            return self.cooccurrence[a, b]
        return self.cooccurrence[b, a].T.tocsr()

    def about(self, origin: Array) -> SufficientStatistics:
        """The same statistics about another origin."""
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
        """Where the class sums are: a torch device, or None for the host."""
        sums = self.sums[self.views[0]]
        return sums.device if is_torch(sums) else None

    def for_views(
        self, views: Sequence[str], second_moment: SecondMoment, device: Device = None
    ) -> Sums:
        """What EM needs for these views, in this order.

        On a torch device they are float64 tensors. Where `device` is None: on the device of the statistics, as
        NumPy arrays where they have none.
        """
        missing = [v for v in views if v not in self.counts]
        if missing:
            raise LabelError(
                f"the statistics have no view {missing[0]!r}, only {list(self.views)}: "
                "name it in views= when they are gathered"
            )
        if second_moment == "full" and self.second_moment == "diagonal":
            raise ParameterError("full noise needs statistics gathered with second_moment='full'")
        scatter = self.scatter if second_moment == "full" else diagonal_of(self.scatter)
        pairs = {
            (k, l): self.together(views[k], views[l]) for k, l in combinations(range(len(views)), 2)
        }
        where = self.device if device is None else device
        place = np.asarray if where is None else partial(on_device, device=where)
        return Sums(
            self.n,
            place(self.total),
            place(scatter),
            tuple(self.counts[view] for view in views),
            tuple(place(self.sums[view]) for view in views),
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
    def from_state(cls, tensors: Tensors, about: Json) -> Self:
        views = tuple(about["views"])
        classes = {}
        for column, known in about["classes"].items():
            names = tensors[f"names/{column}"].view(known["dtype"])
            if names.dtype.kind == "U" and (names.view(np.uint32) > MAX_CHARACTER).any():
                raise ValueError(f"names of {column!r} are no text")
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
            # SciPy believes them, and would read and write elsewhere
            if ends[0] != 0 or ends[-1] != len(indices) or np.diff(ends).min() < 0:
                raise ValueError(f"the rows of {a!r} by {b!r} do not end where they should")
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
        """Refuse statistics whose parts do not fit together, as a fit would crash on them, or go astray.

        A fingerprint says that a file is whole, not who wrote it.
        """
        D = len(self.total)
        arrays = [(self.origin, (D,)), (self.total, (D,)), (self.scatter, (D,) * self.scatter.ndim)]
        for view in self.views:
            size = len(self.classes[view])
            arrays += [(self.counts[view], (size,)), (self.sums[view], (size, D))]
        for table in self.cooccurrence.values():
            arrays.append((table.data, table.indices.shape))
            # sparse products do not look whether places lie inside
            table.check_format(full_check=True)
        for array, shape in arrays:
            if array.shape != shape or array.dtype != np.float64:
                raise ValueError(f"an array {array.shape} is no array {shape} of float64 numbers")
        if set(self.cooccurrence) != set(combinations(self.views, 2)):
            raise ValueError("a pair of views has no table of how often their classes met")
        for view in self.views:
            cells = self.classes[view].cells
            if cells is not None:
                sizes = [len(self.classes[part]) for part in parts_of(view)]
                if ((cells < 0) | (cells >= sizes)).any():
                    raise ValueError(f"a cell of {view!r} names a class that is not there")
        numbers = [*self.counts.values(), *(table.data for table in self.cooccurrence.values())]
        if self.n < 1 or any(own.min(initial=1) <= 0 for own in numbers):
            raise ValueError("a class or a cell has no vector")

    def describe(self) -> Json:
        unlabelled = {view: own.anonymous for view, own in self.classes.items()}
        return {
            "vectors": self.n,
            "dimension": self.dimension,
            "second moment": self.second_moment,
            "classes": {view: len(own) - own.anonymous for view, own in self.classes.items()},
            "vectors without label": unlabelled,
            "sources": self.sources,
        }


def hardly_vary(variances: Array, rounding: Array) -> BoolArray:
    """Which columns vary by no more than the rounding of their own numbers (a variance), or of the others'."""
    varying = variances[variances > rounding]
    least = HARDLY_VARIES * np.median(varying) if len(varying) else 0.0
    return variances <= rounding + least


MAX_CHARACTER = 0x10FFFF


def holds_statistics(path: PathLike) -> bool:
    """Whether a file says that it holds statistics, whatever its name; a stream is not looked into."""
    named = str(path).endswith(".safetensors")
    if not named and not Path(path).is_file():
        return False
    try:
        return read_metadata(path).get(WHAT, "").startswith('{"class": "SufficientStatistics"')
    except FileFormatError:
        if named:
            raise
        return False
