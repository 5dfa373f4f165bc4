"""Vectors in CSV files: a header, then an id and one number per dimension in every line; other columns are labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .files import (
    Batch,
    Names,
    OnDisk,
    Reader,
    Rows,
    Vectors,
    as_numbers,
    as_objects,
    column_of,
    fail,
    is_number,
    needed,
    plain,
    read_table,
    write_table,
)
from .numpy_files import ID_KEYS


class CsvReader(Reader):
    """Columns that hold numbers only, in the first line, are the vector; the rest are ids and labels."""

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        header, columns = read_table(source)
        self.path = source.name
        self.fields = dict(zip(header, columns, strict=True))
        place = column_of(header, [plain(name) for name in ID_KEYS])
        if ids is not None:
            place = needed(self.path, header, [plain(ids)])
        texts = [name for name, column in self.fields.items() if not is_number(column[0])]
        self.id_column = next(iter(texts), None) if place is None else header[place]
        self.has_ids = self.id_column is not None
        self.wide = [name for name in header if name not in (*texts, self.id_column)]
        self.columns = tuple(name for name in header if name not in self.wide)
        if not self.wide:
            fail(self.path, "expected columns of numbers (NaN is none), one per dimension")

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        numbers = []
        for name in self.wide:
            values = self.fields[name]
            # the header is line 1
            lines = range(2, 2 + len(values))
            numbers.append(as_numbers(self.path, values, lines, f"in column {name!r}"))
        names = [str(row) for row in range(len(numbers[0]))]
        if self.id_column is not None:
            names = self.fields[self.id_column]
        labels = {name: as_objects(self.fields[name]) for name in columns}
        yield Batch(np.array(numbers).T, names if ids else None, labels)


def write_csv(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    columns = {"id": ids, **{f"x{k}": column for k, column in enumerate(X.T)}}
    write_table(parts[0], columns)
