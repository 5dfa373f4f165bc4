"""Type aliases shared by many modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import torch

PathLike = str | os.PathLike[str]

Array = NDArray[np.float64]

IntArray = NDArray[np.int64]

BoolArray = NDArray[np.bool_]

FloatArray = NDArray[np.floating[Any]]
"""Array of float32 or float64."""

Names = NDArray[Any]
"""Names of classes or profiles: text, or numbers of any kind."""

LabelColumn = Iterable[object] | ArrayLike
"""Labels of one view: a sequence or an array (n,)."""

Labels = Mapping[str, LabelColumn] | ArrayLike
"""Labels by view as a mapping, a table or a structured array; labels of a single view as an array."""

Card = Mapping[str, object]
"""Description of a model or data set by names and plain values (text, numbers, lists, dicts)."""

Json = dict[str, object]
"""JSON object that this package writes: plain values by name. (A JSON object that it reads is a dict[str, Any].)"""

Views = tuple[str, ...]
"""Names of views, in order."""

Ranks = Mapping[str, int | None]
"""Rank of the subspace of each view; None stands for the largest rank that the classes allow."""

Columns = Mapping[str, NDArray[Any]]
"""Labels of n vectors by view, (n,) each."""

RandomState = int | np.random.Generator | np.random.RandomState | None

Device: TypeAlias = "str | torch.device | None"
"""Torch device or its name; None is the host. torch is an optional dependency, so that its types are unavailable."""


class CountTable(Protocol):
    """Dense or sparse matrix of counts, on the host or on a device, that supports transposition and products."""

    @property
    def T(self) -> Any: ...
    def __matmul__(self, right: Any, /) -> Any: ...


class AnyArray(Protocol):
    """NumPy array or torch tensor, with the operations that both support.

    Operands are numbers or arrays of the same library; results are arrays of this library.
    """

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def T(self) -> AnyArray: ...
    @property
    def mT(self) -> AnyArray: ...

    def __array__(self) -> NDArray[Any]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __float__(self) -> float: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __setitem__(self, index: Any, values: Any, /) -> None: ...

    def __neg__(self) -> AnyArray: ...
    def __abs__(self) -> AnyArray: ...
    def __add__(self, other: Any, /) -> AnyArray: ...
    def __radd__(self, other: Any, /) -> AnyArray: ...
    def __sub__(self, other: Any, /) -> AnyArray: ...
    def __rsub__(self, other: Any, /) -> AnyArray: ...
    def __mul__(self, other: Any, /) -> AnyArray: ...
    def __rmul__(self, other: Any, /) -> AnyArray: ...
    def __truediv__(self, other: Any, /) -> AnyArray: ...
    def __rtruediv__(self, other: Any, /) -> AnyArray: ...
    def __matmul__(self, other: Any, /) -> AnyArray: ...
    def __pow__(self, other: Any, /) -> AnyArray: ...

    @property
    def sum(self) -> Callable[..., Any]: ...
    @property
    def mean(self) -> Callable[..., Any]: ...
    @property
    def min(self) -> Callable[..., Any]: ...
    @property
    def max(self) -> Callable[..., Any]: ...
    @property
    def clip(self) -> Callable[..., Any]: ...
    @property
    def diagonal(self) -> Callable[..., Any]: ...
    @property
    def reshape(self) -> Callable[..., Any]: ...
