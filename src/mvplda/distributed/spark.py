"""Record batches that another engine hands over, as Spark's ``mapInArrow`` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._optional import need
from ..exceptions import DataError, LabelError, ParameterError
from ..io.arrow import as_rows, choose_columns
from ..labels import base_columns
from ..statistics import GrowingClasses, HostAccumulator, SufficientStatistics
from ..statistics.accumulator import SecondMoment, common_origin
from .engines import one_thread_each
from .shards import arrow_codes

SPARK_SCHEMA = "statistics binary, vectors long"
"""What `statistics_of_batches` yields, as Spark writes schemas."""


def statistics_of_batches(
    batches: Iterable[Any],
    views: Sequence[str],
    *,
    labels: Mapping[str, str] | None = None,
    vectors: str | None = None,
    second_moment: SecondMoment = "full",
    missing: Any = None,
    origin: Any = None,
    on_bad_rows: str = "raise",
) -> Iterator[Any]:
    """One row with the statistics of all batches, as bytes; no row where there are no vectors.

    Parameters
    ----------
    batches : pyarrow record batches with a column of vectors and columns of labels
    views : the views, interactions included
    labels : columns of the views' labels, where they have other names
    origin : (D,) point amid the data, the same for all parts; default: the mean of the first batch

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from mvplda import SufficientStatistics
    >>> from mvplda.distributed import statistics_of_batches
    >>> X = np.arange(8, dtype=np.float32).reshape(4, 2)
    >>> vectors = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), 4, [None, pa.py_buffer(X)])
    >>> batch = pa.record_batch({"vector": vectors, "speaker": ["a", "a", "b", "b"]})
    >>> [row] = statistics_of_batches([batch], ["speaker"])
    >>> SufficientStatistics.from_bytes(row["statistics"][0].as_py()).counts
    {'speaker': array([2., 2.])}
    """
    arrow = need("pyarrow")
    if on_bad_rows not in ("raise", "skip"):
        raise ParameterError(f"on_bad_rows is 'raise' or 'skip'; got {on_bad_rows!r}")
    columns = {name: (labels or {}).get(name, name) for name in base_columns(views)}
    classes = GrowingClasses(views)
    sums: HostAccumulator | None = None
    rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        field, _ = choose_columns("the batch", batch.schema, vectors, None)
        absent = [column for column in columns.values() if column not in batch.schema.names]
        if absent:
            raise LabelError(f"the batches have no column {absent[0]!r}; they have {', '.join(batch.schema.names)}")
        X = as_rows("the batch", batch.column(field.name), field)
        if sums is None:
            amid = common_origin(X) if origin is None else origin
            sums = HostAccumulator(X.shape[1], views, second_moment=second_moment, origin=amid)
        codes = {name: arrow_codes(name, batch.column(column), missing) for name, column in columns.items()}
        with one_thread_each():
            bad = sums.add(X, classes.number(codes), on_error="skip")
        if len(bad) and on_bad_rows == "raise":
            raise DataError(
                f"{len(bad)} vectors of a batch hold NaN or infinity, the first is row {rows + bad[0]} of this part: "
                "repair them, or leave them out with on_bad_rows='skip'"
            )
        rows += batch.num_rows
    if sums is not None and sums.n:
        statistics = SufficientStatistics.of(sums, *classes.sorted())
        yield arrow.record_batch({
            "statistics": arrow.array([statistics.to_bytes()], type=arrow.binary()),
            "vectors": arrow.array([statistics.n], type=arrow.int64()),
        })  # fmt: skip
