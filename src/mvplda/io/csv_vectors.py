"""Vectors in CSV files: a header, then an id and one number per dimension in every line; other columns are labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow import ID_COLUMNS
from .files import Batch, Names, OnDisk, Rows, Vectors, column_of, fail, table_blocks, write_table


class CsvReader:
    """Columns that hold numbers only, in the first line, are the vector; the rest are ids and labels."""

    files: tuple[str, ...] = ()

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source = source
        self.path = source.name
        self.header, blocks = table_blocks(source)
        first = next(blocks)
        place = column_of(self.header, (ids,) if ids is not None else ID_COLUMNS)
        if ids is not None and place is None:
            fail(self.path, f"expected ids in a column {ids!r}; there are {', '.join(self.header)}")
        texts = [k for k, column in enumerate(first.fields) if not _is_number(column[0])]
        if place is None and texts:
            place = texts[0]
        self.wide = [k for k in range(len(self.header)) if k not in texts and k != place]
        if not self.wide:
            fail(
                self.path, "expected columns of numbers, one per dimension; the first line has none"
            )
        self.id_column = None if place is None else self.header[place]
        self.has_ids = place is not None
        self.columns = tuple(name for k, name in enumerate(self.header) if k not in self.wide)

    def cuts(self) -> Sequence[int]:
        return ()

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        start = 0
        for block in table_blocks(self.source)[1]:
            fields = dict(zip(self.header, block.fields, strict=True))
            X = self._numbers(block.fields, block.lines)
            names = None
            if ids and self.id_column is not None:
                names = [str(name) for name in fields[self.id_column]]
            elif ids:
                names = [str(row) for row in range(start, start + len(X))]
            labels = {name: np.array(fields[name], dtype=object) for name in columns}
            yield Batch(X, names, labels)
            start += len(X)

    def _numbers(self, fields: list[Sequence[Any]], lines: Sequence[int]) -> NDArray[np.float64]:
        try:
            return np.array([[float(value) for value in fields[k]] for k in self.wide]).T
        except ValueError:
            for k in self.wide:
                for line, value in zip(lines, fields[k], strict=True):
                    if not _is_number(value):
                        fail(
                            self.path, f"{value!r} in column {self.header[k]!r} is no number", line
                        )
            raise


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def write_csv(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    columns = {"id": ids, **{f"x{k}": X[:, k] for k in range(X.shape[1])}}
    write_table(parts[0], columns, "csv")
