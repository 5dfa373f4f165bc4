"""Types that many modules name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

PathLike = str | os.PathLike[str]

Array = NDArray[np.float64]

IntArray = NDArray[np.int64]

BoolArray = NDArray[np.bool_]

FloatArray = NDArray[np.floating[Any]]
"""float32 or float64."""

Names = NDArray[Any]
"""Of classes or of profiles: text, or numbers of any kind."""

Labels = Any
"""By view: a mapping, a table or a structured array; of one view an array."""

Card = Mapping[str, Any]
"""What is to be known of something, in plain values."""

Json = dict[str, Any]
"""Plain values by name, as JSON has them; options by name, too."""

Columns = Mapping[str, NDArray[Any]]
"""{view: (n,) labels}."""

Block = Any
"""Some vectors or what is summed of them: an array on the host, a tensor on a device, as the caller has them."""

Setting = Any
"""The value of an option that is passed on by its name."""

RandomState = int | np.random.Generator | np.random.RandomState | None

Device = Any
"""A torch device or its name; None is the host. torch is an extra, so that its types cannot be named here."""


Method = Callable[..., Any]

Operand = Any
"""What stands on the other side of an operator: an array of the same sort, or a number."""


class AnyArray(Protocol):
    """A NumPy array or a torch tensor: what both can do, as far as the mathematics asks it of them."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def T(self) -> Self: ...
    @property
    def mT(self) -> Self: ...
    @property
    def sum(self) -> Method: ...
    @property
    def reshape(self) -> Method: ...
    @property
    def max(self) -> Method: ...
    @property
    def min(self) -> Method: ...
    @property
    def mean(self) -> Method: ...
    @property
    def diagonal(self) -> Method: ...
    def __array__(self) -> NDArray[Any]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __float__(self) -> float: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __add__(self, other: Operand, /) -> Self: ...
    def __radd__(self, other: Operand, /) -> Self: ...
    def __sub__(self, other: Operand, /) -> Self: ...
    def __rsub__(self, other: Operand, /) -> Self: ...
    def __mul__(self, other: Operand, /) -> Self: ...
    def __rmul__(self, other: Operand, /) -> Self: ...
    def __truediv__(self, other: Operand, /) -> Self: ...
    def __matmul__(self, other: Operand, /) -> Self: ...
    def __neg__(self) -> Self: ...
    def __abs__(self) -> Self: ...
    def __pow__(self, other: Operand, /) -> Self: ...
    def __le__(self, other: Operand, /) -> Any: ...


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    A = TypeVar("A", bound=AnyArray)
    A_co = TypeVar("A_co", bound=AnyArray, default=Array, covariant=True)
else:
    from typing import TypeVar

    A, A_co = TypeVar("A"), TypeVar("A_co", covariant=True)
"""What the arrays of a record are: NumPy's where nothing else is said, of either kind as ``[AnyArray]``."""
